"""Confidences: the probabilities of values under the model.

A model gives probabilities of tokens. The confidence of a typed value is the product over its
tokens, among tokens that its type allows, and so comparable between values. The confidence of a
free text is the geometric mean, since a product always favours the shorter of two texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import exp
from typing import Any, TypeAlias

from schemax.tokens import SlotOutput

Ids: TypeAlias = tuple[int, ...]

_NOTHING = -1  # stands for a token before the first one
_SURE = (1.0,)

Fork: TypeAlias = tuple[Sequence[int], Sequence[float], dict[int, "Fork"]]
"""The possible next tokens, their probabilities, and the known forks behind some of the tokens."""


def mean_probability(logprobs: Sequence[float]) -> float:
    """The geometric mean of the probabilities of a value's tokens."""
    return exp(sum(logprobs) / len(logprobs))


def tree_of(output: SlotOutput) -> Fork:
    """The tree of known alternatives of a slot, from its own output and its branches."""
    top: dict[int, Fork] = {}
    outputs = [output]
    while outputs:
        found = outputs.pop()
        choices = {step.step: step for step in found.alternatives}
        onward, before = top, _NOTHING
        for place, token in enumerate(found.ids):
            # A branch does not replace the alternatives before it that are known already.
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
    """The probability of every value: the sum over all paths from the root to the value.

    left_behind: written tokens -> the values still possible behind each next token; they share the
        token's probability equally where no fork is known.
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
