"""The next token of every slot: the model's choice among what the slot's grammar allows.

Grammars are asked in the way that costs least. A typed slot stands on a node of its grammar's tree
(`grammar.py`), which says what is allowed before the choice. A slot of free text, of which nearly
everything is allowed, takes the model's own choice, which a table then accepts or refuses; a
matcher (llguidance) is asked only where the table says nothing. What was refused is chosen once
more, under the mask, which greedily gives the same token as asking first.

Where a typed slot has only one way to go on, the tokens are forced: no model is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from schemax.config import DecodingConfig
from schemax.runtime.grammar import Automata, Bits, Node, allowed_ids, are_few, packed
from schemax.runtime.plan import Ints
from schemax.runtime.sampling import Draw, choose
from schemax.runtime.slot_table import SlotTable
from schemax.runtime.staging import stage
from schemax.tokens import TEXT_REFUSED, TEXT_UNKNOWN, Alternatives, SlotSpec, StopTable

Floats = npt.NDArray[np.float32]

UNBOUND, TEXT, NODE, MATCHER = range(4)
"""A slot's `mode`: no grammar; a table of free text; a node of a tree; a matcher of its own."""

# Alternatives that are less probable are not kept.
_LEAST_PROBABLE = 1e-6


@dataclass(frozen=True, slots=True)
class Chosen:
    """(S,) tokens, their log-probabilities, and those of the slots' null tokens (NaN: no such)."""

    ids: Ints
    logprobs: Floats
    null_logprobs: Floats


class Sampler:
    """Chooses tokens for the slots of a table."""

    def __init__(self, table: SlotTable, config: DecodingConfig, vocab_size: int) -> None:
        self._table = table
        self._config = config
        self._is_causal = config.slots == "causal"
        self._automata = Automata(vocab_size)
        self._nodes: dict[int, Node] = {}
        self._matchers: dict[int, Any] = {}
        self._deferred: dict[int, list[int]] = {}
        self._was_deferred: set[int] = set()
        self._text_tables: list[npt.NDArray[np.int8]] = []
        self._text_numbers: dict[int, int] = {}
        self._in_texts: dict[tuple[int, int], Allowance] = {}
        self._ways: dict[int, tuple[Sequence[SlotSpec], _Ways]] = {}

    # --- slots come and go -----------------------------------------------------------------------

    def begin(self, slots: Ints, specs: Sequence[SlotSpec], stop: StopTable) -> None:
        """Takes up n slots of one request. specs: the same object for slots that are alike."""
        ways = self._ways_of(specs, stop)
        table = self._table
        table.mode[slots] = ways.modes
        table.text_table[slots] = ways.text_tables
        for place in ways.nodes:
            spec = specs[place]
            assert spec.grammar is not None
            root = self._automata.of(spec.grammar).root
            self._nodes[int(slots[place])] = root.walk(spec.begun)
        for place in ways.matchers:
            slot, spec = int(slots[place]), specs[place]
            assert spec.grammar is not None
            matcher = self._automata.of(spec.grammar).take(spec.begun)
            if matcher is None:
                table.mode[slot] = UNBOUND
            else:
                self._matchers[slot] = matcher

    def end(self, slots: Ints) -> None:
        """Lets go of slots that are done."""
        modes = self._table.mode[slots]
        for slot in slots[modes == NODE].tolist():
            self._nodes.pop(slot, None)
            self._deferred.pop(slot, None)  # where a budget ends before them
        for slot in slots[modes == MATCHER].tolist():
            if (matcher := self._matchers.pop(slot, None)) is not None:
                grammar = self._table.specs[slot].grammar
                self._automata.of(grammar).give(matcher)

    def _ways_of(self, specs: Sequence[SlotSpec], stop: StopTable) -> _Ways:
        known = self._ways.get(id(specs))
        if known is None or known[0] is not specs:
            made = [self._way(spec, stop) for spec in specs]
            modes, tables = np.array(made, np.int64).reshape(-1, 2).T
            nodes, matchers = np.flatnonzero(modes == NODE), np.flatnonzero(modes == MATCHER)
            ways = _Ways(modes, tables, tuple(nodes.tolist()), tuple(matchers.tolist()))
            if len(self._ways) > 4096:  # children come in many shapes
                self._ways.clear()
            self._ways[id(specs)] = known = specs, ways
        return known[1]

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

    # --- choices ---------------------------------------------------------------------------------

    def choose(self, logits: Tensor, slots: Ints) -> Chosen:
        """(S, V) logits -> the next token of each of (S,) slots."""
        table, count = self._table, len(slots)
        given = table.given(slots)
        taken = np.full(count, -1) if given is None else given
        deferred = self._take_deferred(slots, taken)
        modes = np.where(taken < 0, table.mode[slots], UNBOUND)
        unknown = np.full(count, np.nan, np.float32)
        chosen, totals = Chosen(taken, unknown, unknown.copy()), unknown.copy()
        few, nodes, bits = self._ask(slots, modes)
        everything = np.ones(count, bool)
        everything[few] = False
        (rows,) = np.nonzero(everything)
        few_ids = [node.ids for node in nodes if node.ids is not None]
        flat = np.concatenate([*few_ids, np.zeros(0, np.int64)])
        owners = np.repeat(few, [len(ids) for ids in few_ids])
        is_strict = dict.fromkeys(np.flatnonzero(modes == NODE).tolist(), True)
        staged = stage([owners, flat], logits.device) if len(few) else []
        found = []
        if len(rows):
            draw = self._draw(slots, rows, taken[rows], bits, is_strict, logits.device)
            found.append(draw.run(logits).flatten())
        if len(few):
            found.append(logits[staged[0], staged[1]].float())
        values = (torch.cat(found) if len(found) > 1 else found[0]).cpu().numpy()
        if len(rows):
            drawn = values[: 4 * len(rows)].reshape(4, -1)
            chosen.ids[rows] = drawn[0]
            chosen.logprobs[rows] = drawn[1]
            chosen.null_logprobs[rows] = drawn[2]
            totals[rows] = drawn[3]
        if len(few):
            self._choose_of_few(slots, few, nodes, values[4 * len(rows) :], chosen)
        self._accept(logits, slots, modes, totals, chosen)
        chosen.null_logprobs[table.null_id[slots] < 0] = np.nan
        chosen.logprobs[deferred] = 0.0
        return chosen

    def _take_deferred(self, slots: Ints, taken: Ints) -> list[int]:
        """Puts deferred tokens in, in place; their rows."""
        self._was_deferred.clear()
        if not self._deferred:
            return []
        rows = [row for row, slot in enumerate(slots.tolist()) if slot in self._deferred]
        for row in rows:
            slot = int(slots[row])
            taken[row], *rest = self._deferred.pop(slot)
            if rest:
                self._deferred[slot] = rest
            self._was_deferred.add(slot)
        return rows

    def _ask(self, slots: Ints, modes: Ints) -> tuple[Ints, list[Node], dict[int, Bits]]:
        """What is allowed, of those that are asked before the choice.

        Rows of slots that may write few tokens, with their nodes; the bits of other rows.
        """
        (rows,) = np.nonzero(modes == NODE)
        nodes = [self._nodes[slot] for slot in slots[rows].tolist()]
        self._automata.explore(nodes)
        few, few_nodes = [], []
        bits: dict[int, Bits] = {}
        for row, node in zip(rows.tolist(), nodes, strict=True):
            if node.ids is not None:
                few.append(row)
                few_nodes.append(node)
            elif node.bits is not None:
                bits[row] = node.bits
            else:
                self._give_up(int(slots[row]))
                modes[row] = UNBOUND
        if self._config.temperature > 0:
            some = np.flatnonzero((modes == TEXT) | (modes == MATCHER))
            allowed = self._allowed_in_texts(slots, some, modes)
            bits.update({row: allowance.bits for row, allowance in allowed.items()})
        return np.array(few, np.int64), few_nodes, bits

    def _allowed_in_texts(
        self, slots: Ints, rows: Iterable[int], modes: Ints
    ) -> dict[int, Allowance]:
        """What free text allows next, by row: by its table, or by its matcher."""
        table = self._table
        found: dict[int, Allowance] = {}
        asked: list[int] = []
        for row in rows:
            slot = int(slots[row])
            if modes[row] == MATCHER:
                asked.append(row)
                continue
            key = int(table.text_table[slot]), int(table.text_state[slot])
            if key not in self._in_texts:
                allowed = self._text_tables[key[0]][key[1]] != TEXT_REFUSED
                self._in_texts[key] = Allowance.of(packed(allowed[None])[0])
            found[row] = self._in_texts[key]
        matchers = [self._matchers[int(slots[row])] for row in asked]
        masks = self._automata.masks(matchers)
        for row, matcher, mask in zip(asked, matchers, masks, strict=True):
            if matcher.is_error() or not mask.any():
                self._give_up(int(slots[row]), matcher)
                modes[row] = UNBOUND
            else:
                found[row] = Allowance.of(mask.copy())
        return found

    def _draw(
        self,
        slots: Ints,
        rows: Ints,
        given: Ints,
        bits: Mapping[int, Bits],
        is_strict: Mapping[int, bool],
        device: torch.device,
    ) -> Draw:
        """The choice for (n,) rows that looks at all of their logits. bits, is_strict: by row."""
        table, mine = self._table, slots[rows]
        places = {row: place for place, row in enumerate(rows.tolist())} if bits else {}
        return Draw.of(
            rows=None if len(rows) == len(slots) else rows,
            given=given,
            null_ids=table.null_id[mine],
            keys=np.stack([table.digest[mine], table.number[mine]], axis=1),
            steps=table.step[mine],
            bits={places[row]: mask for row, mask in bits.items()},
            is_strict={places[row]: row in is_strict for row in bits},
            config=self._config,
            device=device,
        )

    def _choose_of_few(
        self, slots: Ints, rows: Ints, nodes: Sequence[Node], logits: Floats, chosen: Chosen
    ) -> None:
        """For rows of which few tokens are allowed; logits: of these, row by row."""
        table, mine = self._table, slots[rows]
        flat, owner, starts = _flattened([node.ids for node in nodes if node.ids is not None])
        counts = np.bincount(owner)
        picked, top = _best(logits, owner, starts)
        shifted = logits.astype(np.float64) - top[owner]
        logprobs = shifted - np.log(np.add.reduceat(np.exp(shifted), starts))[owner]
        if self._config.temperature > 0:
            picked = starts + self._drawn_of_few(mine, owner, starts, counts, logits)
        chosen.ids[rows] = flat[picked]
        chosen.logprobs[rows] = logprobs[picked]
        is_null = flat == table.null_id[mine][owner]
        chosen.null_logprobs[rows] = -np.inf
        chosen.null_logprobs[rows[owner[is_null]]] = logprobs[is_null]
        for place, node in enumerate(nodes):
            if node.automaton.grammar.choices and counts[place] > 1:
                some = slice(int(starts[place]), int(starts[place] + counts[place]))
                self._keep(
                    int(mine[place]), flat[some], np.exp(logprobs[some]), flat[picked[place]]
                )

    def _drawn_of_few(
        self, slots: Ints, owner: Ints, starts: Ints, counts: Ints, logits: Floats
    ) -> Ints:
        """(n,) places among each row's tokens, drawn at random."""
        table = self._table
        padded = np.full((len(slots), int(counts.max())), -np.inf, np.float32)
        padded[owner, np.arange(len(owner)) - starts[owner]] = logits
        keys = np.stack([table.digest[slots], table.number[slots]], axis=1)
        steps = torch.from_numpy(table.step[slots])
        drawn = choose(torch.from_numpy(padded), torch.from_numpy(keys), steps, self._config)
        # Drawn at the very end, rounding could take a place beyond the last one.
        places: Ints = np.minimum(drawn.numpy(), counts - 1)
        return places

    def _keep(
        self, slot: int, ids: Ints, probabilities: npt.NDArray[np.float64], token: int
    ) -> None:
        """Keeps what a slot with choices could have written."""
        table = self._table
        kept = probabilities >= _LEAST_PROBABLE
        kept |= ids == token
        table.alternatives.setdefault(slot, []).append(
            Alternatives(
                len(table.specs[slot].begun) + int(table.step[slot]),
                tuple(ids[kept].tolist()),
                tuple(probabilities[kept].tolist()),
            )
        )

    # --- what free text accepts ------------------------------------------------------------------

    def _accept(
        self, logits: Tensor, slots: Ints, modes: Ints, totals: Floats, chosen: Chosen
    ) -> None:
        """Has grammars of free text accept the chosen tokens, or chooses others.

        totals: (S,) log-sum-exps of the logits.
        """
        bound = np.flatnonzero((modes == TEXT) | (modes == MATCHER))
        refused = self._refused(slots, bound, chosen)
        if not refused:
            return
        modes = self._table.mode[slots]
        allowed = self._allowed_in_texts(slots, refused, modes)
        sampled = self._config.temperature > 0
        few = [row for row in refused if row in allowed and allowed[row].is_few and not sampled]
        if few:
            self._take_best(logits, np.array(few), [allowed[r].ids for r in few], totals, chosen)
        rows = np.array([row for row in refused if row not in few], np.int64)
        if len(rows):
            bits = {row: allowed[row].bits for row in rows.tolist() if row in allowed}
            draw = self._draw(slots, rows, np.full(len(rows), -1), bits, {}, logits.device)
            drawn = draw.run(logits).cpu().numpy()
            chosen.ids[rows], chosen.logprobs[rows] = drawn[0], drawn[1]
        again = np.array(refused)
        for row in self._refused(slots, again[modes[again] != UNBOUND], chosen):
            self._give_up(int(slots[row]))

    def _take_best(
        self,
        logits: Tensor,
        rows: Ints,
        ids: Sequence[Ints],
        totals: Floats,
        chosen: Chosen,
    ) -> None:
        """The most probable among a few tokens of each row; probable among all."""
        flat, owner, starts = _flattened(ids)
        places = stage([rows[owner], flat], logits.device)
        found = logits[places[0], places[1]].float().cpu().numpy()
        picked, _ = _best(found, owner, starts)
        chosen.ids[rows] = flat[picked]
        chosen.logprobs[rows] = found[picked] - totals[rows]

    def _refused(self, slots: Ints, rows: Ints, chosen: Chosen) -> list[int]:
        """Those of some rows whose tokens are not allowed; the others go on behind their tokens."""
        table = self._table
        mine, tokens = slots[rows], chosen.ids[rows]
        by_table = table.mode[mine] == TEXT
        refused: list[int] = []
        (some,) = np.nonzero(by_table)
        for number in np.unique(table.text_table[mine[some]]).tolist():
            part = some[table.text_table[mine[some]] == number]
            after = self._text_tables[number][table.text_state[mine[part]], tokens[part]]
            table.text_state[mine[part]] = np.where(after >= 0, after, table.text_state[mine[part]])
            refused += rows[part[after == TEXT_REFUSED]].tolist()
            for place in part[after == TEXT_UNKNOWN].tolist():
                if not self._take_matcher(int(mine[place]), int(tokens[place])):
                    refused.append(int(rows[place]))
        for place in np.flatnonzero(~by_table).tolist():
            matcher = self._matchers.get(int(mine[place]))
            if matcher is not None and matcher.try_consume_tokens([int(tokens[place])]) != 1:
                refused.append(int(rows[place]))
        return sorted(refused)

    def _take_matcher(self, slot: int, token: int) -> bool:
        """Gives a slot of free text a matcher, which has read all of it and one more token."""
        table = self._table
        automaton = self._automata.of(table.specs[slot].grammar)
        if (matcher := automaton.take(table.ids(slot))) is None:
            self._give_up(slot)
            return True
        self._matchers[slot] = matcher
        table.mode[slot] = MATCHER
        return bool(matcher.try_consume_tokens([token]) == 1)

    def _give_up(self, slot: int, matcher: Any = None) -> None:
        """Lets a slot go on without its grammar, which has failed."""
        grammar = self._table.specs[slot].grammar
        matcher = self._matchers.pop(slot, matcher)
        reason = "" if matcher is None else matcher.get_error().strip().partition("\n")[0]
        self._automata.of(grammar).fail(reason)
        self._nodes.pop(slot, None)
        self._deferred.pop(slot, None)
        self._table.mode[slot] = UNBOUND

    # --- what is forced --------------------------------------------------------------------------

    def settle(self, slots: Ints, ids: Ints, *, defers: bool = False) -> None:
        """Takes tokens for written, of slots that go on, and writes what they force.

        slots, ids: (S,) and the newest token of each. defers: whether the model has to read forced
        tokens one by one: then they are the next ones to be chosen, unless they end the slot.
        """
        table = self._table
        (rows,) = np.nonzero(table.mode[slots] == NODE)
        if not len(rows):
            return
        some = [
            # A deferred token's node was reached when it was forced.
            (slot, node if slot in self._was_deferred else node.after(token))
            for slot, token in zip(slots[rows].tolist(), ids[rows].tolist(), strict=True)
            if slot not in self._deferred and (node := self._nodes[slot])
        ]
        self._automata.explore(node for _, node in some)
        for slot, node in some:
            stop = table.stop_of[slot]
            state = int(table.state[slot])
            forced = node.forced(state - table.stops.start(stop), stop)
            self._nodes[slot] = node.walk(forced)
            if not forced:
                continue
            ends = table.stops.after(forced, state) < 0
            fits = table.step[slot] + len(forced) <= table.budget[slot]
            # What is forced is seen by later causal slots, so it has to be read.
            if self._is_causal or (defers and not (ends and fits)):
                self._deferred[slot] = [*forced]
            else:
                table.write_forced(slot, forced)


@dataclass(frozen=True, slots=True, eq=False)
class Allowance:
    """What a free text allows next: (ceil(V / 32),) bits and, if these are few, the tokens."""

    bits: Bits
    ids: Ints

    @classmethod
    def of(cls, bits: Bits) -> Allowance:
        return cls(bits, allowed_ids(bits) if are_few(bits) else bits[:0].astype(np.int64))

    @property
    def is_few(self) -> bool:
        return len(self.ids) > 0


def _flattened(ids: Sequence[Ints]) -> tuple[Ints, Ints, Ints]:
    """n rows of tokens as one: the tokens, the row of each, and where each row starts."""
    counts = np.array([len(some) for some in ids])
    return np.concatenate(ids), np.repeat(np.arange(len(ids)), counts), counts.cumsum() - counts


def _best(logits: Floats, owner: Ints, starts: Ints) -> tuple[Ints, Floats]:
    """(n,) places of each row's first largest logit, and these."""
    top = np.maximum.reduceat(logits, starts)
    best = np.flatnonzero(logits == top[owner])
    picked = np.zeros(len(starts), np.int64)
    picked[owner[best][::-1]] = best[::-1]
    return picked, top


@dataclass(frozen=True, slots=True)
class _Ways:
    """How the grammars of n slots are asked: (n,) modes and tables; places that need more."""

    modes: Ints
    text_tables: Ints
    nodes: tuple[int, ...]
    matchers: tuple[int, ...]
