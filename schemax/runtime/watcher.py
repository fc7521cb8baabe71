"""Watchers of requests, who are told after every pass what it wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from schemax.runtime.beams import is_searched
from schemax.runtime.document_rows import RunningRequest
from schemax.runtime.filling import AskedSlot
from schemax.runtime.plan import Ids, Ints
from schemax.runtime.requests import Request
from schemax.runtime.scheduler import Scheduler
from schemax.runtime.slot_table import SlotTable
from schemax.tokens import SlotOutput


@dataclass(frozen=True, slots=True)
class Place:
    """A slot's place in its request.

    number: the place among the request's first slots; -1 for a slot of a later wave, which has a
    `path` instead. is_free_text: whether the slot is a choice asked as free text.
    """

    number: int = -1
    path: tuple[str, ...] = ()
    is_free_text: bool = False


def place_of(slot: AskedSlot) -> Place:
    return Place(slot.place, slot.path, slot.role == "free_text")


@dataclass(frozen=True, slots=True)
class Step:
    """The tokens that a pass wrote into one of a request's slots.

    place: the slot's. start: the number of tokens that the slot had written before.
    ids: the chosen token, and the tokens behind it that followed without a choice.
    logprob: of the chosen token. rivals: (id, probability) of the likeliest tokens, before the
    grammar rules any out.
    """

    place: Place
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
    done: outputs, by place, of slots newly done with all slots that followed.
    """

    number: int
    steps: tuple[Step, ...]
    others: int
    done: Mapping[int, SlotOutput]


@dataclass(slots=True, eq=False)
class Watcher:
    """The watcher of a request.

    tell: called in the thread that runs the model; must return soon. num_rivals: the number of
    rivals wanted with every chosen token.
    """

    tell: Callable[[Progress], None]
    num_rivals: int = 0
    _number: int = 0
    _told: set[int] = field(default_factory=set)

    def begin(self) -> None:
        self._number = 0
        self._told.clear()

    def saw(self, steps: Sequence[Step], others: int, done: Mapping[int, SlotOutput]) -> None:
        fresh = {place: output for place, output in done.items() if place not in self._told}
        self._told.update(fresh)
        self.tell(Progress(self._number, tuple(steps), others, fresh))
        self._number += 1


class Written:
    """The watched slots among those that a pass writes into, as they are before the pass.

    slots: (S,) numbers; logits: (S, V). owners: the watchers of slots, by row among these.
    places: places of slots, by row; slots that others called for have none.
    """

    def __init__(
        self,
        table: SlotTable,
        slots: Ints,
        logits: Tensor,
        owners: Mapping[int, Watcher],
        places: Mapping[int, Place],
    ) -> None:
        rows = np.array(list(owners), np.int64)
        self._table, self._slots = table, slots[rows]
        self._places = [places.get(row) for row in owners]
        self._owners = list(owners.values())
        self._starts = table.step[self._slots]
        self._rivals: list[tuple[tuple[int, float], ...]] = [()] * len(rows)
        if most := max((owner.num_rivals for owner in self._owners), default=0):
            picked = logits[torch.from_numpy(rows).to(logits.device)].float()
            shares, ids = torch.softmax(picked, dim=-1).topk(most)
            pairs = zip(ids.tolist(), shares.tolist(), strict=True)
            self._rivals = [tuple(zip(*pair, strict=True)) for pair in pairs]

    def steps(self) -> dict[Watcher, tuple[list[Step], int]]:
        """The steps of the pass, and the number of other tokens, for every watcher."""
        table, slots = self._table, self._slots
        steps: dict[Watcher, list[Step]] = {owner: [] for owner in self._owners}
        others = dict.fromkeys(steps, 0)
        firsts = table.logprobs[slots, self._starts].tolist()
        ends, starts = table.step[slots].tolist(), self._starts.tolist()
        rows = zip(self._owners, slots.tolist(), self._places, self._rivals, strict=True)
        for row, (owner, slot, place, rivals) in enumerate(rows):
            if place is None:
                others[owner] += 1
                continue
            ids = tuple(table.written[slot, starts[row] : ends[row]].tolist())
            steps[owner].append(Step(place, starts[row], ids, firsts[row], rivals))
        return {owner: (mine, others[owner]) for owner, mine in steps.items()}


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
