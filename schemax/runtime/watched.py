"""The requests in flight that are watched: what a pass did for each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain

import numpy as np
from torch import Tensor

from schemax.runtime.document_rows import RunningRequest
from schemax.runtime.requests import Request
from schemax.runtime.scheduler import Scheduler
from schemax.runtime.watching import Place, Watcher, Written
from schemax.tokens import SlotOutput


class WatchedRequests:
    """Made before a pass writes into the slots that grow, by (S, V) logits; tells when it has."""

    def __init__(self, scheduler: Scheduler, logits: Tensor) -> None:
        self._scheduler = scheduler
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
            known = dict(chain.from_iterable(map(self._places, self._watched.values())))
            numbers = enumerate(slots.tolist())
            places = {row: known[slot] for row, slot in numbers if slot in known}
            self._written = Written(table, slots, logits, owners, places)

    def _places(self, running: RunningRequest) -> Iterator[tuple[int, Place]]:
        """The request's own slots, by number, and those that are filled once more as texts."""
        table = self._scheduler.table
        for slot in running.slots.tolist():
            place = Place(int(table.order[slot]), running.paths.get(slot, ()))
            yield slot, place
            if table.specs[slot].expansion is None:
                for text in running.children.get(slot, ()):
                    yield text, replace(place, as_text=True)

    def tell(self, ended: Iterable[tuple[Request, tuple[SlotOutput, ...]]]) -> None:
        """ended: requests that are done, with all of their slots."""
        if self._written is None:
            return
        outputs = dict(ended)
        for watcher, (steps, others) in self._written.steps().items():
            running = self._watched[watcher]
            found = dict(enumerate(outputs.get(running.request, ()))) or dict(self._done(running))
            watcher.saw(steps, others, found)

    def _done(self, running: RunningRequest) -> Iterator[tuple[int, SlotOutput]]:
        """Slots that neither grow nor wait for what they called for, by place."""
        if running.request.waves is not None:  # which may come back to any slot
            return
        table, parents = self._scheduler.table, self._scheduler.children.parents

        def is_done(slot: int) -> bool:
            called = (*running.children.get(slot, ()), *running.branches.get(slot, ()))
            stands = slot not in parents and not table.is_growing(np.array([slot]))[0]
            return bool(stands) and all(map(is_done, called))

        slots = running.slots.tolist()
        places = [place for place, slot in enumerate(slots) if is_done(slot)]
        outputs = self._scheduler.outputs(running, running.slots[places])
        yield from zip(places, outputs, strict=True)
