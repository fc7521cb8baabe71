"""Conditions on a value, as Pydantic's `Field` and annotated-types declare them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from annotated_types import BaseMetadata, GroupedMetadata
from pydantic.fields import FieldInfo

Constraints: TypeAlias = tuple[tuple[str, Any], ...]
"""Pairs of a JSON Schema keyword and its value. All of them hold, also where one is repeated.

Those of a list (minItems, maxItems, uniqueItems) stand beside those of its items. What JSON Schema
has no word for keeps Pydantic's: max_digits, decimal_places, and tz_constraint (aware or naive).
"""

LIST_KEYWORDS = ("minItems", "maxItems", "uniqueItems")

_KEYWORDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
    "max_digits": "max_digits",
    "decimal_places": "decimal_places",
}
_LENGTHS = {"min_length": ("minLength", "minItems"), "max_length": ("maxLength", "maxItems")}


def constraints_of(metadata: Iterable[Any], is_list: bool) -> Iterator[tuple[str, Any]]:
    """The conditions among the metadata of an `Annotated`: those of a list, or of a scalar."""
    for piece in metadata:
        if isinstance(piece, FieldInfo):
            yield from constraints_of(piece.metadata, is_list)
        elif isinstance(piece, GroupedMetadata):
            yield from constraints_of(piece, is_list)
        elif isinstance(piece, BaseMetadata):
            for name, keyword in _KEYWORDS.items():
                if (value := getattr(piece, name, None)) is not None:
                    yield keyword, _source(value) if keyword == "pattern" else value
            for name, keywords in _LENGTHS.items():
                if (value := getattr(piece, name, None)) is not None:
                    yield keywords[is_list], value


def _source(pattern: str | re.Pattern[str]) -> str:
    """A pattern as text, the flags of a compiled one in front of it."""
    if isinstance(pattern, str):
        return pattern
    flags = "".join(letter for letter in "aimsx" if pattern.flags & re.RegexFlag[letter.upper()])
    return f"(?{flags}){pattern.pattern}" if flags else pattern.pattern
