"""Follow-up slots, in line until a pass has room to read their keys.

They join the slots of a request in flight, whose keys and values are in the KV pool, so nothing is
read twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import numpy as np

from schemax.runtime.engine.document_rows import RunningRequest
from schemax.runtime.sampling.slot_grammars import SlotGrammars
from schemax.runtime.slots.arrays import Ints
from schemax.runtime.slots.filling import AskedSlot, key_end
from schemax.tokens import Ids

# The most shares of a pass. If more requests call for slots, no other request enters, so that few
# are in flight.
_MOST_SHARES = 32


@dataclass(slots=True)
class _Waiting:
    """A follow-up in line. kv: (shared,) places in the KV pool of the ids that its parent read."""

    running: RunningRequest
    slot: AskedSlot
    kv: Ints

    @property
    def new_ids(self) -> Ids:
        """The ids of the key that are still to be read."""
        return self.slot.key[self.slot.shared :]

    @property
    def footprint(self) -> int:
        """An estimate of the tokens kept for the slot."""
        return len(self.new_ids) + self.slot.budget // 4


@dataclass(slots=True)
class FollowUpQueue:
    """A line of follow-ups for each request.

    keys: the ids that the next pass reads of its follow-ups' keys, slot by slot.
    is_held_up: whether the last pass had no room for a slot within its request's share.
    footprint: an estimate of the tokens kept for follow-ups that have begun and still grow.
    """

    # In the order of turns, the next one first.
    _lines: dict[RunningRequest, deque[_Waiting]] = field(default_factory=dict)
    _footprints: dict[int, int] = field(default_factory=dict)
    footprint: int = 0
    is_held_up: bool = False
    keys: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def put(self, running: RunningRequest, slot: AskedSlot, kv: Ints) -> None:
        """Puts a slot in its request's line. kv: places of its parent's tokens."""
        line = self._lines.setdefault(running, deque())
        line.append(_Waiting(running, slot, kv[: slot.shared]))

    def forget(self, slots: Ints) -> None:
        """Drops the footprints of slots that are done."""
        self.keys = self.keys[:0]
        if self._footprints:
            self.footprint -= sum(self._footprints.pop(slot, 0) for slot in slots.tolist())

    @property
    def is_empty(self) -> bool:
        return not self._lines

    def share(self, pass_tokens: int, wanted: int) -> int:
        """The tokens of a pass for each request in line. wanted: the tokens of a new request."""
        if not wanted or not self._lines:
            return pass_tokens
        return max((pass_tokens - wanted) // len(self._lines), pass_tokens // _MOST_SHARES)

    def take(self, room: int, share: int, alone: bool) -> list[_Waiting]:
        """Takes the first of each line in turn, as many as a pass has room for.

        A request gets no more tokens of the pass than its share, tokens of its growing slots
        included, but at least one slot; so does the queue as a whole, if it is alone.
        """
        batch: list[_Waiting] = []
        used = {each: each.filling.num_open - len(line) for each, line in self._lines.items()}
        self.is_held_up = False
        turns = deque(self._lines)
        while turns:
            running = turns.popleft()
            size = len(self._lines[running][0].new_ids)
            if used[running] and used[running] + size > share:
                continue
            if size > room and (batch or not alone):
                self.is_held_up = True
                break
            line = self._lines.pop(running)
            batch.append(line.popleft())
            room, used[running] = room - size, used[running] + size
            if line:
                self._lines[running] = line
                turns.append(running)
        return batch

    def cancel(self, rows: Container[int], slots: Ints) -> None:
        """Drops the follow-ups of the requests in some rows. slots: their growing slots."""
        self._lines = {each: line for each, line in self._lines.items() if each.row not in rows}
        self.forget(slots)

    def begin(self, batch: Sequence[_Waiting], grammars: SlotGrammars) -> Ints:
        """Adds follow-ups to the table, with keys still to be read; returns (c,) slots."""
        follow_ups = [waiting.slot for waiting in batch]
        requests = [waiting.running.request for waiting in batch]
        self.keys = np.array([token for waiting in batch for token in waiting.new_ids], np.int64)
        shared = np.array([slot.shared for slot in follow_ups])
        pairs = zip(follow_ups, requests, strict=True)
        ends = [key_end(slot.key, request) for slot, request in pairs]
        values = {
            "request": np.array([waiting.running.row for waiting in batch]),
            "order": -1,
            "num_kv": shared,
            "num_shared": shared,
            "position": np.array(ends),
            "num_new": np.array([len(waiting.new_ids) for waiting in batch]),
            "visible": np.array([len(request.stem) for request in requests]),
        }
        slots = grammars.take_up(follow_ups, requests, values)
        for waiting, slot in zip(batch, slots.tolist(), strict=True):
            self._footprints[slot] = waiting.footprint
            self.footprint += waiting.footprint
            waiting.running.open_slots[slot] = waiting.slot
        return slots
