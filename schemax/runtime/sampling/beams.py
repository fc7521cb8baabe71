"""Beam search: the W most probable values of a slot instead of the single greedy one.

A slot begins as one hypothesis. After every pass all of its hypotheses are extended by all tokens
that the slot's grammar allows, and the W best are kept, those that have ended among them. The slot
is done once all that are kept have ended. A hypothesis has a number in the slot table; one that is
copied shares the keys and values of what it has in common with the other. Scores are sums of
log-probabilities, without any regard to length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from schemax.runtime.sampling.grammar import Bits, packed
from schemax.runtime.sampling.sampler import Choice, Chosen, Moves, Sampler
from schemax.runtime.sampling.slot_grammars import MATCHER, NODE, TEXT
from schemax.runtime.slots.plan import Ints
from schemax.runtime.slots.slot_table import SlotTable
from schemax.runtime.slots.staging import fetch, stage
from schemax.tokens import SlotOutput, SlotSpec

# Rows of logits that are ranked at once, so that their masks and copies stay small.
_ROWS_AT_ONCE = 64
# Beams from which on a slot is searched.
_FEWEST = 2


def is_searched(spec: SlotSpec) -> bool:
    """True if beams search a slot. All choices of a slot with choices are told of anyway, and the
    items of a list stand behind one count."""
    return not (spec.is_count or (spec.grammar is not None and spec.grammar.choices))


@dataclass(slots=True, eq=False)
class Beam:
    """The hypotheses of a slot.

    root: the slot's own number, which stays taken until the slot is done. width: how many are
    kept. live: numbers of the hypotheses that grow. ended: the others that are kept, with their
    scores.
    """

    root: int
    width: int
    live: list[int]
    ended: list[tuple[float, SlotOutput]] = field(default_factory=list)

    @property
    def output(self) -> SlotOutput:
        """The best hypothesis, followed by all others, best first."""
        ordered = sorted(self.ended, key=lambda one: -one[0])
        (_, best), *others = ordered
        passes = max(output.passes for _, output in ordered)
        beams = tuple(replace(output, role="beam") for _, output in others)
        return replace(best, passes=passes, followed=beams)


class Extension(NamedTuple):
    """A hypothesis and its next token."""

    parent: int
    token: int
    logprob: float
    null_logprob: float
    legal_logprob: float


@dataclass(frozen=True, slots=True, eq=False)
class _BeamChoice:
    """A choice under way: plain for slots without beams, look for (B,) hypotheses."""

    plain: Choice | None
    plain_slots: Ints
    hypotheses: Ints
    look: Callable[[], npt.NDArray[np.float32]]


class BeamSampler(Sampler):
    """Chooses the tokens of W hypotheses a slot; those of slots without beams as `Sampler` does.

    beams: by the number of every live hypothesis.
    """

    def __init__(self, table: SlotTable, vocab_size: int) -> None:
        super().__init__(table, vocab_size)
        self.beams: dict[int, Beam] = {}

    @property
    def held(self) -> Ints:
        """Numbers of slots that are not done and of whose hypotheses none has this number."""
        roots = {beam.root for beam in self.beams.values()}
        return np.array(sorted(roots - self.beams.keys()), np.int64)

    def begin(self, logits: Tensor, slots: Ints) -> Any:
        table, given = self._table, self._table.given(slots)
        widths = table.beams[slots]
        if not (widths >= _FEWEST).any():
            return super().begin(logits, slots)
        for row, (slot, width) in enumerate(zip(slots.tolist(), widths.tolist(), strict=True)):
            is_new = not table.step[slot] and (given is None or given[row] < 0)
            if width < _FEWEST or slot in self.beams:
                continue
            if is_new and is_searched(table.specs[slot]):
                self.beams[slot] = Beam(slot, width, [slot])
        has_beam = np.array([slot in self.beams for slot in slots.tolist()], bool)
        (plain,), (rows,) = np.nonzero(~has_beam), np.nonzero(has_beam)
        choice = None
        if len(plain):
            part = logits if not len(rows) else logits[stage([plain], logits.device)[0]]
            choice = super().begin(part, slots[plain])
        look = self._rank(logits, slots, rows)
        return _BeamChoice(choice, slots[plain], slots[rows], look)

    def finish(self, choice: Any) -> Chosen:
        """Waits for what was chosen, and copies hypotheses that go on in several ways."""
        if isinstance(choice, Choice):
            return super().finish(choice)
        plain = _NOTHING if choice.plain is None else super().finish(choice.plain)
        kept = self._extend(choice.hypotheses, choice.look())
        numbers: list[int] = []
        copies: list[tuple[int, int]] = []  # the first extension keeps its hypothesis's number
        for extension in kept:
            number = extension.parent
            if number in numbers:
                number = self._copy(extension.parent)
                copies.append((extension.parent, number))
            numbers.append(number)
        dropped = [slot for slot in choice.hypotheses.tolist() if slot not in numbers]
        searched = np.array(numbers, np.int64)
        columns = [np.array(column) for column in zip(*kept, strict=True)] or [np.zeros(0)] * 5
        ids = columns[1].astype(np.int64)
        self._read(searched, ids)
        logprobs, nulls, legal = (column.astype(np.float32) for column in columns[2:])
        return Chosen(
            np.concatenate([plain.ids, ids]),
            np.concatenate([plain.logprobs, logprobs]),
            np.concatenate([plain.null_logprobs, nulls]),
            np.concatenate([plain.legal_logprobs, legal]),
            Moves(
                np.concatenate([choice.plain_slots, searched]),
                np.array(copies, np.int64).reshape(-1, 2),
                np.array(dropped, np.int64),
            ),
        )

    def end(self, hypothesis: int, output: SlotOutput | None) -> Beam | None:
        """Takes a hypothesis out of its beam; the beam, if nothing in it grows any more.

        output: None of a hypothesis that is given up.
        """
        beam = self.beams.pop(hypothesis)
        beam.live.remove(hypothesis)
        if output is not None:
            beam.ended.append((sum(output.logprobs), output))
        return None if beam.live else beam

    def cancel(self, slots: Ints) -> None:
        for slot in slots.tolist():
            self.beams.pop(slot, None)

    def _copy(self, parent: int) -> int:
        (copy,) = self._table.copy(np.array([parent])).tolist()
        self.grammars.copy(parent, copy)
        beam = self.beams[copy] = self.beams[parent]
        beam.live.append(copy)
        return int(copy)

    def _read(self, slots: Ints, ids: Ints) -> None:
        """Has the grammars of free texts read the tokens, all of which they allow."""
        modes = self._table.mode[slots]
        (rows,) = np.nonzero((modes == TEXT) | (modes == MATCHER))
        for row in self.grammars.refused(slots, rows, ids):
            self.grammars.give_up(int(slots[row]))

    # --- what is kept ----------------------------------------------------------------------------

    def _extend(self, hypotheses: Ints, found: npt.NDArray[np.float32]) -> list[Extension]:
        """The extensions that are kept of all beams; what has ended and is not kept leaves."""
        ranked = dict(zip(hypotheses.tolist(), found.tolist(), strict=True))
        kept: list[Extension] = []
        for beam in {id(beam): beam for beam in map(self.beams.get, ranked) if beam}.values():
            ways: list[tuple[float, Extension | None, SlotOutput | None]]
            ways = [(score, None, output) for score, output in beam.ended]
            for slot in beam.live:
                before = float(
                    self._table.logprobs[slot, : self._table.step[slot]].sum(dtype=float)
                )
                null, legal, *best = ranked[slot]
                for token, logprob in zip(best[::2], best[1::2], strict=True):
                    extension = Extension(slot, int(token), logprob, null, legal)
                    ways.append((before + logprob, extension, None))
            ways = [way for way in ways if way[0] > -inf]
            ways.sort(key=lambda way: -way[0])  # stable: what has ended first
            best_ways = ways[: beam.width]
            beam.ended = [(score, output) for score, _, output in best_ways if output is not None]
            kept += [extension for _, extension, _ in best_ways if extension is not None]
        return kept

    def _rank(
        self, logits: Tensor, slots: Ints, rows: Ints
    ) -> Callable[[], npt.NDArray[np.float32]]:
        """(S, V) logits -> for (B,) rows (B, 2 + 2 W): the log-probability of null, that of all
        that is allowed, and the best tokens, each with its own. W: of the widest beam."""
        bits, strict = self._allowed(slots, rows)
        table = self._table
        width = min(int(table.beams[slots].max()), logits.shape[1])
        found = [torch.zeros(0, 2 + 2 * width, device=logits.device)]
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            some = slice(at, at + _ROWS_AT_ONCE)
            arrays = [rows[some], table.null_id[slots[rows[some]]], strict[some].astype(np.int64)]
            places, nulls, held = stage(arrays, logits.device)
            unpacked = np.unpackbits(
                np.stack(bits[some]).view(np.uint8), axis=1, bitorder="little"
            )[:, : logits.shape[1]]
            allowed = torch.from_numpy(unpacked).to(logits.device, torch.bool)
            found.append(_ranked(logits[places].float(), allowed, nulls, held > 0, width))
        return fetch(torch.cat(found))

    def _allowed(self, slots: Ints, rows: Ints) -> tuple[list[Bits], npt.NDArray[np.bool_]]:
        """(B,) the tokens that grammars allow, and whether probabilities are among these."""
        grammars, table = self.grammars, self._table
        words = -(-self._vocab_size // 32)
        everything = np.full(words, -1, np.int32)
        modes = table.mode[slots]
        found: dict[int, Bits] = {}
        typed = rows[modes[rows] == NODE]
        for row, node in zip(typed.tolist(), grammars.nodes(slots, typed), strict=True):
            if node.ids is not None:
                few = np.zeros((1, self._vocab_size), bool)
                few[0, node.ids] = True
                found[row] = packed(few)[0]
            elif node.bits is not None:
                found[row] = node.bits
            else:
                grammars.give_up(int(slots[row]))
        strict = np.isin(rows, [row for row in typed.tolist() if row in found])
        texts = rows[(modes[rows] == TEXT) | (modes[rows] == MATCHER)]
        some, which, allowances = grammars.allowed_in_texts(slots, texts, modes)
        for row, number in zip(some.tolist(), which.tolist(), strict=True):
            found[row] = allowances[number].bits
        return [found.get(row, everything) for row in rows.tolist()], strict


def _ranked(logits: Tensor, allowed: Tensor, nulls: Tensor, strict: Tensor, width: int) -> Tensor:
    """(b, V) logits, (b, V) allowed -> (b, 2 + 2 W); see `BeamSampler._rank`."""
    free = logits.log_softmax(dim=-1)
    held = logits.masked_fill(~allowed, -torch.inf)
    mass = (held.logsumexp(dim=-1) - logits.logsumexp(dim=-1)).clamp(max=0.0)
    # Of a free text only tokens count at which the model's own choice is refused.
    is_told = strict | ~allowed.gather(1, logits.argmax(dim=-1, keepdim=True))[:, 0]
    shares = torch.where(strict[:, None], held.log_softmax(dim=-1), free)
    null = shares.gather(1, nulls.clamp(min=0)[:, None])[:, 0]
    null = null.masked_fill(nulls < 0, torch.nan)
    best = shares.masked_fill(~allowed, -torch.inf).topk(width, dim=-1)
    pairs = torch.stack([best.indices.float(), best.values], dim=-1).flatten(1)
    legal = torch.where(is_told, mass, torch.zeros_like(mass))
    return torch.cat([null[:, None], legal[:, None], pairs], dim=1)


_NOTHING = Chosen(
    np.zeros(0, np.int64),
    np.zeros(0, np.float32),
    np.zeros(0, np.float32),
    np.zeros(0, np.float32),
)
