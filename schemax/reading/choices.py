"""Finds the one of several choices that a text names, up to case, spaces and spelling."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from rapidfuzz import fuzz, process

from schemax.reading import Reading, noted
from schemax.reading.folding import bare, folded, loose
from schemax.reading.likeness import numbers_in, reads_alike, words_of

LEAST_ALIKE = 85.0
"""The least similarity, 0 to 100, of a text to a choice that reads alike word by word."""

_NEGATIONS = frozenset(
    {"no", "not", "non", "never", "without", "except", "isn't", "aren't", "isnt", "arent"}
    | {"kein", "keine", "nicht", "ohne", "sans", "sin", "sem", "pas"}
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

        equality; equality without case, spaces and punctuation, with equal numbers; the words and
        numbers of the choice in the text, if the text has no negation; the greatest similarity,
        from `LEAST_ALIKE` on, with the same numbers. A text that names no choice, or several, stays
        unchanged.
        """
        if text in self.values:
            return Reading(self.values[text])
        wanted = folded(text, bare)
        found = self._by_key.get(_key(text), []) if wanted else []
        why = None
        if not found:
            found, why = self._contained(text), "its words"
        if not found:
            found, why = self._alike(text, wanted), "similar spelling"
        if len(found) != 1:
            return Reading(text)
        (choice,) = found
        return noted(text, choice, why)._replace(value=self.values[choice])

    @cached_property
    def _by_key(self) -> Mapping[tuple[str, ...], list[str]]:
        """Choices by `_key`; made for the first text that is no choice itself, if there is any."""
        found: dict[tuple[str, ...], list[str]] = {}
        for choice in self.values:
            found.setdefault(_key(choice), []).append(choice)
        return found

    def _contained(self, text: str) -> list[str]:
        words = words_of(text)
        if _NEGATIONS.intersection(words):
            return []
        left, found, stated = _spaced(words), [], _numbers(text)
        # Longest first: "light blue" names Light Blue, not Blue.
        for choice, known in self._words:
            # "sugar-free" and "zero sugar" name what is not there.
            is_absent = f"{known} free " in left or f" zero {known}" in left
            if known and known in left and stated.issuperset(_numbers(choice)) and not is_absent:
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
            and _numbers(choice) == _numbers(text)
            and reads_alike(text, choice, score)
        ]


_NUMBER = re.compile(r"(^\s*[-−–+])?(\d*(?:[.,]\d+)*)(?<=\d)")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+")


def _number(found: re.Match[str]) -> str:
    """A number in plain digits: 0.5 of ".5", 1080 of "1,080"; a sign leads a text.

    "1.0" is 1 by itself, but "USB 3.0" is not "USB 3".
    """
    digits = found[2].replace(",", "") if _THOUSANDS.fullmatch(found[2]) else found[2]
    before, mark, behind = digits.replace(",", ".").partition(".")
    if mark and "." not in behind:
        is_alone = found[0].strip() == found.string.strip()
        behind = behind.rstrip("0") if is_alone else behind
        digits = ".".join(filter(None, (before or "0", behind)))
    return digits if found[1] is None or "+" in found[1] else f"-{digits}"


def _numbers(text: str) -> frozenset[str]:
    return frozenset(map(_number, _NUMBER.finditer(folded(text, loose))))


def _key(text: str) -> tuple[str, ...]:
    """What equal choices share: numbers, and the texts between them without punctuation."""
    text = folded(text, loose)
    numbers = list(_NUMBER.finditer(text))
    ends = [0, *(found.end() for found in numbers)]
    starts = [*(found.start() for found in numbers), len(text)]
    between = [folded(text[end:start], bare) for end, start in zip(ends, starts, strict=True)]
    return (*between, *map(_number, numbers))


def _spaced(words: Sequence[str]) -> str:
    return "".join(f" {word} " for word in words)
