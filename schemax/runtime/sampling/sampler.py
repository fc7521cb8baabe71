"""The next token of every slot: the model's choice among the tokens that its grammar allows.

Strict grammars rule tokens out before the choice. A token of free text that its grammar refuses
afterwards is chosen again, under the mask. Greedy decoding gives the same token in both ways.
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
    NO_MASKS,
    Draw,
    FewTokens,
    Floats,
    Masks,
    best_logprobs,
    best_of,
    draw,
    flattened_rows,
    log_totals,
)
from schemax.runtime.sampling.grammar import Bits, Node
from schemax.runtime.sampling.slot_grammars import MATCHER, NODE, TEXT, UNBOUND, SlotGrammars
from schemax.runtime.slots.arrays import Ints
from schemax.runtime.slots.slot_table import SlotTable
from schemax.runtime.slots.staging import SHARED, fetch
from schemax.tokens import Alternatives

# Alternatives that are less probable are not kept.
_LEAST_PROBABLE = 1e-6
# The least probability of all allowed tokens, so that its logarithm is finite.
_LEAST_MASS = 1e-38


class Chosen(NamedTuple):
    """The tokens chosen for (S,) slots.

    logprobs: of the tokens.
    null_logprobs: of the slots' null tokens; NaN: a slot has none.
    legal_logprobs: of all tokens that the grammar allows.
    """

    ids: Ints
    logprobs: Floats
    null_logprobs: Floats
    legal_logprobs: Floats

    @property
    def are_finite(self) -> npt.NDArray[np.bool_]:
        """(S,) False for a slot whose logits hold NaN or infinity."""
        return np.isfinite(self.logprobs) & np.isfinite(self.legal_logprobs)


Readback = Callable[[], tuple[Floats, FewTokens]]
"""Waits for a copy from the device: (4, n) choices, see `Draw.run`, and the few tokens."""


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """A choice under way for (S,) slots.

    modes: (S,) see `slot_grammars`.
    ids: (S,) tokens known before the choice, -1 elsewhere.
    deferred: rows of forced tokens.
    rows: rows that choose among the whole vocabulary.
    few_rows: rows that choose among few tokens, at `nodes`.
    readback: the choices.
    """

    logits: Tensor
    slots: Ints
    modes: Ints
    ids: Ints
    deferred: list[int]
    rows: Ints
    few_rows: Ints
    nodes: list[Node]
    readback: Readback


class Sampler:
    """Chooses the tokens of a table's slots; its callers begin and end the slots' `grammars`."""

    def __init__(self, table: SlotTable, vocab_size: int) -> None:
        self._table = table
        self.grammars = SlotGrammars(table, vocab_size)

    def choose(self, logits: Tensor, slots: Ints) -> Chosen:
        """(S, V) logits -> the next token of each of (S,) slots."""
        return self.finish(self.begin(logits, slots))

    def begin(self, logits: Tensor, slots: Ints) -> Choice:
        """Asks grammars while the device computes the logits, then enqueues the choice."""
        table, count = self._table, len(slots)
        answers = table.given(slots)
        ids = np.full(count, -1) if answers is None else answers
        deferred = self.grammars.take_deferred(slots, ids)
        modes = np.where(ids < 0, table.mode[slots], UNBOUND)
        few_rows, nodes, strict, texts = self._ask(slots, modes, logits.device)
        chooses_of_all = np.ones(count, bool)
        chooses_of_all[few_rows] = False
        (rows,) = np.nonzero(chooses_of_all)
        few_ids = [node.ids for node in nodes if node.ids is not None]
        readback = self._enqueue(logits, slots, rows, ids[rows], few_rows, few_ids, strict, texts)
        return Choice(logits, slots, modes, ids, deferred, rows, few_rows, nodes, readback)

    def finish(self, choice: Choice) -> Chosen:
        """Waits for the chosen tokens; grammars accept them."""
        table, slots, rows = self._table, choice.slots, choice.rows
        unknown = np.full(len(slots), np.nan, np.float32)
        chosen = Chosen(choice.ids, unknown, unknown.copy(), np.zeros(len(slots), np.float32))
        choices, few = choice.readback()
        chosen.ids[rows], chosen.logprobs[rows], chosen.null_logprobs[rows] = choices[:3]
        chosen.legal_logprobs[rows] = choices[3]
        if len(choice.few_rows):
            few_rows = choice.few_rows
            self._choose_of_few(slots[few_rows], few_rows, choice.nodes, few, chosen)
        self._accept(choice.logits, slots, choice.modes, chosen)
        chosen.null_logprobs[table.null_id[slots] < 0] = np.nan
        chosen.logprobs[choice.deferred] = 0.0
        return chosen

    def _ask(
        self, slots: Ints, modes: Ints, device: torch.device
    ) -> tuple[Ints, list[Node], Masks, Masks]:
        """Asks grammars, before the choice, which tokens they allow.

        Returns rows that may write few tokens, with their nodes; the masks of other rows of nodes;
        and the masks of free texts. On a CPU, free texts are asked only if tokens are drawn: else
        refused tokens are chosen again, for which the host would have to wait on a device.
        """
        (rows,) = np.nonzero(modes == NODE)
        few_rows, few_nodes = [], []
        bits: dict[int, Bits] = {}
        for row, node in zip(rows.tolist(), self.grammars.nodes(slots, rows), strict=True):
            if node.ids is not None:
                few_rows.append(row)
                few_nodes.append(node)
            elif node.bits is not None:
                bits[row] = node.bits
            else:
                self.grammars.give_up(int(slots[row]))
                modes[row] = UNBOUND
        texts = NO_MASKS
        is_text = (modes == TEXT) | (modes == MATCHER)
        if device.type in SHARED:
            is_text &= self._table.temperature[slots] > 0
        if is_text.any():
            (text_rows,) = np.nonzero(is_text)
            text_rows, which, allowed = self.grammars.allowed_in_texts(slots, text_rows, modes)
            texts = Masks(text_rows, which, [allowance.bits for allowance in allowed])
        return np.array(few_rows, np.int64), few_nodes, _masks(bits), texts

    def _enqueue(
        self,
        logits: Tensor,
        slots: Ints,
        rows: Ints,
        given: Ints,
        few_rows: Ints,
        few_ids: Sequence[Ints],
        strict: Masks = NO_MASKS,
        texts: Masks = NO_MASKS,
        *,
        again: bool = False,
    ) -> Readback:
        """Enqueues the choice on the device, with one copy there and one copy back.

        rows: (n,) in order, that choose among the whole vocabulary.
        given: (n,) see `Draw`.
        few_rows: (m,) rows that choose among their `few_ids` alone.
        strict, texts: masks by row.
        again: True if texts choose a second time, under their masks.
        """
        ids, owner, starts = flattened_rows(few_ids)
        is_bound = (self._table.temperature[slots[texts.places]] > 0) | again
        bound = strict.merged(texts.where(is_bound))
        staged, (few_places, id_places, few_tokens) = Draw.staged(
            self._table,
            slots,
            rows,
            given,
            bound=bound.within(rows),
            is_strict=np.isin(bound.places, strict.places),
            checked=texts.where(~is_bound).within(rows),
            device=logits.device,
            few=(few_rows, few_rows[owner], ids),
        )
        results = [staged.run(logits).flatten()] if len(rows) else []
        if len(few_rows):
            results += [logits[id_places, few_tokens].float(), log_totals(logits, few_places)]
        copied = fetch(torch.cat(results) if len(results) > 1 else results[0])

        def read() -> tuple[Floats, FewTokens]:
            ends = np.cumsum([4 * len(rows), len(ids)])
            choices, logits, totals = np.split(copied(), ends)
            return choices.reshape(4, -1), FewTokens(ids, owner, starts, logits, totals)

        return read

    def _choose_of_few(
        self, slots: Ints, rows: Ints, nodes: Sequence[Node], few: FewTokens, chosen: Chosen
    ) -> None:
        """Chooses for rows with few allowed tokens; probabilities are shares of these tokens."""
        counts = np.bincount(few.owner)
        picked, logprobs, mass = best_logprobs(few)
        chosen.legal_logprobs[rows] = np.minimum(mass - few.totals, 0)
        table = self._table
        if table.is_calibrated[slots].any():
            few = replace(few, logits=self._without_priors(slots, nodes, few))
            picked, logprobs, _ = best_logprobs(few)
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
        """(r,) places among each row's tokens, drawn at random."""
        table, drawn_slots = self._table, slots[rows]
        padded = np.full((len(slots), int(counts.max())), -np.inf, np.float32)
        padded[few.owner, np.arange(len(few.owner)) - few.starts[few.owner]] = few.logits
        columns = (
            np.stack([table.digest[drawn_slots], table.number[drawn_slots]], axis=1),
            table.step[drawn_slots],
            table.temperature[drawn_slots],
            table.top_p[drawn_slots],
        )
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
        """Keeps the alternatives of slots with choices.

        probabilities: (F,).
        picked: (n,) places of chosen tokens, which stay however improbable.
        """
        table = self._table
        is_kept = probabilities >= _LEAST_PROBABLE
        is_kept[picked] = True
        ids, kept = few.ids[is_kept].tolist(), probabilities[is_kept].tolist()
        ends = np.bincount(few.owner, is_kept).astype(np.int64).cumsum().tolist()
        starts = [0, *ends[:-1]]
        for slot, node, start, end in zip(slots.tolist(), nodes, starts, ends, strict=True):
            if node.is_choice:
                step = len(table.specs[slot].begun) + table.step.item(slot)
                alternatives = Alternatives(step, tuple(ids[start:end]), tuple(kept[start:end]))
                table.alternatives.setdefault(slot, []).append(alternatives)

    def _accept(self, logits: Tensor, slots: Ints, modes: Ints, chosen: Chosen) -> None:
        """Has grammars of free text accept the chosen tokens, or chooses others."""
        grammars = self.grammars
        text_rows = np.flatnonzero((modes == TEXT) | (modes == MATCHER))
        refused = grammars.refused(slots, text_rows, chosen.ids)
        if not refused:
            return
        modes = self._table.mode[slots]
        rows, which, allowed = grammars.allowed_in_texts(slots, np.array(refused), modes)
        are_few = np.array([allowance.is_few for allowance in allowed], bool)[which]
        are_few &= self._table.temperature[slots[rows]] == 0
        few_rows, rows = rows[are_few], rows[~are_few]
        few_ids = [allowed[number].ids for number in which[are_few].tolist()]
        texts = Masks(rows, which[~are_few], [allowance.bits for allowance in allowed])
        given = np.full(len(rows), -1)
        readback = self._enqueue(
            logits, slots, rows, given, few_rows, few_ids, texts=texts, again=True
        )
        choices, few = readback()
        chosen.ids[rows], chosen.logprobs[rows], chosen.legal_logprobs[rows] = choices[[0, 1, 3]]
        if len(few_rows):
            _take_best(few_rows, few, chosen)
        again = np.array(refused)
        for row in grammars.refused(slots, again[modes[again] != UNBOUND], chosen.ids):
            grammars.give_up(int(slots[row]))


def _masks(bits: Mapping[int, Bits]) -> Masks:
    """Masks by row, in order; rows share equal masks."""
    masks = {id(mask): mask for mask in bits.values()}
    numbers = {key: number for number, key in enumerate(masks)}
    which = [numbers[id(mask)] for mask in bits.values()]
    return Masks(np.array([*bits], np.int64), np.array(which, np.int64), [*masks.values()])


def _take_best(rows: Ints, few: FewTokens, chosen: Chosen) -> None:
    """Takes each row's most probable token of a few; probabilities are shares of all tokens."""
    picked, top = best_of(few.logits, few.owner, few.starts)
    chosen.ids[rows] = few.ids[picked]
    chosen.logprobs[rows] = top - few.totals
    mass = np.add.reduceat(np.exp(few.logits - few.totals[few.owner]), few.starts)
    chosen.legal_logprobs[rows] = np.log(np.clip(mass, _LEAST_MASS, 1))
