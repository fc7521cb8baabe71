"""A prompt token by token, for training, the oracle and `explain`: what its requests lay out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from schemax.config import DecodingConfig
from schemax.runtime.slots.arrays import Ints
from schemax.runtime.slots.requests import new_request
from schemax.tokens import Ids, PromptIds, StopTable

# Stop rules do not change a layout.
_NO_STOP = StopTable(np.zeros((0, 0), np.int8), ())


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A prompt, ready for the model. L tokens, S slots to be filled; all int64.

    input_ids, position_ids, document, slot, step: (L,); see `visibility.TokenInfo`.
    slot_ids: (S,) j * N + n.
    slot_document: (S,) j.
    last_index: (S,) the token whose logits give the slot's first token: the end of its key.
    last_position: (S,) the position id of that token; the k-th value token gets this plus k.
    k_max: (S,) token budgets.
    max_position: the largest position id that can occur; gaps, budgets and further slots count.
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
    max_position: int


def plan_prompt(prompt: PromptIds, config: DecodingConfig) -> Plan:
    """Lays out a prompt: J stacked documents in one request, or one request per document."""
    is_stacked = config.documents == "stacked"
    shared = len(prompt.instruction)
    tokens = [_run(prompt.instruction, 0, -1)]
    for number, demonstration in enumerate(prompt.demonstrations):
        tokens.append(_run(demonstration, shared, -2 - number))
    length = sum(len(ids) for ids, *_ in tokens)
    slots, furthest = [], 0
    for j, part in enumerate([prompt] if is_stacked else _documents(prompt)):
        request = new_request(part, _NO_STOP, config)
        layout = request.layout
        # A short instruction is no prefix: every request reads it at the start of its stem.
        own = shared - len(request.prefix)
        opening = np.full(len(prompt.opening), -1 if is_stacked else j)
        key_lengths = layout.suffix_lengths + np.diff(layout.visible, prepend=0)
        names = j * len(prompt.k_max) + np.arange(layout.num_slots)
        document = [np.repeat(j + np.arange(len(part.documents)), request.num_document_tokens)]
        document += [opening, np.repeat(j + layout.owners, key_lengths)]
        branches = names if config.layout == "branched" else np.full_like(names, -1)
        branch = np.repeat(branches, key_lengths)
        before = len(request.stem) - own - len(layout.skeleton)
        tokens.append(
            (
                np.concatenate([request.stem[own:], layout.suffix]),
                np.concatenate(
                    [
                        request.stem_positions[own:],
                        layout.suffix_positions + request.first_position,
                    ]
                ),
                np.concatenate(document),
                np.concatenate([np.full(before, -1), branch]),
            )
        )
        slots.append(
            (
                names,
                j + layout.owners,
                length + before + key_lengths.cumsum() - 1,
                layout.last_position + request.first_position,
                layout.budgets,
            )
        )
        length += before + len(branch)
        furthest = max(furthest, request.max_position)
    by_token = [np.concatenate(parts) for parts in zip(*tokens, strict=True)]
    by_slot = [np.concatenate(parts) for parts in zip(*slots, strict=True)]
    columns: list[Any] = [*by_token, np.zeros(length, np.int64), *by_slot, furthest]
    return Plan(*columns)


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
        columns.append((np.array(value, np.int64), position + steps, owner, branch, steps))
    ids, positions, document, slot, step = map(np.concatenate, zip(*columns, strict=True))
    return replace(
        plan, input_ids=ids, position_ids=positions, document=document, slot=slot, step=step
    )


def _documents(prompt: PromptIds) -> list[PromptIds]:
    """Prompts of one document each."""
    rows = zip(prompt.documents, prompt.keys, prompt.sampling_keys, strict=True)
    return [
        replace(prompt, documents=(ids,), keys=(keys,), sampling_keys=(digest,), answers=None)
        for ids, keys, digest in rows
    ]


def _run(ids: Ids, start: int, document: int) -> tuple[Ints, Ints, Ints, Ints]:
    """The columns of consecutive tokens that belong to no slot."""
    count = len(ids)
    positions = np.arange(start, start + count)
    return np.array(ids, np.int64), positions, np.full(count, document), np.full(count, -1)
