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
from schemax.runtime.plan import Ids, Ints
from schemax.runtime.sampling import choose, log_probabilities
from schemax.tokens import DONE, Alternatives, Grammar, SlotSpec, StopTable

logger = logging.getLogger(__name__)

Floats = npt.NDArray[np.float32]
# Alternatives that are less probable are not kept.
_LEAST_PROBABLE = 1e-6
# Rows whose masks are unpacked at once.
_CHUNK = 64


@dataclass(frozen=True, slots=True)
class Chosen:
    """(S,) tokens, their log-probabilities, and those of the slots' null tokens (NaN: no such)."""

    ids: Ints
    logprobs: Floats
    null_logprobs: Floats


@dataclass(slots=True)
class _Guide:
    """A slot's grammar and how far it has come."""

    grammar: Grammar
    matcher: Any


class Chooser:
    """Chooses tokens for slots, which go by numbers that are unique among those in flight."""

    def __init__(self, stop: StopTable, config: DecodingConfig) -> None:
        self._next_state = stop.next_state
        self._config = config
        self._guides: dict[int, _Guide] = {}
        self._null_ids: dict[int, int] = {}
        self._forced: dict[int, list[int]] = {}
        self._alternatives: dict[int, list[Alternatives]] = {}
        # Matchers of slots that are done, by grammar: they know their automaton's states.
        self._idle: dict[Grammar, list[Any]] = {}
        self._executor: Any = None

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
            self._guides[slot] = _Guide(spec.grammar, matcher)

    def end(self, slot: int) -> tuple[Alternatives, ...]:
        """Lets go of a slot that is done; what else it could have written."""
        self._null_ids.pop(slot, None)
        self._forced.pop(slot, None)
        if (guide := self._guides.pop(slot, None)) is not None and guide.matcher.reset():
            self._idle[guide.grammar].append(guide.matcher)
        return tuple(self._alternatives.pop(slot, ()))

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
        May write into the logits.
        """
        numbers: list[int] = slots.tolist()
        taken = np.full(len(slots), -1) if given is None else given.copy()
        waiting = [row for row, slot in enumerate(numbers) if slot in self._forced]
        for row in waiting:
            taken[row] = self._next_forced(numbers[row])
        guided = [
            (row, guide)
            for row, slot in enumerate(numbers)
            if taken[row] < 0 and (guide := self._guides.get(slot)) is not None
        ]
        sampled = self._config.temperature > 0
        strict = [(row, guide) for row, guide in guided if sampled or guide.grammar.strict]
        allowed = self._mask(logits, strict)
        device_steps = torch.from_numpy(steps).to(logits.device)
        ids = choose(logits, keys, device_steps, self._config).cpu().numpy()
        ids = np.where(taken >= 0, taken, ids)
        refused = [
            (row, guide) for row, guide in guided if not self._accept(numbers[row], guide, ids[row])
        ]
        if refused:
            rows = torch.tensor([row for row, _ in refused], device=logits.device)
            part = logits[rows]
            self._mask(part, [(place, guide) for place, (_, guide) in enumerate(refused)])
            again = choose(part, keys[rows], device_steps[rows], self._config).tolist()
            for (row, guide), token in zip(refused, again, strict=True):
                ids[row] = token
                self._accept(numbers[row], guide, token, finally_=True)
        nulls = np.array([self._null_ids.get(slot, -1) for slot in numbers])
        wanted = torch.from_numpy(np.stack([ids, np.maximum(nulls, 0)], axis=1)).to(logits.device)
        found = log_probabilities(logits, wanted).cpu().numpy()
        self._keep_alternatives(logits, strict, allowed, numbers, steps)
        logprobs, null_logprobs = found[:, 0].copy(), np.where(nulls < 0, np.nan, found[:, 1])
        logprobs[waiting] = 0.0
        return Chosen(ids, logprobs, null_logprobs)

    def _accept(self, slot: int, guide: _Guide, token: int, finally_: bool = False) -> bool:
        """Tells a matcher of a token; False if its grammar does not allow it.

        finally_: there is no other token. A matcher that has failed constrains nothing any more.
        """
        if guide.matcher.try_consume_tokens([int(token)]) == 1:
            return True
        if finally_ or guide.matcher.is_error():
            logger.warning("a slot goes on without its grammar: %s", guide.matcher.get_error())
            del self._guides[slot]
            return True
        return False

    def _mask(self, logits: Tensor, guided: Sequence[tuple[int, _Guide]]) -> npt.NDArray[np.int32]:
        """Rules out, in place, what the grammars of some rows do not allow.

        Returns (len(guided), V / 32) bits of what they do allow.
        """
        from llguidance import LLExecutor
        from llguidance.numpy import fill_next_token_bitmask_par

        words = -(-logits.shape[1] // 32)
        bits = np.zeros((len(guided), words), np.int32)
        if not guided:
            return bits
        if self._executor is None:
            self._executor = LLExecutor()
        pairs = [(guide.matcher, place) for place, (_, guide) in enumerate(guided)]
        fill_next_token_bitmask_par(self._executor, pairs, bits)
        bits[~bits.any(axis=1)] = -1  # of a matcher that has failed
        rows = np.array([row for row, _ in guided])
        for first in range(0, len(rows), _CHUNK):
            chunk = torch.from_numpy(rows[first : first + _CHUNK]).to(logits.device)
            packed = torch.from_numpy(bits[first : first + _CHUNK].view(np.uint8))
            shifts = torch.arange(8, dtype=torch.uint8, device=logits.device)
            unpacked = (packed.to(logits.device)[:, :, None] >> shifts) & 1
            ruled_out = unpacked.flatten(1)[:, : logits.shape[1]] == 0
            logits[chunk] = logits[chunk].masked_fill(ruled_out, -torch.inf)
        return bits

    def _keep_alternatives(
        self,
        logits: Tensor,
        strict: Sequence[tuple[int, _Guide]],
        bits: npt.NDArray[np.int32],
        numbers: Sequence[int],
        steps: Ints,
    ) -> None:
        for (row, guide), packed in zip(strict, bits, strict=True):
            if not guide.grammar.choices:
                continue
            ids = np.flatnonzero(np.unpackbits(packed.view(np.uint8), bitorder="little"))
            if len(ids) < 2:
                continue
            among = logits[row, torch.from_numpy(ids).to(logits.device)].float().softmax(dim=0)
            probabilities = among.cpu().numpy()
            kept = probabilities >= _LEAST_PROBABLE
            found = Alternatives(
                int(steps[row]), tuple(ids[kept].tolist()), tuple(probabilities[kept].tolist())
            )
            self._alternatives.setdefault(numbers[row], []).append(found)

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
        for token in ids:
            state = int(self._next_state[state, token])
        return state == DONE

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
