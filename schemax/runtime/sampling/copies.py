"""The progress of slots through the texts that they copy from their documents.

A `tokens.CopyReader` tells which tokens continue a text. A slot that has a reader is bound until
its text is whole, or its grammar allows no token that continues it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemax.runtime.sampling.grammar import Bits, packed_bits
from schemax.runtime.slots.arrays import Ints
from schemax.runtime.slots.slot_table import SlotTable
from schemax.tokens import DONE, FREE, CopyReader, CopySource, Ids


class Copies:
    """The slots of a table that must copy from their documents, by their numbers."""

    def __init__(self, table: SlotTable) -> None:
        self._table = table
        self._bound: dict[int, tuple[CopyReader, Any]] = {}

    def __bool__(self) -> bool:
        return bool(self._bound)

    def begin(self, slot: int, copying: Any, source: CopySource, begun: Ids) -> None:
        """Binds a slot, unless the document lacks its first tokens, `begun`."""
        reader = source.reader(copying)
        state = reader.begin(begun)
        if state is not None and state is not FREE:
            self._bound[slot] = reader, state

    def end(self, slots: Ints) -> None:
        """Forgets slots."""
        for slot in slots.tolist():
            self._bound.pop(slot, None)

    def after(self, slots: Ints, ids: Ints) -> tuple[list[int], dict[int, Any]]:
        """(n,) slots with a token each -> the places whose tokens do not continue their texts, and
        the other slots' states behind their tokens, for `move`."""
        refused, moved = [], {}
        bound = self._bound
        for place, (slot, token) in enumerate(zip(slots.tolist(), ids.tolist(), strict=True)):
            if slot in bound:
                reader, state = bound[slot]
                if (state := reader.after(state, token)) is None:
                    refused.append(place)
                else:
                    moved[slot] = reader, state
        return refused, moved

    def move(self, moved: dict[int, Any]) -> None:
        """Moves slots to the states behind tokens that were written; see `after`."""
        for slot, (reader, state) in moved.items():
            if state is FREE:
                del self._bound[slot]
            else:
                self._bound[slot] = reader, state

    def narrowed(self, slots: Ints, which: Ints, allowed: Sequence[Bits]) -> list[tuple[int, Bits]]:
        """Narrows the tokens that grammars allow to those that continue slots' texts.

        which: (n,) each slot's place in `allowed`. Returns places among the slots, and the tokens
        for each. If no token is left, the slot is bound no longer, and ends if it may.
        """
        narrow_bits, known = [], {}
        for place, slot in enumerate(slots.tolist()):
            if slot not in self._bound:
                continue
            reader, state = self._bound[slot]
            bits = allowed[which[place]]
            key = int(which[place]), id(reader), state
            if key not in known:
                known[key] = bits & packed_bits(reader.allowed(state)[None])[0]
            narrow = known[key]
            if not narrow.any():
                del self._bound[slot]
                narrow = bits & self._ends(slot)
            if narrow.any():
                narrow_bits.append((place, narrow))
        return narrow_bits

    def _ends(self, slot: int) -> Bits:
        """The tokens that end a slot."""
        table = self._table
        ends: Bits = packed_bits(table.stops.next_state[table.state[slot]][None] == DONE)[0]
        return ends
