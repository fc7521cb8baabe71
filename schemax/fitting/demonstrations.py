"""Labelled documents in the order of how much they show of what can be asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_ABSENT = 0.5
"""The worth of showing an attribute's absence, beside showing a value of it."""


def coverage_order(
    rows: Sequence[int],
    labels: Mapping[int, Mapping[str, Any]],
    names: Sequence[str],
    count: int | None = None,
) -> list[int]:
    """Orders rows so that the first few show as many attributes as so few can.

    Each next one shows what the rows before it show least: a value of every attribute first, then
    its absence, then either once more. Of rows that show as much, the first one comes first.

    labels: attribute -> value of a row, None where the text states none; names: all attributes.
    count: how many rows are put in this order, the others follow as they are; None for all.
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
    """The square makes a first showing worth more than several later ones."""
    stated = ((name, labels.get(name) is not None) for name in names)
    return sum((1.0 if one[1] else _ABSENT) / (1 + counts[one]) ** 2 for one in stated)
