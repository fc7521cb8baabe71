"""What slots write: tokens, how sure the model was, and why they ended.

For loops whose slots all began together; slots that come and go are `flight.py`'s.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from schemax.config import DecodingConfig
from schemax.runtime.choosing import Chooser
from schemax.runtime.plan import Ids, Ints
from schemax.tokens import DONE, FinishReason, SlotOutput, SlotSpec, StopTable

REASONS: tuple[FinishReason, ...] = ("stop", "eos", "length")


class Writer:
    """Chooses the tokens of S slots and keeps them.

    step: (S,) tokens written.
    """

    def __init__(
        self,
        stop: StopTable,
        config: DecodingConfig,
        k_max: Ints,
        specs: Sequence[SlotSpec],
        answers: Sequence[Ids] | None,
    ) -> None:
        self._chooser = Chooser(stop, config)
        self._chooser.begin(range(len(k_max)), specs, answers)
        # What is forced is seen by later causal slots, so it has to be read.
        self._at_once = config.slots == "independent"
        self._next_state = stop.next_state
        self._eos_ids = np.array(stop.eos_ids, np.int64)
        self._k_max = k_max
        self._answers = answers
        self._written = np.full((len(k_max), int(k_max.max(initial=1))), -1, np.int64)
        self._logprobs = np.zeros(self._written.shape, np.float32)
        self._null_logprobs = np.full(len(k_max), np.nan, np.float32)
        self._state = np.zeros(len(k_max), np.int64)
        self._reason = np.zeros(len(k_max), np.int64)
        self._passes = np.zeros(len(k_max), np.int64)
        self.step = np.zeros(len(k_max), np.int64)

    def write(self, logits: Tensor, slots: Ints, keys: Tensor) -> tuple[Ints, npt.NDArray[Any]]:
        """(s, V) logits -> the next token of some slots, and whether each still grows after it.

        slots: (s,); keys: (s, 2) for random numbers.
        """
        step = self.step[slots]
        chosen = self._chooser.choose(logits, slots, keys, step, self._given(slots))
        first = step == 0
        self._null_logprobs[slots[first]] = chosen.null_logprobs[first]
        self._written[slots, step] = chosen.ids
        self._logprobs[slots, step] = chosen.logprobs
        self._state[slots] = self._next_state[self._state[slots], chosen.ids]
        self.step[slots] += 1
        self._passes[slots] += 1
        ended = np.isin(chosen.ids, self._eos_ids)
        self._finish(slots[(self._state[slots] != DONE) & ~ended])
        stopped = self._state[slots] == DONE
        self._reason[slots] = np.where(ended, 1, np.where(stopped, 0, 2))
        growing = ~(stopped | ended | (self.step[slots] >= self._k_max[slots]))
        return chosen.ids, growing

    def _finish(self, slots: Ints) -> None:
        """Ends slots that can only go on in one way; other forced tokens are chosen one by one."""
        for slot, ids in self._chooser.forced(slots, self._state[slots]).items():
            step = self.step[slot]
            fits = step + len(ids) <= self._k_max[slot]
            if self._at_once and fits and self._chooser.completes(ids, self._state[slot]):
                self._written[slot, step : step + len(ids)] = ids
                self._state[slot] = DONE
                self.step[slot] += len(ids)
            else:
                self._chooser.defer(slot, ids)

    def _given(self, slots: Ints) -> Ints | None:
        if self._answers is None:
            return None
        answers = ((self._answers[slot], self.step[slot]) for slot in slots.tolist())
        return np.array([ids[step] if step < len(ids) else -1 for ids, step in answers], np.int64)

    def outputs(self) -> tuple[SlotOutput, ...]:
        """(S,) what all slots wrote, once none grows any more."""
        tables = (self._written, self._logprobs, self._reason, self._null_logprobs, self._passes)
        return slot_outputs(self._chooser, np.arange(len(self.step)), *tables)


def slot_outputs(
    chooser: Chooser, slots: Ints, *tables: npt.NDArray[Any]
) -> tuple[SlotOutput, ...]:
    """The outputs of (n,) slots that are done, whom the chooser lets go of.

    tables: (n, K) tokens, -1 behind the last one, and their log-probabilities; (n,) reasons,
        log-probabilities of null, NaN where there is none, and passes.
    """
    outputs = []
    rows = zip(slots.tolist(), *(table.tolist() for table in tables), strict=True)
    for slot, ids, logprobs, reason, null, passes in rows:
        length = ids.index(-1) if -1 in ids else len(ids)
        begun = chooser.begun(slot)
        outputs.append(
            SlotOutput(
                ids=(*begun, *ids[:length]),
                finish_reason=REASONS[reason],
                logprobs=(*[0.0] * len(begun), *logprobs[:length]),
                null_logprob=None if isnan(null) else null,
                alternatives=chooser.alternatives(slot),
                passes=passes,
            )
        )
        chooser.end(slot)
    return tuple(outputs)
