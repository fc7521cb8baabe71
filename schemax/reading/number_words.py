"""Numbers in words, by text2num: "twenty-five", "fünfundzwanzig", "vingt et un"."""

from __future__ import annotations

import re
from functools import lru_cache

from schemax.reading.booleans import NEGATIONS

LANGUAGES = ("en", "de", "fr", "es", "pt", "it", "nl")
"""Languages that are read where a field names none."""

MINUS = frozenset({"minus", "moins", "menos", "meno"})
"""Words before a number that make it negative."""

FRACTIONS = frozenset({"half", "halves", "quarter", "quarters"})
"""Words that go on with a number, which text2num does not read."""

# Danish number words are English words as well: "to", "fire", "en".
_ALL = (*LANGUAGES, "da")
_COMMA = re.compile(r",(?=\s)")
# An ordinal is no number: "21st", "9ª".
_NUMBER = re.compile(r"\d(?![^\W_]|º|ª)")
_DIGITS = re.compile(r"\d+(?:[.,]\d+)?")


def _languages(language: str | None) -> tuple[str, ...]:
    short = (language or "")[:2]
    return (short,) if short in _ALL else LANGUAGES


def _in_digits(text: str, language: str) -> str:
    from text_to_num import alpha2digit

    return str(alpha2digit(text, language, threshold=0))


def in_digits(text: str, language: str | None) -> tuple[str, str] | None:
    """The text with its number words in digits, and their language; None without number words.

    The language that understands most of the text is used. Raises ValueError if languages that
    understand equally much disagree.
    """
    readings: dict[str, str] = {}
    least = len(text) + 1
    for name in _languages(language):
        # Commas separate thousands from hundreds in English.
        written = _in_digits(_COMMA.sub("", text), name)
        left = len(_DIGITS.sub("", written))
        if _NUMBER.search(written) and left <= least:
            readings = readings if left == least else {}
            readings.setdefault(written, name)
            least = left
    if len(readings) > 1:
        raise ValueError(f"may mean {' or '.join(sorted(readings))}, in different languages")
    return next(iter(readings.items()), None)


@lru_cache(maxsize=16_384)
def is_number_word(word: str, language: str | None) -> bool:
    """True for a word that is a number other than one, which is an article in many languages."""
    if word.casefold() in FRACTIONS | NEGATIONS:
        return word.casefold() in FRACTIONS  # "non" is no nine
    written = (_in_digits(word, name) for name in _languages(language))
    return any(digits.isdigit() and digits != "1" for digits in written)
