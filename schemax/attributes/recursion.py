"""Recursive models: cuts the types of their fields at the depth that is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pydantic import RootModel
from pydantic.fields import FieldInfo

from schemax.attributes.annotations import annotation_of, field_type_of
from schemax.attributes.classes import fields_of
from schemax.attributes.field_type import FieldType, UnsupportedType
from schemax.attributes.unions import is_bare


def asked_type(
    field: FieldInfo, around: Sequence[type[Any]], max_depth: int | None
) -> FieldType | None:
    """The type of a field within its enclosing models, without models that are nested too deep.

    max_depth: of the field, else of the closest enclosing field.
    Returns None for a field that is not read, since all its models are nested too deep. Raises
    UnsupportedType where no depth is declared, or such a field requires a value.
    """
    found = _below(field)
    if not found.models:
        return found
    held = _below(fields_of(found.models[0])["value"]).models if found.is_mapping else found.models
    deep = {model: _too_deep(model, around, max_depth or 0) for model in held}
    kept = tuple(model for model in held if deep[model] is None)
    if len(kept) == len(held):
        return found
    named = next(filter(None, deep.values()))
    if max_depth is None:
        raise UnsupportedType(
            f"{named.__name__} contains itself, so that its attributes have no end; say how many "
            'levels of it to read: attr(max_depth=1), or "max_depth": 1 in JSON Schema'
        )
    if len(kept) == 1 and is_bare(kept[0]):
        alone = _below(fields_of(kept[0])["root"])
        if not found.is_list:
            return replace(alone, nullable=found.nullable)
        own = alone.constraints + found.constraints
        return replace(alone, is_list=True, nullable=found.nullable, constraints=own)
    if kept and not found.is_mapping:
        return replace(found, models=kept)
    fewest = max((value for word, value in found.constraints if word == "minItems"), default=0)
    if field.is_required() and not found.nullable and not (found.is_list and fewest == 0):
        raise UnsupportedType(
            f"requires one {named.__name__} in every {named.__name__}, and so no end of them; give "
            "it a default, or None"
        )
    return None


def root_type(model: type[RootModel[Any]]) -> FieldType:
    """The type of a RootModel's root: one class or several. Raises UnsupportedType."""
    found = _below(fields_of(model)["root"])
    if not found.models or found.is_list or found.nullable or any(map(is_bare, found.models)):
        raise UnsupportedType(
            "a root that is no object has no named fields; declare a class with a field for it"
        )
    return found


def _below(field: FieldInfo) -> FieldType:
    return field_type_of(annotation_of(field))


def _too_deep(model: type[Any], around: Sequence[type[Any]], depth: int) -> type[Any] | None:
    """The model nested too deep, itself or in the list or dict that it holds; None if none is."""
    inner = _below(fields_of(model)["root"]) if is_bare(model) else None
    if inner is None:
        return model if around.count(model) > depth else None
    if inner.is_mapping:
        inner = _below(fields_of(inner.models[0])["value"])
    return next(filter(None, (_too_deep(one, around, depth) for one in inner.models)), None)
