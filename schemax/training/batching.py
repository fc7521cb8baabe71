"""Rows and batches: which documents share an instruction, and which rows share a pass.

Isolated documents do not see each other, and their positions restart behind the instruction. So a
row of several, behind one instruction, is what as many prompts would be, and the instruction is
read once for all of them. Stacked documents see each other: a row is one prompt of J of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TypeVar

from schemax.compiler import CompiledSchema
from schemax.training.features import Features

SizedT = TypeVar("SizedT", bound=Sized)


@dataclass(frozen=True, slots=True)
class RowLimits:
    """What a row and a batch may hold.

    batch_tokens: of a batch, padding included. A row that is longer by itself is a batch.
    documents: of a row, at most.
    row_tokens, extent: tokens and position ids of a row, at most; None for no bound.
    stacked: whether documents see each other, so that their positions add up.
    """

    batch_tokens: int
    documents: int
    row_tokens: int | None = None
    extent: int | None = None
    stacked: bool = False

    def fit(self, row: PackedRow, instruction_tokens: int) -> bool:
        extent = instruction_tokens + sum(item.extent for item in row.features)
        return (
            len(row.features) <= self.documents
            and (row.tokens <= self.batch_tokens or self.stacked)
            and (self.row_tokens is None or row.tokens <= self.row_tokens)
            and (not self.stacked or self.extent is None or extent <= self.extent)
            and row.features[-1].long_rope == row.long_rope
        )


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Documents of one category that share a prompt."""

    features: tuple[Features, ...]
    tokens: int

    def __len__(self) -> int:
        return self.tokens

    @property
    def long_rope(self) -> bool:
        """Whether longrope takes its long factors."""
        return self.features[0].long_rope


def pack(
    features: Sequence[Features], instruction_tokens: int, limits: RowLimits
) -> Iterator[PackedRow]:
    """Rows of one category's documents, in the order given.

    A row is full when it has as many documents as it may, or the next one would not fit.
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
    """Batches of all features: shuffled, packed, grouped by length, and shuffled again."""
    rows: list[PackedRow] = []
    for category, group in features.items():
        mixed = list(group)
        rng.shuffle(mixed)
        # Stable, so that what is short or long comes in random order.
        mixed.sort(key=lambda item: item.long_rope)
        rows += pack(mixed, len(compiled[category].instruction), limits)
    batches: list[list[PackedRow]] = []
    for long_rope in (False, True):
        alike = [row for row in rows if row.long_rope == long_rope]
        batches += split_by_tokens(sorted(alike, key=len), limits.batch_tokens)
    rng.shuffle(batches)
    return batches


def split_by_tokens(ordered: Sequence[SizedT], budget: int) -> list[list[SizedT]]:
    """Batches of as many parts, shortest first, as fit the budget when padded."""
    parts: list[list[SizedT]] = []
    for sequence in ordered:
        if not parts or len(sequence) * (len(parts[-1]) + 1) > budget:
            parts.append([])
        parts[-1].append(sequence)
    return parts
