"""Checked settings of a field beside its type, from `attr` and `Field`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic.fields import FieldInfo

from schemax.attributes.classes import own_settings
from schemax.attributes.field_type import FieldPath, FieldType, UnsupportedType
from schemax.attributes.settings import is_unprintable, spaced
from schemax.config import BOUNDS
from schemax.reading.units import check_unit

MOST_DEPTH = 8


def label_of(name: str, field: FieldInfo) -> str:
    if field.title is None:
        return spaced(name)
    if is_unprintable(field.title):
        raise UnsupportedType(
            f"title {field.title!r} must be one line of visible text: the model is shown it"
        )
    return field.title.strip()


def is_two_phase(field: FieldInfo, field_type: FieldType) -> bool:
    declared = own_settings(field)
    names = {
        "long": "long",
        "uniqueItems": "unique",
        "strict": "strict",
        "extractive": "extractive",
    }
    for keyword, name in names.items():
        if (value := declared.get(keyword, False)) not in (True, False):
            raise UnsupportedType(f"{name} must be True or False, not {value!r}")
        if value and not field_type.is_list and keyword in ("long", "uniqueItems"):
            raise UnsupportedType(f"{name} applies to lists only; remove it")
    return bool(field_type.models) or declared.get("long", False) is True


def unit_of(field: FieldInfo, field_type: FieldType) -> str | None:
    unit = own_settings(field).get("unit")
    if unit is None:
        return None
    if field_type.scalar is None or not field_type.scalar.is_number:
        raise UnsupportedType("unit applies to numbers only; remove it, or declare a number")
    try:
        check_unit(unit)
    except ValueError as error:
        raise UnsupportedType(str(error)) from None
    return str(unit)


def k_max_of(field: FieldInfo) -> int | None:
    k_max = own_settings(field).get("k_max")
    if k_max is None:
        return None
    try:
        BOUNDS["k_max"].check("k_max", k_max)
    except ValueError as error:
        raise UnsupportedType(str(error)) from None
    return int(k_max)


def max_depth_of(field: FieldInfo) -> int | None:
    """The number of times that a field may lead back into an enclosing model."""
    depth = own_settings(field).get("max_depth")
    if depth is not None and (type(depth) is not int or not 1 <= depth <= MOST_DEPTH):
        raise UnsupportedType(f"max_depth must be a whole number from 1 to {MOST_DEPTH}")
    return depth


def after_of(
    field: FieldInfo, fields: Mapping[str, FieldInfo], around: FieldPath
) -> Iterator[FieldPath]:
    """Yields the paths, from the root, of the fields that a field names by name or alias."""
    named = own_settings(field).get("after", ())
    aliases = {other.alias: name for name, other in fields.items() if other.alias}
    for dotted in named if isinstance(named, (list, tuple)) else (named,):
        if not isinstance(dotted, str):
            raise UnsupportedType(f"after takes names of fields, not {dotted!r}")
        if dotted in aliases:
            yield (*around, aliases[dotted])
        else:
            yield (*around, *dotted.split("."))
