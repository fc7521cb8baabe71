"""The outputs of documents, and what the watcher of a request learns after every pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from schemax.errors import Cause
from schemax.tokens import Ids, Role, SlotOutput


@dataclass(frozen=True, slots=True)
class DocumentOutput:
    """The result of one document.

    slots: (N,) outputs; empty if the document could not be run.
    steps: forward passes that it took part in, prefill and retries included.
    problem: why the document could not be run; None if it was.
    document: its place among the documents of its prompt.
    cause: see `errors.Cause`; None for other problems.
    """

    slots: tuple[SlotOutput, ...]
    steps: int
    problem: str | None = None
    document: int = 0
    cause: Cause | None = None


NO_ROOM = DocumentOutput(
    (),
    0,
    "there is not enough memory for a document of this length; shorten the text",
    cause="memory",
)
"""The output of each document of a request that exceeds the memory."""


def passes_of(slots: Sequence[SlotOutput], start: int = 0) -> int:
    """Counts forward passes until some slots, and all slots that followed them, were done.

    start: passes before the slots, unless they belong to a later wave.
    """
    last = start
    for slot in slots:
        end = (slot.passes_before or start) + slot.passes
        again = () if slot.repaired is None else (slot.repaired,)
        called = (*slot.followed, *again)
        last = max(last, passes_of(called, end) if called else end)
    return last


def too_long(problem: str, num_tokens: int) -> DocumentOutput:
    """The output of a document whose prompt does not fit; num_tokens: of the text itself."""
    return DocumentOutput(
        (),
        0,
        f"the document is too long: its prompt {problem} ({num_tokens:,} tokens are the text "
        "itself, the others the instruction, keys and budgets); shorten what is long or choose a "
        "model with a longer context",
        cause="length",
    )


def exceeds(max_position: int, bound: int | None) -> str | None:
    """The reason why a prompt, gaps and budgets included, exceeds a context; None if it fits.

    max_position: the prompt's largest position id. bound: the model's `max_positions`.
    """
    if bound is None or max_position < bound:
        return None
    return f"needs {max_position + 1:,} positions, and the model's context has {bound:,}"


@dataclass(frozen=True, slots=True)
class SlotStep:
    """The tokens that a pass wrote into one of a request's slots.

    slot_index: among the request's first slots; -1 for a slot of a later wave.
    path: the name of a slot of a later wave; () for other slots.
    role: see `tokens.Role`.
    start: the number of tokens that the slot had written before.
    ids: the chosen token, and the forced tokens and accepted drafts behind it; a request whose
        watcher wants rivals has no drafts.
    logprob: the log-probability of the chosen token.
    rivals: (id, probability) of the likeliest tokens, before the grammar rules any out.
    """

    slot_index: int
    path: tuple[str, ...]
    role: Role
    start: int
    ids: Ids
    logprob: float
    rivals: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class Progress:
    """A request's progress by one pass.

    number: counts the passes that had written for the request before. If memory runs out, a request
        begins again, and its number at 0.
    others: counts tokens chosen for items of lists, and for choices not taken.
    done: outputs, by slot index, of slots newly done with all slots that followed.
    """

    number: int
    steps: tuple[SlotStep, ...]
    others: int
    done: Mapping[int, SlotOutput]


@dataclass(slots=True, eq=False)
class Watcher:
    """The watcher of a request.

    tell: called in the thread that runs the model; must return soon.
    num_rivals: the number of rivals wanted with every chosen token.
    """

    tell: Callable[[Progress], None]
    num_rivals: int = 0
    _number: int = 0
    _told: set[int] = field(default_factory=set)

    def begin(self) -> None:
        self._number = 0
        self._told.clear()

    def saw(self, steps: Sequence[SlotStep], others: int, done: Mapping[int, SlotOutput]) -> None:
        fresh = {index: output for index, output in done.items() if index not in self._told}
        self._told.update(fresh)
        self.tell(Progress(self._number, tuple(steps), others, fresh))
        self._number += 1
