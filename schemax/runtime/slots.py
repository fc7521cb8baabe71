"""Slots that grow, as arrays, and the documents that they belong to."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from schemax.runtime.plan import Ints
from schemax.runtime.requests import Request


@dataclass(slots=True)
class Slots:
    """The slots that still grow, all (S,) in one order.

    row: of the document; home: in the tables of what they wrote and where it lies.
    step: tokens written; length: tokens in cells, the first `shared` of them in cells of the slot
        that called for it; position: of the newest token.
    pending: how many of the newest tokens the model has not read: one, and those that were forced;
        of a slot that another one has just called for, its key's.
    passes: forward passes so far.
    state: of the stop rule; budget: tokens; visible: of the document's; instruction: its handle.
    keys: (S, 2) for random numbers; index: see `Request`; -1 for slots that others called for.
    """

    row: Ints
    home: Ints
    step: Ints
    length: Ints
    shared: Ints
    position: Ints
    pending: Ints
    passes: Ints
    state: Ints
    budget: Ints
    visible: Ints
    instruction: Ints
    index: Ints
    keys: Ints

    def __len__(self) -> int:
        return len(self.row)

    def keep(self, kept: Any) -> Slots:
        return Slots(*(getattr(self, field.name)[kept] for field in fields(self)))

    def joined(self, others: list[Slots]) -> Slots:
        names = [field.name for field in fields(self)]
        return Slots(*(np.concatenate([getattr(s, n) for s in (self, *others)]) for n in names))

    @classmethod
    def none(cls) -> Slots:
        empty = np.zeros(0, np.int64)
        columns: list[Ints] = [*[empty] * 13, np.zeros((0, 2), np.int64)]
        return cls(*columns)


class Stack:
    """Numbers from 0 on, taken and given back; what is out is never given out twice."""

    def __init__(self) -> None:
        self.size = 0
        self._free = np.zeros(0, np.int64)

    def take(self, count: int) -> Ints:
        if (missing := count - len(self._free)) > 0:
            grown = self.size + max(missing, self.size // 2)
            self._free = np.concatenate([np.arange(grown - 1, self.size - 1, -1), self._free])
            self.size = grown
        kept = len(self._free) - count
        self._free, taken = self._free[:kept], self._free[kept:]
        return taken[::-1].copy()

    def give(self, numbers: Ints) -> None:
        self._free = np.concatenate([self._free, numbers])


@dataclass(slots=True)
class Resident:
    """A document in flight: its row, its slots' homes, and how many still grow, or are to come.

    children, branches: homes of the slots that others have called for, by the homes of these.
    footprint: tokens that are kept for it, by a guess.
    kept: cells of slots that are done, which their branches share.
    """

    request: Request
    row: int
    homes: Ints
    growing: int
    footprint: int
    children: dict[int, list[int]] = field(default_factory=dict)
    branches: dict[int, list[int]] = field(default_factory=dict)
    kept: list[Ints] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Entry:
    """A document that is read in the next pass."""

    request: Request
    row: int


def ranks(counts: Ints) -> Ints:
    """0, 1, ... within each run of `counts`."""
    ends = counts.cumsum()
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def grown(table: Any, rows: int, columns: int, fill: int) -> Any:
    """The table with at least so many rows and columns, and some to spare."""
    if rows <= table.shape[0] and columns <= table.shape[1]:
        return table
    height = max(rows, table.shape[0])
    width = columns if columns <= table.shape[1] else max(columns, 2 * table.shape[1])
    grown = np.full((height, max(width, table.shape[1])), fill, table.dtype)
    grown[: table.shape[0], : table.shape[1]] = table
    return grown
