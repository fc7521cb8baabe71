"""The rows to show, to decide by and to hold out, and the order of the rows to show."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemax.base.messages import counted
from schemax.errors import InputError
from schemax.evaluation.examples import Example

_HELD_OUT = 0.2
_DECIDING = 0.4  # of the documents that are not held out
_MOST = 96
"""The most documents that decide, and the most held out, over all categories: further candidates
gain more than further documents."""
_FEWEST = 8


@dataclass(frozen=True, slots=True)
class Split:
    """Three parts, each category -> rows. No text is in two parts.

    pool: rows to show.
    deciding: rows to compare candidates on.
    held_out: rows to measure the gain.
    """

    pool: dict[str, list[int]]
    deciding: dict[str, list[int]]
    held_out: dict[str, list[int]]


def split_rows(examples: Sequence[Example], seed: int) -> Split:
    """Holds out 20 % of every category; 32 % decide, up to a bound; 48 % may be shown.

    Raises InputError, naming it, for a category with too few different texts.
    """
    by_text: dict[str, dict[str, list[int]]] = {}
    for row, example in enumerate(examples):
        by_text.setdefault(example.category, {}).setdefault(example.text, []).append(row)
    split = Split({}, {}, {})
    most = max(4, _MOST // len(by_text))
    for category, texts in by_text.items():
        if len(texts) < _FEWEST:
            raise InputError(
                f"category {category!r} has {counted(len(texts), 'different document')}, too few "
                f"to choose by: label {_FEWEST} or more, better 20"
                + ("; or leave the category out" if len(by_text) > 1 else "")
            )
        names = sorted(texts)
        random.Random(f"{seed}, {category}").shuffle(names)
        held_out = min(most, max(2, round(_HELD_OUT * len(names))))
        deciding = min(most, max(3, round(_DECIDING * (len(names) - held_out))))
        # One row per text suffices.
        rows = [texts[name][0] for name in names]
        split.held_out[category] = sorted(rows[:held_out])
        split.deciding[category] = sorted(rows[held_out : held_out + deciding])
        split.pool[category] = sorted(rows[held_out + deciding :])
    return split


_ABSENT = 0.5
"""The gain of showing an attribute's absence, relative to showing a value."""


def coverage_order(
    rows: Sequence[int],
    labels: Mapping[int, Mapping[str, Any]],
    names: Sequence[str],
    count: int | None = None,
) -> list[int]:
    """Orders rows greedily, so that the first rows cover as many attributes as possible.

    Each row shows what the rows before it show least: first a value of every attribute, then its
    absence, then both again. Rows of equal worth keep their order.

    labels: row -> attribute -> value, None if the text states none.
    names: all attributes.
    count: the number of rows to order; the others follow in their order. None orders all.
    """
    left, order = list(rows), list[int]()
    counts: Counter[tuple[str, bool]] = Counter()
    while left and len(order) != count:
        best = max(
            left, key=lambda row: _worth(labels[row], names, counts)
        )  # the first row of equal worth
        left.remove(best)
        order.append(best)
        counts.update((name, labels[best].get(name) is not None) for name in names)
    return order + left


def _worth(
    labels: Mapping[str, Any], names: Sequence[str], counts: Counter[tuple[str, bool]]
) -> float:
    """Returns the worth of a row: 1 / n² for the n-th showing of a value or of an absence."""
    stated = ((name, labels.get(name) is not None) for name in names)
    return sum((1.0 if pair[1] else _ABSENT) / (1 + counts[pair]) ** 2 for pair in stated)
