"""The rows to show, to decide by and to hold out, and the order of the rows to show."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemax.errors import InputError
from schemax.evaluation.examples import Example

_HELD_OUT = 0.2
_DECIDING = 0.4  # of the others
_MOST = 96
"""The most documents of all categories that decide, and that are held out: more would cost time
that is better spent on further candidates."""
_FEWEST = 8


@dataclass(frozen=True, slots=True)
class Split:
    """Three parts, each category -> rows. No text is in two parts.

    pool: may be shown. deciding: candidates are compared on them. held_out: measure the gain.
    """

    pool: dict[str, list[int]]
    deciding: dict[str, list[int]]
    held_out: dict[str, list[int]]


def split_rows(examples: Sequence[Example], seed: int) -> Split:
    """Holds out a fifth of every category; two fifths of the rest decide, up to a bound.

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
                f"category {category!r} has {len(texts)} different documents, too few to choose "
                f"by: label {_FEWEST} or more, better 20"
                + ("; or leave the category out" if len(by_text) > 1 else "")
            )
        names = sorted(texts)
        random.Random(f"{seed}, {category}").shuffle(names)
        held_out = min(most, max(2, round(_HELD_OUT * len(names))))
        deciding = min(most, max(3, round(_DECIDING * (len(names) - held_out))))
        # Of several rows with the same text, one suffices.
        rows = [texts[name][0] for name in names]
        split.held_out[category] = sorted(rows[:held_out])
        split.deciding[category] = sorted(rows[held_out : held_out + deciding])
        split.pool[category] = sorted(rows[held_out + deciding :])
    return split


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
