"""Compares texts that read alike: the same words and numbers, except for plurals and typos."""

from __future__ import annotations

import re

from rapidfuzz.distance import OSA

from schemax.reading.folding import bare, folded, loose

# The least similarity, and number of words, of a quotation whose words are not compared one by one:
# a word may be missing.
_QUOTED, _QUOTED_WORDS = 95.0, 5

# The characters of a word per typo (an insertion, deletion, substitution or transposition).
# Shorter words differ in meaning, and are not misspelt: black and back, green and greek.
_CHARACTERS_PER_SLIP = 6


def reads_alike(value: str, piece: str, similarity: float) -> bool:
    """True if two texts of this similarity, 0 to 100, read the same word by word."""
    if numbers_in(value) != numbers_in(piece):
        return False
    if similarity >= _QUOTED and len(value.split()) >= _QUOTED_WORDS:
        return True
    wanted, found = words_of(value), words_of(piece)
    if len(wanted) != len(found):  # one word here, several there
        return _is_plural("".join(wanted), "".join(found))
    return all(
        one == other or _is_plural(one, other) or _is_slip(one, other)
        for one, other in zip(wanted, found, strict=True)
    )


def _is_plural(one: str, other: str) -> bool:
    one, other = sorted((one, other), key=len)
    return other in (one + "s", one + "es")


def _is_slip(one: str, other: str) -> bool:
    # The first letter is hardly ever wrong, and tells caffeinated from decaffeinated.
    allowed = max(len(one), len(other)) // _CHARACTERS_PER_SLIP
    return one[0] == other[0] and OSA.distance(one, other, score_cutoff=allowed) <= allowed


_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_THOUSANDS = re.compile(r",(?=\d{3}(?!\d))")
_SEPARATORS = re.compile(r"[\s\-/,.;:|()\[\]]+")


def numbers_in(text: str) -> list[str]:
    """The numbers in a text, without thousands separators."""
    return [_THOUSANDS.sub("", number) for number in _NUMBER.findall(folded(text, loose))]


def words_of(text: str) -> list[str]:
    """The words that similar texts share, without "and", since "&" and "," are no words either."""
    words = (folded(word, bare) for word in _SEPARATORS.split(folded(text, loose)))
    return [word for word in words if word and word != "and"]
