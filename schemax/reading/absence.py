"""Words that deny: texts that state the absence of a value, and negations."""

from __future__ import annotations

from collections.abc import Iterable

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
