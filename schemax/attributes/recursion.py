"""Models that contain themselves: how deep they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic.fields import FieldInfo

from schemax.attributes.annotations import annotation_of, field_type_of
from schemax.attributes.classes import fields_of
from schemax.attributes.field_type import FieldType, UnsupportedType


def asked_type(
    field: FieldInfo, around: Sequence[type[Any]], max_depth: int | None
) -> FieldType | None:
    """What a field asks for within the models around it, which are not entered too deep.

    max_depth: of the field, else of the closest one around it.
    None for a field that is not asked for, since all it could hold lies too deep. Raises
    UnsupportedType where no depth is named, or such a field has to have a value.
    """
    found = field_type_of(annotation_of(field))
    if not found.models:
        return found
    held = found.models
    if found.is_mapping:
        held = field_type_of(annotation_of(fields_of(held[0])["value"])).models
    kept = tuple(model for model in held if around.count(model) <= (max_depth or 0))
    if len(kept) == len(held):
        return found
    deep = next(model for model in held if model not in kept)
    if max_depth is None:
        raise UnsupportedType(
            f"{deep.__name__} contains itself, so that its attributes have no end; say how many "
            'levels of it to read: attr(max_depth=1), or "max_depth": 1 in JSON Schema'
        )
    if kept and not found.is_mapping:
        return replace(found, models=kept)
    fewest = max((value for word, value in found.constraints if word == "minItems"), default=0)
    if field.is_required() and not found.nullable and not (found.is_list and fewest == 0):
        raise UnsupportedType(
            f"requires one {deep.__name__} in every {deep.__name__}, and so no end of them; give "
            "it a default, or None"
        )
    return None
