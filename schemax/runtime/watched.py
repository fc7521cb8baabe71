"""The requests in flight that are watched: what a pass did for each of them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping

import numpy as np
from torch import Tensor

from schemax.runtime.document_rows import RunningRequest
from schemax.runtime.plan import Ints
from schemax.runtime.requests import Request
from schemax.runtime.slot_table import SlotTable
from schemax.runtime.watching import Watcher, Written
from schemax.tokens import SlotOutput

Outputs = Callable[[RunningRequest, Ints], tuple[SlotOutput, ...]]


class WatchedRequests:
    """Made before a pass writes into (S,) slots, by (S, V) logits; tells when it has."""

    def __init__(
        self, running: Iterable[RunningRequest], table: SlotTable, slots: Ints, logits: Tensor
    ) -> None:
        self._table = table
        self._watched: dict[Watcher, RunningRequest] = {
            one.request.watcher: one for one in running if one.request.watcher is not None
        }
        by_row = {one.row: watcher for watcher, one in self._watched.items()}
        rows = table.request[slots].tolist()
        owners = {place: by_row[row] for place, row in enumerate(rows) if row in by_row}
        self._written = Written(table, slots, logits, owners, table.order[slots])

    def tell(
        self,
        ended: Mapping[Request, tuple[SlotOutput, ...]],
        parents: Container[int],
        outputs: Outputs,
    ) -> None:
        """ended: requests that are done. parents: slots that have called for what is in line.
        outputs: of slots that are done."""
        for watcher, (steps, others) in self._written.steps().items():
            running = self._watched[watcher]
            found: Mapping[int, SlotOutput]
            if running.request in ended:
                found = dict(enumerate(ended[running.request]))
            else:
                places = self._done(running, parents)
                found = dict(zip(places, outputs(running, running.slots[places]), strict=True))
            watcher.saw(steps, others, found)

    def _done(self, running: RunningRequest, parents: Container[int]) -> list[int]:
        """Places of slots that neither grow nor wait for what they called for."""

        def is_done(slot: int) -> bool:
            called = (*running.children.get(slot, ()), *running.branches.get(slot, ()))
            stands = slot not in parents and not self._table.is_growing(np.array([slot]))[0]
            return bool(stands) and all(map(is_done, called))

        return [place for place, slot in enumerate(running.slots.tolist()) if is_done(slot)]
