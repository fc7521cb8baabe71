"""Editors of fields, with which a page corrects values: the type of each, in short."""

from __future__ import annotations

from typing import Any

from schemax.attributes import Attribute, compile_attributes
from schemax.errors import SchemaError


def editors_of(schema: type[Any]) -> dict[str, dict[str, Any]]:
    """Returns field -> t type, o choices, u unit, l 1 for a list. Plain texts are left out."""
    try:
        attributes = compile_attributes(schema)
    except SchemaError:  # a class that is the name of a category alone
        return {}
    found = {attribute.name: _editor(attribute) for attribute in attributes}
    return {name: editor for name, editor in found.items() if editor}


def _editor(attribute: Attribute) -> dict[str, Any]:
    is_json = attribute.fields or attribute.members or attribute.positions
    if is_json:
        return {"t": "json"} if attribute.is_list or attribute.positions else {}
    editor: dict[str, Any] = {}
    if attribute.choices:
        editor |= {"t": "choice", "o": list(attribute.choices)}
    elif attribute.scalar and attribute.scalar.editor:
        editor["t"] = attribute.scalar.editor
    if attribute.unit is not None:
        editor["u"] = attribute.unit
    if attribute.is_list:
        editor["l"] = 1
    return editor
