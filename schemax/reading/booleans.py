"""Words that answer: yes, no, negations, and texts that state the absence of a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from schemax.reading import Reading, noted
from schemax.reading.tokens import tokens_of

_LITERALS = frozenset({"true", "false", "null"})
_NO_VALUE = frozenset(
    {"n/a", "na", "n.a.", "k.a.", "nil", "none", "null", "nothing", "unknown", "unspecified"}
    | {"-", "--", "–", "—", "?"}
)
_NOT = frozenset({"available", "applicable", "specified", "stated", "known", "mentioned"})

NO = ("no", "nein", "non", "não", "nao")
"""Words that answer a question with no."""

NEGATIONS = frozenset(
    {*NO, "not", "without", "kein", "keine", "nicht", "ohne", "sans", "sin", "sem", "pas"}
)
"""Words that say that what they stand beside is not meant."""


def is_stray_literal(text: str, documents: Iterable[str]) -> bool:
    """True if a text is a literal of another type that no document contains.

    Models write `"false"` to mean that there is no value; a document that offers True Religion
    jeans does contain "True".
    """
    word = text.casefold()
    return word in _LITERALS and not any(word in document.casefold() for document in documents)


def says_no_value(text: str) -> bool:
    """True if a text in the place of a number or date states that there is none."""
    words = " ".join(text.casefold().split())
    return words in _NO_VALUE or (words.removeprefix("not ") in _NOT and words.startswith("not "))


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
