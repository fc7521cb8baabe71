"""Fits a calibration to what a model wrote for annotated products.

Raises InputError where nothing was annotated, or nothing written that could be judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from schemax.calibration import Calibration, logit
from schemax.errors import InputError
from schemax.evaluation.examples import Example
from schemax.evaluation.intervals import Counts, difference_interval, f1_of
from schemax.evaluation.pairs import OUTCOMES, Outcome, outcome_of
from schemax.evaluation.reliability import VALUES, Reliability, reliability
from schemax.evaluation.scores import score_predictions

THRESHOLDS = tuple(step / 20 for step in range(20))
# As a sharper or a blunter map than this comes of data that say too little.
_SLOPES = (0.05, 20.0)


class FitEntry(NamedTuple):
    """An attribute of a product, as a model wrote it.

    product: its place. outcome: of what was written; without: of null in its place.
    confidence: raw; None without a value. probability: None too where it has to have a value.
    """

    product: int
    annotated: bool
    outcome: Outcome
    without: Outcome
    confidence: float | None
    probability: float | None


class PredictedValue(NamedTuple):
    """What is known of a value as it was written; `optional`: whether its field may be null."""

    confidence: float | None
    probability: float | None
    optional: bool


@dataclass(frozen=True, slots=True)
class Threshold:
    """F1 by the protocol, and strictly, if less probable values are left out.

    alike: whether F1 can be told from the best threshold's with these products.
    """

    min_probability: float
    f1: float
    strict_f1: float
    alike: bool


@dataclass(frozen=True, slots=True)
class Fit:
    """A calibration, and what it was made from.

    before, after: of all values, as the model's own confidences have it, and as calibrated.
    """

    calibration: Calibration
    products: int
    before: Reliability
    after: Reliability
    curve: tuple[Threshold, ...]


def entries_of(
    examples: Sequence[Example],
    predictions: Sequence[Mapping[str, Any]],
    written: Sequence[Mapping[str, PredictedValue | None]],
) -> list[FitEntry]:
    """All attributes of all products; predictions and written are by attribute."""
    entries = []
    for pair in score_predictions(examples, predictions).pairs:
        found = written[pair.product].get(pair.attribute)
        known = found is not None and pair.outcome in VALUES
        entries.append(
            FitEntry(
                product=pair.product,
                annotated=pair.annotated,
                outcome=pair.outcome,
                without=outcome_of(examples[pair.product].attributes.get(pair.attribute), None),
                confidence=found.confidence if found and known else None,
                probability=found.probability if found and known and found.optional else None,
            )
        )
    return entries


def fit_calibration(entries: Sequence[FitEntry]) -> Fit:
    """Of annotated entries; those of several runs on the same products may be put together."""
    if not any(entry.annotated for entry in entries):
        raise InputError("no attribute of the schemas is annotated, so nothing can be calibrated")
    pairs = [
        (entry.confidence, entry.outcome == "vc")
        for entry in entries
        if entry.annotated and entry.confidence is not None
    ]
    sure, right = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    before = reliability(sure, right)
    if before is None:
        raise InputError(
            "the model wrote no value with a confidence for any annotated attribute, so nothing "
            "can be calibrated"
        )
    temperature, bias = fit_confidence(sure, right)
    curve = threshold_curve(entries)
    calibration = Calibration(temperature, bias, pick_threshold(curve))
    after = reliability([calibration.confidence(one) for one in sure], right)
    assert after is not None
    products = len({entry.product for entry in entries})
    return Fit(calibration, products, before, after, curve)


def fit_confidence(confidences: Sequence[float], right: Sequence[bool]) -> tuple[float, float]:
    """The temperature and bias of least log loss (Newton's method, as in Platt's paper).

    A penalty worth about one value draws them to 1 and 0, which holds them where all values are
    right or there are few; the slope, 1 / temperature, stays from 0.05 to 20.
    """
    x = np.array([logit(one) for one in confidences])
    y = np.array(right, np.float64)
    slope, bias = _newton(x, y, None)
    if not _SLOPES[0] <= slope <= _SLOPES[1]:
        # The loss is convex, so that its least within bounds lies on the bound that was crossed.
        slope, bias = _newton(x, y, float(np.clip(slope, *_SLOPES)))
    return round(1 / slope, 4), round(bias, 4)


def _newton(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], slope: float | None
) -> tuple[float, float]:
    """Slope and bias; only the bias where the slope is given."""
    inputs = np.stack([x, np.ones_like(x)], axis=1)
    start = np.array([1.0 if slope is None else slope, 0.0])
    free = [0, 1] if slope is None else [1]
    usual = np.array([1.0, 0.0])

    def loss(at: npt.NDArray[np.float64]) -> float:
        z = inputs @ at
        return float(np.sum(np.logaddexp(0, z) - y * z) + np.sum((at - usual) ** 2) / 2)

    found = start
    for _ in range(100):
        p = 1 / (1 + np.exp(-np.clip(inputs @ found, -500, 500)))
        gradient = (inputs.T @ (p - y) + found - usual)[free]
        curvature = ((inputs.T * (p * (1 - p))) @ inputs + np.eye(2))[np.ix_(free, free)]
        step = np.zeros(2)
        step[free] = np.linalg.solve(curvature, gradient)
        length = 1.0
        while length > 1e-6 and loss(found - length * step) > loss(found):
            length /= 2
        found = found - length * step
        if np.abs(length * step).max() < 1e-9:
            break
    return float(found[0]), float(found[1])


def threshold_curve(entries: Sequence[FitEntry]) -> tuple[Threshold, ...]:
    """F1 at every threshold of a grid, and which of them are as good as the best one.

    They are if the 95 % interval of the difference (a paired bootstrap over products) holds 0.
    """
    protocol = [_counts(entries, least, strict=False) for least in THRESHOLDS]
    strict = [_counts(entries, least, strict=True) for least in THRESHOLDS]
    f1 = [float(f1_of(counts.sum(axis=0))) for counts in protocol]
    best = protocol[int(np.argmax(f1))]
    return tuple(
        Threshold(
            min_probability=least,
            f1=score,
            strict_f1=float(f1_of(all_counts.sum(axis=0))),
            alike=difference_interval(best, counts).high >= 0,
        )
        for least, score, counts, all_counts in zip(THRESHOLDS, f1, protocol, strict, strict=True)
    )


def pick_threshold(curve: Sequence[Threshold]) -> float:
    """The middle of the thresholds that are as good as the best one; 0 if leaving nothing out is.

    Of calibrated probabilities, the best one is half of the best F1 (Lipton, Elkan and
    Naryanaswamy, Optimal Thresholding of Classifiers to Maximize F1 Measure, 2014).
    """
    alike = [point.min_probability for point in curve if point.alike]
    return 0.0 if alike[0] == 0 else round((alike[0] + alike[-1]) / 2, 4)


def _counts(entries: Sequence[FitEntry], least: float, *, strict: bool) -> Counts:
    """(products, 5), as `Scores.counts`, with less probable values left out."""
    counts = np.zeros((max(entry.product for entry in entries) + 1, len(OUTCOMES)), np.int64)
    for entry in entries:
        if strict or entry.annotated:
            kept = entry.probability is None or entry.probability >= least
            counts[entry.product, OUTCOMES.index(entry.outcome if kept else entry.without)] += 1
    return counts
