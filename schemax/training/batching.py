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


@dataclass(frozen=True, slots=True)
class PackedRow:
    """Documents of one category that share a prompt.

    long_rope: whether longrope takes its long factors.
    """

    category: str
    features: tuple[Features, ...]
    tokens: int
    long_rope: bool

    def __len__(self) -> int:
        return self.tokens


def pack(
    features: Sequence[Features], instruction_tokens: int, limits: RowLimits
) -> Iterator[PackedRow]:
    """Rows of one category's documents, in the order given.

    A row is full when it has as many documents as it may, or the next one would not fit.
    """
    row: list[Features] = []
    for item in features:
        if row and not _fits([*row, item], instruction_tokens, limits):
            yield _row(row, instruction_tokens)
            row = []
        row.append(item)
    if row:
        yield _row(row, instruction_tokens)


def _fits(row: Sequence[Features], instruction_tokens: int, limits: RowLimits) -> bool:
    tokens = instruction_tokens + sum(item.tokens for item in row)
    extent = instruction_tokens + sum(item.extent for item in row)
    return (
        len(row) <= limits.documents
        and (tokens <= limits.batch_tokens or limits.stacked)
        and (limits.row_tokens is None or tokens <= limits.row_tokens)
        and (not limits.stacked or limits.extent is None or extent <= limits.extent)
        and row[-1].long_rope == row[0].long_rope
    )


def _row(features: Sequence[Features], instruction_tokens: int) -> PackedRow:
    tokens = instruction_tokens + sum(item.tokens for item in features)
    return PackedRow(features[0].category, tuple(features), tokens, features[0].long_rope)


def batches_of(
    features: Mapping[str, Sequence[Features]],
    instruction_tokens: Mapping[str, int],
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
        rows += pack(mixed, instruction_tokens[category], limits)
    batches: list[list[PackedRow]] = []
    for long_rope in (False, True):
        alike = sorted((row for row in rows if row.long_rope == long_rope), key=len)
        batches += (part for part in split_by_tokens(alike, limits.batch_tokens) if part)
    rng.shuffle(batches)
    return batches


def split_by_tokens(ordered: Sequence[SizedT], budget: int) -> list[list[SizedT]]:
    """Batches of as many parts, shortest first, as fit the budget when padded."""
    parts: list[list[SizedT]] = [[]]
    for sequence in ordered:
        if parts[-1] and len(sequence) * (len(parts[-1]) + 1) > budget:
            parts.append([])
        parts[-1].append(sequence)
    return parts
