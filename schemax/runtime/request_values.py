"""The values of a request whose slots are `causal`: each sees the values of the slots before it.

The tokens lie in the KV pool, as those of all slots do; they stay there until the request ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from schemax.runtime.plan import Ints

OWN_ONLY = 1 << 32
"""Added to the order of a token that no other slot sees."""
UNSEEN = 1 << 34
"""The order of padding among keys, which no slot sees."""


@dataclass(slots=True, eq=False)
class RequestValues:
    """The tokens of a request's values so far.

    places: (count,) in the KV pool. positions: (count,) position ids. orders: (count,) of the slots
    that the tokens belong to, with OWN_ONLY added to what goes beyond a slot's own budget: a retry
    is the slot's alone. All have room for as many tokens as the slots may write.
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


def padded(values: list[RequestValues]) -> tuple[Ints, Ints, Ints]:
    """(B, M) places, positions and orders of the tokens of B requests."""
    shape = len(values), max(each.count for each in values)
    places, positions = np.zeros((2, *shape), np.int64)
    orders = np.full(shape, UNSEEN)
    for row, each in enumerate(values):
        count = each.count
        places[row, :count] = each.places[:count]
        positions[row, :count] = each.positions[:count]
        orders[row, :count] = each.orders[:count]
    return places, positions, orders
