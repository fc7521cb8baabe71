"""Position ids, documents and slots of a prompt's tokens (paper, section 4.3.1, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from schemax.config import DecodingConfig
from schemax.tokens import PromptIds, SlotSpec

Ints = npt.NDArray[np.int64]
Ids = tuple[int, ...]
_FREE = SlotSpec()


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """One prompt, ready for the model. L tokens, S slots to be filled; all int64.

    input_ids, position_ids, document, slot, step: (L,); see `visibility.TokenInfo`.
    slot_ids: (S,) j * N + n.
    slot_document: (S,) j.
    last_index: (S,) the token whose logits give the slot's first token: the end of its key.
    last_position: (S,) the position id of that token; the k-th value token gets this plus k.
    k_max: (S,) token budgets.
    sampling_keys: (S, 2) what random numbers depend on: the document's digest and, as a rule, n.
    specs: (S,) what else is known of the slots.
    answers: (S,) tokens to be written whatever the model says; None lets it choose.
    """

    input_ids: Ints
    position_ids: Ints
    document: Ints
    slot: Ints
    step: Ints
    slot_ids: Ints
    slot_document: Ints
    last_index: Ints
    last_position: Ints
    k_max: Ints
    sampling_keys: Ints
    specs: tuple[SlotSpec, ...]
    answers: tuple[Ids, ...] | None = None

    @property
    def max_position(self) -> int:
        """The largest position id that can occur; gaps, budgets and further slots count."""
        furthest = max(self.position_ids.max(), (self.last_position + self.k_max - 1).max())
        for place, spec in enumerate(self.specs):
            if spec.expansion is not None:
                key = (self.slot == self.slot_ids[place]).sum()
                stem = self.last_position[place] - key
                furthest = max(furthest, stem + spec.expansion.extent - 1)
        return int(furthest)


@dataclass(frozen=True, slots=True, eq=False)
class _Keys:
    """The key segments of one document, with positions relative to the first one's start."""

    input_ids: Ints
    position_ids: Ints
    slot: Ints  # n, or -1 where keys belong to no slot
    last_index: Ints  # (N,) -1 for an empty first segment: the token before it
    last_position: Ints  # (N,)
    end: int  # where the next document's keys begin


def plan_prompt(
    prompt: PromptIds,
    config: DecodingConfig,
    *,
    targets: Collection[int] | None = None,
    budget_scale: int = 1,
) -> Plan:
    """Lays out a prompt in one of the three layouts.

    targets: ids (j * N + n) of the slots to fill; None fills all. Keys that only other slots need
        are left out, so that a slot that is filled alone does not see later keys.
    budget_scale: multiplies the budget of the targets.
    """
    num_slots = len(prompt.k_max)
    wanted = range(len(prompt.documents) * num_slots) if targets is None else sorted(set(targets))
    by_document = [
        tuple(t - j * num_slots for t in wanted if t // num_slots == j)
        for j in range(len(prompt.documents))
    ]
    builder = _Builder()
    builder.add(prompt.instruction, document=-1)
    if config.documents == "stacked":
        for j, document in enumerate(prompt.documents):
            builder.add(document, document=j)
        builder.add(prompt.opening, document=-1)
        last = max((j for j, slots in enumerate(by_document) if slots), default=-1)
        for j in range(last + 1):
            complete = config.layout != "branched" and j < last
            keys = _lay_out_keys(
                prompt.keys[j], prompt.k_max, config.layout, by_document[j], budget_scale, complete
            )
            builder.add_keys(keys, j, by_document[j], prompt, budget_scale)
            if config.layout != "branched":
                builder.position += keys.end
    else:
        start = builder.position
        for j, document in enumerate(prompt.documents):
            if not by_document[j]:
                continue
            builder.position = start
            builder.add(document, document=j)
            builder.add(prompt.opening, document=j)
            keys = _lay_out_keys(
                prompt.keys[j], prompt.k_max, config.layout, by_document[j], budget_scale, False
            )
            builder.add_keys(keys, j, by_document[j], prompt, budget_scale)
    plan = builder.plan(prompt.slots or (_FREE,) * num_slots)
    if prompt.answers is None:
        return plan
    given = [answer for row in prompt.answers for answer in row]
    return replace(plan, answers=tuple(given[slot] for slot in plan.slot_ids.tolist()))


def with_retries(budgets: Ints, last_position: Ints, retries: int, bound: int | None) -> Ints:
    """(S,) budgets, twice as large for each retry as long as positions stay below the bound.

    last_position: (S,) see `Plan`.
    """
    for _ in range(retries):
        furthest = last_position + 2 * budgets - 1
        fits = np.full(len(budgets), True) if bound is None else furthest < bound
        budgets = np.where(fits, 2 * budgets, budgets)
    return budgets


def child_number(parent: int, place: int) -> int:
    """What random numbers depend on in the place of n, for a slot that another one called for."""
    return ((parent + 1) * 2**20 + place) % 2**62


def single(prompt: PromptIds, j: int) -> PromptIds:
    """The prompt of one of its isolated documents."""
    return replace(
        prompt,
        documents=(prompt.documents[j],),
        keys=(prompt.keys[j],),
        sampling_keys=(prompt.sampling_keys[j],),
        answers=None if prompt.answers is None else (prompt.answers[j],),
    )


@dataclass(frozen=True, slots=True)
class WrittenValue:
    """Value tokens of a slot, from its first one on, to stand in a plan as inputs."""

    slot_id: int
    document: int
    last_position: int
    ids: Sequence[int]


def with_values(plan: Plan, values: Sequence[WrittenValue]) -> Plan:
    """The plan with value tokens appended, each with the four integers it has when decoded."""
    columns = [(plan.input_ids, plan.position_ids, plan.document, plan.slot, plan.step)]
    for value in values:
        steps = np.arange(1, len(value.ids) + 1)
        columns.append(
            (
                _ints(value.ids),
                value.last_position + steps,
                np.full(len(steps), value.document),
                np.full(len(steps), value.slot_id),
                steps,
            )
        )
    ids, positions, document, slot, step = map(np.concatenate, zip(*columns, strict=True))
    return replace(
        plan, input_ids=ids, position_ids=positions, document=document, slot=slot, step=step
    )


@lru_cache(maxsize=4096)
def _lay_out_keys(
    keys: tuple[Ids, ...],
    k_max: tuple[int, ...],
    layout: str,
    targets: tuple[int, ...],
    budget_scale: int,
    complete: bool,
) -> _Keys:
    """Algorithm 2 for `gapped`; every segment from the same start for `branched`.

    complete: lay out all keys, since another document's follow; else stop after the last target.
    """
    branched = layout == "branched"
    ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    last_index, last_position = [], []
    position = 0
    for n, key in enumerate(keys):
        if branched:
            if n not in targets:
                continue
            position = 0
        elif not complete and n > targets[-1]:
            break
        ids.extend(key)
        positions.extend(range(position, position + len(key)))
        slots.extend([n if branched else -1] * len(key))
        position += len(key)
        if n in targets:
            last_index.append(len(ids) - 1)
            last_position.append(position - 1)
        position += k_max[n] * (budget_scale if n in targets else 1)
    return _Keys(
        input_ids=_ints(ids),
        position_ids=_ints(positions),
        slot=_ints(slots),
        last_index=_ints(last_index),
        last_position=_ints(last_position),
        end=position,
    )


class _Builder:
    """Collects segments; `position` is where the next one begins."""

    def __init__(self) -> None:
        self.position = 0
        self.length = 0
        self.tokens: list[tuple[Ints, Ints, Ints, Ints]] = []
        self.slots: list[tuple[Ints, Ints, Ints, Ints, Ints, Ints]] = []

    def add(self, ids: Ids, *, document: int) -> None:
        count = len(ids)
        positions = np.arange(self.position, self.position + count)
        none = np.full(count, -1)
        self.tokens.append((_ints(ids), positions, np.full(count, document), none))
        self.position += count
        self.length += count

    def add_keys(
        self, keys: _Keys, j: int, targets: tuple[int, ...], prompt: PromptIds, scale: int
    ) -> None:
        offset = j * len(prompt.k_max)
        count = len(keys.input_ids)
        self.tokens.append(
            (
                keys.input_ids,
                keys.position_ids + self.position,
                np.full(count, j),
                np.where(keys.slot < 0, -1, keys.slot + offset),
            )
        )
        names = _ints(targets)
        numbers = _ints(prompt.numbers)[names] if prompt.numbers else names
        digests = np.full(len(names), prompt.sampling_keys[j])
        self.slots.append(
            (
                names + offset,
                np.full(len(names), j),
                keys.last_index + self.length,
                keys.last_position + self.position,
                _ints(prompt.k_max)[names] * scale,
                np.stack([digests, numbers], axis=1),
            )
        )
        self.length += count

    def plan(self, specs: Sequence[SlotSpec]) -> Plan:
        tokens = (np.concatenate(parts) for parts in zip(*self.tokens, strict=True))
        slots = (np.concatenate(parts) for parts in zip(*self.slots, strict=True))
        columns: list[Any] = [*tokens, np.zeros(self.length, np.int64), *slots]
        slot_ids = columns[5].tolist()
        columns.append(tuple(specs[slot % len(specs)] for slot in slot_ids))
        return Plan(*columns)


def _ints(values: object) -> Ints:
    return np.asarray(values, dtype=np.int64)
