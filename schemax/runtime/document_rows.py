"""The rows of the document store: which request has which, and what lies in it."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from schemax.runtime.outputs import joined
from schemax.runtime.plan import Ints
from schemax.runtime.requests import Request
from schemax.tokens import SlotOutput


@dataclass(slots=True, eq=False)
class RunningRequest:
    """A request in flight.

    row: of the document store. slots: numbers of those of the wave under way; num_growing: of these
    and their children, those that grow or are yet to come. footprint: tokens that are kept, by a
    guess. outputs: of the waves that are done.
    children, branches: numbers of the slots that others have called for, by the numbers of these.
    paths: what slots of a later wave are called, by number.
    kept_kv: places in the KV pool of slots that are done, whose children share them.
    """

    request: Request
    row: int
    slots: Ints
    num_growing: int
    footprint: int
    children: dict[int, list[int]] = field(default_factory=dict)
    branches: dict[int, list[int]] = field(default_factory=dict)
    paths: dict[int, tuple[str, ...]] = field(default_factory=dict)
    kept_kv: list[Ints] = field(default_factory=list)
    outputs: tuple[SlotOutput, ...] = ()

    def end_wave(self, outputs: tuple[SlotOutput, ...]) -> None:
        """Takes up what the slots wrote, which are all done."""
        self.outputs, self.slots = joined(self.outputs, outputs), self.slots[:0]
        self.children, self.branches, self.paths = {}, {}, {}


class DocumentRows:
    """The rows of the document store: who has one, and what lies in it.

    num_rows, width: the extent of the store. length: (num_rows,) tokens in each row; prefixes:
    (num_rows, P) handles of what is before it: the instruction, then demonstrations, padded with
    -1. positions, orders: (num_rows, width) position
    ids, and which of its request's slots a token belongs to: -1 for all, else by `order`.
    """

    def __init__(self) -> None:
        self.num_rows = self.width = 0
        self.running: dict[int, RunningRequest] = {}
        self.length = np.zeros(0, np.int64)
        self.prefixes = np.zeros((0, 1), np.int64)
        self.positions = np.zeros((0, 0), np.int64)
        self.orders = np.zeros((0, 0), np.int64)
        self._free: list[int] = []

    @property
    def num_used(self) -> int:
        """Rows up to the last one in use."""
        return int(np.flatnonzero(self.length)[-1]) + 1 if self.running else 0

    @property
    def is_sparse(self) -> bool:
        """Whether most of the rows up to the last one in use are empty."""
        return self.num_used > max(8, 2 * len(self.running))

    def take(self, request: Request, prefixes: Sequence[int]) -> int:
        """The lowest free row, with the request's stem in it, behind prefixes."""
        row = heapq.heappop(self._free)
        count = len(request.stem)
        self.length[row] = count
        if (more := len(prefixes) - self.prefixes.shape[1]) > 0:
            self.prefixes = np.pad(self.prefixes, ((0, 0), (0, more)), constant_values=-1)
        self.prefixes[row] = -1
        self.prefixes[row, : len(prefixes)] = prefixes
        self.positions[row, :count] = request.stem_positions
        self.orders[row] = -1
        return row

    def give(self, row: int) -> None:
        del self.running[row]
        self.length[row] = 0
        heapq.heappush(self._free, row)

    def resize(self, rows: int, width: int) -> tuple[Ints, int]:
        """Renumbers rows for a store of another extent. The (r,) old rows that are kept, and the
        columns of them in use."""
        kept = np.array(sorted(self.running), np.int64)
        used = int(self.length.max(initial=0))
        count = len(kept)
        for name in ("positions", "orders"):
            made = np.full((rows, width), 0 if name == "positions" else -1, np.int64)
            made[:count, :used] = getattr(self, name)[kept, :used]
            setattr(self, name, made)
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
