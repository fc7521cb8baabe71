"""Data that the compiler, the runtime and the results exchange: token ids, plain and frozen.

The runtime imports only this module, `config`, `errors` and `base`, so it never sees types or
schemas. The compiler imports nothing of the runtime, so it never imports torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

Ids = tuple[int, ...]
"""Token ids."""

DONE = -1
"""State of a stop table that has met its stop rule."""

TEXT_ENDS, TEXT_UNKNOWN, TEXT_REFUSED = -1, -2, -3
"""The effects of tokens on free text, beside next states: the token ends the slot; it is allowed,
and leads out of the table; it is not allowed."""

FREE = "free"
"""The slot may leave the document: its copy is complete, or its value isn't text."""

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
        probabilities are normalised over them. Otherwise, as for free text, the model's own choice
        is taken if it is allowed.
    choices: whether all values are known, and the probability of each is recorded.
    """

    @property
    def strict(self) -> bool: ...
    @property
    def choices(self) -> bool: ...
    def new_matcher(self) -> Any:
        """An `llguidance.LLMatcher` at the slot's beginning."""

    def not_first(self) -> tuple[int, ...]:
        """The tokens that no slot begins with, although its matcher may allow them."""

    def encode(self, data: bytes) -> tuple[int, ...]:
        """The forced tokens of bytes; () if no token is forced."""

    def text_table(self, stop: StopTable) -> npt.NDArray[np.int8] | None:
        """(states, V) int8: the next state of a free text, from state 0 on, or one of `TEXT_*`.

        None for other grammars, whose matcher decides on every token.
        """


class CopyReader(Protocol):
    """A reader of the texts that slots may copy from a document.

    A state stands for the tokens written so far: hashable, and opaque to others.
    """

    def begin(self, ids: Sequence[int]) -> Any:
        """The state behind a value's first tokens; `FREE` or None as in `after`."""

    def after(self, state: Any, token: int) -> Any:
        """The state behind one more token; `FREE` if all may follow, None if the token may not."""

    def allowed(self, state: Any) -> npt.NDArray[np.bool_]:
        """(V,) the tokens that may follow: `after` does not return None for them."""

    def ahead(self, state: Any, count: int) -> Ids:
        """Up to `count` tokens that the document goes on with, which may follow."""


class CopySource(Protocol):
    """A document whose text slots copy."""

    def reader(self, copying: Any) -> CopyReader:
        """The reader for a `SlotSpec.copying`; cached."""


Role = Literal["first", "item", "branch", "free_text", "wave"]
"""The role of a slot: the prompt's own slot; an item of a list whose length another slot wrote; a
choice that another slot did not take; a choice again, as free text; or a slot of a later wave."""


class FollowUps(Protocol):
    """The slots that follow a slot's value: the items of a list, choices not taken."""

    @property
    def extent(self) -> int:
        """The most position ids that a follow-up needs: its key and its budget."""

    def after(self, output: SlotOutput) -> tuple[ChildSlot, ...]:
        """The follow-ups of a value that is whole, branches last."""


class Waves(Protocol):
    """Further slots of a document once all of its slots are filled, wave by wave.

    outputs: the outputs of all slots so far, in the order of the slots. They alone decide, so that
        a document may begin again.
    """

    @property
    def extent(self) -> int:
        """The most position ids that one of these slots needs: its key and its budget."""

    def next_wave(self, outputs: tuple[SlotOutput, ...], room: int | None) -> tuple[ChildSlot, ...]:
        """The slots of the next wave; () at the end. room: position ids for a slot; None: any."""

    def final_outputs(self, outputs: tuple[SlotOutput, ...]) -> tuple[SlotOutput, ...]:
        """(N,) outputs of all waves, in the order of the attributes, items with their lists."""


class Prior(Protocol):
    """The prior of a slot's choices, without its document."""

    def logprobs(self, written: tuple[int, ...], ids: tuple[int, ...]) -> npt.NDArray[np.float64]:
        """(n,) the log-probability of each next token, relative to equal shares.

        0 for tokens that do not decide between choices.
        """


@dataclass(frozen=True, slots=True, eq=False)
class SlotSpec:
    """The spec of a slot, known before a document is read, beside its key and budget.

    null_id: the first token of the null literal; -1 if the slot is never null.
    grammar: None allows everything.
    follow_ups: the slots that the value calls for. Only branches of isolated documents have any.
    is_count: whether the value is the number of a list's items.
    begun: tokens of the value that stand at the end of the key already.
    json_schema: the JSON Schema of a whole output, for servers that enforce it.
    copying: how the slot writes texts that must stand in its document; see `CopySource`. None for
        other texts, and for strict grammars.
    prior: subtracted from the logits of a slot with choices; None subtracts nothing.
    """

    null_id: int = -1
    grammar: Grammar | None = None
    follow_ups: FollowUps | None = None
    is_count: bool = False
    begun: tuple[int, ...] = ()
    json_schema: dict[str, Any] | None = None
    copying: Any = None
    prior: Prior | None = None


_NUMBERS = 2**20  # per parent

ITEM_WAVES = _NUMBERS // 2
"""The first rank of slots of later waves in a list's items; lower ranks are slots that the value
itself called for."""

SECOND_CHANCE = _NUMBERS - 1
"""The rank of a slot that asks again for a refused value."""


def child_number(parent: int, rank: int) -> int:
    """The number of a slot that follows another, the key of its random numbers.

    rank: the slot's rank among those that follow its parent, below 2 ** 20.
    """
    return ((parent + 1) * _NUMBERS + rank) % 2**62


AGAIN = "(again)"
"""The end of a `ChildSlot.path` that asks again for a refused value."""


@dataclass(frozen=True, slots=True, eq=False)
class ChildSlot:
    """A slot that follows others, in a branch right behind the opening.

    key: at least one id.
    role: see `Role`.
    k_max: the token budget, delimiter included; None for the rest of its parent's budget.
    shared: the number of first ids of the key that its parent has read as well.
    number: for a slot of a wave, what its random numbers depend on.
    path: the name of a slot of a wave where passes are watched; see AGAIN.
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
    opening: S, the output's opening; follows every isolated document, or the last stacked one.
    keys: (J, N) key segments. The autoregressive layout has one empty segment per document.
    k_max: (N,) token budget per slot, delimiter included.
    sampling_keys: (J,) 64-bit digests of the documents, to key random numbers by content.
    slots: (N,) the specs of the slots; () for default specs.
    answers: (J, N) forced tokens of slots, stop included: benchmarks give every engine the same
        work. None lets the model choose.
    numbers: (N,) what slots' random numbers depend on; () for 0 to N - 1.
    waves: the slots that follow once these slots are filled; only for branches of isolated
        documents.
    sources: (J,) the documents, for slots that copy from them; () if no slot copies.
    demonstrations: examples of this document alone, behind the instruction, in no order: no example
        sees another. Only a single isolated document has demonstrations.
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
    """The tokens that a slot's grammar allowed at a step, with their probabilities.

    step: the number of the value's tokens before the step.
    """

    step: int
    ids: tuple[int, ...]
    probabilities: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SlotOutput:
    """The decoder's output in a slot, delimiter included.

    ids: the value's tokens, those of `SlotSpec.begun` included.
    logprobs: the log-probability of every token under the model, at temperature 1; under a strict
        grammar, among the allowed tokens. 0 for a forced token. () for a server that hides them.
    null_logprob: the log-probability of `SlotSpec.null_id` as the first token.
    legal_logprobs: the logarithm of the model's probability for allowed tokens: at the first token,
        and summed over all tokens. 0 if nothing was forbidden or nothing chosen. For free text,
        only steps count at which the model's own choice was refused.
    alternatives: the alternatives of every step with a choice, for a grammar of choices.
    passes: the forward passes of its tokens; those that read its prompt count as one.
    passes_before: for a slot of a later wave, its document's forward passes before the slot.
    role: see `Role`.
    followed: outputs of the slots that followed; () for a value that is cut off. Only the engine of
        this process follows branches, since it reads nothing twice.
    repaired: the second answer, if the first value was refused.

    Outputs are equal if their tokens and their items' tokens are: numbers differ by rounding.
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
        return tuple(output for output in self.followed if output.role == "item")

    @property
    def branches(self) -> tuple[SlotOutput, ...]:
        """Outputs of choices that the slot did not take."""
        return tuple(output for output in self.followed if output.role == "branch")

    @property
    def free_text(self) -> SlotOutput | None:
        """The output of the choice as free text; None without such an output."""
        return next((output for output in self.followed if output.role == "free_text"), None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SlotOutput) and self._equality_key == other._equality_key

    def __hash__(self) -> int:
        return hash(self._equality_key)

    @property
    def _equality_key(self) -> tuple[Any, ...]:
        return self.ids, self.finish_reason, self.items, self.repaired
