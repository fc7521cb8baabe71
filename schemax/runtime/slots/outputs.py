"""`DocumentOutput`: the runtime's output for a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemax.tokens import SlotOutput

NO_MEMORY = "there is not enough memory for a document of this length; shorten the text"

TOO_LONG = "the document is too long"


@dataclass(frozen=True, slots=True)
class DocumentOutput:
    """The result of one document.

    slots: (N,) outputs; empty if the document could not be run.
    steps: forward passes that it took part in, prefill and retries included.
    problem: why the document could not be run; None if it was.
    document: its place among the documents of its prompt.
    is_gone: whether a server was out of reach, so that a later try may succeed.
    """

    slots: tuple[SlotOutput, ...]
    steps: int
    problem: str | None = None
    document: int = 0
    is_gone: bool = False


NO_ROOM = DocumentOutput((), 0, NO_MEMORY)
"""The output of every document of a request that memory does not suffice for."""


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
        f"{TOO_LONG}: its prompt {problem} ({num_tokens:,} tokens are the text "
        "itself, the others the instruction, keys and budgets); shorten what is long or choose a "
        "model with a longer context",
    )


def exceeds(needed: int, bound: int | None) -> str | None:
    """The reason why position ids exceed a context; None if they fit or there is no bound."""
    if bound is None or needed <= bound:
        return None
    return f"needs {needed:,} positions, and the model's context has {bound:,}"
