"""Compares two sets of predictions for the same products, pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemax.evaluation.examples import Example, row_ids
from schemax.evaluation.scores import (
    Interval,
    Scores,
    difference_interval,
    is_null,
    score_predictions,
    share_interval,
)

_RIGHT = ("nn", "vc")


@dataclass(frozen=True, slots=True)
class Paired:
    """Two F1s, their difference (second - first), and counts of pairs that only one set has right.

    f1_difference_interval: 95 %, by a paired bootstrap over products.
    mcnemar_p: the p value of McNemar's exact test, two-sided.
    holm_p: the same, corrected for the number of comparisons (see `corrected_comparisons`).
    """

    f1: tuple[float, float]
    f1_difference: float
    f1_difference_interval: Interval
    right_only_in_first: int
    right_only_in_second: int
    mcnemar_p: float
    holm_p: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of a first and a second set of predictions.

    pairs: the number of attributes of all products.
    differing_pairs: pairs with different values, right or wrong; all spellings of null are equal.
    differing_share_interval: the 95 % interval of the share of differing pairs, by a bootstrap over
        products.
    differing_products: names, as in `row_ids`, of products with differing pairs.
    """

    products: int
    pairs: int
    differing_pairs: int
    differing_share_interval: Interval
    differing_products: tuple[str, ...]
    protocol: Paired
    strict: Paired


def compare(
    examples: Sequence[Example],
    first: Sequence[Mapping[str, Any]],
    second: Sequence[Mapping[str, Any]],
) -> Comparison:
    """Compares two sets. first, second: attribute -> value or None, one mapping per example.

    Raises ValueError if the two have different attributes.
    """
    differing = []
    for name, before, after in zip(row_ids(examples), first, second, strict=True):
        if before.keys() != after.keys():
            raise ValueError(
                f"the two sets of predictions have different attributes for document {name}"
            )
        differing.append(sum(_as_written(before[key]) != _as_written(after[key]) for key in before))
    ids = zip(row_ids(examples), differing, strict=True)
    ours, theirs = score_predictions(examples, first), score_predictions(examples, second)
    return Comparison(
        pairs=len(ours.pairs),
        differing_pairs=sum(differing),
        differing_share_interval=share_interval(differing, list(map(len, first))),
        products=len(examples),
        differing_products=tuple(name for name, count in ids if count),
        protocol=_paired_f1(ours, theirs, strict=False),
        strict=_paired_f1(ours, theirs, strict=True),
    )


def mcnemar(only_first: int, only_second: int) -> float:
    """Returns the two-sided p of McNemar's exact test: twice the smaller binomial tail, up to 1.

    only_first, only_second: counts of pairs that only the first, or only the second, has right. If
    neither set is better, both cases are equally likely.
    """
    count = only_first + only_second
    # Integers, since coefficients for thousands of pairs exceed floats.
    tail = coefficient = 1
    for k in range(min(only_first, only_second)):
        coefficient = coefficient * (count - k) // (k + 1)
        tail += coefficient
    return min(1.0, 2 * tail / (1 << count))


def corrected_comparisons(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Corrects the p values of several comparisons (Holm, A Simple Sequentially Rejective Multiple
    Test Procedure, 1979), so that one in twenty such sets has any below 0.05 by chance."""
    protocol, strict = (
        holm([getattr(comparison, kind).mcnemar_p for comparison in comparisons])
        for kind in ("protocol", "strict")
    )
    return [
        replace(
            comparison,
            protocol=replace(comparison.protocol, holm_p=p),
            strict=replace(comparison.strict, holm_p=strict_p),
        )
        for comparison, p, strict_p in zip(comparisons, protocol, strict, strict=True)
    ]


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns adjusted p values: the i-th smallest of n times n - i, at least the one before."""
    adjusted, least = [0.0] * len(p_values), 0.0
    for place, n in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, p_values[n] * (len(p_values) - place)))
        adjusted[n] = least
    return adjusted


def _paired_f1(first: Scores, second: Scores, *, strict: bool) -> Paired:
    right = [
        (before.outcome in _RIGHT, after.outcome in _RIGHT)
        for before, after in zip(first.pairs, second.pairs, strict=True)
        if strict or before.annotated
    ]
    only = right.count((True, False)), right.count((False, True))
    f1, other_f1 = ((scores.strict if strict else scores.protocol).f1 for scores in (first, second))
    return Paired(
        f1=(f1, other_f1),
        f1_difference=other_f1 - f1,
        f1_difference_interval=difference_interval(
            first.counts(strict=strict), second.counts(strict=strict)
        ),
        right_only_in_first=only[0],
        right_only_in_second=only[1],
        mcnemar_p=mcnemar(*only),
        holm_p=mcnemar(*only),
    )


def _as_written(value: str | None) -> str | None:
    return None if is_null(value) else value
