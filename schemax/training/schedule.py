"""The schedule: rows of documents behind one instruction, batches of rows, all batches of a run.

Isolated documents do not see each other, and their positions restart behind the instruction. So a
row of J documents equals J prompts, and its instruction is read once.
Stacked documents see each other: a row is one prompt of J documents.
The seed determines the batches: a resumed run sees the same batches.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeVar

from torch.utils.data import Dataset

from schemax.compiler import CompiledSchema
from schemax.runtime.attention.visibility import TokenInfo
from schemax.training.features import Features, fill_row
from schemax.training.sequences import collate

SizedT = TypeVar("SizedT", bound=Sized)


@dataclass(frozen=True, slots=True)
class RowLimits:
    """Limits of a row and of a batch.

    batch_tokens: the most tokens of a batch, padding included. A longer row is a batch by itself.
    documents: the most documents of a row.
    extent: the most position ids of a row; None: no limit.
    stacked: True if documents see each other, so that their positions add up.
    """

    batch_tokens: int
    documents: int
    extent: int | None = None
    stacked: bool = False

    def fit(self, row: PackedRow, instruction_tokens: int) -> bool:
        extent = instruction_tokens + sum(item.extent for item in row.features)
        return (
            len(row.features) <= self.documents
            and (row.tokens <= self.batch_tokens or self.stacked)
            and (not self.stacked or self.extent is None or extent <= self.extent)
        )


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Documents of one category that share a prompt."""

    features: tuple[Features, ...]
    tokens: int

    def __len__(self) -> int:
        return self.tokens


def pack(
    features: Sequence[Features], instruction_tokens: int, limits: RowLimits
) -> Iterator[PackedRow]:
    """Yields rows of one category's documents, in the given order.

    A row ends when the next document would exceed its limits.
    """
    row = PackedRow((), instruction_tokens)
    for item in features:
        longer = PackedRow((*row.features, item), row.tokens + item.tokens)
        if row.features and not limits.fit(longer, instruction_tokens):
            yield row
            longer = PackedRow((item,), instruction_tokens + item.tokens)
        row = longer
    if row.features:
        yield row


def batches_of(
    features: Mapping[str, Sequence[Features]],
    compiled: Mapping[str, CompiledSchema],
    limits: RowLimits,
    rng: random.Random,
) -> list[list[PackedRow]]:
    """Returns batches of all features: shuffled, packed, grouped by length, and shuffled again."""
    rows: list[PackedRow] = []
    for category, group in features.items():
        mixed = list(group)
        rng.shuffle(mixed)
        rows += pack(mixed, len(compiled[category].instruction), limits)
    batches = split_by_tokens(sorted(rows, key=len), limits.batch_tokens)
    rng.shuffle(batches)
    return batches


# CPU kernels are kept for every length, so many lengths would take much memory.
_GRAIN = 32


def padded_length(length: int) -> int:
    """Returns the padded length of a batch whose longest row has this length."""
    return -(-length // _GRAIN) * _GRAIN


def split_by_tokens(ordered: Sequence[SizedT], budget: int) -> list[list[SizedT]]:
    """Splits sequences, shortest first, into batches that fit the budget when padded."""
    parts: list[list[SizedT]] = []
    for sequence in ordered:
        if not parts or padded_length(len(sequence)) * (len(parts[-1]) + 1) > budget:
            parts.append([])
        parts[-1].append(sequence)
    return parts


TrainingBatch = dict[str, Any]
"""Inputs of the model: (B, L) tensors `input_ids`, `position_ids`, `document`, `slot`, `step`,
`real` and `labels`."""

_INFO = ("position_ids", "document", "slot", "step", "real")


def plan_schedule(
    features: Mapping[str, Sequence[Features]],
    compiled: Mapping[str, CompiledSchema],
    limits: RowLimits,
    *,
    batches_per_step: int,
    num_steps: Callable[[int], int],
    seed: int,
) -> tuple[list[list[PackedRow]], int, int]:
    """Returns the batches of all epochs, and the optimizer steps in all and per epoch.

    Every epoch shuffles the documents anew.

    batches_per_step: over all devices and accumulated batches.
    num_steps: a function from steps per epoch to steps in all.
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
    return batches[: steps * batches_per_step], steps, steps_per_epoch


class BatchDataset(Dataset[TrainingBatch]):
    """The batches of a run, made on access; item i is batch i.

    seed: chooses the values without annotation that are learnt; None: all are learnt.
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

    def __getitem__(self, index: int) -> TrainingBatch:
        rows = self._batches[index]
        rng = None if self._seed is None else random.Random(f"{self._seed}, batch {index}")
        sequences = [
            fill_row(self._compiled[row.features[0].category], row.features, rng) for row in rows
        ]
        pad_id = next(iter(next(iter(self._compiled.values())).stop.eos_ids), 0)
        length = padded_length(max(map(len, sequences)))
        input_ids, tokens, labels = collate(sequences, pad_id, length)
        info = {name: getattr(tokens, name) for name in _INFO}
        return {"input_ids": input_ids, **info, "labels": labels}


def token_info(batch: TrainingBatch) -> TokenInfo:
    return TokenInfo(*(batch[name] for name in _INFO))


def padding_share(batches: Sequence[Sequence[PackedRow]]) -> float:
    """Returns the share of padding among all tokens of batches."""
    filled = sum(len(row) for rows in batches for row in rows)
    total = sum(len(rows) * padded_length(max(map(len, rows))) for rows in batches)
    return 1 - filled / total
