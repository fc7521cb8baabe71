"""Slots that other slots' values call for: in line until a pass has room to read their keys.

The items of a list, once a slot has written how many there are; what a slot could have chosen
instead, once it has chosen; the next wave, once all slots of a request are done. They join the
slots of a request that is in flight, whose keys and values are in the store, so nothing is read
twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from schemax.runtime.document_rows import RunningRequest
from schemax.runtime.plan import Ids, Ints
from schemax.runtime.requests import Request, with_retries
from schemax.runtime.sampler import Sampler
from schemax.runtime.slot_table import SlotTable
from schemax.tokens import ChildSlot, SlotOutput, SlotSpec

# The most shares of a pass. Where more requests than these call for slots, no other enters, so that
# those in flight stay few.
_MOST_SHARES = 32


def child_number(parent: int, place: int) -> int:
    """What random numbers depend on in the place of n, for a slot that another one called for."""
    return ((parent + 1) * 2**20 + place) % 2**62


def called_for(
    spec: SlotSpec, output: SlotOutput, granted: int
) -> tuple[tuple[ChildSlot, ...], tuple[ChildSlot, ...]]:
    """The children and the branches that a whole value calls for; of a choice, itself as a text.

    granted: tokens that the slot may have, with those that stood there before it; 0 where branches
        are not followed.
    """
    children = spec.expansion.children(output.ids) if spec.expansion is not None else ()
    branches: tuple[ChildSlot, ...] = ()
    if spec.branching is not None:
        children = spec.branching.instead(output.legal_logprobs[1])
    if spec.branching is not None and granted:
        found = spec.branching.branches(output.ids, output.alternatives)
        branches = tuple(branch for branch in found if len(branch.spec.begun) < granted)
    return children, branches


def key_end(child: ChildSlot, request: Request) -> int:
    """The position of its key's last token."""
    return int(request.stem_positions[-1]) + len(child.key)


def child_budget(child: ChildSlot, request: Request, rest: int) -> int:
    """Tokens, retries included. rest: of the parent's budget."""
    if child.k_max is None:
        return rest
    k_max, last_position = np.array([child.k_max]), np.array([key_end(child, request)])
    return int(with_retries(k_max, last_position, request.retries, request.bound)[0])


@dataclass(frozen=True, slots=True)
class WaitingChild:
    """One such slot.

    parent: the number of the slot that called for it; -1 of a wave's own slots. position: of its
    key's last token, which stands right behind the stem. budget: tokens, retries included.
    """

    running: RunningRequest
    parent: int
    slot: ChildSlot
    position: int
    budget: int
    digest: int
    number: int

    @property
    def new_ids(self) -> Ids:
        """What is left to read of its key."""
        return self.slot.key[self.slot.shared :]

    @property
    def footprint(self) -> int:
        """Tokens that are kept for it, by a guess."""
        return len(self.new_ids) + self.budget // 4


class ChildQueue:
    """What has been called for, a line for each request.

    may_come: whether any slot may call for others.
    keys: of the slots that the next pass takes up, one after the other.
    is_held_up: whether the last pass had no room for a slot within its request's share.
    footprint: tokens that are kept for slots that were taken up and still grow, by a guess.
    """

    def __init__(self, table: SlotTable) -> None:
        self._table = table
        self._lines: dict[RunningRequest, deque[WaitingChild]] = {}  # whose turn is next, first
        self._footprints: dict[int, int] = {}
        self.footprint = 0
        self.may_come = self.is_held_up = False
        self.keys = np.zeros(0, np.int64)

    def end(self, done: Ints, running: Mapping[int, RunningRequest]) -> list[int]:
        """Puts in line what slots call for that are done.

        Returns the numbers of those whose places in the KV pool are shared.
        """
        self.keys = self.keys[:0]
        sharing: list[int] = []
        if not self.may_come:
            return sharing
        table = self._table
        self._forget(done)
        for slot in done[table.state[done] < 0].tolist():
            spec = table.specs[slot]
            if spec.expansion is None and spec.branching is None:
                continue
            owner = running[int(table.request[slot])]
            granted = len(spec.begun) + int(table.budget[slot])
            output = table.peek(slot)
            children, branches = called_for(spec, output, granted)
            called = (*children, *branches)
            owner.num_growing += len(called)
            if any(child.shared for child in called):
                sharing.append(slot)
            digest, number = int(table.digest[slot]), int(table.number[slot])
            for place, child in enumerate(called):
                rest = granted - len(child.spec.begun)
                self._wait(owner, slot, child, rest, digest, child_number(number, place))
        return sharing

    def call_wave(self, owner: RunningRequest) -> bool:
        """Puts the next wave of a request in line, whose slots are done; False if there is none."""
        request = owner.request
        called = request.next_wave(owner.outputs)
        owner.num_growing = len(called)
        for child in called:
            self._wait(owner, -1, child, 0, request.digests[0], child.number)
        return bool(called)

    def _wait(
        self,
        owner: RunningRequest,
        parent: int,
        child: ChildSlot,
        rest: int,
        digest: int,
        number: int,
    ) -> None:
        position = key_end(child, owner.request)
        budget = child_budget(child, owner.request, rest)
        line = self._lines.setdefault(owner, deque())
        line.append(WaitingChild(owner, parent, child, position, budget, digest, number))

    def _forget(self, slots: Ints) -> None:
        """Takes no more account of what is kept for slots."""
        if self._footprints:
            self.footprint -= sum(self._footprints.pop(slot, 0) for slot in slots.tolist())

    @property
    def is_empty(self) -> bool:
        return not self._lines

    def share(self, pass_tokens: int, wanted: int) -> int:
        """Tokens of a pass for each request in line, where a new one waits for so many."""
        if not wanted or not self._lines:
            return pass_tokens
        return max((pass_tokens - wanted) // len(self._lines), pass_tokens // _MOST_SHARES)

    def take(self, room: int, share: int, alone: bool) -> list[WaitingChild]:
        """The first in each line by turns, as many as a pass has room for.

        A request gets no more tokens of the pass than its share, those of its growing slots
        included; but one slot at least, as all together do, if they are alone.
        """
        taken: list[WaitingChild] = []
        used = {each: each.num_growing - len(line) for each, line in self._lines.items()}
        self.is_held_up = False
        turns = deque(self._lines)
        while turns:
            running = turns.popleft()
            size = len(self._lines[running][0].new_ids)
            if used[running] and used[running] + size > share:
                continue
            if size > room and (taken or not alone):
                self.is_held_up = True
                break
            line = self._lines.pop(running)
            taken.append(line.popleft())
            room, used[running] = room - size, used[running] + size
            if line:
                self._lines[running] = line
                turns.append(running)
        return taken

    @property
    def parents(self) -> set[int]:
        """The numbers of slots that have called for what is in line."""
        return {child.parent for line in self._lines.values() for child in line}

    def cancel(self, rows: Container[int], slots: Ints) -> None:
        """Lets go of what requests in some rows have called for, whose growing slots are named."""
        self._lines = {each: line for each, line in self._lines.items() if each.row not in rows}
        self._forget(slots)

    def begin(self, taken: Sequence[WaitingChild], sampler: Sampler) -> Ints:
        """Gives (c,) children slots of the table, with their keys still to be read."""
        table = self._table
        self.keys = np.array([token for child in taken for token in child.new_ids], np.int64)
        shared = np.array([child.slot.shared for child in taken])
        stops = [child.running.request.stop for child in taken]
        specs = [child.slot.spec for child in taken]
        starts = [
            table.stops.after(spec.begun, table.stops.start(stop))
            for spec, stop in zip(specs, stops, strict=True)
        ]
        slots = table.add(
            {
                "request": np.array([child.running.row for child in taken]),
                "order": -1,
                "num_kv": shared,
                "num_shared": shared,
                "position": np.array([child.position for child in taken]),
                "num_new": np.array([len(child.new_ids) for child in taken]),
                "state": np.array(starts),
                "budget": np.array([child.budget for child in taken]),
                "visible": np.array([len(child.running.request.stem) for child in taken]),
                "index": -1,
                "digest": np.array([child.digest for child in taken]),
                "number": np.array([child.number for child in taken]),
                "null_id": np.array([spec.null_id for spec in specs]),
            },
            specs,
            stops,
        )
        for place, (child, slot) in enumerate(zip(taken, slots.tolist(), strict=True)):
            running = child.running
            self._footprints[slot] = child.footprint
            self.footprint += child.footprint
            if child.parent < 0:
                running.slots = np.append(running.slots, slot)
                running.paths[slot] = child.slot.path
            else:
                called = running.branches if child.slot.spec.begun else running.children
                called.setdefault(child.parent, []).append(slot)
            # Only isolated documents, each a request of its own, have children.
            sources, mine = running.request.sources, slots[place : place + 1]
            sampler.grammars.begin(mine, (child.slot.spec,), stops[place], sources)
        return slots
