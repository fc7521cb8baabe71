"""Words of the output's format in a field of free text: `"false"`, `"null"`."""

from __future__ import annotations

from collections.abc import Iterable

_LITERALS = frozenset({"true", "false", "null"})


def is_stray_literal(text: str, documents: Iterable[str]) -> bool:
    """Whether a text is a literal of another type that no document holds.

    Models write `"false"` where they mean that nothing is there; whoever sells True Religion jeans
    has "True" in the text.
    """
    word = text.casefold()
    return word in _LITERALS and not any(word in document.casefold() for document in documents)
