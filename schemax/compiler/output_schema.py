"""JSON Schema of a whole output, for servers that constrain outputs by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemax.attributes import Attribute
from schemax.compiler.grammars import may_be_null
from schemax.reading.kinds import SCALARS


def output_schema(attributes: Sequence[Attribute]) -> dict[str, Any]:
    """The JSON Schema of an output, under the names that the prompt shows.

    All properties are required, and nullable where a value may be missing. Conditions are left to
    validation, since no two servers support the same ones.
    """
    root = _object()
    for attribute in attributes:
        group = root
        for label in attribute.labels[:-1]:
            group = _member(group, label, _object())
        _member(group, attribute.labels[-1], _value(attribute))
    return root


def _object() -> dict[str, Any]:
    return {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def _member(group: dict[str, Any], label: str, schema: dict[str, Any]) -> dict[str, Any]:
    if label not in group["properties"]:
        group["properties"][label] = schema
        group["required"].append(label)
    found: dict[str, Any] = group["properties"][label]
    return found


def _scalar(attribute: Attribute) -> dict[str, Any]:
    if attribute.choices:
        return {"type": "string", "enum": list(attribute.choices)}
    kind, form = SCALARS[attribute.kind].output
    return {"type": kind} | ({"format": form} if form else {})


def _value(attribute: Attribute) -> dict[str, Any]:
    if attribute.fields:
        schema = output_schema(attribute.fields)
    else:
        variants = [_scalar(one) for one in attribute.variants]
        schema = {"anyOf": variants} if attribute.members else variants[0]
    if attribute.is_list:
        schema = {"type": "array", "items": schema}
    if may_be_null(attribute):
        schema = {"anyOf": [schema, {"type": "null"}]}
    return schema | ({"description": attribute.description} if attribute.description else {})
