"""Bootstrap intervals of F1, over the choice of products.

Products are drawn with replacement, with all their pairs, since the pairs of a product depend on
each other. The interval is the middle 95 % of the F1s of all draws (the percentile bootstrap;
Efron and Tibshirani, An Introduction to the Bootstrap, 1993).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from schemax.evaluation.pairs import OUTCOMES, Outcome

RESAMPLES = 1_000
LEVEL = 0.95

Counts = npt.NDArray[np.int64]


class Interval(NamedTuple):
    """A 95 % interval."""

    low: float
    high: float


def count_by_product(outcomes: Iterable[tuple[int, Outcome]], products: int) -> Counts:
    """(product, outcome) of pairs -> (products, 5) counts of each product's outcomes."""
    counts = np.zeros((products, len(OUTCOMES)), np.int64)
    for product, outcome in outcomes:
        counts[product, OUTCOMES.index(outcome)] += 1
    return counts


def f1_of(counts: Counts) -> npt.NDArray[np.float64]:
    """(..., 5) counts of outcomes, in the order of `OUTCOMES`, -> (...) F1; 0 where undefined."""
    _, nv, vn, vc, vw = np.moveaxis(counts, -1, 0)
    # 2PR / (P + R) in one division, as in `PairScore.f1`.
    return np.asarray(2 * vc / np.maximum(1, nv + vn + 2 * (vc + vw)), np.float64)


def f1_interval(counts: Counts) -> Interval:
    """The interval of F1. counts: (products, 5), as of `Scores.counts`."""
    return _middle(f1_of(resampled(counts)))


def difference_interval(first: Counts, second: Counts) -> Interval:
    """The interval of F1(second) - F1(first), both (products, 5) on the same products.

    Each draw takes the same products for both, so that products hard for both cancel out.
    """
    drawn = resampled(np.concatenate((first, second), axis=1))
    ours, theirs = drawn[:, : len(OUTCOMES)], drawn[:, len(OUTCOMES) :]
    return _middle(f1_of(theirs) - f1_of(ours))


def share_interval(parts: Sequence[int], wholes: Sequence[int]) -> Interval:
    """The interval of sum(parts) / sum(wholes), both counted by product."""
    drawn = resampled(np.stack((parts, wholes), axis=1).astype(np.int64))
    return _middle(drawn[:, 0] / np.maximum(1, drawn[:, 1]))


def resampled(counts: Counts) -> Counts:
    """(products, columns) -> (RESAMPLES, columns): sums over products drawn with replacement."""
    # Drawing distinct rows by their shares equals drawing products, and is cheap.
    distinct, sizes = np.unique(counts, axis=0, return_counts=True)
    generator = np.random.default_rng(0)
    weights = generator.multinomial(len(counts), sizes / len(counts), size=RESAMPLES)
    return np.asarray(weights @ distinct, np.int64)


def _middle(values: npt.NDArray[np.float64]) -> Interval:
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(values, [tail, 100 - tail])
    return Interval(float(low), float(high))
