"""Finds the one of several choices that a text names, up to case, spaces and spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from rapidfuzz import fuzz, process

from schemax.reading import Reading, noted
from schemax.reading.folding import bare, folded
from schemax.reading.likeness import numbers_in, reads_alike, words_of

LEAST_ALIKE = 85.0
"""The least similarity, 0 to 100, of a text to a choice that reads alike word by word."""

_NEGATIONS = frozenset(
    ("no", "not", "non", "without", "kein", "keine", "nicht", "ohne", "sans", "sin", "sem", "pas")
)


class Choices:
    """Recognizes the choices of a field in texts.

    values: text of a choice -> its Python value.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self._bare = {text: folded(text, bare) for text in values}
        words = {text: _spaced(words_of(text)) for text in values}
        self._words = sorted(words.items(), key=lambda pair: -len(pair[1]))
        self.read = lru_cache(maxsize=4096)(self._read)

    def _read(self, text: str) -> Reading:
        """Reads the choice that a text names, by the first of these rules that finds any:

        equality; equality without case, spaces and punctuation; the words of the choice in the
        text, if the text has no negation; the greatest similarity, from `LEAST_ALIKE` on, with the
        same numbers. A text that names no choice, or several, stays unchanged.
        """
        if text in self.values:
            return Reading(self.values[text])
        wanted = folded(text, bare)
        found = [choice for choice, known in self._bare.items() if known == wanted and wanted]
        why = None
        if not found:
            found, why = self._contained(text), "its words"
        if not found:
            found, why = self._alike(text, wanted), "similar spelling"
        if len(found) != 1:
            return Reading(text)
        (choice,) = found
        return noted(text, choice, why)._replace(value=self.values[choice])

    def _contained(self, text: str) -> list[str]:
        words = words_of(text)
        if _NEGATIONS.intersection(words):
            return []
        left, found = _spaced(words), []
        # Longest first: "light blue" names Light Blue, not Blue.
        for choice, known in self._words:
            if known and known in left:
                left = left.replace(known, "  |  ")
                found.append(choice)
        return found

    def _alike(self, text: str, wanted: str) -> list[str]:
        similar = process.extract(
            wanted, self._bare, scorer=fuzz.ratio, score_cutoff=LEAST_ALIKE, limit=2
        )
        best = max((score for _, score, _ in similar), default=0.0)
        return [
            choice
            for _, score, choice in similar
            if score == best
            and numbers_in(choice) == numbers_in(text)
            and reads_alike(text, choice, score)
        ]


def _spaced(words: Sequence[str]) -> str:
    return "".join(f" {word} " for word in words)
