"""Tells the watchers of requests what a pass wrote."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from schemax.runtime.engine.document_rows import RunningRequest
from schemax.runtime.engine.scheduler import Scheduler
from schemax.runtime.slots.arrays import Ints
from schemax.runtime.slots.filling import AskedSlot
from schemax.runtime.slots.outputs import DocumentOutput, SlotStep, Watcher
from schemax.runtime.slots.requests import Filled, Request
from schemax.runtime.slots.slot_table import SlotTable
from schemax.tokens import SlotOutput

Watched = tuple[Watcher, AskedSlot | None]
"""The watcher of a slot, and the slot; None if its tokens are only counted."""


def watched(request: Request, slot: AskedSlot) -> Watched | None:
    """The watcher of a slot; None if nobody watches it."""
    if request.watcher is None:
        return None
    return request.watcher, slot if slot.is_named else None


class Written:
    """The watched slots among those that a pass writes into, as they are before the pass.

    slots: (S,) numbers; logits: (S, V). watched: (S,).
    """

    def __init__(
        self, table: SlotTable, slots: Ints, logits: Tensor, watched: Sequence[Watched | None]
    ) -> None:
        rows = np.array([row for row, pair in enumerate(watched) if pair is not None], np.int64)
        self._table, self._slots = table, slots[rows]
        self._watched = [pair for pair in watched if pair is not None]
        self._starts = table.step[self._slots]
        self._rivals: list[tuple[tuple[int, float], ...]] = [()] * len(rows)
        if most := max((watcher.num_rivals for watcher, _ in self._watched), default=0):
            picked = logits[torch.from_numpy(rows).to(logits.device)].float()
            shares, ids = torch.softmax(picked, dim=-1).topk(most)
            pairs = zip(ids.tolist(), shares.tolist(), strict=True)
            self._rivals = [tuple(zip(*pair, strict=True)) for pair in pairs]

    def tell(
        self, done: Callable[[Watcher], Mapping[int, SlotOutput]], failed: Container[Any] = ()
    ) -> None:
        """Tells every watcher but the `failed` the steps of the pass. done: outputs of done slots,
        by slot index."""
        table, slots = self._table, self._slots
        steps: dict[Watcher, list[SlotStep]] = {watcher: [] for watcher, _ in self._watched}
        counts = dict.fromkeys(steps, 0)
        firsts = table.logprobs[slots, self._starts].tolist()
        ends, starts = table.step[slots].tolist(), self._starts.tolist()
        rows = zip(self._watched, slots.tolist(), self._rivals, strict=True)
        for row, ((watcher, named), slot, rivals) in enumerate(rows):
            if named is None:
                counts[watcher] += 1
                continue
            ids = tuple(table.written[slot, starts[row] : ends[row]].tolist())
            told = starts[row], ids, firsts[row], rivals
            steps[watcher].append(SlotStep(named.slot_index, named.path, named.role, *told))
        for watcher, own_steps in steps.items():
            if watcher not in failed:
                watcher.saw(own_steps, counts[watcher], done(watcher))


def watch_pass(scheduler: Scheduler, logits: Tensor) -> Callable[[Iterable[Filled]], None]:
    """Looks at the watched requests in flight, before a pass writes into growing slots.

    logits: (S, V). Returns the function to call after the pass, with the requests that are done
    and all of their slots: it tells all watchers.
    """
    table, slots, running = scheduler.table, scheduler.growing, scheduler.rows.running
    by_watcher = {owner.request.watcher: owner for owner in running.values()}
    owners = map(running.__getitem__, table.request[slots].tolist())
    pairs = zip(owners, slots.tolist(), strict=True)
    seen = [watched(owner.request, owner.open_slots[slot]) for owner, slot in pairs]
    written = Written(table, slots, logits, seen)

    def tell(ended: Iterable[Filled]) -> None:
        outputs = dict(ended)
        failed = [r.watcher for r, slots in outputs.items() if isinstance(slots, DocumentOutput)]

        def done(watcher: Watcher) -> Mapping[int, SlotOutput]:
            owner = by_watcher[watcher]
            outputs_of_owner: Any = outputs.get(owner.request, ())
            return dict(enumerate(outputs_of_owner)) or dict(_done(owner))

        written.tell(done, failed)

    return tell


def _done(running: RunningRequest) -> Iterator[tuple[int, SlotOutput]]:
    """Yields, by slot index, the outputs of slots that are done, with all slots that followed."""
    if running.request.waves is not None:  # a later wave may ask a slot again
        return
    for slot_index, slot in enumerate(running.filling.slots):
        if slot.is_whole:
            yield slot_index, slot.whole
