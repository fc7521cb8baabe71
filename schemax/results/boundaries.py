"""Boundaries: the places of a text where a value may begin or end.

A value holds whole tokens. Glued tokens count as one token if they form one thing: numbers joined
by slashes or colons, or by several hyphens (fractions, times, dates), a number with its minus, and
a word with the letter or two behind its apostrophe ("men's"). Two numbers with a hyphen between
them are a range, and so two things. A boundary depends only on the characters nearby.
"""

from __future__ import annotations

from collections.abc import Iterator

import regex

from schemax.reading.folding import is_mark
from schemax.reading.tokens import NUMBER

CLEAN, GLUED = 0, 1
"""A boundary between two things, and one between a number and its unit, or parts of a word."""

# The characters around a place that may belong to the same number.
_NEAR = 16

# The farthest that the end of a word is searched for.
_LONGEST_WORD = 50
_FRINGE = " \t\n\r\xa0,.;:|/()[]-&"

_JOINERS = "\u200c\u200d"
# The letters that an apostrophe joins to the word before it: "s" in "men's", but not "eau" in
# "l'eau".
_BEHIND_APOSTROPHE = regex.compile(r"(?<=\p{L}\p{M}*['’])\p{L}{1,2}(?![\p{L}\p{M}])")
# Letters of scripts without spaces, by where Unicode breaks lines: Chinese, Japanese, Thai, Khmer.
_UNSPACED = regex.compile(r"[\p{lb=ID}\p{lb=CJ}\p{lb=NS}\p{lb=SA}]")
# In Korean, particles follow a word without a space.
_PARTICLE = regex.compile(r"\p{Hangul}")

_POWER = "[⁰¹²³⁴-⁹]"
_MORE = r"\p{Nd}+(?:[.,]\p{Nd}+)*+"
_NUMBERS = regex.compile(
    rf"""(?=[-−.,\p{{N}}])(?:(?<![\w)\]/,-])[-−])?(?:{NUMBER.pattern}|{_MORE}(?={_POWER}))
    (?:(?:[/:⁄‐-―−-]{_MORE}){{2,}}+|[/:⁄]{_MORE})?{_POWER}*""",
    regex.VERBOSE,
)


def boundary(text: str, at: int, is_end: bool) -> int | None:
    """`CLEAN`, `GLUED`, or None if a value that begins or ends there would cut a token.

    is_end: True if the value ends there: a Korean word may end before a particle.
    """
    if not 0 < at < len(text):
        return CLEAN
    before, after = text[at - 1], text[at]
    if is_mark(after) or _is_within_number(text, at):
        return None
    if before in "'’" and _BEHIND_APOSTROPHE.match(text, at):
        return None
    if _in_word(before) and _in_word(after):
        is_between = _UNSPACED.search(text, at - 1, at + 1) or (is_end and _PARTICLE.match(after))
        return GLUED if is_between else None
    return GLUED if before.isalnum() and after.isalnum() else CLEAN


def of_whole_words(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the place with the words at its ends wholly in or out, without outer punctuation."""
    for first in _word_around(text, start):
        for last in _word_around(text, end - 1):
            piece = text[first:last]
            skipped = len(piece) - len(piece.lstrip(_FRINGE))
            if skipped < len(piece):
                yield first + skipped, first + len(piece.rstrip(_FRINGE))


def _word_around(text: str, at: int) -> tuple[int, int]:
    start, end = at, at + 1
    while boundary(text, start, is_end=False) is None and at - start < _LONGEST_WORD:
        start -= 1
    while boundary(text, end, is_end=True) is None and end - at < _LONGEST_WORD:
        end += 1
    return start, end


def _in_word(char: str) -> bool:
    return char.isalpha() or char in _JOINERS or is_mark(char)


def _is_within_number(text: str, at: int) -> bool:
    # A quick test: digits, or a sign and digits, stand on both sides.
    if not any(map(str.isnumeric, text[at : at + 4])):
        return False
    if not (text[at - 1] in "-−.," or any(map(str.isnumeric, text[max(0, at - 4) : at]))):
        return False
    near = _NUMBERS.finditer(text, max(0, at - _NEAR), at + _NEAR)
    return any(number.start() < at < number.end() for number in near)
