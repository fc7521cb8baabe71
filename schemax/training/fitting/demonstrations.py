"""The order of demonstrations: labelled documents that cover the most attributes come first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_ABSENT = 0.5
"""The worth of showing an attribute's absence, relative to showing a value."""


def coverage_order(
    rows: Sequence[int],
    labels: Mapping[int, Mapping[str, Any]],
    names: Sequence[str],
    count: int | None = None,
) -> list[int]:
    """Orders rows greedily, so that the first rows cover as many attributes as possible.

    Each row shows what the rows before it show least: first a value of every attribute, then its
    absence, then either again. Of rows with equal worth, the first in `rows` comes first.

    labels: row -> attribute -> value, None if the text states none; names: all attributes.
    count: the number of rows to order, behind which the others keep their order; None for all.
    """
    left, order = list(rows), list[int]()
    counts: Counter[tuple[str, bool]] = Counter()
    while left and len(order) != count:
        best = max(left, key=lambda row: _worth(labels[row], names, counts))  # the first of equals
        left.remove(best)
        order.append(best)
        counts.update((name, labels[best].get(name) is not None) for name in names)
    return order + left


def _worth(
    labels: Mapping[str, Any], names: Sequence[str], counts: Counter[tuple[str, bool]]
) -> float:
    """Returns the worth of a row; by the square, a first showing is worth more than later ones."""
    stated = ((name, labels.get(name) is not None) for name in names)
    return sum((1.0 if one[1] else _ABSENT) / (1 + counts[one]) ** 2 for one in stated)
