"""`FieldType`: what an annotation asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Literal

from schemax.attributes.constraints import Constraints

Scalar = Literal["string", "integer", "number", "boolean", "date", "datetime", "enum", "union"]
Kind = Literal[Scalar, "model"]


class UnsupportedType(Exception):
    """Why an annotation or field cannot be compiled, and what to do about it."""


@dataclass(frozen=True, slots=True)
class FieldType:
    """What an annotation asks for: a scalar, nested classes, a list of either; neither: just None.

    models: of a nested class, itself; of a union of such, all of them.
    members: of a "union" of scalars, what they are; positions: of a tuple of different types, what
        stands at each place.
    is_mapping: of a dict, which is a list of pairs: `models` is the class of a pair.
    """

    kind: Scalar | None = None
    choices: tuple[tuple[str, Any], ...] = ()
    is_list: bool = False
    nullable: bool = False
    models: tuple[type[Any], ...] = ()
    constraints: Constraints = ()
    members: tuple[FieldType, ...] = ()
    positions: tuple[FieldType, ...] = ()
    is_mapping: bool = False


_SAMPLES: Mapping[Any, tuple[Any, ...]] = {
    # Also of types that Pydantic reads texts as.
    "string": ("a", "01:00", "https://a.b", "00000000-0000-4000-8000-000000000000"),
    "integer": (1,),
    "number": (1,),
    "date": (date(2000, 1, 1),),
    "datetime": (datetime(2000, 1, 1),),
}


def samples_of(field_type: FieldType) -> list[Any]:
    """Values of a type; none of a nested class and of bool, which no condition applies to."""
    if field_type.is_mapping:
        return [{}]
    places = field_type.positions
    if field_type.is_list and not places:
        places = (replace(field_type, is_list=False),) * dict(field_type.constraints).get(
            "minItems", 0
        )
    if field_type.is_list:
        return [[sample for place in places for sample in samples_of(place)[:1]]]
    if field_type.kind == "enum":
        return [value for _, value in field_type.choices]
    members = field_type.members or (field_type,)
    return [sample for one in members for sample in _SAMPLES.get(one.kind, ())]
