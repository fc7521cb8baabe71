"""Position ids, documents and slots of a prompt's tokens (paper, section 4.3.1, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
    """A prompt, ready for the model. L tokens, S slots to be filled; all int64.

    input_ids, position_ids, document, slot, step: (L,); see `visibility.TokenInfo`.
    slot_ids: (S,) j * N + n.
    slot_document: (S,) j.
    last_index: (S,) the token whose logits give the slot's first token: the end of its key.
    last_position: (S,) the position id of that token; the k-th value token gets this plus k.
    k_max: (S,) token budgets.
    sampling_keys: (S, 2) keys of random numbers: the document's digest and, as a rule, n.
    specs: (S,) specs of the slots.
    answers: (S,) tokens that the slots write whatever the model says; None lets it choose.
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
            if spec.follow_ups is not None:
                key = (self.slot == self.slot_ids[place]).sum()
                stem = self.last_position[place] - key
                furthest = max(furthest, stem + spec.follow_ups.extent - 1)
        return int(furthest)

    @property
    def max_tokens(self) -> int:
        """The most tokens that the prompt and its values can have."""
        return len(self.input_ids) + int(self.k_max.sum())


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Key segments, laid out behind the output's opening: positions count from its end.

    slot: (K,) the segment of each token. last_index: (N,) the last token of each segment, or of the
    segment before an empty one; -1 if there is none. last_position: (N,) their position ids.
    """

    input_ids: Ints
    position_ids: Ints
    slot: Ints
    last_index: Ints
    last_position: Ints


def lay_out_keys(keys: tuple[Ids, ...], k_max: tuple[int, ...], layout: str) -> Keys:
    """Lays out (N,) keys: Algorithm 2 for `gapped`, all from the same start for `branched`."""
    positions: list[int] = []
    last_index, last_position = [], []
    position = 0
    for key, budget in zip(keys, k_max, strict=True):
        if layout == "branched":
            position = 0
        positions.extend(range(position, position + len(key)))
        position += len(key)
        last_index.append(len(positions) - 1)
        last_position.append(position - 1)
        position += budget
    return Keys(
        input_ids=_ints([token for key in keys for token in key]),
        position_ids=_ints(positions),
        slot=np.repeat(np.arange(len(keys)), [len(key) for key in keys]),
        last_index=_ints(last_index),
        last_position=_ints(last_position),
    )


def plan_prompt(prompt: PromptIds, config: DecodingConfig) -> Plan:
    """Lays out a prompt token by token, for training, the oracle and `explain`."""
    tokens = _Tokens()
    tokens.add(prompt.instruction, document=-1)
    if config.documents == "stacked":
        for j, document in enumerate(prompt.documents):
            tokens.add(document, document=j)
        tokens.add(prompt.opening, document=-1)
        tokens.add_keys(prompt, range(len(prompt.keys)), config)
    else:
        behind = start = tokens.position
        for number, demonstration in enumerate(prompt.demonstrations):
            tokens.position = behind
            tokens.add(demonstration, document=-2 - number)
            start = max(start, tokens.position)
        for j, document in enumerate(prompt.documents):
            tokens.position = start
            tokens.add(document, document=j)
            tokens.add(prompt.opening, document=j)
            tokens.add_keys(prompt, [j], config)
    plan = tokens.plan((prompt.slots or (_FREE,) * len(prompt.k_max)) * len(prompt.keys))
    if prompt.answers is None:
        return plan
    return replace(plan, answers=tuple(answer for row in prompt.answers for answer in row))


def with_values(plan: Plan, values: Sequence[Sequence[int]]) -> Plan:
    """Appends value tokens to a plan, each with the four integers that it has in decoding.

    values: the first tokens of the slots' values, in the order of slots, of which the last may be
    left out.
    """
    columns = [(plan.input_ids, plan.position_ids, plan.document, plan.slot, plan.step)]
    places = zip(plan.slot_ids, plan.slot_document, plan.last_position, strict=True)
    for (slot, document, position), value in zip(places, values, strict=False):
        steps = np.arange(1, len(value) + 1)
        owner, branch = np.full_like(steps, document), np.full_like(steps, slot)
        columns.append((_ints(value), position + steps, owner, branch, steps))
    ids, positions, document, slot, step = map(np.concatenate, zip(*columns, strict=True))
    return replace(
        plan, input_ids=ids, position_ids=positions, document=document, slot=slot, step=step
    )


class _Tokens:
    """Collects the tokens of a plan. position: the position id of the next segment."""

    def __init__(self) -> None:
        self.position = 0
        self.length = 0
        self._tokens: list[tuple[Ints, ...]] = []
        self._slots: list[tuple[Ints, ...]] = []

    def add(self, ids: Ids, *, document: int) -> None:
        count = len(ids)
        positions = np.arange(self.position, self.position + count)
        none = np.full(count, -1)
        self._tokens.append((_ints(ids), positions, np.full(count, document), none))
        self.position += count
        self.length += count

    def add_keys(self, prompt: PromptIds, documents: Sequence[int], config: DecodingConfig) -> None:
        """Adds the keys of some documents, one behind the other."""
        width = len(prompt.k_max)
        flat = tuple(key for j in documents for key in prompt.keys[j])
        keys = lay_out_keys(flat, prompt.k_max * len(documents), config.layout)
        owners = np.repeat(_ints(documents), width)
        numbers = np.tile(_ints(prompt.numbers or range(width)), len(documents))
        names = owners * width + np.tile(np.arange(width), len(documents))
        belongs = names[keys.slot]
        self._tokens.append(
            (
                keys.input_ids,
                keys.position_ids + self.position,
                owners[keys.slot],
                belongs if config.layout == "branched" else np.full_like(belongs, -1),
            )
        )
        self._slots.append(
            (
                names,
                owners,
                keys.last_index + self.length,
                keys.last_position + self.position,
                np.tile(_ints(prompt.k_max), len(documents)),
                np.stack([_ints(prompt.sampling_keys)[owners], numbers], axis=1),
            )
        )
        self.length += len(keys.input_ids)

    def plan(self, specs: tuple[SlotSpec, ...]) -> Plan:
        tokens = (np.concatenate(parts) for parts in zip(*self._tokens, strict=True))
        slots = (np.concatenate(parts) for parts in zip(*self._slots, strict=True))
        columns: list[Any] = [*tokens, np.zeros(self.length, np.int64), *slots, specs]
        return Plan(*columns)


def _ints(values: object) -> Ints:
    return np.asarray(values, dtype=np.int64)
