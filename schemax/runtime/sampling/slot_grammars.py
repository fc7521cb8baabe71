"""The grammars of slots: where each stands, and what it allows, accepts and forces.

Grammars are asked in the way that costs least. A typed slot stands on a node of its grammar's tree
(`grammar.py`), which says what is allowed before a choice. A slot of free text, of which nearly
everything is allowed, takes the model's own choice, which a table then accepts or refuses; a
matcher (llguidance) is asked only where the table says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from schemax.runtime.sampling.grammar import (
    Allowance,
    Automata,
    Bits,
    GrammarState,
    Node,
    ask_matchers,
    explore_nodes,
    packed_bits,
)
from schemax.runtime.slots.arrays import Ints
from schemax.runtime.slots.filling import AskedSlot
from schemax.runtime.slots.requests import Request
from schemax.runtime.slots.slot_table import SlotTable
from schemax.tokens import (
    DONE,
    FREE,
    TEXT_REFUSED,
    TEXT_UNKNOWN,
    CopyReader,
    CopySource,
    Ids,
    SlotSpec,
    StopTable,
)


class Copies:
    """The slots of a table that must copy from their documents, by their numbers.

    A `tokens.CopyReader` tells which tokens continue a text. A slot that has a reader is bound
    until its text is whole, or its grammar allows no token that continues it.
    """

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

    def ahead(self, slots: Ints, count: int) -> list[Ids]:
        """(n,) up to `count` tokens that the documents of slots go on with; () where none does."""
        states = map(self._bound.get, slots.tolist())
        return [() if bound is None else bound[0].ahead(bound[1], count) for bound in states]

    def _ends(self, slot: int) -> Bits:
        """The tokens that end a slot."""
        table = self._table
        ends: Bits = packed_bits(table.stops.next_state[table.state[slot]][None] == DONE)[0]
        return ends


UNBOUND, TEXT, NODE, MATCHER = range(4)
"""A slot's `mode`: no grammar; a table of free text; a node of a tree; a matcher of its own."""

# More than any table of free text has, whose states are int8.
_STATES = 128


class SlotGrammars:
    """The grammars of a table's slots."""

    def __init__(self, table: SlotTable, vocab_size: int) -> None:
        self._table = table
        self._automata = Automata(vocab_size)
        self._states: dict[int, GrammarState] = {}
        self._deferred: dict[int, list[int]] = {}
        self._was_deferred: set[int] = set()
        self._text_tables: list[npt.NDArray[np.int8]] = []
        self._text_numbers: dict[int, int] = {}
        self._in_texts: dict[tuple[int, int], Allowance] = {}
        self._copies = Copies(table)
        self._ways: dict[int, tuple[Sequence[SlotSpec], _Ways]] = {}

    # --- slots come and go -----------------------------------------------------------------------

    def begin(
        self,
        slots: Ints,
        specs: Sequence[SlotSpec],
        stop: StopTable,
        sources: Sequence[CopySource] = (),
    ) -> None:
        """Takes up n slots of one request. specs: the same object for slots that are alike.

        sources: (n,) slots' documents, which they copy from; () if none does.
        """
        ways = self._ways_of(specs, stop)
        table = self._table
        table.mode[slots] = ways.modes
        table.text_table[slots] = ways.text_tables
        for place in ways.states:
            self._begin(int(slots[place]), specs[place].begun)
        for place in ways.copying if sources else ():
            spec = specs[place]
            self._copies.begin(int(slots[place]), spec.copying, sources[place], spec.begun)

    def take_up(
        self, waiting: Sequence[AskedSlot], requests: Sequence[Request], values: Mapping[str, Any]
    ) -> Ints:
        """Adds n slots of n requests to the table, and begins their grammars: their numbers.

        values: further columns of the table.
        """
        table = self._table
        stops = [request.stop for request in requests]
        specs = [slot.spec for slot in waiting]
        answers = [slot.answer for slot in waiting]
        samplings = [request.sampling for request in requests]
        states = [
            table.stops.after(spec.begun, table.stops.start(stop))
            for spec, stop in zip(specs, stops, strict=True)
        ]
        slots = table.add(
            {
                "state": np.array(states),
                "budget": np.array([slot.budget for slot in waiting]),
                "digest": np.array([slot.digest for slot in waiting]),
                "number": np.array([slot.number for slot in waiting]),
                "null_id": np.array([spec.null_id for spec in specs]),
                **{name: np.array([each[name] for each in samplings]) for name in samplings[0]},
                **values,
            },
            specs,
            stops,
            answers if any(answers) else None,
        )
        for place, (slot, stop) in enumerate(zip(waiting, stops, strict=True)):
            if not slot.answer:
                self.begin(slots[place : place + 1], (slot.spec,), stop, slot.sources)
        return slots

    def end(self, slots: Ints) -> None:
        """Lets go of slots that are done."""
        if self._copies:
            self._copies.end(slots)
        modes = self._table.mode[slots]
        for slot in slots[(modes == NODE) | (modes == MATCHER)].tolist():
            if (state := self._states.pop(slot, None)) is not None:
                state.end()
            self._deferred.pop(slot, None)  # where a budget ends before them

    def _begin(self, slot: int, ids: Ids) -> None:
        """Has a slot stand behind tokens that are written."""
        state = GrammarState.begin(self._automata, self._table.specs[slot].grammar, ids)
        if state is None:
            self.give_up(slot)
        else:
            self._states[slot] = state

    def _ways_of(self, specs: Sequence[SlotSpec], stop: StopTable) -> _Ways:
        if len(specs) == 1:  # a child, whose spec is its own
            (spec,) = specs
            if spec.grammar is not None and spec.grammar.strict and spec.copying is None:
                return _ON_A_NODE
            return self._made_ways(specs, stop)
        known = self._ways.get(id(specs))
        if known is None or known[0] is not specs:
            if len(self._ways) > 4096:
                self._ways.clear()
            self._ways[id(specs)] = known = specs, self._made_ways(specs, stop)
        return known[1]

    def _made_ways(self, specs: Sequence[SlotSpec], stop: StopTable) -> _Ways:
        ways = [self._way(spec, stop) for spec in specs]
        modes = tuple(mode for mode, _ in ways)
        return _Ways(
            modes,
            text_tables=tuple(table for _, table in ways),
            states=tuple(n for n, mode in enumerate(modes) if mode in (NODE, MATCHER)),
            copying=tuple(n for n, spec in enumerate(specs) if spec.copying is not None),
        )

    def _way(self, spec: SlotSpec, stop: StopTable) -> tuple[int, int]:
        """A slot's mode, and its table of free text."""
        if spec.grammar is None:
            return UNBOUND, 0
        if spec.grammar.strict:
            return NODE, 0
        table = None if spec.begun else spec.grammar.text_table(stop)
        if table is None:
            return MATCHER, 0
        number = self._text_numbers.setdefault(id(table), len(self._text_tables))
        if number == len(self._text_tables):
            self._text_tables.append(table)
        return TEXT, number

    # --- what is allowed -------------------------------------------------------------------------

    def nodes(self, slots: Ints, rows: Ints) -> list[Node]:
        """The explored nodes of rows of slots."""
        return explore_nodes(self._automata, [self._states[slot] for slot in slots[rows].tolist()])

    def allowed_in_texts(
        self, slots: Ints, rows: Ints, modes: Ints
    ) -> tuple[Ints, Ints, list[Allowance]]:
        """The tokens that free texts allow next, by table or by matcher.

        Returns (n,) rows, in order, whose matchers have not failed; (n,) the number of each row's
        allowance; and the allowances.
        """
        table = self._table
        by_table = rows[modes[rows] == TEXT]
        table_slots = slots[by_table]
        # Texts of many slots are in few states.
        states, which = np.unique(
            table.text_table[table_slots] * _STATES + table.text_state[table_slots],
            return_inverse=True,
        )
        allowances = [self._in_text(*divmod(state, _STATES)) for state in states.tolist()]
        matcher_rows = rows[modes[rows] == MATCHER].tolist()
        matcher_states = [self._states[int(slots[row])] for row in matcher_rows]
        bound: list[int] = []
        answers = ask_matchers(self._automata, matcher_states)
        for row, allowance in zip(matcher_rows, answers, strict=True):
            if allowance is None:
                self.give_up(int(slots[row]))
                modes[row] = UNBOUND
            else:
                bound.append(row)
                allowances.append(allowance)
        rows = by_table
        if bound:
            rows = np.concatenate([by_table, bound])
            which = np.concatenate([which, np.arange(len(states), len(allowances))])
            order = rows.argsort()
            rows, which = rows[order], which[order]
        if self._copies:
            which = which.copy()
            bits = [allowance.bits for allowance in allowances]
            for place, narrow in self._copies.narrowed(slots[rows], which, bits):
                which[place] = len(allowances)
                allowances.append(Allowance(narrow))
        return rows, which, allowances

    def _in_text(self, number: int, state: int) -> Allowance:
        """Tokens that a table of free text allows in one of its states."""
        if (number, state) not in self._in_texts:
            allowed = self._text_tables[number][state] != TEXT_REFUSED
            self._in_texts[number, state] = Allowance(packed_bits(allowed[None])[0])
        return self._in_texts[number, state]

    def refused(self, slots: Ints, rows: Ints, ids: Ints) -> list[int]:
        """Moves rows of slots behind their tokens; returns the rows that refuse their tokens.

        ids: (S,) the tokens chosen for the slots.
        """
        if not self._copies:
            return self._refused_by_grammars(slots, rows, ids)
        places, moved = self._copies.after(slots[rows], ids[rows])
        refused = rows[places].tolist()
        remaining = np.delete(rows, places) if refused else rows
        refused += self._refused_by_grammars(slots, remaining, ids)
        for row in refused:
            moved.pop(int(slots[row]), None)
        self._copies.move(moved)
        return sorted(refused)

    def _refused_by_grammars(self, slots: Ints, rows: Ints, ids: Ints) -> list[int]:
        table = self._table
        own, tokens = slots[rows], ids[rows]
        by_table = table.mode[own] == TEXT
        refused: list[int] = []
        (places,) = np.nonzero(by_table)
        for number in np.unique(table.text_table[own[places]]).tolist():
            part = places[table.text_table[own[places]] == number]
            after = self._text_tables[number][table.text_state[own[part]], tokens[part]]
            table.text_state[own[part]] = np.where(after >= 0, after, table.text_state[own[part]])
            refused += rows[part[after == TEXT_REFUSED]].tolist()
            for place in part[after == TEXT_UNKNOWN].tolist():
                if not self._take_matcher(int(own[place]), int(tokens[place])):
                    refused.append(int(rows[place]))
        for place in np.flatnonzero(~by_table).tolist():
            state = self._states.get(int(own[place]))
            if state is not None and not state.accepts(int(tokens[place])):
                refused.append(int(rows[place]))
        return sorted(refused)

    def _take_matcher(self, slot: int, token: int) -> bool:
        """Gives a slot of free text a matcher, which has read all of it and one more token."""
        self._table.mode[slot] = MATCHER
        self._begin(slot, self._table.ids(slot))
        state = self._states.get(slot)
        return state is None or state.accepts(token)

    def give_up(self, slot: int) -> None:
        """Lets a slot go on without its grammar, which has failed."""
        self._copies.end(np.array([slot]))
        self._deferred.pop(slot, None)
        if (state := self._states.pop(slot, None)) is not None:
            state.give_up()
        self._table.mode[slot] = UNBOUND

    def ahead(self, slots: Ints, count: int) -> list[Ids]:
        """(n,) see `Copies.ahead`."""
        return self._copies.ahead(slots, count)

    # --- what is forced --------------------------------------------------------------------------

    def take_deferred(self, slots: Ints, ids: Ints) -> list[int]:
        """Puts deferred tokens in, in place; their rows."""
        self._was_deferred.clear()
        if not self._deferred:
            return []
        rows = [row for row, slot in enumerate(slots.tolist()) if slot in self._deferred]
        for row in rows:
            slot = int(slots[row])
            ids[row], *later = self._deferred.pop(slot)
            if later:
                self._deferred[slot] = later
            self._was_deferred.add(slot)
        return rows

    def settle(self, slots: Ints, ids: Ints, *, defers: bool = False) -> None:
        """Moves the grammars of (S,) growing slots behind written tokens; writes forced tokens.

        ids: (S,) the newest token of each slot.
        defers: True if the model must read forced tokens one by one. They are then chosen in later
            passes, unless they end the slot.
        """
        table = self._table
        (rows,) = np.nonzero(table.mode[slots] == NODE)
        if not len(rows):
            return
        states: dict[int, GrammarState] = {}
        for slot, token in zip(slots[rows].tolist(), ids[rows].tolist(), strict=True):
            if slot not in self._deferred:
                states[slot] = self._states[slot]
                # A deferred token's node was reached when it was forced.
                if slot not in self._was_deferred:
                    states[slot].accepts(token)
        explore_nodes(self._automata, states.values())
        for slot, grammar in states.items():
            stop = table.stop_of[slot]
            state = int(table.state[slot])
            forced = grammar.force(state - table.stops.start(stop), stop)
            if not forced:
                continue
            ends = table.stops.after(forced, state) < 0
            fits = table.step[slot] + len(forced) <= table.budget[slot]
            # Later causal slots see forced tokens, so the model must read them.
            if table.is_causal[slot] or (defers and not (ends and fits)):
                self._deferred[slot] = [*forced]
            else:
                table.write_forced(slot, forced)


@dataclass(frozen=True, slots=True)
class _Ways:
    """The way in which grammars of n slots are asked: (n,) modes and tables; places of slots that
    have a state of their own, and of slots that copy."""

    modes: tuple[int, ...]
    text_tables: tuple[int, ...]
    states: tuple[int, ...]
    copying: tuple[int, ...]


_ON_A_NODE = _Ways((NODE,), (0,), states=(0,), copying=())
