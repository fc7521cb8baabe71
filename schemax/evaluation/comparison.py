"""Two sets of predictions for the same products, pair by pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemax.evaluation.examples import Example, row_ids
from schemax.evaluation.intervals import Interval, difference_interval
from schemax.evaluation.pairs import is_null
from schemax.evaluation.scores import Scores, score_predictions

_RIGHT = ("nn", "vc")


@dataclass(frozen=True, slots=True)
class Paired:
    """Both F1s, and on how many pairs only one of the two is right.

    interval: 95 %, of second_f1 - first_f1, by a paired bootstrap over products.
    """

    first_f1: float
    second_f1: float
    interval: Interval
    only_first: int
    only_second: int

    @property
    def difference(self) -> float:
        return self.second_f1 - self.first_f1

    @property
    def p_value(self) -> float:
        """McNemar's exact test, two-sided."""
        return mcnemar(self.only_first, self.only_second)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A first and a second set of predictions.

    pairs: all attributes of all products; differing_pairs: those with another value, whether
        right or wrong, all ways to write null being one.
    differing_products: names, as in `row_ids`, of the products that these belong to.
    """

    pairs: int
    differing_pairs: int
    products: int
    differing_products: tuple[str, ...]
    protocol: Paired
    strict: Paired


def compare(
    examples: Sequence[Example],
    first: Sequence[Mapping[str, Any]],
    second: Sequence[Mapping[str, Any]],
) -> Comparison:
    """first, second: attribute -> value or None, one mapping per example.

    Raises ValueError where the two are not about the same attributes.
    """
    differing = []
    for name, one, other in zip(row_ids(examples), first, second, strict=True):
        if one.keys() != other.keys():
            raise ValueError(
                f"the two sets of predictions have different attributes for product {name}"
            )
        differing.append(sum(_written(one[key]) != _written(other[key]) for key in one))
    ids = zip(row_ids(examples), differing, strict=True)
    ours, theirs = score_predictions(examples, first), score_predictions(examples, second)
    return Comparison(
        pairs=len(ours.pairs),
        differing_pairs=sum(differing),
        products=len(examples),
        differing_products=tuple(name for name, count in ids if count),
        protocol=_paired(ours, theirs, strict=False),
        strict=_paired(ours, theirs, strict=True),
    )


def mcnemar(only_first: int, only_second: int) -> float:
    """The two-sided p value of McNemar's test, exact: twice the smaller binomial tail, at most 1.

    only_first, only_second: pairs on which one of the two is right and the other wrong. If neither
    were better, either would be a coin's throw.
    """
    count = only_first + only_second
    # Whole numbers: coefficients of thousands of pairs fit no float.
    tail = coefficient = 1
    for k in range(min(only_first, only_second)):
        coefficient = coefficient * (count - k) // (k + 1)
        tail += coefficient
    return min(1.0, 2 * tail / (1 << count))


def _paired(first: Scores, second: Scores, *, strict: bool) -> Paired:
    only_first = only_second = 0
    for one, other in zip(first.pairs, second.pairs, strict=True):
        if strict or one.annotated:
            only_first += one.outcome in _RIGHT and other.outcome not in _RIGHT
            only_second += other.outcome in _RIGHT and one.outcome not in _RIGHT
    return Paired(
        first_f1=(first.strict if strict else first.protocol).f1,
        second_f1=(second.strict if strict else second.protocol).f1,
        interval=difference_interval(first.counts(strict=strict), second.counts(strict=strict)),
        only_first=only_first,
        only_second=only_second,
    )


def _written(value: str | None) -> str | None:
    return None if is_null(value) else value
