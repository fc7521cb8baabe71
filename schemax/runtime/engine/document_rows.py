"""The rows of the document store, and the requests that hold them."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from schemax.runtime.slots.arrays import Ints
from schemax.runtime.slots.block_table import RequestValues
from schemax.runtime.slots.filling import AskedSlot, Filling
from schemax.runtime.slots.requests import Request
from schemax.tokens import SlotOutput

# The store begins with 64 rows, or with 16,384 tokens if documents are long. Its width grows
# by a factor, since resizing copies everything.
_FEWEST_ROWS, _FEWEST_TOKENS = 64, 16_384
_GROWTH = 1.25


@dataclass(slots=True, eq=False)
class RunningRequest:
    """A request in flight.

    row: its row of the document store.
    slots: (N,) numbers of its own slots.
    footprint: an estimate of the tokens kept.
    filling: the life of its slots.
    open_slots: the slots that are not done, by number.
    values: the values of `causal` slots.
    kept_kv: KV places of finished slots that later slots still see.
    """

    request: Request
    row: int
    slots: Ints
    footprint: int
    filling: Filling
    open_slots: dict[int, AskedSlot]
    values: RequestValues | None
    kept_kv: list[Ints] = field(default_factory=list)

    @classmethod
    def of(cls, request: Request, row: int, slots: Ints) -> RunningRequest:
        filling = Filling(request, follows_branches=True)
        open_slots = dict(zip(slots.tolist(), filling.slots, strict=True))
        values = RequestValues.of(request.budgets) if request.is_causal else None
        return cls(request, row, slots, request.footprint, filling, open_slots, values)

    def end(self, slot: int, output: SlotOutput) -> Sequence[AskedSlot]:
        """Stores a slot's output; returns the slots that follow."""
        return self.filling.end(self.open_slots.pop(slot), output)


class DocumentRows:
    """The rows of the document store: the requests that hold them, and their tokens.

    num_rows, width: the extent of the store.
    length: (num_rows,) tokens in each row.
    prefixes: (num_rows, P) handles of the instruction, then of demonstrations, padded with -1.
    positions: (num_rows, width) position ids.
    """

    def __init__(self) -> None:
        self.num_rows = self.width = 0
        self.running: dict[int, RunningRequest] = {}
        self.length = np.zeros(0, np.int64)
        self.prefixes = np.zeros((0, 1), np.int64)
        self.positions = np.zeros((0, 0), np.int64)
        self._free: list[int] = []

    @property
    def num_used(self) -> int:
        """The number of rows up to the last one in use."""
        return int(np.flatnonzero(self.length)[-1]) + 1 if self.running else 0

    @property
    def is_sparse(self) -> bool:
        """True if most of the rows up to the last one in use are empty."""
        return self.num_used > max(8, 2 * len(self.running))

    def extent_for(self, request: Request, tokens: int, requests: int) -> tuple[int, int] | None:
        """(rows, width) of a store that also holds this request; None if there is no room.

        tokens, requests: the most that the store may hold.
        """
        count, rows, width = len(self.running), self.num_rows, self.width
        needed = len(request.stem)
        if needed > width or count == rows:
            longest = max(needed, int(self.length.max(initial=0)))
            if needed > width:
                width = int(longest * _GROWTH) if rows else longest
            most = max(1, tokens // width)
            if most <= count and width > longest * _GROWTH:
                # Too wide for the documents in flight: longer ones have passed through.
                width = int(longest * _GROWTH)
                most = max(1, tokens // width)
            fewest = min(_FEWEST_ROWS, max(1, _FEWEST_TOKENS // width))
            rows = min(max(2 * count, fewest), most, max(1, requests))
        return None if count >= rows else (rows, width)

    def take(self, request: Request, prefixes: Sequence[int]) -> int:
        """Puts a request's stem, behind prefixes, into the lowest free row; returns the row."""
        row = heapq.heappop(self._free)
        count = len(request.stem)
        self.length[row] = count
        if (more := len(prefixes) - self.prefixes.shape[1]) > 0:
            self.prefixes = np.pad(self.prefixes, ((0, 0), (0, more)), constant_values=-1)
        self.prefixes[row] = -1
        self.prefixes[row, : len(prefixes)] = prefixes
        self.positions[row, :count] = request.stem_positions
        return row

    def give(self, row: int) -> None:
        del self.running[row]
        self.length[row] = 0
        heapq.heappush(self._free, row)

    def resize(self, rows: int, width: int) -> tuple[Ints, int]:
        """Renumbers rows for a store of another extent.

        Returns the (r,) old numbers of the rows kept, and the number of columns in use.
        """
        kept = np.array(sorted(self.running), np.int64)
        used = int(self.length.max(initial=0))
        count = len(kept)
        positions = np.zeros((rows, width), np.int64)
        positions[:count, :used] = self.positions[kept, :used]
        self.positions = positions
        for name in ("length", "prefixes"):
            old = getattr(self, name)
            column = np.zeros((rows, *old.shape[1:]), np.int64)
            column[:count] = old[kept]
            setattr(self, name, column)
        self.running = {new: self.running[old] for new, old in enumerate(kept.tolist())}
        for row, running in self.running.items():
            running.row = row
        self._free = list(range(count, rows))
        self.num_rows, self.width = rows, width
        return kept, used
