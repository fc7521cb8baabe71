"""Conditions on a value, as Pydantic's `Field` and annotated-types declare them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from annotated_types import BaseMetadata, GroupedMetadata
from pydantic import TypeAdapter
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


_BOUNDS, _LENGTH = ("numbers and dates", "a number"), ("texts and lists", "a text")
_APPLIES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("ge", "gt", "le", "lt"), _BOUNDS),
    **dict.fromkeys(("min_length", "max_length"), _LENGTH),
    "multiple_of": ("numbers", "a number"),
    "allow_inf_nan": ("numbers", "a number"),
    "pattern": ("texts", "a text"),
    "max_digits": ("Decimals", "a Decimal"),
    "decimal_places": ("Decimals", "a Decimal"),
}
"""What each may stand at, and one of these."""


def constraints_of(metadata: Iterable[Any], is_list: bool) -> Iterator[tuple[str, Any]]:
    """The conditions among the metadata of an `Annotated`: those of a list, or of a scalar."""
    for piece in _pieces(metadata):
        if isinstance(piece, BaseMetadata):
            for name, keyword in _KEYWORDS.items():
                if (value := getattr(piece, name, None)) is not None:
                    yield keyword, _source(value) if keyword == "pattern" else value
            for name, keywords in _LENGTHS.items():
                if (value := getattr(piece, name, None)) is not None:
                    yield keywords[is_list], value


def misplaced(bare: Any, metadata: Iterable[Any], samples: Sequence[Any]) -> str | None:
    """Why one of the conditions cannot stand at a type, if one cannot.

    Pydantic builds such a class, and raises a TypeError for every value. samples: of the type;
    none of a type that no condition applies to.
    """
    for piece in _pieces(metadata):
        if not isinstance(piece, BaseMetadata) and hasattr(piece, "__get_pydantic_core_schema__"):
            return None  # the piece may turn the value into one of another type
        name = next((name for name in _APPLIES if getattr(piece, name, None) is not None), None)
        if name is None or (samples and not _fails(Annotated[bare, piece], samples)):
            continue
        fitting, one = _APPLIES[name]
        remedy = f"remove it, or declare {one}"
        if isinstance(next(iter(samples), None), list):
            remedy = f"of items: list[Annotated[..., Field({name}=...)]]"
        return f"{name} applies to {fitting} only; {remedy}"
    return None


def _fails(annotation: Any, samples: Sequence[Any]) -> bool:
    try:
        reader: TypeAdapter[Any] = TypeAdapter(annotation)
    except Exception:  # a class that is not made yet, or that Pydantic refuses: said elsewhere
        return False
    for sample in samples:
        try:
            reader.validate_python(sample)
        except TypeError:
            return True
        except Exception:  # the sample does not meet the condition, which can be asked, then
            continue
    return False


def _pieces(metadata: Iterable[Any]) -> Iterator[Any]:
    """Each condition by itself, and what else Pydantic is told to do with a value."""
    for piece in metadata:
        if isinstance(piece, FieldInfo):
            yield from _pieces(piece.metadata)
        elif isinstance(piece, GroupedMetadata):
            yield from _pieces(piece)
        else:
            yield piece


def _source(pattern: str | re.Pattern[str]) -> str:
    """A pattern as text, the flags of a compiled one in front of it."""
    if isinstance(pattern, str):
        return pattern
    flags = "".join(letter for letter in "aimsx" if pattern.flags & re.RegexFlag[letter.upper()])
    return f"(?{flags}){pattern.pattern}" if flags else pattern.pattern
