"""Progress of requests, told to those who watch them after every pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from schemax.runtime.filling import AskedSlot
from schemax.runtime.plan import Ids, Ints
from schemax.runtime.slot_table import SlotTable
from schemax.tokens import SlotOutput


@dataclass(frozen=True, slots=True)
class Place:
    """A slot's place in its request.

    number: among those that are asked first; -1 of later waves. path: of these, what they are
    called. is_free_text: whether a choice is asked for once more, as free text.
    """

    number: int = -1
    path: tuple[str, ...] = ()
    is_free_text: bool = False


def place_of(slot: AskedSlot) -> Place:
    return Place(slot.place, slot.path, slot.role == "free_text")


@dataclass(frozen=True, slots=True)
class Step:
    """The tokens that a pass wrote into one of a request's slots.

    place: which one. start: how many tokens the slot had written before.
    ids: the token that was chosen, and those behind it that followed without a choice.
    logprob: of the chosen one. rivals: (id, probability) of the likeliest tokens, before the
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

    number: of the passes that had written for the request before. Where memory runs out, a request
        begins again, and so does the number.
    others: tokens chosen for items of lists, and for alternatives of choices.
    done: by place, what became of slots that are done, with all that they called for.
    """

    number: int
    steps: tuple[Step, ...]
    others: int
    done: Mapping[int, SlotOutput]


@dataclass(slots=True, eq=False)
class Watcher:
    """tell: called in the thread that runs the model, and has to return soon.
    num_rivals: how many tokens are wanted of every choice."""

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
    """The watched ones among the slots that a pass writes into, as they are before.

    slots: (S,) numbers; logits: (S, V). owners: who watches a slot, by its row among these.
    places: of slots, by their rows, but for those that others called for.
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
        """The steps of the pass for everyone who watches, and the number of other tokens."""
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
