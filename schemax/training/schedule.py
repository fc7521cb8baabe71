"""The batches of a whole run, fixed by the seed: one that is resumed sees the same ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from torch.utils.data import Dataset

from schemax.compiler import CompiledSchema
from schemax.runtime.visibility import TokenInfo
from schemax.training.batching import PackedRow, RowLimits, batches_of
from schemax.training.features import Features, fill_row
from schemax.training.sequences import collate

Batch = dict[str, Any]
"""What the model is given: (B, L) tensors `input_ids`, `position_ids`, `document`, `slot`, `step`,
`real` and `labels`, and `long`: whether longrope takes its long factors."""

_INFO = ("position_ids", "document", "slot", "step", "real")


@dataclass(frozen=True, slots=True)
class Schedule:
    """batches: of all epochs, in order. steps: optimizer steps in all; steps_per_epoch: in one."""

    batches: tuple[tuple[PackedRow, ...], ...]
    steps: int
    steps_per_epoch: int


def plan_schedule(
    features: Mapping[str, Sequence[Features]],
    compiled: Mapping[str, CompiledSchema],
    limits: RowLimits,
    *,
    batches_per_step: int,
    num_steps: Callable[[int], int],
    seed: int,
) -> Schedule:
    """Every epoch puts the documents into new company.

    batches_per_step: over all devices and accumulated ones.
    num_steps: how many steps there are in all, by their number in an epoch.
    """
    batches: list[list[PackedRow]] = []
    steps = steps_per_epoch = 0
    for epoch in count():
        rng = random.Random(f"{seed}, epoch {epoch}")
        batches += batches_of(features, compiled, limits, rng)
        steps_per_epoch = steps_per_epoch or -(-len(batches) // batches_per_step)
        steps = num_steps(steps_per_epoch)
        if len(batches) >= steps * batches_per_step:
            break
    kept = batches[: steps * batches_per_step]
    return Schedule(tuple(map(tuple, kept)), steps, steps_per_epoch)


class BatchDataset(Dataset[Batch]):
    """Batches made when they are asked for; item i is batch i, whole.

    seed: of the choice which values without an annotation are learnt; None learns them all.
    """

    def __init__(
        self,
        batches: Sequence[Sequence[PackedRow]],
        compiled: Mapping[str, CompiledSchema],
        seed: int | None,
    ) -> None:
        self._batches = batches
        self._compiled = compiled
        self._seed = seed

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, index: int) -> Batch:
        rows = self._batches[index]
        rng = None if self._seed is None else random.Random(f"{self._seed}, batch {index}")
        sequences = [
            fill_row(self._compiled[row.features[0].category], row.features, rng) for row in rows
        ]
        pad_id = next(iter(next(iter(self._compiled.values())).stop.eos_ids), 0)
        input_ids, tokens, labels = collate(sequences, pad_id)
        info = {name: getattr(tokens, name) for name in _INFO}
        return {"input_ids": input_ids, **info, "labels": labels, "long_rope": rows[0].long_rope}


def only(batches: Sequence[Batch]) -> Batch:
    """The one batch that a loader of batches gives at a time."""
    (batch,) = batches
    return batch


def token_info(batch: Batch) -> TokenInfo:
    return TokenInfo(*(batch[name] for name in _INFO))


def padding_share(batches: Sequence[Sequence[PackedRow]]) -> float:
    """Of all tokens in these batches, the part that is padding."""
    filled = sum(len(row) for rows in batches for row in rows)
    padded = sum(len(rows) * max(map(len, rows)) for rows in batches)
    return 1 - filled / padded
