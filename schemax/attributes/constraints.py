"""Constraints on a value, as Pydantic's `Field` and annotated-types declare them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

from annotated_types import BaseMetadata, GroupedMetadata
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

Constraints: TypeAlias = tuple[tuple[str, Any], ...]
"""Pairs of a JSON Schema keyword and its value. All hold, even where a keyword is repeated.

Keywords of a list (minItems, maxItems, uniqueItems) stand beside keywords of its items. Pydantic's
names serve where JSON Schema has none: max_digits, decimal_places, tz_constraint (aware or naive).
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
"""A constraint -> the types that it applies to, and an example of such a type."""


def constraints_of(metadata: Iterable[Any], is_list: bool) -> Iterator[tuple[str, Any]]:
    """Yields the constraints in the metadata of an `Annotated` list or scalar."""
    for piece in _pieces(metadata):
        if isinstance(piece, BaseMetadata):
            for name, keyword in _KEYWORDS.items():
                if (value := getattr(piece, name, None)) is not None:
                    yield keyword, _source(value) if keyword == "pattern" else value
            for name, keywords in _LENGTHS.items():
                if (value := getattr(piece, name, None)) is not None:
                    yield keywords[is_list], value


def misplaced(bare: Any, metadata: Iterable[Any], samples: Sequence[Any]) -> str | None:
    """The reason why a constraint does not apply to a type, or None.

    Pydantic builds such a class, and raises a TypeError for every value. samples: values of the
    type; none for a type that no constraint applies to.
    """
    for piece in _pieces(metadata):
        if not isinstance(piece, BaseMetadata) and hasattr(piece, "__get_pydantic_core_schema__"):
            return None  # the piece may convert the value to another type
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
    except Exception:  # a class not built yet, or refused by Pydantic, which is reported elsewhere
        return False
    for sample in samples:
        try:
            reader.validate_python(sample)
        except TypeError:
            return True
        except Exception:  # the sample violates the constraint, which thus applies
            continue
    return False


def _pieces(metadata: Iterable[Any]) -> Iterator[Any]:
    """Yields each constraint by itself, and all other metadata for Pydantic."""
    for piece in metadata:
        if isinstance(piece, FieldInfo):
            yield from _pieces(piece.metadata)
        elif isinstance(piece, GroupedMetadata):
            yield from _pieces(piece)
        else:
            yield piece


def _source(pattern: str | re.Pattern[str]) -> str:
    """A pattern as text, behind the flags of a compiled pattern."""
    if isinstance(pattern, str):
        return pattern
    flags = "".join(letter for letter in "aimsx" if pattern.flags & re.RegexFlag[letter.upper()])
    return f"(?{flags}){pattern.pattern}" if flags else pattern.pattern
