"""The next token of every slot: the model's choice among what the slot's grammar allows.

One `Chooser` serves a run of any decode loop. A matcher (llguidance) per slot in flight says which
tokens are allowed next. Under a strict grammar it is asked before the choice; under any other the
model chooses freely, and only a choice that is not allowed is made once more, under the mask, which
greedily gives the same token as asking first.

Where a strict grammar leaves only one continuation, its tokens are forced: nobody is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from schemax.config import DecodingConfig
from schemax.runtime.masks import Bits, Masks, allowed_ids, are_few, rule_out
from schemax.runtime.plan import Ids, Ints
from schemax.runtime.sampling import choose, log_probabilities, parts
from schemax.tokens import DONE, Alternatives, Grammar, SlotSpec, StopTable

logger = logging.getLogger(__name__)

Floats = npt.NDArray[np.float32]
# Alternatives that are less probable are not kept.
_LEAST_PROBABLE = 1e-6


@dataclass(frozen=True, slots=True)
class Chosen:
    """(S,) tokens, their log-probabilities, and those of the slots' null tokens (NaN: no such)."""

    ids: Ints
    logprobs: Floats
    null_logprobs: Floats


@dataclass(frozen=True, slots=True)
class _Guide:
    """A slot's grammar and how far it has come."""

    slot: int
    grammar: Grammar
    matcher: Any

    def accepts(self, token: int) -> bool:
        """Whether the token is allowed; if so, takes it for written."""
        return bool(self.matcher.try_consume_tokens([int(token)]) == 1)


@dataclass(frozen=True, slots=True)
class _Draw:
    """One choice for each of (S,) slots: what it is made from, and what came of it.

    keys: (S, 2) for random numbers; steps: (S,); nulls: (S,) null tokens, -1 where there is none.
    """

    logits: Tensor
    keys: Tensor
    steps: Ints
    nulls: Ints
    chosen: Chosen


class Chooser:
    """Chooses tokens for slots, which go by numbers that are unique among those in flight."""

    def __init__(self, stop: StopTable, config: DecodingConfig) -> None:
        self._next_state = stop.next_state
        self._config = config
        self._guides: dict[int, _Guide] = {}
        self._null_ids: dict[int, int] = {}
        self._begun: dict[int, Ids] = {}
        self._forced: dict[int, list[int]] = {}
        self._alternatives: dict[int, list[Alternatives]] = {}
        # Matchers of slots that are done, by grammar: they know their automaton's states.
        self._idle: dict[Grammar, list[Any]] = {}
        self._failed: set[Grammar] = set()
        self._masks = Masks()

    # --- slots come and go -----------------------------------------------------------------------

    def begin(
        self,
        slots: Iterable[int],
        specs: Sequence[SlotSpec],
        answers: Sequence[Ids] | None = None,
    ) -> None:
        """Takes up slots. One with an answer is not constrained, since it is given its tokens."""
        for place, (slot, spec) in enumerate(zip(slots, specs, strict=False)):
            if spec.null_id >= 0:
                self._null_ids[slot] = spec.null_id
            if spec.grammar is None or (answers and answers[place]):
                continue
            idle = self._idle.setdefault(spec.grammar, [])
            matcher = idle.pop() if idle else spec.grammar.new_matcher()
            self._guides[slot] = guide = _Guide(slot, spec.grammar, matcher)
            if spec.begun:
                self._begun[slot] = spec.begun
                if matcher.try_consume_tokens(list(spec.begun)) != len(spec.begun):
                    self._give_up(guide)

    def begun(self, slot: int) -> Ids:
        """Tokens of a slot's value that stood there before it."""
        return self._begun.get(slot, ())

    def alternatives(self, slot: int) -> tuple[Alternatives, ...]:
        """What else a slot could have written so far."""
        return tuple(self._alternatives.get(slot, ()))

    def end(self, slot: int) -> None:
        """Lets go of a slot that is done."""
        self._null_ids.pop(slot, None)
        self._begun.pop(slot, None)
        self._alternatives.pop(slot, None)
        self._forced.pop(slot, None)
        if (guide := self._guides.pop(slot, None)) is not None and guide.matcher.reset():
            self._idle[guide.grammar].append(guide.matcher)

    def _give_up(self, guide: _Guide) -> None:
        """Lets a slot go on without its grammar, whose matcher has failed."""
        del self._guides[guide.slot]
        if guide.grammar not in self._failed:
            self._failed.add(guide.grammar)
            reason = guide.matcher.get_error().strip().partition("\n")[0]
            logger.warning("slots go on without their grammar: %s", reason or "nothing is allowed")

    # --- choices ---------------------------------------------------------------------------------

    def choose(
        self,
        logits: Tensor,
        slots: Ints,
        keys: Tensor,
        steps: Ints,
        given: Ints | None = None,
    ) -> Chosen:
        """(S, V) logits -> the next token of each of (S,) slots.

        keys: (S, 2), as `sampling.choose` takes them; steps: (S,) how many tokens each slot has.
        given: (S,) tokens to be taken whatever the model says; -1 where it chooses.
        """
        numbers: list[int] = slots.tolist()
        taken = np.full(len(slots), -1) if given is None else given.copy()
        waiting = [row for row, slot in enumerate(numbers) if slot in self._forced]
        for row in waiting:
            taken[row] = self._next_forced(numbers[row])
        guides = {
            row: guide
            for row, slot in enumerate(numbers)
            if taken[row] < 0 and (guide := self._guides.get(slot)) is not None
        }
        nulls = np.array([self._null_ids.get(slot, -1) for slot in numbers], np.int64)
        unknown = np.full(len(slots), np.nan, np.float32)
        draw = _Draw(logits, keys, steps, nulls, Chosen(taken, unknown, unknown.copy()))
        sampled = self._config.temperature > 0
        asked = [row for row, guide in guides.items() if sampled or guide.grammar.strict]
        rows, bits = self._ask(asked, guides, logits.shape[1])
        strict = np.array([guides[row].grammar.strict for row in rows.tolist()], bool)
        choices = np.array([guides[row].grammar.choices for row in rows.tolist()], bool)
        few = strict & (are_few(bits) | choices)
        self._choose_of_few(draw, rows[few], bits[few], guides)
        rest = np.setdiff1d(np.arange(len(slots)), rows[few])
        for some in parts(len(rest), logits.device):
            masked = ~few & np.isin(rows, rest[some])
            asked_for = strict[masked], rows[masked], bits[masked]
            self._choose_of_many(draw, rest[some], *asked_for, guides)
        draw.chosen.logprobs[waiting] = 0.0
        return draw.chosen

    def _ask(
        self, rows: Sequence[int], guides: dict[int, _Guide], vocab_size: int
    ) -> tuple[Ints, Bits]:
        """What the grammars of some rows allow: (n,) rows, but for those that fail, (n, V / 32)."""
        bits = self._masks.of([guides[row].matcher for row in rows], vocab_size)
        kept = []
        for place, row in enumerate(rows):
            if guides[row].matcher.is_error() or not bits[place].any():
                self._give_up(guides.pop(row))
            else:
                kept.append(place)
        return np.array(rows, np.int64)[kept], bits[kept]

    def _choose_of_few(
        self, draw: _Draw, rows: Ints, bits: Bits, guides: dict[int, _Guide]
    ) -> None:
        """For some rows under strict grammars: looks at the allowed tokens, and at no others."""
        if not len(rows):
            return
        device = draw.logits.device
        ids, counts = allowed_ids(bits)
        real = np.arange(ids.shape[1]) < counts[:, None]
        places = torch.from_numpy(rows).to(device)
        logits = draw.logits[places[:, None], torch.from_numpy(ids).to(device)]
        logits = logits.masked_fill(~torch.from_numpy(real).to(device), -torch.inf)
        steps = torch.from_numpy(draw.steps[rows]).to(device)
        picked = choose(logits, draw.keys[places], steps, self._config).cpu().numpy()
        # Drawn at the very end, rounding could take it beyond the last one.
        picked = np.minimum(picked, counts - 1)
        found = logits.float().log_softmax(dim=-1).cpu().numpy()
        every = np.arange(len(rows))
        draw.chosen.ids[rows] = ids[every, picked]
        draw.chosen.logprobs[rows] = found[every, picked]
        nulls = draw.nulls[rows]
        is_null = real & (ids == nulls[:, None])
        of_null = np.where(is_null, found, -np.inf).max(axis=1)
        draw.chosen.null_logprobs[rows] = np.where(nulls < 0, np.nan, of_null)
        for place, row in enumerate(rows.tolist()):
            guide, count = guides[row], int(counts[place])
            if not guide.accepts(draw.chosen.ids[row]):
                self._give_up(guide)
            if guide.grammar.choices and count > 1:
                probabilities = np.exp(found[place, :count])
                kept = probabilities >= _LEAST_PROBABLE
                kept[picked[place]] = True
                self._alternatives.setdefault(guide.slot, []).append(
                    Alternatives(
                        len(self.begun(guide.slot)) + int(draw.steps[row]),
                        tuple(ids[place, :count][kept].tolist()),
                        tuple(probabilities[kept].tolist()),
                    )
                )

    def _choose_of_many(
        self,
        draw: _Draw,
        rows: Ints,
        strict: npt.NDArray[np.bool_],
        masked: Ints,
        bits: Bits,
        guides: dict[int, _Guide],
    ) -> None:
        """For some of all other rows: looks at all logits.

        masked: (m,) those of the rows whose grammars have been asked, with what these allow;
            strict: (m,) whether probabilities are among that.
        """
        places = torch.from_numpy(rows).to(draw.logits.device)
        logits = draw.logits[places]
        keys, steps = draw.keys[places], torch.from_numpy(draw.steps[rows]).to(places.device)
        masked = np.searchsorted(rows, masked)
        rule_out(logits, masked[strict], bits[strict])
        source = logits
        if not strict.all():  # sampled: free text as well
            source = logits.clone()
            rule_out(source, masked[~strict], bits[~strict])
        given = draw.chosen.ids[rows]
        ids = choose(source, keys, steps, self._config).cpu().numpy()
        ids = np.where(given >= 0, given, ids)
        refused = [
            row
            for row, token in zip(rows.tolist(), ids.tolist(), strict=True)
            if row in guides and not guides[row].accepts(token)
        ]
        again, bits = self._ask(refused, guides, logits.shape[1])
        if len(again):
            some = np.searchsorted(rows, again)
            part = logits[torch.from_numpy(some).to(places.device)]
            rule_out(part, np.arange(len(some)), bits)
            ids[some] = choose(part, keys[some], steps[some], self._config).cpu().numpy()
            for row, token in zip(again.tolist(), ids[some].tolist(), strict=True):
                if not guides[row].accepts(token):
                    self._give_up(guides[row])
        nulls = draw.nulls[rows]
        wanted = torch.from_numpy(np.stack([ids, np.maximum(nulls, 0)], axis=1)).to(places.device)
        found = log_probabilities(logits, wanted).cpu().numpy()
        draw.chosen.ids[rows] = ids
        draw.chosen.logprobs[rows] = found[:, 0]
        draw.chosen.null_logprobs[rows] = np.where(nulls < 0, np.nan, found[:, 1])

    # --- what is forced --------------------------------------------------------------------------

    def forced(self, slots: Ints, states: Ints) -> dict[int, Ids]:
        """Of some of (S,) slots, by number: the tokens that nothing else can stand in the place of.

        states: (S,) of the stop rule. The tokens end where that is met. Their matchers take them
        for written.
        """
        if not self._guides:
            return {}
        found = {}
        for slot, state in zip(slots.tolist(), states.tolist(), strict=True):
            guide = self._guides.get(slot)
            if guide is None or not guide.grammar.strict or slot in self._forced:
                continue
            data = guide.matcher.compute_ff_bytes()
            ids = self._run(guide.grammar.encode(data), state) if data else ()
            if ids and guide.matcher.try_consume_tokens(list(ids)) == len(ids):
                found[slot] = ids
        return found

    def defer(self, slot: int, ids: Ids) -> None:
        """Has forced tokens taken one by one, as the next ones that are chosen for the slot."""
        self._forced[slot] = [*ids]

    def completes(self, ids: Ids, state: int) -> bool:
        """Whether the stop rule is met with the last of these tokens."""
        return self.state_after(ids, state) == DONE

    def state_after(self, ids: Ids, state: int = 0) -> int:
        """Of the stop rule, behind some tokens."""
        for token in ids:
            state = int(self._next_state[state, token])
        return state

    def _run(self, ids: Ids, state: int) -> Ids:
        for place, token in enumerate(ids):
            state = int(self._next_state[state, token])
            if state == DONE:
                return ids[: place + 1]
        # The last one might have become another token together with what follows.
        return ids[:-1]

    def _next_forced(self, slot: int) -> int:
        token, *rest = self._forced.pop(slot)
        if rest:
            self._forced[slot] = rest
        return token
