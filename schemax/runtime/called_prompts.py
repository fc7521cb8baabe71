"""Slots that other slots' values call for, as a prompt of their own: for decoding in batches.

A branch sees nothing but its document and its key, so reading the document once more gives the
tokens that `calls.py` gives in a stream, where nothing is read twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from schemax.runtime.plan import child_number
from schemax.tokens import ChildSlot, PromptIds, SlotOutput


def called_prompt(prompt: PromptIds, outputs: Sequence[SlotOutput]) -> PromptIds | None:
    """The prompt with the slots that (N,) outputs call for; None if there are none.

    prompt: of one isolated document.
    """
    children: list[ChildSlot] = []
    numbers: list[int] = []
    parents = prompt.numbers or range(len(outputs))
    for parent, called in zip(parents, _children(prompt, outputs), strict=True):
        children += called
        numbers += [child_number(parent, place) for place in range(len(called))]
    if not children:
        return None
    return replace(
        prompt,
        keys=(tuple(child.key for child in children),),
        k_max=tuple(child.k_max or 0 for child in children),
        slots=tuple(child.spec for child in children),
        numbers=tuple(numbers),
        answers=None,
    )


def with_children(
    prompt: PromptIds, outputs: Sequence[SlotOutput], found: Sequence[SlotOutput]
) -> list[SlotOutput]:
    """(N,) outputs with those of the slots that they call for, in the order of `called_prompt`."""
    rest = iter(found)
    return [
        replace(output, children=tuple(next(rest) for _ in called)) if called else output
        for output, called in zip(outputs, _children(prompt, outputs), strict=True)
    ]


def _children(prompt: PromptIds, outputs: Sequence[SlotOutput]) -> Iterator[tuple[ChildSlot, ...]]:
    for spec, output in zip(prompt.slots, outputs, strict=True):
        is_whole = output.finish_reason != "length"
        yield spec.expansion.children(output.ids) if spec.expansion and is_whole else ()
