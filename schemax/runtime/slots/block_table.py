"""The block table: places of every slot's own keys and values in the KV pool, token by token.

Where slots are `causal`, each sees the values of the slots before it. Their tokens lie in the pool
as those of all slots do, and stay there until the request ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from schemax.runtime.slots.arrays import FreeList, Ints, grown, ranks
from schemax.runtime.slots.slot_table import SlotTable


class BlockTable:
    """Places in the KV pool of the slots of a table.

    blocks: (slots, tokens) the place of each token of a slot; tokens that two slots share stand in
    the rows of both.
    """

    def __init__(self, table: SlotTable) -> None:
        self.blocks = np.zeros((0, 0), np.int64)
        self._table = table
        self._places = FreeList()
        self._sharing: set[int] = set()  # slots whose keys and values others share

    @property
    def size(self) -> int:
        """The number of the pool's places."""
        return self._places.size

    @property
    def num_taken(self) -> int:
        return self._places.num_taken

    def place(self, slots: Ints, counts: Ints, columns: Ints) -> Ints:
        """Allots places to (E,) new tokens of (S,) slots.

        counts: (S,) tokens of each slot.
        columns: (E,) a token's place in its slot.
        """
        places = self._places.take(len(columns))
        self._reserve(int(columns.max(initial=0)) + 1)
        self.blocks[np.repeat(slots, counts), columns] = places
        self._table.num_kv[slots] += counts
        return places

    def drop(self, slots: Ints, counts: Ints) -> None:
        """Frees the places of the last tokens of (S,) slots. counts: (S,) of each."""
        first = self._table.num_kv[slots] - counts
        columns = np.repeat(first, counts) + ranks(counts)
        self._places.give(self.blocks[np.repeat(slots, counts), columns])
        self._table.num_kv[slots] = first

    def keep(self, slots: Ints) -> None:
        """Keeps the places of (n,) slots, once they are done, for others that see their values."""
        self._sharing.update(slots.tolist())

    def of(self, slot: int) -> Ints:
        """The places of a slot's tokens, which are kept from now on for slots that share them."""
        self._sharing.add(slot)
        return self.blocks[slot, : self._table.num_kv[slot]].copy()

    def begin(self, slot: int, places: Ints) -> None:
        """Begins a slot with places that it shares with another one."""
        self._reserve(len(places))
        self.blocks[slot, : len(places)] = places

    def free(self, done: Ints) -> Iterator[tuple[int, Ints]]:
        """Frees the places of slots that are done; yields, by slot, places that others share."""
        if not len(done):
            return
        table = self._table
        column = np.arange(int(table.num_kv[done].max()))
        own = (column >= table.num_shared[done][:, None]) & (column < table.num_kv[done][:, None])
        blocks = self.blocks[done, : len(column)]
        shares = np.array([slot in self._sharing for slot in done.tolist()], bool)
        for place in np.flatnonzero(shares).tolist():
            yield int(done[place]), blocks[place][own[place]]
        self._sharing.difference_update(done.tolist())
        own[shares] = False
        self._places.give(blocks[own])

    def give(self, places: Ints) -> None:
        """Frees places that were kept for slots that shared them."""
        self._places.give(places)

    def _reserve(self, columns: int) -> None:
        self.blocks = grown(self.blocks, len(self._table.step), columns, 0)


OWN_ONLY = 1 << 32
"""Added to the order of a token that no other slot sees."""
UNSEEN = 1 << 34
"""The order of padding among keys, which no slot sees."""


@dataclass(slots=True, eq=False)
class RequestValues:
    """The tokens of a request's values so far.

    places: (count,) in the KV pool.
    positions: (count,) position ids.
    orders: (count,) of the slots that the tokens belong to, with OWN_ONLY added to what goes beyond
        a slot's own budget: a retry is the slot's alone. All have room for as many tokens as the
        slots may write.
    """

    places: Ints
    positions: Ints
    orders: Ints
    count: int = 0

    @classmethod
    def of(cls, budgets: Ints) -> RequestValues:
        """No tokens so far. budgets: (N,) of the request's slots."""
        return cls(*np.zeros((3, int(budgets.sum())), np.int64))

    def add(self, places: Ints, positions: Ints, orders: Ints) -> None:
        """Adds (n,) tokens."""
        end = self.count + len(places)
        self.places[self.count : end] = places
        self.positions[self.count : end] = positions
        self.orders[self.count : end] = orders
        self.count = end


def padded_values(values: list[RequestValues]) -> tuple[Ints, Ints, Ints]:
    """(B, M) places, positions and orders of the tokens of B requests."""
    shape = len(values), max(request.count for request in values)
    places, positions = np.zeros((2, *shape), np.int64)
    orders = np.full(shape, UNSEEN)
    for row, request in enumerate(values):
        count = request.count
        places[row] = request.places[0]
        places[row, :count] = request.places[:count]
        positions[row, :count] = request.positions[:count]
        orders[row, :count] = request.orders[:count]
    return places, positions, orders
