"""The next token of every slot: the model's choice among what the slot's grammar allows.

What is known before the choice is allowed or ruled out there; what a grammar refuses afterwards is
chosen once more, under the mask, which greedily gives the same token as asking first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from schemax.runtime.sampling.draw import (
    Draw,
    FewTokens,
    Floats,
    Masks,
    best_of,
    draw,
    flattened,
    log_totals,
    normalised,
)
from schemax.runtime.sampling.grammar import Bits, Node
from schemax.runtime.sampling.slot_grammars import MATCHER, NODE, TEXT, UNBOUND, SlotGrammars
from schemax.runtime.slots.arrays import Ints
from schemax.runtime.slots.slot_table import SlotTable
from schemax.runtime.slots.staging import SHARED, fetch
from schemax.tokens import Alternatives

# Alternatives that are less probable are not kept.
_LEAST_PROBABLE = 1e-6
# What a grammar allows is never taken for less probable: its logarithm stays a number.
_LEAST_MASS = 1e-38
_NONE = Masks(np.zeros(0, np.int64), np.zeros(0, np.int64), ())


class Chosen(NamedTuple):
    """(S,) tokens, their log-probabilities, those of the slots' null tokens (NaN: no such), and
    those of all that grammars allow, together."""

    ids: Ints
    logprobs: Floats
    null_logprobs: Floats
    legal_logprobs: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A choice under way for (S,) slots.

    modes: (S,) see `slot_grammars`. taken: (S,) tokens that are given, -1 elsewhere; deferred: rows
    of those that were forced before. rows: of which all logits are looked at; few: those of which
    some are, which stand on `nodes`. look: waits for what was found.
    """

    logits: Tensor
    slots: Ints
    modes: Ints
    taken: Ints
    deferred: list[int]
    rows: Ints
    few: Ints
    nodes: list[Node]
    look: Callable[[], tuple[Floats, FewTokens]]


class Sampler:
    """Chooses tokens for the slots of a table; their `grammars` are begun and ended by others."""

    def __init__(self, table: SlotTable, vocab_size: int) -> None:
        self._table = table
        self._vocab_size = vocab_size
        self.grammars = SlotGrammars(table, vocab_size)

    def choose(self, logits: Tensor, slots: Ints) -> Chosen:
        """(S, V) logits -> the next token of each of (S,) slots."""
        return self.finish(self.begin(logits, slots))

    def begin(self, logits: Tensor, slots: Ints) -> Choice:
        """Asks grammars while the device computes the logits, and has it choose behind that."""
        table, count = self._table, len(slots)
        given = table.given(slots)
        taken = np.full(count, -1) if given is None else given
        deferred = self.grammars.take_deferred(slots, taken)
        modes = np.where(taken < 0, table.mode[slots], UNBOUND)
        few, nodes, strict, texts = self._ask(slots, modes, logits.device)
        everything = np.ones(count, bool)
        everything[few] = False
        (rows,) = np.nonzero(everything)
        ids = [node.ids for node in nodes if node.ids is not None]
        look = self._look(logits, slots, rows, taken[rows], few, ids, strict, texts)
        return Choice(logits, slots, modes, taken, deferred, rows, few, nodes, look)

    def finish(self, choice: Choice) -> Chosen:
        """Waits for what was chosen; grammars accept that."""
        table, slots, few, rows = self._table, choice.slots, choice.few, choice.rows
        unknown = np.full(len(slots), np.nan, np.float32)
        chosen = Chosen(choice.taken, unknown, unknown.copy(), np.zeros(len(slots), np.float32))
        drawn, of_few = choice.look()
        chosen.ids[rows], chosen.logprobs[rows], chosen.null_logprobs[rows] = drawn[:3]
        chosen.legal_logprobs[rows] = drawn[3]
        if len(few):
            self._choose_of_few(slots[few], few, choice.nodes, of_few, chosen)
        self._accept(choice.logits, slots, choice.modes, chosen)
        chosen.null_logprobs[table.null_id[slots] < 0] = np.nan
        chosen.logprobs[choice.deferred] = 0.0
        return chosen

    def _ask(
        self, slots: Ints, modes: Ints, device: torch.device
    ) -> tuple[Ints, list[Node], Masks, Masks]:
        """Asks the grammars of slots that are asked before the choice what they allow.

        Rows of slots that may write few tokens, with their nodes; masks of other rows of nodes;
        those of texts. What a text is refused afterwards is chosen once more, which a device would
        be waited for: so texts are not asked on the host alone, where nothing is drawn.
        """
        (rows,) = np.nonzero(modes == NODE)
        few, few_nodes = [], []
        bits: dict[int, Bits] = {}
        for row, node in zip(rows.tolist(), self.grammars.nodes(slots, rows), strict=True):
            if node.ids is not None:
                few.append(row)
                few_nodes.append(node)
            elif node.bits is not None:
                bits[row] = node.bits
            else:
                self.grammars.give_up(int(slots[row]))
                modes[row] = UNBOUND
        texts = _NONE
        asked = (modes == TEXT) | (modes == MATCHER)
        if device.type in SHARED:
            asked &= self._table.temperature[slots] > 0
        if asked.any():
            (some,) = np.nonzero(asked)
            some, which, allowed = self.grammars.allowed_in_texts(slots, some, modes)
            texts = Masks(some, which, [allowance.bits for allowance in allowed])
        return np.array(few, np.int64), few_nodes, _masks(bits), texts

    def _look(
        self,
        logits: Tensor,
        slots: Ints,
        rows: Ints,
        given: Ints,
        few: Ints,
        ids: Sequence[Ints],
        strict: Masks = _NONE,
        texts: Masks = _NONE,
        *,
        again: bool = False,
    ) -> Callable[[], tuple[Floats, FewTokens]]:
        """Asks the logits: one copy to the device, and one back that the returned call awaits.

        rows: (n,) in order, of which all logits are looked at; see `Draw`. few: (m,) rows of which
        those of some `ids` are. strict, texts: by row. again: whether texts are refused otherwise.
        The call gives (4, n) choices, and these.
        """
        table, mine = self._table, slots[rows]
        flat, owner, starts = flattened(ids)
        is_bound = (table.temperature[slots[texts.places]] > 0) | again
        bound, checked = _both(strict, _some(texts, is_bound)), _some(texts, ~is_bound)
        made, others = Draw.of(
            rows=None if len(rows) == len(slots) else rows,
            given=given,
            null_ids=table.null_id[mine],
            keys=np.stack([table.digest[mine], table.number[mine]], axis=1),
            steps=table.step[mine],
            bound=replace(bound, places=np.searchsorted(rows, bound.places)),
            is_strict=np.isin(bound.places, strict.places),
            checked=replace(checked, places=np.searchsorted(rows, checked.places)),
            temperature=table.temperature[mine],
            top_p=table.top_p[mine],
            device=logits.device,
            others=(few, few[owner], flat),
        )
        found = [made.run(logits).flatten()] if len(rows) else []
        if len(few):
            found += [logits[others[1], others[2]].float(), log_totals(logits, others[0])]
        values = fetch(torch.cat(found) if len(found) > 1 else found[0])

        def look() -> tuple[Floats, FewTokens]:
            parts = np.split(values(), np.cumsum([4 * len(rows), len(flat)]))
            return parts[0].reshape(4, -1), FewTokens(flat, owner, starts, *parts[1:])

        return look

    def _choose_of_few(
        self, slots: Ints, rows: Ints, nodes: Sequence[Node], few: FewTokens, chosen: Chosen
    ) -> None:
        """For rows of which few tokens are allowed: a choice among these, probable among these."""
        counts = np.bincount(few.owner)
        picked, logprobs, mass = normalised(few)
        chosen.legal_logprobs[rows] = np.minimum(mass - few.totals, 0)
        table = self._table
        if table.is_calibrated[slots].any():
            few = replace(few, logits=self._without_priors(slots, nodes, few))
            picked, logprobs, _ = normalised(few)
        (drawn,) = np.nonzero(table.temperature[slots])
        if len(drawn):
            picked[drawn] = few.starts[drawn] + self._drawn_of_few(slots, few, counts, drawn)
        chosen.ids[rows] = few.ids[picked]
        chosen.logprobs[rows] = logprobs[picked]
        is_null = few.ids == self._table.null_id[slots][few.owner]
        chosen.null_logprobs[rows] = -np.inf
        chosen.null_logprobs[rows[few.owner[is_null]]] = logprobs[is_null]
        self._keep(slots, nodes, few, picked, np.exp(logprobs))

    def _without_priors(self, slots: Ints, nodes: Sequence[Node], few: FewTokens) -> Floats:
        """(F,) logits, less the priors of calibrated slots that have any."""
        logits = few.logits.copy()
        ends = np.append(few.starts[1:], len(logits))
        for slot, node, start, end in zip(slots, nodes, few.starts, ends, strict=True):
            prior = self._table.specs[slot].prior
            if prior is not None and self._table.is_calibrated[slot]:
                logits[start:end] -= prior.logprobs(node.path, tuple(few.ids[start:end].tolist()))
        return logits

    def _drawn_of_few(self, slots: Ints, few: FewTokens, counts: Ints, rows: Ints) -> Ints:
        """(r,) places among the tokens of each of some rows, drawn at random."""
        table, mine = self._table, slots[rows]
        padded = np.full((len(slots), int(counts.max())), -np.inf, np.float32)
        padded[few.owner, np.arange(len(few.owner)) - few.starts[few.owner]] = few.logits
        keys = np.stack([table.digest[mine], table.number[mine]], axis=1)
        columns = (keys, table.step[mine], table.temperature[mine], table.top_p[mine])
        drawn = draw(torch.from_numpy(padded[rows]), *map(torch.from_numpy, columns))
        # Drawn at the very end, rounding could take a place beyond the last one.
        places: Ints = np.minimum(drawn.numpy(), counts[rows] - 1)
        return places

    def _keep(
        self,
        slots: Ints,
        nodes: Sequence[Node],
        few: FewTokens,
        picked: Ints,
        probabilities: npt.NDArray[np.float64],
    ) -> None:
        """Keeps what slots with choices could have written: (F,) probabilities, of which those of
        the (n,) picked tokens stay, however small."""
        table = self._table
        is_kept = probabilities >= _LEAST_PROBABLE
        is_kept[picked] = True
        ids, kept = few.ids[is_kept].tolist(), probabilities[is_kept].tolist()
        ends = np.bincount(few.owner, is_kept).astype(np.int64).cumsum().tolist()
        starts = [0, *ends[:-1]]
        for slot, node, start, end in zip(slots.tolist(), nodes, starts, ends, strict=True):
            if node.is_choice:
                step = len(table.specs[slot].begun) + table.step.item(slot)
                found = Alternatives(step, tuple(ids[start:end]), tuple(kept[start:end]))
                table.alternatives.setdefault(slot, []).append(found)

    def _accept(self, logits: Tensor, slots: Ints, modes: Ints, chosen: Chosen) -> None:
        """Has grammars of free text accept the chosen tokens, or chooses others."""
        grammars = self.grammars
        bound = np.flatnonzero((modes == TEXT) | (modes == MATCHER))
        refused = grammars.refused(slots, bound, chosen.ids)
        if not refused:
            return
        modes = self._table.mode[slots]
        rows, which, allowed = grammars.allowed_in_texts(slots, np.array(refused), modes)
        are_few = np.array([allowance.is_few for allowance in allowed], bool)[which]
        are_few &= self._table.temperature[slots[rows]] == 0
        few, rows = rows[are_few], rows[~are_few]
        ids = [allowed[number].ids for number in which[are_few].tolist()]
        texts = Masks(rows, which[~are_few], [allowance.bits for allowance in allowed])
        given = np.full(len(rows), -1)
        drawn, of_few = self._look(logits, slots, rows, given, few, ids, texts=texts, again=True)()
        chosen.ids[rows], chosen.logprobs[rows], chosen.legal_logprobs[rows] = drawn[[0, 1, 3]]
        if len(few):
            _take_best(few, of_few, chosen)
        again = np.array(refused)
        for row in grammars.refused(slots, again[modes[again] != UNBOUND], chosen.ids):
            grammars.give_up(int(slots[row]))


def _masks(bits: Mapping[int, Bits]) -> Masks:
    """By row, in order."""
    masks = {id(mask): mask for mask in bits.values()}
    numbers = {key: number for number, key in enumerate(masks)}
    which = [numbers[id(mask)] for mask in bits.values()]
    return Masks(np.array([*bits], np.int64), np.array(which, np.int64), [*masks.values()])


def _some(masks: Masks, kept: npt.NDArray[np.bool_]) -> Masks:
    if kept.all():
        return masks
    if not kept.any():
        return _NONE
    return replace(masks, places=masks.places[kept], which=masks.which[kept])


def _both(one: Masks, other: Masks) -> Masks:
    if not len(other.places):
        return one
    places = np.concatenate([one.places, other.places])
    which = np.concatenate([one.which, other.which + len(one.masks)])
    order = places.argsort()
    return Masks(places[order], which[order], [*one.masks, *other.masks])


def _take_best(rows: Ints, few: FewTokens, chosen: Chosen) -> None:
    """The most probable among a few tokens of each row; probable among all."""
    picked, top = best_of(few.logits, few.owner, few.starts)
    chosen.ids[rows] = few.ids[picked]
    chosen.logprobs[rows] = top - few.totals
    mass = np.add.reduceat(np.exp(few.logits - few.totals[few.owner]), few.starts)
    chosen.legal_logprobs[rows] = np.log(np.clip(mass, _LEAST_MASS, 1))
