"""Which ready-made schema a shop's own name of a category means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from schemax.reading.folding import folded, loose

How = Literal["name", "other name", "last words"]

Names: TypeAlias = "Mapping[tuple[str, ...], tuple[str, How]]"
"""The words of a name -> the schema that has it, and whether it is the schema's own."""

_LEVEL = re.compile(r"\s*(?:[>|/\\»›→]|::)\s*")
_REMARK = re.compile(r"\([^)]*\)|\[[^\]]*\]|[’']s?\b")
_TAIL = re.compile(r"(?<=\w)\s+(?:for|with|without)\s.*")
_LISTED = re.compile(r"\s*[,&;+]\s*|\s+and\s+", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")


class Match(NamedTuple):
    """schema: its name; how: by its own name, another one that it has, or the last words of it."""

    schema: str
    how: How


def names_of(schemas: Iterable[tuple[str, Iterable[str]]]) -> Names:
    """schemas: every schema's name, and the other names that it has."""
    found: dict[tuple[str, ...], tuple[str, How]] = {}
    for schema, others in schemas:
        found[words_of(schema)] = schema, "name"
        for other in others:
            found.setdefault(words_of(other), (schema, "other name"))
    return found


def match_category(category: str, names: Names) -> Match | None:
    """`Electronics > Smart TVs` -> television, by its last words; None where nothing matches.

    Only the last level of a path counts, without remarks in brackets and what it is "for"; case,
    plurals and punctuation make no difference. Several things in one name ("Shoes & Boots") match
    where all of them mean the same schema.
    """
    levels = [level for level in _LEVEL.split(category) if level.strip()]
    if not levels:
        return None
    if (found := names.get(words_of(levels[-1]))) is not None:
        return Match(*found)
    matches = [_by_lastwords_of(part, names) for part in _LISTED.split(levels[-1]) if part]
    schemas = {match and match.schema for match in matches}
    return matches[0] if len(schemas) == 1 else None


def _by_lastwords_of(name: str, names: Names) -> Match | None:
    words = words_of(name)
    for start in range(len(words)):
        if (found := names.get(words[start:])) is not None:
            return Match(found[0], "last words" if start else found[1])
    return None


def words_of(name: str) -> tuple[str, ...]:
    """The words that names share which mean the same: without case, plurals and remarks."""
    text = _TAIL.sub("", _REMARK.sub(" ", folded(name, loose)))
    words = _WORD.findall(text)
    return tuple(_stem(word) for word in words if word != "and")


def _stem(word: str) -> str:
    """The same for singular and plural: shoe and shoes, battery and batteries, lens and lenses."""
    while len(word) > 2 and word[-1] in "se" and not word.endswith("ss"):
        word = word[:-1]
    return word[:-1] + "y" if word.endswith("i") else word
