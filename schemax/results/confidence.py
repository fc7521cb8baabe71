"""How sure a model was of what it wrote.

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
"""What was written -> the tokens that could come next, and their probabilities."""


def mean_probability(logprobs: Sequence[float]) -> float:
    """The geometric mean of the probabilities of a value's tokens."""
    return exp(sum(logprobs) / len(logprobs))


def tree_of(output: SlotOutput) -> Tree:
    """All that is known of what could have been written: of the slot, and of its branches."""
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
    begun_by: Callable[[bytes], Sequence[Any]],
    tree: Tree,
    token_bytes: Sequence[bytes],
) -> dict[Any, float]:
    """The probability of every value: that of all ways through the tree which lead to it.

    begun_by: the values that a text is the beginning of. Those behind a token that nothing is
        known of share its probability in equal parts.
    token_bytes: of the vocabulary.
    """
    if len(values) == 1:
        return {values[0]: 1.0}
    found = dict.fromkeys(values, 0.0)
    ways: list[tuple[Ids, bytes, float]] = [((), b"", 1.0)]
    while ways:
        written, text, probability = ways.pop()
        if written in tree:
            ways += [
                ((*written, token), text + token_bytes[token], probability * share)
                for token, share in zip(*tree[written], strict=True)
            ]
            continue
        reached = begun_by(text)
        for value in reached:
            found[value] += probability / len(reached)
    return found
