"""Tells watchers what a pass wrote for their requests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from torch import Tensor

from schemax.runtime.beams import is_searched
from schemax.runtime.document_rows import RunningRequest
from schemax.runtime.requests import Request
from schemax.runtime.scheduler import Scheduler
from schemax.runtime.watcher import Place, Watcher, Written, place_of
from schemax.tokens import SlotOutput


class WatchedRequests:
    """The requests in flight that are watched, before and after a pass writes.

    Made before the pass writes into growing slots; `tell` is called after. logits: (S, V).
    """

    def __init__(self, scheduler: Scheduler, logits: Tensor) -> None:
        self._watched: dict[Watcher, RunningRequest] = {
            one.request.watcher: one
            for one in scheduler.rows.running.values()
            if one.request.watcher is not None
        }
        self._written: Written | None = None
        if self._watched:
            table, slots = scheduler.table, scheduler.growing
            by_row = {one.row: watcher for watcher, one in self._watched.items()}
            rows = table.request[slots].tolist()
            owners = {place: by_row[row] for place, row in enumerate(rows) if row in by_row}
            known = dict(_places(self._watched.values()))
            numbers = enumerate(slots.tolist())
            places = {row: known[slot] for row, slot in numbers if slot in known}
            self._written = Written(table, slots, logits, owners, places)

    def tell(self, ended: Iterable[tuple[Request, tuple[SlotOutput, ...]]]) -> None:
        """Tells all watchers. ended: requests that are done, with all of their slots."""
        if self._written is None:
            return
        outputs = dict(ended)
        for watcher, (steps, others) in self._written.steps().items():
            running = self._watched[watcher]
            found = dict(enumerate(outputs.get(running.request, ()))) or dict(_done(running))
            watcher.saw(steps, others, found)


def _places(watched: Iterable[RunningRequest]) -> Iterator[tuple[int, Place]]:
    """Yields slots whose tokens are told one by one, by number; slots with beams are not."""
    for running in watched:
        has_beams = running.request.sampling.beams > 1
        for number, slot in running.asked.items():
            if slot.is_named and not (has_beams and is_searched(slot.spec)):
                yield number, place_of(slot)


def _done(running: RunningRequest) -> Iterator[tuple[int, SlotOutput]]:
    """Yields, by place, the outputs of slots that are done, with all slots that followed."""
    filling = running.filling
    if filling is None or running.request.waves is not None:  # a later wave may ask a slot again
        return
    for place, slot in enumerate(filling.slots):
        if slot.is_whole:
            yield place, slot.whole
