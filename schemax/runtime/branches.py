"""Slots apart from each other: each with all that it reads, as a row or a request of its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from schemax.runtime.children import child_budget, child_number
from schemax.runtime.plan import Ids
from schemax.runtime.requests import Request
from schemax.tokens import ChildSlot, CopySource, SlotOutput, SlotSpec


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """A slot as a row of its own: what it reads behind its request's stem, and what it may write.

    request: the number of its request in the batch; key: ids that are read one by one.
    index: among all slots of a run, -1 of those that come later. path, as_text: see `Place`.
    sources: its document, to copy from; () for none.
    """

    request: int
    key: Ids
    spec: SlotSpec
    budget: int
    digest: int
    number: int
    index: int = -1
    answer: Ids = ()
    path: tuple[str, ...] = ()
    as_text: bool = False
    sources: tuple[CopySource, ...] = ()


def branches_of(number: int, request: Request) -> Iterator[Branch]:
    layout = request.layout
    ends, sources = layout.suffix_lengths.cumsum(), request.slot_sources
    for n in range(layout.num_slots):
        key = layout.suffix[ends[n] - layout.suffix_lengths[n] : ends[n]]
        yield Branch(
            request=number,
            key=tuple(key.tolist()),
            spec=layout.specs[n],
            budget=int(request.budgets[n]),
            digest=request.digests[layout.owners[n]],
            number=int(layout.numbers[n]),
            index=request.index + n,
            answer=request.answers[n] if request.answers else (),
            sources=sources[n : n + 1],
        )


def wave_of(number: int, request: Request, outputs: tuple[SlotOutput, ...]) -> list[Branch]:
    """The next wave of a request."""
    root = Branch(number, (), SlotSpec(), 0, request.digests[0], 0, sources=request.sources)
    called = request.next_wave(outputs)
    return [
        replace(child_of(root, 0, child, request), number=child.number, path=child.path)
        for child in called
    ]


def child_of(parent: Branch, place: int, child: ChildSlot, request: Request) -> Branch:
    budget = child_budget(child, request, parent.budget)
    number = child_number(parent.number, place)
    made = replace(
        Branch(parent.request, child.key, child.spec, budget, parent.digest, number),
        sources=parent.sources,
    )
    if parent.spec.branching is None:
        return made
    return replace(made, index=parent.index, path=parent.path, as_text=True)
