"""The reliability of confidences: are values of confidence 0.9 right nine times in ten, and are
wrong values those of the lowest confidence?

The first is calibration: reliability diagrams and the expected calibration error (Guo et al., On
Calibration of Modern Neural Networks, 2017), and the score of Brier (1950). The second is selective
prediction: risk over coverage (El-Yaniv and Wiener, On the Foundations of Noise-free Selective
Classification, 2010) and the area under that curve (Geifman, Uziel and El-Yaniv, 2019).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemax.evaluation.scores import Scores

BINS = 10
VALUES = ("nv", "vc", "vw")
"""Outcomes of pairs for which a value was predicted."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bin:
    """Values whose confidence is from `low` to below `high`; the last bin holds 1 as well.

    confidence: their mean; accuracy: the share of them that is right. None in an empty bin.
    """

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class Coverage:
    """The most confident values that are at least this share of all, and the share of them that is
    wrong. confidence: the lowest among them."""

    coverage: float
    risk: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Reliability:
    """Figures of predicted values and their confidences.

    confidence, accuracy: means over all values.
    ece: the mean distance of a bin's accuracy from its confidence, bins weighted by their values.
    brier: the mean square of confidence - 1 for right values, and of confidence for wrong ones.
    aurc: the mean risk over all coverages; the lower, the better mistakes can be told.
    curve: risk at coverages of 10 to 100 %.
    """

    values: int
    confidence: float
    accuracy: float
    ece: float
    brier: float
    aurc: float
    bins: tuple[Bin, ...]
    curve: tuple[Coverage, ...]


def reliability(confidences: Sequence[float], right: Sequence[bool]) -> Reliability | None:
    """Figures of values with these confidences, right or wrong; None without any value."""
    if not confidences:
        return None
    sure, correct = np.array(confidences, np.float64), np.array(right, np.float64)
    bins, ece = _bins(sure, correct)
    descending, risks = _risks(sure, correct)
    ends = [-(-len(sure) * tenth // 10) for tenth in range(1, 11)]
    return Reliability(
        values=len(sure),
        confidence=float(sure.mean()),
        accuracy=float(correct.mean()),
        ece=ece,
        brier=float(np.mean((sure - correct) ** 2)),
        aurc=float(risks.mean()),
        bins=bins,
        curve=tuple(
            Coverage(tenth / 10, float(risks[end - 1]), float(descending[end - 1]))
            for tenth, end in enumerate(ends, 1)
        ),
    )


def reliability_of(
    scores: Scores, confidences: Sequence[Mapping[str, float | None]]
) -> Reliability | None:
    """Figures of annotated pairs with a predicted value that has a confidence; None without any.

    confidences: attribute -> confidence, one mapping per product.
    """
    pairs = [
        (confidence, pair.outcome == "vc")
        for pair in scores.pairs
        if pair.annotated and pair.outcome in VALUES
        if (confidence := confidences[pair.product].get(pair.attribute)) is not None
    ]
    return reliability([sure for sure, _ in pairs], [right for _, right in pairs])


def _bins(sure: Floats, correct: Floats) -> tuple[tuple[Bin, ...], float]:
    """The bins, and the mean distance of accuracy from confidence over them."""
    places = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    counts, sums, hits = (
        np.bincount(places, weights, BINS) for weights in (None, sure, correct)
    )  # fmt: skip
    means = zip(counts.tolist(), sums.tolist(), hits.tolist(), strict=True)
    bins = tuple(
        Bin(n / BINS, (n + 1) / BINS, count, *((a / count, b / count) if count else (None, None)))
        for n, (count, a, b) in enumerate(means)
    )
    return bins, float(np.abs(sums - hits).sum()) / len(sure)


def _risks(sure: Floats, correct: Floats) -> tuple[Floats, Floats]:
    """(n,) confidences in descending order, and the risk of the first, the first two, and so on.

    Values of equal confidence come in no order: each counts as their mean, which is what to expect
    of any order.
    """
    levels, which, counts = np.unique(-sure, return_inverse=True, return_counts=True)
    wrong = np.bincount(which, weights=1 - correct) / counts
    risks = np.cumsum(np.repeat(wrong, counts)) / np.arange(1, len(sure) + 1)
    return np.repeat(-levels, counts), np.asarray(risks, np.float64)
