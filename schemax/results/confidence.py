"""Confidences: how sure a model was of what it wrote.

A model's probabilities are those of tokens. A typed value's is their product, over what its type
allows, so that it compares with those of all other values. A free text's is their geometric mean:
among products, the longer of two texts always looks worse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp
from typing import Any, TypeAlias

from schemax.tokens import SlotOutput

Ids: TypeAlias = tuple[int, ...]
Tree: TypeAlias = Mapping[Ids, tuple[Sequence[int], Sequence[float]]]
"""Written tokens -> the tokens that could come next, and their probabilities."""


def mean_probability(logprobs: Sequence[float]) -> float:
    """The geometric mean of the probabilities of a value's tokens."""
    return exp(sum(logprobs) / len(logprobs))


def tree_of(output: SlotOutput) -> Tree:
    """All that is known of what a slot could have written, from itself and its branches."""
    tree: dict[Ids, tuple[Sequence[int], Sequence[float]]] = {}
    outputs = [output]
    while outputs:
        found = outputs.pop()
        choices = {step.step: (step.ids, step.probabilities) for step in found.alternatives}
        for place, token in enumerate(found.ids):
            # A branch knows nothing of what stood there before it, where others know.
            tree.setdefault(found.ids[:place], choices.get(place, ((token,), (1.0,))))
        outputs += found.branches
    return tree


def distribution(
    values: Sequence[Any],
    left_behind: Callable[[Ids], Mapping[int, Sequence[Any]]],
    tree: Tree,
) -> dict[Any, float]:
    """The probability of every value: that of all ways through the tree which lead to it.

    left_behind: written tokens -> the values that each token leaves which could come next. Where
        nothing more is known, these share its probability in equal parts.
    """
    if len(values) == 1:
        return {values[0]: 1.0}
    found = dict.fromkeys(values, 0.0)
    onward: dict[Ids, set[int]] = {}
    for written in tree:
        onward.setdefault(written[:-1], set()).update(written[-1:])
    ways: list[tuple[Ids, float]] = [((), 1.0)]
    while ways:
        written, probability = ways.pop()
        tokens, shares = tree[written]
        left, known = left_behind(written), onward.get(written, ())
        for token, share in zip(tokens, shares, strict=True):
            if token in known:
                ways.append(((*written, token), probability * share))
                continue
            for value in left[token]:
                found[value] += probability * share / len(left[token])
    return found
