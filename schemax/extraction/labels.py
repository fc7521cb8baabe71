"""Labels as typed values, checked against the schema of their category.

The code that reads the decoder's outputs reads labels too, so that no value counts as right which
extraction would refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from schemax.attributes import Attribute, compile_attributes
from schemax.attributes.annotations import text_of
from schemax.base.messages import message_of
from schemax.compiler.skeleton import Rows, leaves_of_item
from schemax.errors import InputError
from schemax.extraction.stated import (
    Stated,
    items_of,
    named,
    titles_of,
)
from schemax.formats import OutputFormat, Scalar, Writable, get_format
from schemax.results import FieldError, SlotText, build
from schemax.results.fields import Leaf, field_tree_of
from schemax.results.values import readings_of


def typed_labels(
    name: str,
    category: str,
    stated: Mapping[str, Stated],
    schema: type[BaseModel],
    output: OutputFormat,
) -> tuple[dict[str, Writable | Rows], list[FieldError]]:
    """The labels of a document as values by attribute, and the errors of labels left out.

    An explicit null is None. name: of the document, for messages. stated: by attribute, under its
    name or the one that the model is shown. output: only its literals are used.

    Raises InputError for an attribute that the schema does not have.
    """
    attributes = _attributes_of(schema)
    by_name: dict[str, Stated] = {}
    for label, value in stated.items():
        attribute = named(label, attributes)
        if attribute is None:
            known = ", ".join(map(repr, titles_of(attributes).values()))
            raise InputError(
                f"document {name}: the schema of {category!r} has no attribute {label!r}; "
                f"it has {known}"
            )
        try:
            by_name[attribute.name] = items_of(attribute, value) if attribute.is_list else value
        except ValueError as error:
            raise InputError(f"document {name}: {label}: {error}") from error
    errors = _refused(schema, attributes, by_name, output)
    wrong = {error.field for error in errors}
    leaves = field_tree_of(schema).leaves
    values = {
        attribute.name: _writable(leaves[attribute.path], by_name[attribute.name])
        for attribute in attributes
        if attribute.name in by_name and attribute.name not in wrong
    }
    return values, errors


def labelled_instance(
    name: str, category: str, stated: Mapping[str, Stated], schema: type[BaseModel]
) -> Any:
    """The instance that extraction would build from a document's labels; a missing label is null.

    The parameters are those of `typed_labels`. Raises InputError, naming the document, for labels
    that the schema does not have or refuses.
    """
    written = get_format("json")
    values, refused = typed_labels(name, category, stated, schema, written)
    attributes = _attributes_of(schema)
    slots = [slot_text(item, values.get(item.name), written) for item in attributes]
    extraction = build(schema, attributes, slots, written, index=0, document_id=None)
    if errors := [*refused, *extraction.errors]:
        where = f"{errors[0].field}: " if errors[0].field else ""
        raise InputError(f"document {name}: {where}{errors[0].message}")
    assert extraction.value is not None  # else there is an error
    return extraction.value


@lru_cache(maxsize=256)
def _attributes_of(schema: type[BaseModel]) -> tuple[Attribute, ...]:
    return compile_attributes(schema)


def slot_text(attribute: Attribute, value: Any, output: OutputFormat) -> SlotText:
    """The slot that would hold a value; for a list in two phases, with the slots of all items."""
    if not attribute.two_phase:
        return SlotText(output.escape(value), "stop", 1, complete=True)
    items = tuple(
        tuple(
            slot_text(leaf, part, output)
            for leaf, part in zip(
                leaves_of_item(attribute, number),
                item if attribute.fields else (item,),
                strict=True,
            )
        )
        for number, item in enumerate(value or (), 1)
    )
    count = None if value is None else len(items)
    return SlotText(output.escape(count), "stop", 1, complete=True, items=items)


def _refused(
    schema: type[BaseModel],
    attributes: Sequence[Attribute],
    stated: Mapping[str, Stated],
    output: OutputFormat,
) -> list[FieldError]:
    """The errors that extraction would give these values, had the model written them."""
    slots = [slot_text(a, stated[a.name], output) if a.name in stated else None for a in attributes]
    extraction = build(schema, attributes, slots, output, index=0, document_id=None)
    pairs = ((error, _whole(error.field, stated)) for error in extraction.errors)
    errors = [replace(error, field=name) for error, name in pairs if name is not None]
    if extraction.value is None:
        # Without a required value no instance is validated, so the other values are unchecked.
        named = {error.field for error in errors}
        leaves = field_tree_of(schema).leaves
        for attribute in attributes:
            value, leaf = stated.get(attribute.name), leaves[attribute.path]
            # A leaf without annotation names the kind of a union, and is no field.
            known = leaf.annotation is not None and not attribute.fields
            if value is not None and known and attribute.name not in named:
                errors += _misfits(leaf, _writable(leaf, value))
    return errors


def _misfits(leaf: Leaf, value: Writable) -> Iterator[FieldError]:
    """Yields the errors of a value against its field's type, without the rest of the instance."""
    try:
        TypeAdapter(leaf.annotation).validate_python(value)
    except ValidationError as error:
        yield FieldError(leaf.attribute.name, message_of(error.errors()[0]))


def _whole(field: str | None, stated: Mapping[str, Stated]) -> str | None:
    """The attribute of an error; for "lines.2.price" the list."""
    parts = (field or "").split(".")
    names = (".".join(parts[:depth]) for depth in range(len(parts), 0, -1))
    return next((name for name in names if name in stated), None)


def _writable(leaf: Leaf, value: Any) -> Any:
    if value is None:
        return None
    if leaf.item is not None:
        pairs = [zip(leaf.item.leaves, row, strict=True) for row in value]
        return [[_writable(inner, part) for inner, part in row] for row in pairs]
    # All texts at once, since each place of a tuple may have its own type.
    texts = [text.strip() for text in (value if isinstance(value, list) else [value])]
    typed = [_typed(leaf, reading.value) for reading in readings_of(leaf, texts)]
    return typed if isinstance(value, list) else typed[0]


def _typed(leaf: Leaf, value: Any) -> Scalar:
    """The value in the form that formats write for its type; numbers keep their digits."""
    if leaf.attribute.members:
        return text_of(value) if isinstance(value, Enum) else value
    if leaf.choices is not None:
        return text_of(value)
    if leaf.attribute.kind == "boolean":
        return TypeAdapter(bool).validate_python(value)
    if leaf.attribute.is_number:
        try:
            return Decimal(value)
        except InvalidOperation:
            return str(value)
    return str(value)
