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

from schemax.runtime.slots.arrays import FreeList, Ints, grown, ranks
from schemax.tokens import DONE, Alternatives, FinishReason, Ids, SlotOutput, SlotSpec, StopTable

Floats = npt.NDArray[np.float64]
Objects = npt.NDArray[np.object_]

REASONS: tuple[FinishReason, ...] = ("stop", "eos", "length")


class SlotTable:
    """All slots in flight. Every annotated name is a column, (capacity,).

    written, logprobs: (capacity, tokens).
    legal_logprobs: (capacity, 2).
    """

    request: Ints  # the number of the running request
    order: Ints  # the slot's place among its request's slots
    step: Ints  # tokens written
    position: Ints  # position id of the newest token
    num_new: Ints  # newest tokens that the model has not read: one, and those that were forced
    passes: Ints  # forward passes so far
    state: Ints  # of the stop rule, among those of all rules
    reason: Ints  # why the slot ends, if it does: the place among `REASONS`
    budget: Ints  # tokens, retries included
    k_max: Ints  # tokens, without retries
    visible: Ints  # how many of its request's stem tokens the slot sees
    num_kv: Ints  # own tokens in the KV pool
    num_shared: Ints  # the first of these, which lie in slots of the pool that its parent holds
    digest: Ints  # of its document
    number: Ints  # what random numbers depend on besides
    null_id: Ints  # see `SlotSpec`
    mode: Ints  # how its grammar is asked; see `sampling/slot_grammars.py`
    text_table: Ints  # which table of free text
    text_state: Ints  # and the state in it
    is_calibrated: Ints  # whether its choices are scored without their priors
    is_causal: Ints  # whether later slots of its request see its value
    temperature: Floats  # 0: the most probable token
    top_p: Floats  # of nucleus sampling
    null_logprob: Floats  # of null as the first token; NaN: the slot is never null
    specs: Objects  # `SlotSpec`
    stop_of: Objects  # `StopTable`

    def __init__(self) -> None:
        self.stops = StopTables()
        self._numbers = FreeList()
        self._set_columns(_blocks(0))
        self.written = np.zeros((0, 0), np.int64)
        self.logprobs = np.zeros((0, 0), np.float32)
        self.legal_logprobs = np.zeros((0, 2), np.float32)
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
        """Adds n slots; returns their numbers.

        values: values by column, one for all slots or (n,); other columns begin with 0.
        stops: one stop rule for all slots, or (n,).
        """
        count = len(specs)
        slots = self._numbers.take(count)
        self._reserve(self._numbers.size, int(values["budget"].max(initial=1)))
        blocks = _blocks(count)
        values = {"null_logprob": np.nan, **values, "specs": specs, "stop_of": stops}
        for name, column in values.items():
            kind, place = _PLACES[name]
            blocks[kind][place] = column
        for kind, block in blocks.items():
            self._blocks[kind][:, slots] = block
        self.written[slots] = -1
        self.legal_logprobs[slots] = 0.0
        if answers is not None or self._answers is not None:
            self._set_answers(slots, answers or ((),) * count)
        return slots

    def release(self, slots: Ints) -> None:
        self._numbers.give(slots)
        self.specs[slots] = None
        for slot in slots.tolist() if self.alternatives else ():
            self.alternatives.pop(slot, None)

    def _reserve(self, count: int, budget: int) -> None:
        if count > len(self.step):
            blocks = self._blocks.items()
            self._set_columns({kind: grown(block, len(block), count, 0) for kind, block in blocks})
        capacity = len(self.step)
        self.legal_logprobs = grown(self.legal_logprobs, capacity, 2, 0)
        self.written = grown(self.written, capacity, budget, -1)
        self.logprobs = grown(self.logprobs, capacity, budget, 0)

    def _set_columns(self, blocks: dict[str, Any]) -> None:
        self._blocks = blocks
        for name, (kind, place) in _PLACES.items():
            setattr(self, name, blocks[kind][place])

    def _set_answers(self, slots: Ints, answers: Sequence[Sequence[int]]) -> None:
        table = np.zeros((0, 1), np.int64) if self._answers is None else self._answers
        table = grown(table, len(self.step), max(1, *map(len, answers)), -1)
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
        ids = self._answers[slots, np.minimum(step, width - 1)]
        return np.where(step < width, ids, -1)

    def newest(self, slots: Ints) -> Ints:
        """The tokens of (n,) slots that the model has not read, slot by slot."""
        counts = self.num_new[slots]
        owner = np.repeat(slots, counts)
        behind = np.repeat(counts, counts) - ranks(counts)
        # Child slots have written nothing yet; see `Scheduler.new_ids`.
        ids: Ints = self.written[owner, np.maximum(self.step[owner] - behind, 0)]
        return ids

    def write(
        self,
        slots: Ints,
        ids: Ints,
        logprobs: npt.NDArray[np.float32],
        null_logprobs: npt.NDArray[np.float32],
        legal_logprobs: npt.NDArray[np.float32],
    ) -> None:
        """Writes one chosen token into each of (S,) slots."""
        step = self.step[slots]
        first = step == 0
        self.null_logprob[slots[first]] = null_logprobs[first]
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
        self.reason[slots] = np.where(state == EOS, 1, np.where(state == DONE, 0, 2))

    def write_forced(self, slot: int, ids: Ids) -> None:
        """Writes forced tokens behind the chosen token, as far as the budget goes.

        The last forced token may complete the stop rule.
        """
        step = int(self.step[slot])
        ids = ids[: int(self.budget[slot]) - step]
        self.written[slot, step : step + len(ids)] = ids
        self.logprobs[slot, step : step + len(ids)] = 0.0
        state = self.stops.after(ids, int(self.state[slot]))
        self.state[slot] = state
        self.reason[slot] = 1 if state == EOS else 0 if state == DONE else 2
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
        """All tokens of a slot's value so far, those of `SlotSpec.begun` included."""
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
            self.reason[slots].tolist(),
            self.null_logprob[slots].tolist(),
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


_DTYPES: dict[str, Any] = {"Ints": np.int64, "Floats": np.float64, "Objects": object}
_COLUMNS = {
    kind: [name for name, own in SlotTable.__annotations__.items() if own == kind]
    for kind in _DTYPES
}
_PLACES = {
    name: (kind, place) for kind, names in _COLUMNS.items() for place, name in enumerate(names)
}


def _blocks(count: int) -> dict[str, Any]:
    """Columns of `count` slots by kind, filled with 0."""
    return {kind: np.zeros((len(_COLUMNS[kind]), count), _DTYPES[kind]) for kind in _DTYPES}


EOS = -2
"""The state behind an id that ends a sequence."""


class StopTables:
    """Several stop rules in one table, with consecutive states and with ids that end a slot."""

    def __init__(self) -> None:
        self._starts: dict[StopTable, int] = {}
        self.next_state = np.zeros((0, 0), np.int16)

    def start(self, stop: StopTable) -> int:
        """The first state of a rule, which is added on first use."""
        first = self._starts.get(stop)
        if first is None:
            first = self._starts[stop] = len(self.next_state)
            table = stop.next_state.astype(np.int16)
            table[table >= 0] += first
            table[:, [i for i in stop.eos_ids if 0 <= i < table.shape[1]]] = EOS
            known = self.next_state if first else table[:0]
            self.next_state = np.concatenate([known, table])
        return first

    def after(self, ids: Ids, state: int) -> int:
        for token in ids:
            state = int(self.next_state[state, token])
        return state
