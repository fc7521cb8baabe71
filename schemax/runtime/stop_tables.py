"""One table for the stop rules of all slots in flight."""

from __future__ import annotations

import numpy as np

from schemax.runtime.plan import Ids
from schemax.tokens import StopTable

EOS = -2
"""The state behind an id that ends a sequence."""


class StopTables:
    """Several stop rules in one table, with consecutive states and with ids that end a slot."""

    def __init__(self) -> None:
        self._starts: dict[StopTable, int] = {}
        self.next_state = np.zeros((0, 0), np.int16)

    def start(self, stop: StopTable) -> int:
        """The first state of a rule, which is added on first use."""
        found = self._starts.get(stop)
        if found is None:
            found = self._starts[stop] = len(self.next_state)
            table = stop.next_state.astype(np.int16)
            table[table >= 0] += found
            table[:, [i for i in stop.eos_ids if 0 <= i < table.shape[1]]] = EOS
            known = self.next_state if found else table[:0]
            self.next_state = np.concatenate([known, table])
        return found

    def after(self, ids: Ids, state: int) -> int:
        for token in ids:
            state = int(self.next_state[state, token])
        return state
