"""Numbers that are taken and given back: of slots, and of places in the KV pool."""

from __future__ import annotations

import numpy as np

from schemax.runtime.plan import Ints


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
