"""Compares texts that read alike: the same words, numbers and signs, but for plurals and slips."""

from __future__ import annotations

import re

from rapidfuzz.distance import OSA

from schemax.reading.folding import bare, folded, loose

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
        word == other or _is_plural(word, other) or _is_slip(word, other)
        for word, other in zip(wanted, stated, strict=True)
    )


def _is_plural(word: str, other: str) -> bool:
    singular, plural = sorted((word, other), key=len)
    return plural in (singular + "s", singular + "es")


def _is_slip(word: str, other: str) -> bool:
    """True for one insertion, deletion, substitution or transposition in a long word."""
    # The first letter is hardly ever wrong, and tells caffeinated from decaffeinated.
    is_word = min(len(word), len(other)) >= _LONG and word[0] == other[0]
    is_code = any(map(str.isdigit, word + other))
    return is_word and not is_code and OSA.distance(word, other, score_cutoff=1) <= 1


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
    """The words that similar texts share, without "and", since "&", "+" and "," are none."""
    words = (folded(word, bare) for word in _SEPARATORS.split(folded(text, loose)))
    return [word for word in words if word not in ("", "and", "+")]
