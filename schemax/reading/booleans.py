"""Booleans in words: yes and no."""

from __future__ import annotations

import re
from collections.abc import Mapping

from schemax.reading import Reading, noted

WORDS: Mapping[str, bool] = {
    **dict.fromkeys(("true", "yes", "ja", "oui", "sí", "si", "sim"), True),
    **dict.fromkeys(("false", "no", "nein", "non", "não", "nao"), False),
}
"""The words, in lower case, that a constrained slot may write, in any usual case."""

_OTHERS: Mapping[str, bool] = {
    **dict.fromkeys(("y", "t", "1", "on", "✓", "✔", "vrai", "wahr", "with", "included"), True),
    **dict.fromkeys(("available", "enthalten", "inclus", "incluido", "incluído"), True),
    **dict.fromkeys(("n", "f", "0", "off", "✗", "✘", "faux", "falsch", "without", "none"), False),
    **dict.fromkeys(("not included", "not available", "unavailable", "nee"), False),
}
_KNOWN: Mapping[str, bool] = {**WORDS, **_OTHERS}
_FIRST = re.compile(r"\s*([^\s,.;:(–—-]+)\s*[,.;:(–—]")


def spellings() -> dict[str, bool]:
    """All spellings of the words that a constrained slot may write -> value."""
    return {
        spelt: value
        for word, value in WORDS.items()
        for spelt in (word, word.capitalize(), word.upper())
    }


def read_boolean(text: str) -> Reading:
    """Reads the boolean that a text states, as a whole or by its first word: "Yes, with adapter".

    A text without a boolean stays unchanged.
    """
    word = text.strip().strip(".!").casefold()
    if word not in _KNOWN and (first := _FIRST.match(text)):
        word = first[1].casefold()
    if word not in _KNOWN:
        return Reading(text)
    literal = text in ("true", "false")
    return Reading(_KNOWN[word]) if literal else noted(text, _KNOWN[word])
