"""Ready-made schemas: their documents and demonstrations, and matching them to categories."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

from schemax.base.resources import resource_dir
from schemax.errors import InputError
from schemax.reading.folding import folded, loose


def ready_made(name: str) -> str:
    """The name of a ready-made schema in its own spelling. Raises InputError for an unknown one."""
    stem = name.strip().lower().replace(" ", "_").replace("-", "_")
    if stem not in _paths():
        near = " or ".join(map(repr, get_close_matches(stem, schema_names())))
        known = f"did you mean {near}?" if near else f"there are {', '.join(schema_names())}"
        raise InputError(f"unknown schema {name!r}; {known}")
    return stem


def schema_names() -> tuple[str, ...]:
    """The names of the ready-made schemas."""
    return tuple(sorted(_paths()))


def document_of(name: str) -> dict[str, Any]:
    """The JSON Schema document of a ready-made schema."""
    document: dict[str, Any] = json.loads(_paths()[name].read_text("utf-8"))
    return document


def demonstrations_of(name: str) -> tuple[tuple[str, dict[str, Any]], ...]:
    """(text, values) of a ready-made schema's demonstrations, the values under dotted names.

    None stands for a value that the text does not state.
    """
    path = resource_dir("schemas") / "demonstrations" / f"{name}.jsonl"
    if not path.is_file():
        return ()
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return tuple((row["text"], row["attributes"]) for row in rows)


def is_task(name: str) -> bool:
    """True if the schema describes a form, ticket, invoice or the like, and no product."""
    return _paths()[name].parent.name == "tasks"


def _paths() -> dict[str, Path]:
    return {path.stem: path for path in resource_dir("schemas").glob("**/*.json")}


@cache
def _names() -> Names:
    return names_of((name, document_of(name).get("aliases", ())) for name in schema_names())


How = Literal["name", "other name", "last words"]

Names: TypeAlias = "Mapping[tuple[str, ...], tuple[str, How]]"
"""The words of a name -> its schema, and whether the name is the schema's own."""

_LEVEL = re.compile(r"\s*(?:[>|/\\»›→]|::)\s*")
_REMARK = re.compile(r"\([^)]*\)|\[[^\]]*\]|[’']s?\b")
_TAIL = re.compile(r"(?<=\w)\s+(?:for|with|without)\s.*")
_LISTED = re.compile(r"\s*[,&;+]\s*|\s+and\s+", re.IGNORECASE)
_WORD = re.compile(r"[^\W_]+")


Match: TypeAlias = tuple[str, How]
"""The name of a schema, and what matched: its name, an alias, or their last words."""


def names_of(schemas: Iterable[tuple[str, Iterable[str]]]) -> Names:
    """The names of schemas. schemas: (name, aliases) pairs."""
    names: dict[tuple[str, ...], tuple[str, How]] = {}
    for schema, aliases in schemas:
        names[words_of(schema)] = schema, "name"
        for alias in aliases:
            names.setdefault(words_of(alias), (schema, "other name"))
    return names


def match_of(category: str) -> Match | None:
    """The ready-made schema that a shop's name of a category means, or None.

    Only the last level of `Electronics > Smart TVs` counts. Remarks in brackets, a purpose behind
    "for", case, plurals and punctuation make no difference. Several things in a name ("Shoes &
    Boots") match if all of them mean the same schema.
    """
    levels = [level for level in _LEVEL.split(category) if level.strip()]
    if not levels:
        return None
    if (match := _names().get(words_of(levels[-1]))) is not None:
        return match
    matches = [_by_last_words_of(part) for part in _LISTED.split(levels[-1]) if part]
    schemas = {match and match[0] for match in matches}
    return matches[0] if len(schemas) == 1 else None


def _by_last_words_of(name: str) -> Match | None:
    words = words_of(name)
    for start in range(len(words)):
        if (match := _names().get(words[start:])) is not None:
            return match[0], "last words" if start else match[1]
    return None


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name without case, plurals and remarks: a key of the name's meaning."""
    text = _TAIL.sub("", _REMARK.sub(" ", folded(name, loose)))
    words = _WORD.findall(text)
    return tuple(_stem(word) for word in words if word != "and")


def _stem(word: str) -> str:
    """The stem that singular and plural share: shoe, shoes; battery, batteries; lens, lenses."""
    while len(word) > 2 and word[-1] in "se" and not word.endswith("ss"):
        word = word[:-1]
    return word[:-1] + "y" if word.endswith("i") else word
