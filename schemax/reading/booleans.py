"""Booleans in words: yes and no."""

from __future__ import annotations

from collections.abc import Mapping

from schemax.reading import Reading, noted
from schemax.reading.absence import NEGATIONS, NO
from schemax.reading.tokens import tokens_of

WORDS: Mapping[str, bool] = {
    **dict.fromkeys(("true", "yes", "ja", "oui", "sí", "si", "sim"), True),
    **dict.fromkeys(("false", *NO), False),
}
"""The words, in lower case, that a constrained slot may write, in any usual case."""

_KNOWN: Mapping[str, bool] = {
    **WORDS,
    **dict.fromkeys(("y", "t", "1", "on", "✓", "✔"), True),
    **dict.fromkeys(("n", "f", "0", "off", "✗", "✘"), False),
}
_BREAKS = frozenset(",;:!(–—")


def spellings() -> dict[str, bool]:
    """All spellings of the words that a constrained slot may write -> value."""
    return {
        spelt: value
        for word, value in WORDS.items()
        for spelt in (word, word.capitalize(), word.upper())
    }


def read_boolean(text: str) -> Reading:
    """Reads the boolean that a text states, as a whole or as its first or last clause.

    "Yes, with adapter" and "included: yes" are true. A text without a boolean stays unchanged.
    Raises ValueError for a text that says yes and no, or denies.
    """
    if text in ("true", "false"):
        return Reading(text == "true")
    if text.strip().casefold() in _KNOWN:
        return noted(text, _KNOWN[text.strip().casefold()])
    if not any(mark in text for mark in ".,;:!(–—"):
        return Reading(text)
    words = [token.text.casefold() for token in tokens_of(text)]
    while words and words[-1] in ".!":
        words.pop()
    if len(words) == 1 and words[0] in _KNOWN:
        return noted(text, _KNOWN[words[0]])
    is_led = len(words) > 1 and words[0] in WORDS and words[1] in _BREAKS
    is_ended = len(words) > 1 and words[-1] in WORDS and words[-2] in ":–—"
    if not (is_led or is_ended):
        return Reading(text)
    values = {WORDS[word] for word in words if word in WORDS}
    denied = NEGATIONS.intersection(words) - WORDS.keys()
    if len(values) > 1 or (denied and True in values):
        raise ValueError("says yes and no")
    return noted(text, values.pop())
