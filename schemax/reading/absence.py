"""Texts that state the absence of a value: `"n/a"`, and `"false"` in a field of free text."""

from __future__ import annotations

from collections.abc import Iterable

_LITERALS = frozenset({"true", "false", "null"})

# In the seven languages whose numbers and dates are read.
_NO_VALUE = frozenset(
    {"n/a", "na", "n.a.", "nil", "none", "null", "nothing", "-", "--", "–", "—", "?"}
    | {"unknown", "unspecified", "undefined", "not available", "not applicable", "not specified"}
    | {"not stated", "not given", "not known", "not mentioned", "no data", "tbd"}
    | {"keine", "keine angabe", "k.a.", "unbekannt", "aucun", "inconnu", "non spécifié"}
    | {"ninguno", "desconocido", "no especificado", "nenhum", "desconhecido", "não especificado"}
    | {"nessuno", "sconosciuto", "non specificato", "geen", "onbekend", "niet bekend"}
)


def is_stray_literal(text: str, documents: Iterable[str]) -> bool:
    """True if a text is a literal of another type that no document contains.

    Models write `"false"` to mean that there is no value; a document that offers True Religion
    jeans does contain "True".
    """
    word = text.casefold()
    return word in _LITERALS and not any(word in document.casefold() for document in documents)


def says_no_value(text: str) -> bool:
    """True if a text in the place of a number or date states that there is none."""
    return " ".join(text.casefold().split()) in _NO_VALUE
