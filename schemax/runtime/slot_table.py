"""The slots that are being filled, as columns: one array operation serves all of them.

A slot has a number, its place in every column, from its first token to its output. Columns have
room to spare and numbers are given out again, so that what a slot costs does not depend on how many
others are in flight.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np
import numpy.typing as npt

from schemax.runtime.arrays import FreeList, grown, ranks
from schemax.runtime.plan import Ids, Ints
from schemax.tokens import DONE, Alternatives, FinishReason, SlotOutput, SlotSpec, StopTable

Settings = npt.NDArray[np.float64]

REASONS: tuple[FinishReason, ...] = ("stop", "eos", "length")

COLUMNS = (
    "request",  # the number of the running request
    "order",  # the slot's place among its request's slots
    "step",  # tokens written
    "position",  # position id of the newest token
    "num_new",  # newest tokens that the model has not read: one, and those that were forced
    "passes",  # forward passes so far
    "state",  # of the stop rule, among those of all rules
    "budget",  # tokens, retries included
    "k_max",  # tokens, without retries
    "visible",  # how many of its request's stem tokens the slot sees
    "num_kv",  # own tokens in the KV pool
    "num_shared",  # the first of these, which lie in slots of the pool that its parent holds
    "digest",  # of its document
    "number",  # what random numbers depend on besides
    "index",  # among all slots of a run, for traces; -1 for child slots
    "null_id",  # see `SlotSpec`
    "mode",  # how its grammar is asked; see `sampler`
    "text_table",  # which table of free text
    "text_state",  # and the state in it
    "is_calibrated",  # whether its choices are scored without their priors
    "beams",  # hypotheses that it is searched with
    "is_causal",  # whether later slots of its request see its value
)
SETTINGS = (
    "temperature",  # 0: the most probable token
    "top_p",  # of nucleus sampling
    "null_penalty",  # taken off the logit of null
)


class SlotTable:
    """All slots in flight. Every name of `COLUMNS` is a column, (capacity,) int64, and every name
    of `SETTINGS` one of float64.

    written, logprobs: (capacity, tokens). legal_logprobs: (capacity, 2). specs: (capacity,) of
    `SlotSpec`; begun, stops likewise.
    """

    request: Ints
    order: Ints
    step: Ints
    position: Ints
    num_new: Ints
    passes: Ints
    state: Ints
    budget: Ints
    k_max: Ints
    visible: Ints
    num_kv: Ints
    num_shared: Ints
    digest: Ints
    number: Ints
    index: Ints
    null_id: Ints
    mode: Ints
    text_table: Ints
    text_state: Ints
    is_calibrated: Ints
    beams: Ints
    is_causal: Ints
    temperature: Settings
    top_p: Settings
    null_penalty: Settings

    def __init__(self) -> None:
        self.stops = StopTables()
        self._numbers = FreeList()
        self._set_columns(np.zeros((len(COLUMNS), 0), np.int64))
        self._set_settings(np.zeros((len(SETTINGS), 0), np.float64))
        self.written = np.zeros((0, 0), np.int64)
        self.logprobs = np.zeros((0, 0), np.float32)
        self.null_logprobs = np.zeros(0, np.float32)
        self.legal_logprobs = np.zeros((0, 2), np.float32)
        self._reason = np.zeros(0, np.int64)
        self.specs = np.zeros(0, object)
        self.stop_of = np.zeros(0, object)
        self._answers: Ints | None = None
        self.alternatives: dict[int, list[Alternatives]] = {}

    # --- slots come and go -----------------------------------------------------------------------

    def add(
        self,
        values: dict[str, Any],
        specs: Sequence[SlotSpec],
        stops: StopTable | Sequence[StopTable],
        answers: Sequence[Ids] | None = None,
    ) -> Ints:
        """Takes up n slots: their numbers. stops: one for all of them, or (n,).

        values: by column, one for all or (n,); other columns begin with 0.
        """
        count = len(specs)
        slots = self._numbers.take(count)
        self._reserve(self._numbers.size, int(values["budget"].max(initial=1)))
        block = np.zeros((len(COLUMNS), count), np.int64)
        settings = np.zeros((len(SETTINGS), count))
        for name, column in values.items():
            (settings if name in SETTINGS else block)[_PLACES[name]] = column
        self._columns[:, slots] = block
        self._settings[:, slots] = settings
        self.written[slots] = -1
        self.null_logprobs[slots] = np.nan
        self.legal_logprobs[slots] = 0.0
        filled = np.empty(count, object)
        filled[:] = specs
        self.specs[slots] = filled
        if isinstance(stops, StopTable):
            self.stop_of[slots] = stops
        else:
            filled = np.empty(count, object)
            filled[:] = stops
            self.stop_of[slots] = filled
        if answers is not None or self._answers is not None:
            self._set_answers(slots, answers or ((),) * count)
        return slots

    def copy(self, slots: Ints) -> Ints:
        """Takes up (n,) slots once more, behind the same tokens: the numbers of the copies."""
        copies = self._numbers.take(len(slots))
        self._reserve(self._numbers.size, self.written.shape[1])
        self._columns[:, copies] = self._columns[:, slots]
        self._settings[:, copies] = self._settings[:, slots]
        names = ("written", "logprobs", "null_logprobs", "legal_logprobs")
        for name in (*names, "_reason", "specs", "stop_of"):
            column = getattr(self, name)
            column[copies] = column[slots]
        if self._answers is not None:
            self._set_answers(copies, ((),) * len(copies))
        self.index[copies] = -1
        return copies

    def release(self, slots: Ints) -> None:
        self._numbers.give(slots)
        self.specs[slots] = None
        for slot in slots.tolist() if self.alternatives else ():
            self.alternatives.pop(slot, None)

    def _reserve(self, count: int, budget: int) -> None:
        if count > self._columns.shape[1]:
            self._set_columns(grown(self._columns, len(COLUMNS), count, 0))
            self._set_settings(grown(self._settings, len(SETTINGS), count, 0))
            for name in ("null_logprobs", "_reason", "specs", "stop_of"):
                old = getattr(self, name)
                new = np.zeros(self._columns.shape[1], old.dtype)
                new[: len(old)] = old
                setattr(self, name, new)
        capacity = self._columns.shape[1]
        self.legal_logprobs = grown(self.legal_logprobs, capacity, 2, 0)
        self.written = grown(self.written, capacity, budget, -1)
        self.logprobs = grown(self.logprobs, capacity, budget, 0)

    def _set_columns(self, columns: Ints) -> None:
        self._columns = columns
        for name, column in zip(COLUMNS, columns, strict=True):
            setattr(self, name, column)

    def _set_settings(self, settings: Settings) -> None:
        self._settings = settings
        for name, column in zip(SETTINGS, settings, strict=True):
            setattr(self, name, column)

    def _set_answers(self, slots: Ints, answers: Sequence[Sequence[int]]) -> None:
        table = np.zeros((0, 1), np.int64) if self._answers is None else self._answers
        table = grown(table, self._columns.shape[1], max(1, *map(len, answers)), -1)
        table[slots] = -1
        for slot, answer in zip(slots.tolist(), answers, strict=True):
            table[slot, : len(answer)] = answer
        self._answers = table

    # --- tokens ----------------------------------------------------------------------------------

    def given(self, slots: Ints) -> Ints | None:
        """(S,) the next tokens of slots that have an answer; -1 where the model chooses."""
        if self._answers is None:
            return None
        step = self.step[slots]
        width = self._answers.shape[1]
        given = self._answers[slots, np.minimum(step, width - 1)]
        return np.where(step < width, given, -1)

    def newest(self, slots: Ints) -> Ints:
        """The tokens that the model has not read of some slots, slot by slot."""
        counts = self.num_new[slots]
        owner = np.repeat(slots, counts)
        behind = np.repeat(counts, counts) - ranks(counts)
        # Child slots have written nothing yet; see `Scheduler.new_ids`.
        found: Ints = self.written[owner, np.maximum(self.step[owner] - behind, 0)]
        return found

    def write(
        self,
        slots: Ints,
        ids: Ints,
        logprobs: npt.NDArray[np.float32],
        null_logprobs: npt.NDArray[np.float32],
        legal_logprobs: npt.NDArray[np.float32],
    ) -> None:
        """Takes up one chosen token for each of (S,) slots."""
        step = self.step[slots]
        first = step == 0
        self.null_logprobs[slots[first]] = null_logprobs[first]
        self.legal_logprobs[slots[first], 0] = legal_logprobs[first]
        self.legal_logprobs[slots, 1] += legal_logprobs
        self.written[slots, step] = ids
        self.logprobs[slots, step] = logprobs
        self.step[slots] = step + 1
        self.position[slots] += 1
        self.num_new[slots] = 1
        self.passes[slots] += 1
        state = self.stops.next_state[self.state[slots], ids]
        self.state[slots] = state
        self._reason[slots] = np.where(state == EOS, 1, np.where(state == DONE, 0, 2))

    def write_forced(self, slot: int, ids: Ids) -> None:
        """Writes tokens behind the chosen one that nothing else can stand in the place of.

        As far as the budget goes. The last of them may meet the stop rule.
        """
        step = int(self.step[slot])
        ids = ids[: int(self.budget[slot]) - step]
        self.written[slot, step : step + len(ids)] = ids
        self.logprobs[slot, step : step + len(ids)] = 0.0
        state = self.stops.after(ids, int(self.state[slot]))
        self.state[slot] = state
        self._reason[slot] = 1 if state == EOS else 0 if state == DONE else 2
        self.step[slot] += len(ids)
        self.position[slot] += len(ids)
        self.num_new[slot] += len(ids)

    def is_growing(self, slots: Ints) -> npt.NDArray[np.bool_]:
        """(S,) whether slots go on: neither stopped nor out of budget."""
        growing: npt.NDArray[np.bool_] = (self.state[slots] >= 0) & (
            self.step[slots] < self.budget[slots]
        )
        return growing

    def ids(self, slot: int) -> Ids:
        """All tokens of a slot's value so far, with those that stood there before it."""
        return (*self.specs[slot].begun, *self.written[slot, : self.step[slot]].tolist())

    def outputs(self, slots: Ints) -> list[SlotOutput]:
        """The outputs of (n,) slots that are done."""
        if not len(slots):
            return []
        step = self.step[slots]
        width = int(step.max())
        rows = zip(
            slots.tolist(),
            step.tolist(),
            self.written[slots, :width].tolist(),
            self.logprobs[slots, :width].tolist(),
            self._reason[slots].tolist(),
            self.null_logprobs[slots].tolist(),
            self.legal_logprobs[slots].tolist(),
            self.passes[slots].tolist(),
            strict=True,
        )
        outputs = []
        for slot, length, ids, logprobs, reason, null, legal, passes in rows:
            written, likely = tuple(ids[:length]), tuple(logprobs[:length])
            if begun := self.specs[slot].begun:
                written, likely = (*begun, *written), (*[0.0] * len(begun), *likely)
            outputs.append(
                SlotOutput(
                    written,
                    REASONS[reason],
                    likely,
                    None if isnan(null) else null,
                    tuple(legal),
                    tuple(self.alternatives.get(slot, ())),
                    passes,
                )
            )
        return outputs


_PLACES = {name: place for names in (COLUMNS, SETTINGS) for place, name in enumerate(names)}


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
