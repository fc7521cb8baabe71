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

from schemax.training.pieces import Piece

Part = TypeVar("Part", bound=Sized)


@dataclass(frozen=True, slots=True)
class Limits:
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
class Row:
    """Documents of one category that share a prompt. long: whether longrope takes long factors."""

    category: str
    pieces: tuple[Piece, ...]
    tokens: int
    long: bool

    def __len__(self) -> int:
        return self.tokens


def pack(pieces: Sequence[Piece], instruction_tokens: int, limits: Limits) -> Iterator[Row]:
    """Rows of one category's documents, in the order given.

    A row is full when it has as many documents as it may, or the next one would not fit.
    """
    row: list[Piece] = []
    for piece in pieces:
        if row and not _fits([*row, piece], instruction_tokens, limits):
            yield _row(row, instruction_tokens)
            row = []
        row.append(piece)
    if row:
        yield _row(row, instruction_tokens)


def _fits(row: Sequence[Piece], instruction_tokens: int, limits: Limits) -> bool:
    tokens = instruction_tokens + sum(piece.tokens for piece in row)
    extent = instruction_tokens + sum(piece.extent for piece in row)
    return (
        len(row) <= limits.documents
        and (tokens <= limits.batch_tokens or limits.stacked)
        and (limits.row_tokens is None or tokens <= limits.row_tokens)
        and (not limits.stacked or limits.extent is None or extent <= limits.extent)
        and row[-1].long == row[0].long
    )


def _row(pieces: Sequence[Piece], instruction_tokens: int) -> Row:
    tokens = instruction_tokens + sum(piece.tokens for piece in pieces)
    return Row(pieces[0].category, tuple(pieces), tokens, pieces[0].long)


def batches_of(
    pieces: Mapping[str, Sequence[Piece]],
    instruction_tokens: Mapping[str, int],
    limits: Limits,
    rng: random.Random,
) -> list[list[Row]]:
    """All pieces once, in new company: shuffled, packed, rows of like length together, shuffled."""
    rows: list[Row] = []
    for category, group in pieces.items():
        mixed = list(group)
        rng.shuffle(mixed)
        # Stable, so that what is short or long comes in random order.
        mixed.sort(key=lambda piece: piece.long)
        rows += pack(mixed, instruction_tokens[category], limits)
    batches: list[list[Row]] = []
    for long in (False, True):
        alike = sorted((row for row in rows if row.long == long), key=len)
        batches += (part for part in split_by_tokens(alike, limits.batch_tokens) if part)
    rng.shuffle(batches)
    return batches


def split_by_tokens(ordered: Sequence[Part], budget: int) -> list[list[Part]]:
    """Batches of as many parts, shortest first, as fit the budget when padded."""
    parts: list[list[Part]] = [[]]
    for sequence in ordered:
        if parts[-1] and len(sequence) * (len(parts[-1]) + 1) > budget:
            parts.append([])
        parts[-1].append(sequence)
    return parts
