"""Slots that may write few tokens: the host reads the logits of these tokens alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemax.runtime.slots.arrays import Ints

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class FewTokens:
    """The F allowed tokens of n slots, slot by slot.

    ids, owner, logits: (F,) the tokens, the place of each one's slot, and its logit.
    starts: (n,) the place of each slot's first token.
    totals: (n,) log-sum-exps over all logits of a slot.
    """

    ids: Ints
    owner: Ints
    starts: Ints
    logits: Floats
    totals: Floats


def flattened(ids: Sequence[Ints]) -> tuple[Ints, Ints, Ints]:
    """Flattens n rows of tokens: (F,) tokens, (F,) the row of each, (n,) the start of each row."""
    counts = np.array([len(some) for some in ids], np.int64)
    none = np.zeros(0, np.int64)
    return (
        np.concatenate([none, *ids]),
        np.repeat(np.arange(len(ids)), counts),
        counts.cumsum() - counts,
    )


def normalised(few: FewTokens) -> tuple[Ints, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(n,) the place of each row's best token, (F,) log-probabilities among the allowed tokens, and
    (n,) log-sum-exps of their logits."""
    picked, top = best_of(few.logits, few.owner, few.starts)
    shifted = few.logits.astype(np.float64) - top[few.owner]
    mass = np.log(np.add.reduceat(np.exp(shifted), few.starts))
    return picked, shifted - mass[few.owner], mass + top


def best_of(logits: Floats, owner: Ints, starts: Ints) -> tuple[Ints, Floats]:
    """(n,) the place of each row's first largest logit, and (n,) these logits."""
    top = np.maximum.reduceat(logits, starts)
    best = np.flatnonzero(logits == top[owner])
    picked = np.zeros(len(starts), np.int64)
    picked[owner[best][::-1]] = best[::-1]
    return picked, top
