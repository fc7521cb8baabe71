"""Folding: texts without differences that readers ignore, and the places in the original.

Texts read alike if their folded words, numbers and signs are equal, but for plurals and slips.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import accumulate

import regex
from rapidfuzz.distance import OSA

MOST_OCCURRENCES = 1000
"""The most occurrences of a text that are examined."""

_ALIKE = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′`´", "'"),
        **dict.fromkeys("“”„‟″", '"'),
        **dict.fromkeys("‐‑‒–—―−", "-"),
        "⁄": "/",
        "×": "x",
        "ı": "i",
        **dict.fromkeys("®©™℠", None),
        **dict.fromkeys(map(chr, range(0xFE00, 0xFE10)), None),  # variation selectors
    }
)
# Arabic and Hebrew are usually written without their vowel signs.
_UNWRITTEN = regex.compile(r"[\p{Cf}\u0640[\p{Mn}&&[\p{scx=Arabic}\p{scx=Hebrew}]]]", regex.V1)


@lru_cache(maxsize=8192)
def loose(unit: str) -> str:
    """A unit without case, typographic variants and invisible signs; white space as " "."""
    text = unicodedata.normalize("NFKC", unit.translate(_ALIKE)).casefold()
    text = unicodedata.normalize("NFKC", text).replace("i\u0307", "i").translate(_ALIKE)
    if text.isspace():
        return " "
    return str(_UNWRITTEN.sub("", text))


def bare(unit: str) -> str:
    """A loose unit without white space and punctuation; meaningful signs (+ % # $) stay."""
    return "".join(
        char
        for char in loose(unit)
        if char != " " and (char in "%#@*" or unicodedata.category(char)[0] != "P")
    )


_UNIT = re.compile(r"\s+|.", re.DOTALL)


def units_of(text: str) -> list[str]:
    """Splits a text into characters, with their combining marks, and runs of white space."""
    marks = "" if text.isascii() else "".join(sorted(filter(is_mark, set(text))))
    if not marks:
        return _UNIT.findall(text)
    return re.findall(rf"\s+|.[{re.escape(marks)}]*", text, re.DOTALL)


def folded(text: str, fold: Callable[[str], str]) -> str:
    return "".join(map(fold, units_of(text)))


def is_mark(char: str) -> bool:
    """True for a mark that combines with the character before it: accents, vowels of Hangul."""
    return unicodedata.category(char)[0] == "M" or "\u1160" <= char <= "\u11ff"


def occurrences(value: str, text: str) -> Iterator[tuple[int, int]]:
    """Yields the places of `value` in `text`, also overlapping; none for an empty value."""
    at = text.find(value) if value else -1
    for _ in range(MOST_OCCURRENCES):
        if at < 0:
            return
        yield at, at + len(value)
        at = text.find(value, at + 1)


class Folded:
    """A folded text whose places map back to the original.

    fold: maps a unit to a text of any length.
    """

    def __init__(self, original: str, fold: Callable[[str], str]) -> None:
        units = units_of(original)
        folds = {unit: fold(unit) for unit in set(units)}
        pieces = [folds[unit] for unit in units]
        self.text = "".join(pieces)
        # The places behind each unit, in the folded text and in the original.
        self._folded_ends = list(accumulate(map(len, pieces)))
        self._ends = [0, *accumulate(map(len, units))]

    def find(self, value: str) -> Iterator[tuple[int, int]]:
        """Yields places of a folded value in the original, in whole units: no "i" of a "ﬁ"."""
        for start, end in occurrences(value, self.text):
            if not (self._splits(start) or self._splits(end)):
                yield self.original(start, end)

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The place of `text[start:end]`, not empty, in the original, in whole units."""
        return self._ends[self._unit_at(start)], self._ends[self._unit_at(end - 1) + 1]

    def _unit_at(self, at: int) -> int:
        return bisect_right(self._folded_ends, at)

    def _splits(self, at: int) -> bool:
        return 0 < at < len(self.text) and self._unit_at(at - 1) == self._unit_at(at)


# Shorter words differ in meaning, and are not misspelt: black and back, green and greek.
_LONG = 6


def reads_alike(value: str, piece: str) -> bool:
    """True if two texts read the same word by word."""
    if numbers_in(value) != numbers_in(piece):
        return False
    wanted, stated = words_of(value), words_of(piece)
    if len(wanted) != len(stated):  # one word here, several there
        return _is_plural("".join(wanted), "".join(stated))
    return all(
        first == second or _is_plural(first, second) or _is_slip(first, second)
        for first, second in zip(wanted, stated, strict=True)
    )


def _is_plural(first: str, second: str) -> bool:
    singular, plural = sorted((first, second), key=len)
    return plural in (singular + "s", singular + "es")


def _is_slip(first: str, second: str) -> bool:
    """True for one insertion, deletion, substitution or transposition in a long word."""
    # The first letter is hardly ever wrong, and tells caffeinated from decaffeinated.
    is_word = min(len(first), len(second)) >= _LONG and first[0] == second[0]
    is_code = any(map(str.isdigit, first + second))
    return is_word and not is_code and OSA.distance(first, second, score_cutoff=1) <= 1


# A number with its minus, or a grade with its sign: -5, A-.
_NUMBER = re.compile(r"(?:(?<![\w)\]/,-])-)?\d+(?:[.,]\d+)*|(?<!\w)[^\W\d]{1,2}[-+](?![^\s,;.)])")
_THOUSANDS = re.compile(r",(?=\d{3}(?!\d))")
_SEPARATORS = re.compile(r"[\s\-/,.;:|()\[\]]+")


def numbers_in(text: str) -> list[str]:
    """The numbers in a text, without thousands separators, and its grades that end in a sign."""
    if text.replace(" ", "").isalpha():
        return []
    return [_THOUSANDS.sub("", number) for number in _NUMBER.findall(folded(text, loose))]


def words_of(text: str) -> list[str]:
    """The words of a text, without "and", which other texts write as "&", "+" or ","."""
    words = (folded(word, bare) for word in _SEPARATORS.split(folded(text, loose)))
    return [word for word in words if word not in ("", "and", "+")]
