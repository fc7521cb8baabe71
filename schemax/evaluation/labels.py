"""Labels as typed values, checked against the schema of their category.

A label passes the code that reads the decoder's outputs, so that nothing counts as a right value
which extraction would refuse.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from schemax.attributes import Attribute, compile_attributes
from schemax.attributes.annotations import text_of
from schemax.documents import Shown, read_documents
from schemax.errors import InputError
from schemax.evaluation.examples import Example, shown_record
from schemax.formats import OutputFormat, Scalar, Writable
from schemax.results import FieldError, SlotText, build
from schemax.results.fields import Leaf, field_tree_of
from schemax.results.values import readings_of

Stated = str | list[str] | None
"""What a label says before it has a type: text, the texts of a list, or an explicit null."""


@dataclass(frozen=True, slots=True)
class TypedLabels:
    """values: attribute name -> value, ready to be written; None is an explicit null.

    errors: what is wrong with the labels that `values` leaves out.
    """

    values: Mapping[str, Writable]
    errors: tuple[FieldError, ...]


def typed_labels(
    name: str,
    category: str,
    stated: Mapping[str, Stated],
    schema: type[BaseModel],
    output: OutputFormat,
) -> TypedLabels:
    """The labels of a document as values of its schema.

    name: of the document, for messages. stated: by attribute, under its name or the one that the
    model is shown. output: only its literals are used.

    Raises InputError for an attribute that the schema does not have.
    """
    attributes = _attributes_of(schema)
    by_name: dict[str, Stated] = {}
    for label, value in stated.items():
        attribute = _find(label, attributes)
        if attribute is None:
            asked = ", ".join(repr(item.label) for item in attributes)
            raise InputError(
                f"product {name}: the schema of {category!r} has no attribute {label!r}; "
                f"it has {asked}"
            )
        by_name[attribute.name] = _items(value) if attribute.is_list else value
    errors = _refused(schema, attributes, by_name, output)
    wrong = {error.field for error in errors}
    leaves = field_tree_of(schema).leaves
    values = {
        attribute.name: _writable(leaves[attribute.path], by_name[attribute.name])
        for attribute in attributes
        if attribute.name in by_name and attribute.name not in wrong
    }
    return TypedLabels(values, tuple(errors))


def shown_text(name: str, example: Example) -> str:
    """What the model is shown of a product, as extraction would show it. Raises InputError."""
    (document,) = read_documents([shown_record(example)], Shown())
    if document.text is None:
        raise InputError(f"product {name}: {document.problem}")
    return document.text


@lru_cache(maxsize=256)
def _attributes_of(schema: type[BaseModel]) -> tuple[Attribute, ...]:
    return compile_attributes(schema)


def _find(label: str, attributes: Sequence[Attribute]) -> Attribute | None:
    """The attribute of that name, path or title; else the only one that differs in case alone."""
    for attribute in attributes:
        if label in _names(attribute):
            return attribute
    folded = label.strip().casefold()
    alike = [a for a in attributes if folded in (name.casefold() for name in _names(a))]
    return alike[0] if len(alike) == 1 else None


def _names(attribute: Attribute) -> tuple[str, ...]:
    return attribute.name, attribute.label, ".".join(attribute.labels)


def _items(value: Stated) -> Stated:
    """The items of a list field: a JSON array, or one text."""
    if not isinstance(value, str):
        return value or None
    try:
        found = json.loads(value, parse_int=str, parse_float=str)
    except ValueError:
        return [value]
    if not isinstance(found, list):
        return [value]
    return [item if isinstance(item, str) else json.dumps(item) for item in found] or None


def _refused(
    schema: type[BaseModel],
    attributes: Sequence[Attribute],
    stated: Mapping[str, Stated],
    output: OutputFormat,
) -> list[FieldError]:
    """What extraction would say of these values, had the model written them."""
    slots = [
        SlotText(output.escape(stated[a.name]), "stop", 1, complete=True)
        if a.name in stated
        else None
        for a in attributes
    ]
    found = build(schema, attributes, slots, output, index=0, document_id=None)
    errors = [error for error in found.errors if error.field in stated]
    if found.value is None:
        # Without a required value no instance is tried, and so no other value is looked at.
        named = {error.field for error in errors}
        leaves = field_tree_of(schema).leaves
        for attribute in attributes:
            value = stated.get(attribute.name)
            if value is not None and attribute.name not in named:
                leaf = leaves[attribute.path]
                errors += _misfits(leaf, _writable(leaf, value))
    return errors


def _misfits(leaf: Leaf, value: Writable) -> Iterator[FieldError]:
    """Why a value does not match its field's type, without the rest of the instance."""
    try:
        TypeAdapter(leaf.annotation).validate_python(value)
    except ValidationError as error:
        yield FieldError(leaf.attribute.name, error.errors()[0]["msg"])


def _writable(leaf: Leaf, value: Stated) -> Writable:
    if value is None:
        return None
    if isinstance(value, list):
        return [_typed(leaf, item) for item in value]
    return _typed(leaf, value)


def _typed(leaf: Leaf, text: str) -> Scalar:
    """The value that formats write the way its type is written; numbers keep their digits."""
    (reading,) = readings_of(leaf, [text.strip()], leaf.attribute.strict)
    value = reading.value
    if leaf.attribute.members:
        return text_of(value) if isinstance(value, Enum) else value
    if leaf.choices is not None:
        return text_of(value)
    if leaf.attribute.kind == "boolean":
        return TypeAdapter(bool).validate_python(value)
    if leaf.attribute.kind in ("integer", "number"):
        try:
            return Decimal(value)
        except InvalidOperation:
            return str(value)
    return str(value)


def as_stated(value: Any) -> Stated:
    """A JSON value as a label states it. Raises ValueError for objects and nested lists."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if isinstance(value, list) and not any(isinstance(item, (list, dict)) for item in value):
        return [str(as_stated(item)) for item in value if item is not None] or None
    raise ValueError(f"a value is text, a number, a boolean, null or a list, not {value!r}")
