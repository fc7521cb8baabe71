"""How sure a model was of what it wrote.

A model's probabilities are those of tokens. A typed value's is their product, over what its type
allows, so that it compares with those of all other values. A free text's is their geometric mean:
among products, the longer of two texts always looks worse.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import exp
from typing import Any, NamedTuple


class Step(NamedTuple):
    """What could be written next at one step: the bytes written before, tokens, probabilities."""

    before: bytes
    tokens: tuple[bytes, ...]
    probabilities: tuple[float, ...]


def mean_probability(logprobs: Sequence[float]) -> float:
    """The geometric mean of the probabilities of a value's tokens."""
    return exp(sum(logprobs) / len(logprobs))


class Choices:
    """All that may be written into a slot, and which choice each text stands for.

    texts: what may be written, with what may follow it -> the choice.
    """

    def __init__(self, texts: Mapping[bytes, Any]) -> None:
        self._texts = sorted(texts)
        self._values = [texts[text] for text in self._texts]
        self.values = tuple(dict.fromkeys(texts.values()))
        self._begun = lru_cache(maxsize=65_536)(self._begin)

    def distribution(self, steps: Sequence[Step]) -> dict[Any, float]:
        """The probability of every choice, from the steps at which there was one to make.

        Choices behind a token that was not taken, and that they share, have its probability in
        equal parts: what the model would have chosen among them is not known.
        """
        if len(self.values) == 1:
            return {self.values[0]: 1.0}
        found = dict.fromkeys(self.values, 0.0)
        reached = 1.0
        for place, step in enumerate(steps):
            taken = steps[place + 1].before if place + 1 < len(steps) else None
            behind = () if taken is None else self._begun(taken)
            onward = 0.0
            for token, probability in zip(step.tokens, step.probabilities, strict=True):
                written = step.before + token
                values = self._begun(written)
                if taken is not None and taken.startswith(written) and values == behind:
                    onward += probability
                    continue
                for value in values:
                    found[value] += reached * probability / len(values)
            reached *= onward
        return found

    def chosen(self, written: bytes) -> tuple[Any, ...]:
        """The choice that was written; none or several if it is not complete."""
        return self._begun(written)

    def _begin(self, written: bytes) -> tuple[Any, ...]:
        """The choices of all texts that begin like this, or that this goes beyond."""
        place = bisect_left(self._texts, written)
        values = []
        while place < len(self._texts) and self._texts[place].startswith(written):
            values.append(self._values[place])
            place += 1
        if not values:
            for length in range(len(written), 0, -1):
                place = bisect_left(self._texts, written[:length])
                if place < len(self._texts) and self._texts[place] == written[:length]:
                    return (self._values[place],)
        return tuple(dict.fromkeys(values))
