"""Data that the compiler, the runtime and the results exchange: token ids, plain and frozen.

The runtime imports nothing but this module and `config`, so it never sees text, types or schemas;
the compiler imports nothing of the runtime, so it never imports torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

DONE = -1
"""State of a stop table that has met its stop rule."""

TEXT_ENDS, TEXT_UNKNOWN, TEXT_REFUSED = -1, -2, -3
"""The effects of tokens on free text, beside next states: the token ends the slot; it is allowed,
and leads out of the table; it is not allowed."""

FREE = "free"
"""The state of a slot that is no longer bound to its document: its text is whole, or no text."""

FinishReason = Literal["stop", "eos", "length"]


@dataclass(frozen=True, slots=True, eq=False)
class StopTable:
    """A stop rule driven by whole tokens.

    next_state: (num_states, vocab_size) int8; the state after a token's bytes, or `DONE` if they
        complete the stop rule. State 0 is the start.
    eos_ids: ids that end a slot in any state.
    """

    next_state: npt.NDArray[np.int8]
    eos_ids: tuple[int, ...]

    def length(self, ids: Sequence[int]) -> int | None:
        """Counts the tokens that complete the stop rule; None if all of them do not."""
        state = 0
        for count, token in enumerate(ids, 1):
            state = int(self.next_state[state, token])
            if state == DONE:
                return count
        return None


class Grammar(Protocol):
    """The grammar of a slot over a model's tokens.

    strict: whether the next token is chosen among allowed ones from the start, so that
        probabilities are normalised over them. Otherwise, as for free text, of which nearly all is
        allowed, the model's own choice is taken wherever it is allowed.
    choices: whether all values are known, so that the probability of each is wanted.
    """

    @property
    def strict(self) -> bool: ...
    @property
    def choices(self) -> bool: ...
    def new_matcher(self) -> Any:
        """An `llguidance.LLMatcher` at the slot's beginning."""

    def not_first(self) -> tuple[int, ...]:
        """Tokens that no slot begins with, although its matcher would let some of them through."""

    def encode(self, data: bytes) -> tuple[int, ...]:
        """The tokens of bytes that nothing else can stand in the place of; () if it has none."""

    def text_table(self, stop: StopTable) -> npt.NDArray[np.int8] | None:
        """(states, V) int8: the next state of a free text, from state 0 on, or one of `TEXT_*`.

        None for what is more than free text: its matcher has to be asked about every token.
        """


class CopyReader(Protocol):
    """A reader of the texts that slots may copy from a document.

    A state stands for the tokens written so far: hashable, and opaque to others.
    """

    def begin(self, ids: Sequence[int]) -> Any:
        """The state behind a value's first tokens; `FREE`, or None, as of `after`."""

    def after(self, state: Any, token: int) -> Any:
        """The state behind one more token; `FREE` if all may follow, None if the token may not."""

    def allowed(self, state: Any) -> npt.NDArray[np.bool_]:
        """(V,) the tokens that may follow, of which `after` does not return None."""


class CopySource(Protocol):
    """A document whose text slots copy."""

    def reader(self, copying: Any) -> CopyReader:
        """The reader for a `SlotSpec.copying`; cached."""


Role = Literal["first", "item", "branch", "free_text", "wave"]
"""Why a slot is asked for: it is one of the prompt's own; an item of a list whose length another
slot wrote; what another slot could have chosen; a choice once more, as free text; or part of a
later wave."""


class FollowUps(Protocol):
    """The slots that follow a slot's value: the items of a list, choices not taken."""

    @property
    def extent(self) -> int:
        """The most position ids that a follow-up of its own needs: its key and its budget."""

    def after(self, output: SlotOutput) -> tuple[ChildSlot, ...]:
        """The follow-ups of a value that is whole, branches last."""


class Waves(Protocol):
    """Further slots of a document once all of its slots are filled, wave by wave.

    outputs: of all slots so far, in the order in which they were asked for. Nothing else decides,
    so that a document may begin again.
    """

    @property
    def extent(self) -> int:
        """The most position ids that one of these slots needs: its key and its budget."""

    def next_wave(self, outputs: tuple[SlotOutput, ...], room: int | None) -> tuple[ChildSlot, ...]:
        """The slots of the next wave; () at the end. room: position ids for a slot; None: any."""

    def settled(self, outputs: tuple[SlotOutput, ...]) -> tuple[SlotOutput, ...]:
        """(N,) outputs of all waves, in the order of the attributes, items with their lists."""


class Prior(Protocol):
    """The prior of a slot's choices, whatever its document says."""

    def logprobs(self, written: tuple[int, ...], ids: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """(n,) of tokens behind those written, relative to equal shares; 0 for tokens that do not
        decide between choices."""


@dataclass(frozen=True, slots=True, eq=False)
class SlotSpec:
    """The spec of a slot, known before a document is read, beside its key and budget.

    null_id: the first token of the literal that says that there is no value; -1 if there is none.
    grammar: None allows everything.
    follow_ups: the slots that the value calls for. Only branches of isolated documents have any.
    is_count: whether the value is the number of a list's items.
    begun: tokens of the value that stand at the end of the key already.
    json_schema: of a whole output, for servers that keep to one.
    copying: how the slot writes texts, if these have to stand in its document; see `CopySource`.
        None where they need not. Only a slot with a grammar that is not strict has any.
    prior: taken off the logits of a slot with choices; None takes nothing off.
    """

    null_id: int = -1
    grammar: Grammar | None = None
    follow_ups: FollowUps | None = None
    is_count: bool = False
    begun: tuple[int, ...] = ()
    json_schema: dict[str, Any] | None = None
    copying: Any = None
    prior: Prior | None = None


AGAIN = "(again)"


@dataclass(frozen=True, slots=True, eq=False)
class ChildSlot:
    """A slot that follows others, in a branch right behind the opening.

    key: at least one id.
    role: see `Role`.
    k_max: token budget, delimiter included; None for what is left of its parent's.
    shared: how many of the key's ids its parent has read as well, from the key's beginning on.
    number: of a slot of a wave, which no other one called for: what random numbers depend on.
    path: of such a slot, what it is called where passes are watched; ends with AGAIN where a value
        that was refused is asked for once more.
    """

    key: tuple[int, ...]
    k_max: int | None
    spec: SlotSpec
    role: Role
    shared: int = 0
    number: int = 0
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptIds:
    """The token ids of one prompt of J documents and N slots each, cut where visibility changes.

    instruction: I, the same for all documents of a category.
    documents: D, one run of ids per document.
    opening: S, what opens the output; follows every document if these are isolated, else the last.
    keys: (J, N) key segments. For the autoregressive layout one empty segment per document.
    k_max: (N,) token budget per slot, delimiter included.
    sampling_keys: (J,) 64-bit digests of the documents, to key random numbers by content.
    slots: (N,) what else is known of the slots; () if nothing is.
    answers: (J, N) tokens that slots write whatever the model says, stop included: benchmarks give
        every engine the same work to do. None lets the model choose.
    numbers: (N,) what slots' random numbers depend on; () for their own, 0 to N - 1.
    waves: what is asked once these slots are filled. Only branches of isolated documents have any.
    sources: (J,) the documents, for slots that copy from them; () if none does.
    demonstrations: examples of this document alone, behind the instruction, in no order: none of
        them sees another. Only a single isolated document has any.
    """

    instruction: tuple[int, ...]
    documents: tuple[tuple[int, ...], ...]
    opening: tuple[int, ...]
    keys: tuple[tuple[tuple[int, ...], ...], ...]
    k_max: tuple[int, ...]
    sampling_keys: tuple[int, ...]
    slots: tuple[SlotSpec, ...] = ()
    answers: tuple[tuple[tuple[int, ...], ...], ...] | None = None
    numbers: tuple[int, ...] = ()
    waves: Waves | None = None
    sources: tuple[CopySource, ...] = field(default=(), compare=False)
    demonstrations: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The tokens that a slot's grammar allowed at a step, and what the model thought of each.

    step: how many tokens of the value stand before these.
    """

    step: int
    ids: tuple[int, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SlotOutput:
    """The decoder's output in a slot, delimiter included.

    ids: from the value's beginning on, with what was begun already.
    logprobs: of every token, given those before it, under the model (whatever the temperature of
        sampling), and under a strict grammar among what that allows. 0 where there was no choice.
        () of a server that does not tell them.
    null_logprob: of `SlotSpec.null_id` as the first token.
    legal_logprobs: how much of the model's probability fell on what the grammar allowed: at the
        first token, and at all tokens together. 0 where nothing was forbidden or nothing chosen.
        Of free text only tokens count at which the model's own choice was refused.
    alternatives: of every step with a choice, for a grammar of choices.
    passes: forward passes that gave its tokens, those that read its prompt counted as one.
    passes_before: forward passes of its document before it began, of a slot of a later wave.
    role: see `Role`.
    followed: outputs of the slots that followed; () also for a value that is cut off. Only the
        engine of this process follows branches, since it reads nothing twice.
    repaired: the second answer, where the first value was refused.

    Outputs are equal where their tokens are, and those of their items: numbers differ by rounding.
    """

    ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[float, ...] = ()
    null_logprob: float | None = None
    legal_logprobs: tuple[float, float] = (0.0, 0.0)
    alternatives: tuple[Alternatives, ...] = ()
    passes: int = 0
    passes_before: int = 0
    role: Role = "first"
    followed: tuple[SlotOutput, ...] = ()
    repaired: SlotOutput | None = None

    @property
    def items(self) -> tuple[SlotOutput, ...]:
        """Outputs of a list's items, item by item, leaf by leaf."""
        return tuple(one for one in self.followed if one.role == "item")

    @property
    def branches(self) -> tuple[SlotOutput, ...]:
        """Outputs of the choices not taken."""
        return tuple(one for one in self.followed if one.role == "branch")

    @property
    def free_text(self) -> SlotOutput | None:
        """The output of the choice asked as free text; None if it was not."""
        return next((one for one in self.followed if one.role == "free_text"), None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SlotOutput) and self._said == other._said

    def __hash__(self) -> int:
        return hash(self._said)

    @property
    def _said(self) -> tuple[Any, ...]:
        return self.ids, self.finish_reason, self.items, self.repaired
