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

_NOTHING = -1  # in the place of a token, before the first one
_SURE = (1.0,)

Fork: TypeAlias = tuple[Sequence[int], Sequence[float], dict[int, "Fork"]]
"""The tokens that could come next, their probabilities, and the forks behind those of the tokens of
which more is known."""


def mean_probability(logprobs: Sequence[float]) -> float:
    """The geometric mean of the probabilities of a value's tokens."""
    return exp(sum(logprobs) / len(logprobs))


def tree_of(output: SlotOutput) -> Fork:
    """All that is known of what a slot could have written, from itself and its branches."""
    top: dict[int, Fork] = {}
    outputs = [output]
    while outputs:
        found = outputs.pop()
        choices = {step.step: step for step in found.alternatives}
        onward, before = top, _NOTHING
        for place, token in enumerate(found.ids):
            # A branch knows nothing of what stood there before it, where others know.
            if before not in onward:
                step = choices.get(place)
                known = (step.ids, step.probabilities) if step else ((token,), _SURE)
                onward[before] = (*known, {})
            onward, before = onward[before][2], token
        outputs += found.branches
    return top[_NOTHING]


def distribution(
    values: Sequence[Any],
    left_behind: Callable[[Ids], Mapping[int, Sequence[Any]]],
    root: Fork,
) -> dict[Any, float]:
    """The probability of every value: that of all ways from the root which lead to it.

    left_behind: written tokens -> the values that each token leaves which could come next. Where
        nothing more is known, these share its probability in equal parts.
    """
    if len(values) == 1:
        return {values[0]: 1.0}
    found = dict.fromkeys(values, 0.0)
    ways: list[tuple[Ids, Fork, float]] = [((), root, 1.0)]
    while ways:
        written, (tokens, shares, onward), probability = ways.pop()
        left = left_behind(written) if len(onward) < len(tokens) else {}
        for token, share in zip(tokens, shares, strict=True):
            if token in onward:
                ways.append(((*written, token), onward[token], probability * share))
                continue
            reached = left[token]
            for value in reached:
                found[value] += probability * share / len(reached)
    return found
