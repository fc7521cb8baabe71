"""What the runtime says of a document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from schemax.tokens import SlotOutput, SlotSpec

NO_MEMORY = "there is not enough memory for a document of this length; shorten the text"

TOO_LONG = "the document is too long"


@dataclass(frozen=True, slots=True)
class DocumentOutput:
    """What became of one document.

    slots: (N,) outputs; empty if the document could not be run.
    steps: forward passes that it took part in, prefill and retries included.
    problem: why it could not be run.
    document: its place among those of its prompt.
    is_gone: whether it could not be run for want of a server, and may be later.
    """

    slots: tuple[SlotOutput, ...]
    steps: int
    problem: str | None = None
    document: int = 0
    is_gone: bool = False


def passes_of(slots: Sequence[SlotOutput], start: int = 0) -> int:
    """Forward passes until the last of some slots was done, with those that they called for.

    start: passes before them, where they are of no later wave.
    """
    last = start
    for slot in slots:
        end = (slot.before or start) + slot.passes
        called = (*slot.children, *slot.branches, *filter(None, [slot.as_text, slot.repaired]))
        last = max(last, passes_of(called, end) if called else end)
    return last


def with_called(
    output: SlotOutput,
    spec: SlotSpec,
    children: tuple[SlotOutput, ...],
    branches: tuple[SlotOutput, ...] = (),
) -> SlotOutput:
    """A slot's output with those of the slots that it called for."""
    if children and spec.expansion is None:
        return replace(output, as_text=children[0], branches=branches)
    return replace(output, children=children, branches=branches)


def joined(outputs: tuple[SlotOutput, ...], wave: Sequence[SlotOutput]) -> tuple[SlotOutput, ...]:
    """Outputs with those of the next wave, which began when all before were done."""
    before = passes_of(outputs)
    return (*outputs, *(replace(slot, before=before) for slot in wave))


def too_long(problem: str, num_tokens: int) -> DocumentOutput:
    """Of a document whose prompt does not fit the model; num_tokens: of the text itself."""
    return DocumentOutput(
        (),
        0,
        f"{TOO_LONG}: its prompt {problem} ({num_tokens:,} tokens are the text "
        "itself, the others the instruction, keys and budgets); shorten what is long or choose a "
        "model with a longer context",
    )


def exceeds(needed: int, bound: int | None) -> str | None:
    """Why so many position ids exceed a context; None if they fit, or nothing is known of it."""
    if bound is None or needed <= bound:
        return None
    return f"needs {needed:,} positions, and the model's context has {bound:,}"
