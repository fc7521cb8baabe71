"""Arrays that grow: runs and their padded forms, tables with room to spare, free numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


def ranks(counts: Ints) -> Ints:
    """0, 1, ... within each run of `counts`."""
    ends = counts.cumsum()
    return np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - counts, counts)


def grouped_by_row(places: Ints, row: Ints, num_rows: int) -> tuple[Ints, Ints]:
    """(t,) ranks of places of the pass within their rows, and the (num_rows, n) places by row.

    row: (t,) the row of each place. Rows are padded with the first place.
    """
    order = np.argsort(row, kind="stable")
    counts = np.bincount(row, minlength=num_rows)
    rank = np.empty_like(order)
    rank[order] = ranks(counts)
    by_row = np.full((num_rows, max(1, int(counts.max()))), places[0])
    by_row[row, rank] = places
    return rank, by_row


def run_of(places: Ints) -> Any:
    """Places that ascend, as a slice if none is left out."""
    run = slice(int(places[0]), int(places[-1]) + 1)
    return run if len(places) == run.stop - run.start else places


def padded_runs(counts: Ints, start: int) -> Ints:
    """(W, longest) places of W runs, one behind the other from `start` on, padded with the last."""
    starts = start + counts.cumsum() - counts
    last = np.maximum(counts[:, None] - 1, 0)
    places: Ints = starts[:, None] + np.minimum(np.arange(counts.max()), last)
    return places


def grown(table: Any, rows: int, columns: int, fill: int) -> Any:
    """A table of at least `rows` by `columns`, with room to spare; new cells hold `fill`."""
    if rows <= table.shape[0] and columns <= table.shape[1]:
        return table
    height = table.shape[0] if rows <= table.shape[0] else max(rows, 3 * table.shape[0] // 2)
    width = table.shape[1] if columns <= table.shape[1] else max(columns, 3 * table.shape[1] // 2)
    larger = np.full((height, width), fill, table.dtype)
    larger[: table.shape[0], : table.shape[1]] = table
    return larger


class FreeList:
    """Numbers from 0 on, taken and given back; what is out is never given out twice."""

    def __init__(self) -> None:
        self.size = 0
        self._free = np.zeros(0, np.int64)
        self._count = 0

    @property
    def num_taken(self) -> int:
        return self.size - self._count

    def take(self, count: int) -> Ints:
        if (missing := count - self._count) > 0:
            grown = self.size + max(missing, self.size // 2)
            free = np.zeros(grown, np.int64)
            fresh = grown - self.size
            free[:fresh] = np.arange(grown - 1, self.size - 1, -1)
            free[fresh : fresh + self._count] = self._free[: self._count]
            self._free, self.size, self._count = free, grown, fresh + self._count
        self._count -= count
        return self._free[self._count : self._count + count][::-1].copy()

    def give(self, numbers: Ints) -> None:
        self._free[self._count : self._count + len(numbers)] = numbers
        self._count += len(numbers)
