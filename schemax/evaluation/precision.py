"""Thresholds on confidence that promise a precision of the values kept.

A threshold is accepted if a test refutes that the values at or above it are right less often than
promised. Thresholds are tested one after the other, from the strictest to the loosest, with a
shared risk of 5 %: Angelopoulos, Bates, Candes, Jordan and Lei, Learn then Test, 2021. A test takes
the binomial tail of the bound of Clopper and Pearson, 1934. Documents, not values, are drawn at
random: the values of a document may be right and wrong together, so a test counts them as fewer
values, by the design effect (Korn and Graubard, Confidence Intervals for Proportions with Small
Expected Number of Positive Counts Estimated from Survey Data, 1998).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from math import ceil, inf, log, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from schemax.base.calibration import FEWEST_LABELS, Share

RISK = 0.05
"""The share of calibrations whose promise does not hold."""

_QUANTILE = 1.96  # of the normal distribution
_STEPS = 50  # thresholds tested
_ENTRIES = (0.2, 0.4)  # shares of the values at which risk enters
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Thresholds(NamedTuple):
    """The least confidences of values that are kept.

    shared: of every field that has none by itself; None if no value of such a field can be kept.
    by_field: of fields by themselves.
    """

    shared: float | None
    by_field: Mapping[Hashable, float]


def choose_thresholds(
    confidences: Sequence[float],
    right: Sequence[bool],
    documents: Sequence[int],
    precision: float,
    fields: Sequence[Hashable] | None = None,
) -> Thresholds:
    """Returns thresholds that keep about as many values as a precision allows.

    In 95 of 100 sets of labelled documents, the values kept of further documents are right at least
    as often as `precision` says: all of them together, and those of each field of `by_field`. A
    field has a threshold by itself from 60 values on, if a test accepts any.

    confidences, right, documents, fields: per value; a document is any number that its values
        share. Without fields, there is the shared threshold alone.

    Raises ValueError for a precision that is not above 0 and below 1.
    """
    if not 0 < precision < 1:
        raise ValueError(f"precision must be above 0 and below 1, not {precision!r}")
    sure, correct = np.asarray(confidences, np.float64), np.asarray(right, np.bool_)
    numbers = np.asarray(documents, np.int64)
    names = list(dict.fromkeys(fields or ()))
    places = {name: place for place, name in enumerate(names)}
    field_of = np.array([places[name] for name in fields or ()], np.int64)
    is_shared, kept, by_field = np.full(sure.shape, True), np.full(sure.shape, True), {}
    for name, count in zip(names, np.bincount(field_of, minlength=len(names)), strict=True):
        if count < FEWEST_LABELS:
            continue
        own = field_of == places[name]
        least = _loosest(sure[own], correct[own], numbers[own], precision)
        if least is not None:
            by_field[name] = least
            is_shared[own], kept[own] = False, sure[own] >= least
    if not is_shared.any():  # the shared threshold is for fields without a label
        is_shared, kept = ~is_shared, ~is_shared
    # Fields by themselves keep the same values whatever the shared threshold is.
    levels = np.where(is_shared, sure, np.inf)[kept]
    shared = _loosest(levels, correct[kept], numbers[kept], precision)
    return Thresholds(None if shared == inf else shared, by_field)


def share_of(chosen: Bools, documents: Ints) -> Share:
    """Returns the share of True, with its 95 % interval (Wilson, 1927). Values count as fewer, by
    the design effect."""
    numbers = np.unique(documents, return_inverse=True)[1]
    values, missing = np.bincount(numbers), np.bincount(numbers, ~chosen)
    effect = _effect_of_threshold(*np.array([values, missing], np.float64)[:, :, None])
    count, share, square = len(chosen) / float(effect[0]), float(chosen.mean()), _QUANTILE**2
    middle = (share + square / (2 * count)) / (1 + square / count)
    spread = sqrt(square * (share * (1 - share) + square / (4 * count)) / count)
    half = spread / (1 + square / count)
    return share, max(0.0, middle - half), min(1.0, middle + half)


def _loosest(sure: Floats, correct: Bools, documents: Ints, precision: float) -> float | None:
    """Returns the loosest threshold that the tests accept; None if they accept none.

    A test that accepts hands its risk on to the next one. Half of the risk enters at a fifth of the
    values and half at two fifths, since among the few most confident values a chance failure would
    end the sequence (the fallback procedure; Wiens, A Fixed Sequence Bonferroni Procedure for
    Testing Multiple Endpoints, 2003). Values of infinite confidence are always kept.
    """
    fewest = ceil(log(RISK) / log(precision))  # values that prove the precision if all are right
    if len(sure) < fewest:
        return None
    ascending = np.sort(sure)
    steps = np.linspace(fewest, len(sure), _STEPS).astype(np.int64)
    # Rounded down, so that values of a threshold's confidence are kept whatever is rounded later.
    grid = np.unique(np.floor(ascending[len(sure) - steps] * 1e6) / 1e6)[::-1]
    kept = len(sure) - np.searchsorted(ascending, grid)
    entries = [share * len(sure) for share in _ENTRIES]
    if entries[0] < 2 * fewest:
        entries = [max(fewest, len(sure) // 2)]
    starts = np.searchsorted(kept, entries)
    risks = _risks_of_chance(sure, correct, documents, grid, precision)
    loosest, risk = None, 0.0
    for place, (threshold, chance) in enumerate(zip(grid.tolist(), risks, strict=True)):
        risk += RISK * float(np.sum(starts == place)) / len(starts)
        if chance <= risk:
            loosest = threshold
        else:
            risk = 0.0
    return loosest


def _risks_of_chance(
    sure: Floats, correct: Bools, documents: Ints, grid: Floats, precision: float
) -> list[float]:
    """Returns the p values of thresholds, descending: the probability of as few wrong values among
    those kept if the precision were no higher than promised.
    """
    documents = np.unique(documents, return_inverse=True)[1]
    count = documents.max() + 1
    cells = documents * len(grid) + np.searchsorted(-grid, -sure)
    shape = count, len(grid)
    values, wrong = (
        np.bincount(cells, weights, count * len(grid)).reshape(shape).cumsum(axis=1)
        for weights in (None, ~correct)
    )
    kept, failures = values.sum(axis=0), wrong.sum(axis=0)
    effect = np.maximum(_effect_of_threshold(values, wrong), _effect_of_all(values, wrong))
    return [
        _tail(int(n / deff), ceil(k / deff - 1e-9), 1 - precision)
        for n, k, deff in zip(kept.tolist(), failures.tolist(), effect.tolist(), strict=True)
    ]


def _effect_of_threshold(values: Floats, wrong: Floats) -> Floats:
    """Returns the design effects of kept values, at least 1: the variance of their share of wrong
    ones over documents, relative to that of independent values.

    values, wrong: (documents, thresholds) counts.
    """
    kept, holding = values.sum(axis=0), (values > 0).sum(axis=0)
    share = wrong.sum(axis=0) / kept
    variance = ((wrong - share * values) ** 2).sum(axis=0) * holding / np.maximum(1, holding - 1)
    independent = kept * share * (1 - share)
    ones = np.ones_like(share)
    return np.asarray(np.divide(variance, independent, ones, where=share % 1 > 0)).clip(min=1)


def _effect_of_all(values: Floats, wrong: Floats) -> Floats:
    """Returns the design effects by the correlation of all values of a document (Kish, Survey
    Sampling, 1965), at least 1, since among few values with hardly a wrong one none is measured.

    A document whose values are all wrong is added, since a few documents may lack the kind.
    """
    sizes, failures = values[:, -1], wrong[:, -1]
    sizes, failures = np.append(sizes, sizes.mean()), np.append(failures, sizes.mean())
    share = wrong[:, -1].sum() / sizes[:-1].sum()
    within = (failures * (1 - share) ** 2 + (sizes - failures) * share**2).sum()
    between = ((failures - share * sizes) ** 2).sum() - within
    pairs = (sizes * (sizes - 1)).sum()
    if not pairs or not within:
        return np.ones(values.shape[1])
    correlation = min(1.0, max(0.0, between / pairs / (within / sizes.sum())))
    return np.asarray(1 + correlation * ((values**2).sum(axis=0) / values.sum(axis=0) - 1))


def _tail(trials: int, most: int, chance: float) -> float:
    """Returns the probability of at most `most` failures, each of this chance."""
    failures = np.arange(1, min(most, trials) + 1)
    steps = np.log((trials - failures + 1) / failures * (chance / (1 - chance)))
    logs = trials * log(1 - chance) + np.concatenate(([0.0], np.cumsum(steps)))
    return float(np.exp(logs).sum())
