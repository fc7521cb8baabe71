"""Labels as typed values, checked against the schema of their category.

A label passes the code that reads the decoder's outputs, so that nothing counts as a right value
which extraction would refuse.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias

from pydantic import BaseModel, TypeAdapter, ValidationError

from schemax.attributes import Attribute, compile_attributes
from schemax.attributes.annotations import text_of
from schemax.compiler.lists import Rows, leaves_of_item, limits_of
from schemax.errors import InputError
from schemax.formats import OutputFormat, Scalar, Writable, get_format
from schemax.messages import counted
from schemax.results import FieldError, SlotText, build
from schemax.results.fields import Leaf, field_tree_of
from schemax.results.values import readings_of

Label: TypeAlias = str | None | tuple[str | None, ...]
"""What an annotator wrote: a value, an explicit null, or several accepted ones, null perhaps among
them, the first of which is the canonical one. An attribute without a label is not annotated, which
is not null."""

Stated: TypeAlias = "str | Sequence[Stated] | Mapping[str, Stated] | None"
"""What a label says before it has a type: text, a list, an item of nested models by the names of
its leaves, or an explicit null."""


@dataclass(frozen=True, slots=True)
class TypedLabels:
    """values: attribute name -> value, ready to be written; None is an explicit null.

    errors: what is wrong with the labels that `values` leaves out.
    """

    values: Mapping[str, Writable | Rows]
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
            asked = ", ".join(map(repr, titles_of(attributes).values()))
            raise InputError(
                f"document {name}: the schema of {category!r} has no attribute {label!r}; "
                f"it has {asked}"
            )
        try:
            by_name[attribute.name] = _items(attribute, value) if attribute.is_list else value
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
    return TypedLabels(values, tuple(errors))


def labelled_instance(
    name: str, category: str, stated: Mapping[str, Stated], schema: type[BaseModel]
) -> Any:
    """The instance that extraction would build of a document's labels; what they leave out is null.

    The parameters are those of `typed_labels`. Raises InputError, naming the document, for labels
    that the schema does not have or refuses.
    """
    written = get_format("json")
    labels = typed_labels(name, category, stated, schema, written)
    attributes = _attributes_of(schema)
    slots = [slot_text(item, labels.values.get(item.name), written) for item in attributes]
    found = build(schema, attributes, slots, written, index=0, document_id=None)
    if errors := [*labels.errors, *found.errors]:
        where = f"{errors[0].field}: " if errors[0].field else ""
        raise InputError(f"document {name}: {where}{errors[0].message}")
    assert found.value is not None  # else there is an error
    return found.value


@lru_cache(maxsize=256)
def _attributes_of(schema: type[BaseModel]) -> tuple[Attribute, ...]:
    return compile_attributes(schema)


def _find(label: str, attributes: Sequence[Attribute]) -> Attribute | None:
    """The only attribute of that name, else title, else path of titles; else the only one that
    differs in case alone."""
    for names in zip(*map(_names, attributes), strict=True):
        if names.count(label) == 1:
            return attributes[names.index(label)]
    folded = label.strip().casefold()
    alike = [a for a in attributes if folded in (name.casefold() for name in _names(a))]
    return alike[0] if len(alike) == 1 else None


def _names(attribute: Attribute) -> tuple[str, ...]:
    return attribute.name, attribute.label, ".".join(attribute.labels)


def _items_in(attribute: Attribute, text: str) -> list[Any] | None:
    """The items of a JSON array, of a dict of an object, numbers as they are written; None for any
    other text."""
    try:
        found = json.loads(text, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, Mapping) and attribute.is_mapping:
        return _pairs(found)
    return found if isinstance(found, list) else None


def _pairs(found: Mapping[str, Any]) -> list[Any]:
    return [{"key": key, "value": value} for key, value in found.items()]


def as_array(attribute: Attribute, label: Label) -> Label:
    """A label of a list as the JSON array that predictions are compared with; null as it is.

    Raises InputError for what is no item of the list.
    """
    accepted = label if isinstance(label, tuple) else (label,)
    stated = [text for text in accepted if text is not None]
    if all(_items_in(attribute, text) is None for text in stated):
        return _array(attribute, stated) if stated else None
    arrays = (None if text is None else _array(attribute, text) for text in accepted)
    several = tuple(dict.fromkeys(arrays))
    return several if len(several) > 1 else several[0]


def _array(attribute: Attribute, stated: Stated) -> str | None:
    try:
        rows = _items(attribute, stated)
    except ValueError as error:
        raise InputError(f"{attribute.label}: {error}") from error
    return None if rows is None else as_text(named_rows(attribute, rows))


def _items(attribute: Attribute, value: Stated) -> Stated:
    """The items of a list, of a JSON array or one text: texts, or rows of the leaves of an item.

    Raises ValueError for what is no item of the list.
    """
    items: Any = value
    if isinstance(value, str):
        found = _items_in(attribute, value)
        items = [value] if found is None else found
    elif isinstance(value, Mapping):
        items = _pairs(value) if attribute.is_mapping else [value]
    rows = [_row(attribute, item) if attribute.fields else _scalar(item) for item in items or ()]
    most = limits_of(attribute)[1]
    if attribute.two_phase and len(rows) > most:
        raise ValueError(
            f"{counted(len(rows), 'item')}, and {most} can be read; declare a larger max_length"
        )
    return rows or None


def _scalar(item: Any) -> str:
    return item if isinstance(item, str) else json.dumps(item)


def _row(attribute: Attribute, item: Any) -> list[Stated]:
    """What an item of nested models states of its leaves, in their order."""
    if not isinstance(item, Mapping):
        raise ValueError(f"an item must be a JSON object, not {item!r}")
    stated: dict[str, Stated] = {}
    for name, value in flat(item, attribute.fields).items():
        leaf = _find(name, attribute.fields)
        if leaf is None:
            known = ", ".join(repr(leaf.name) for leaf in attribute.fields)
            raise ValueError(f"an item has no {name!r}; it has {known}")
        if leaf.is_list:
            stated[leaf.name] = _items(leaf, value)
        else:
            stated[leaf.name] = None if value is None else _scalar(value)
    return [stated.get(leaf.name) for leaf in attribute.fields]


def flat(
    nested: Mapping[str, Any], attributes: Sequence[Attribute], path: str = ""
) -> dict[str, Any]:
    """Nested models by dotted path, as attributes are named; dicts as they are."""
    found: dict[str, Any] = {}
    names = {attribute.name for attribute in attributes if attribute.is_mapping}
    for key, value in nested.items():
        if isinstance(value, Mapping) and f"{path}{key}" not in names:
            found |= flat(value, attributes, f"{path}{key}.")
        else:
            found[f"{path}{key}"] = value
    return found


def slot_text(attribute: Attribute, value: Any, output: OutputFormat) -> SlotText:
    """A value as the slots of a document would hold it; of a list in two phases, those of all
    items."""
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
    """What extraction would say of these values, had the model written them."""
    slots = [slot_text(a, stated[a.name], output) if a.name in stated else None for a in attributes]
    found = build(schema, attributes, slots, output, index=0, document_id=None)
    pairs = ((error, _whole(error.field, stated)) for error in found.errors)
    errors = [replace(error, field=name) for error, name in pairs if name is not None]
    if found.value is None:
        # Without a required value no instance is tried, and so no other value is looked at.
        named = {error.field for error in errors}
        leaves = field_tree_of(schema).leaves
        for attribute in attributes:
            value, leaf = stated.get(attribute.name), leaves[attribute.path]
            # Which kind is meant is no field where nothing else tells it.
            known = leaf.annotation is not None and not attribute.fields
            if value is not None and known and attribute.name not in named:
                errors += _misfits(leaf, _writable(leaf, value))
    return errors


def _misfits(leaf: Leaf, value: Writable) -> Iterator[FieldError]:
    """Why a value does not match its field's type, without the rest of the instance."""
    try:
        TypeAdapter(leaf.annotation).validate_python(value)
    except ValidationError as error:
        yield FieldError(leaf.attribute.name, error.errors()[0]["msg"])


def _whole(field: str | None, stated: Mapping[str, Stated]) -> str | None:
    """The attribute that an error is about: of "lines.2.price", the list."""
    parts = (field or "").split(".")
    names = (".".join(parts[:depth]) for depth in range(len(parts), 0, -1))
    return next((name for name in names if name in stated), None)


def _writable(leaf: Leaf, value: Any) -> Any:
    if value is None:
        return None
    if leaf.item is not None:
        pairs = [zip(leaf.item.leaves, row, strict=True) for row in value]
        return [[_writable(inner, part) for inner, part in row] for row in pairs]
    # All at once, since each place of a tuple may have a type of its own.
    texts = [text.strip() for text in (value if isinstance(value, list) else [value])]
    readings = readings_of(leaf, texts, leaf.attribute.strict)
    found = [_typed(leaf, reading.value) for reading in readings]
    return found if isinstance(value, list) else found[0]


def _typed(leaf: Leaf, value: Any) -> Scalar:
    """The value that formats write the way its type is written; numbers keep their digits."""
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


def as_stated(value: Any) -> Stated:
    """A JSON value as a label states it. Raises ValueError for lists of lists."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return {key: as_stated(item) for key, item in value.items()}
    if isinstance(value, list) and not any(isinstance(item, list) for item in value):
        return [as_stated(item) for item in value if item is not None] or None
    raise ValueError(f"a value is text, a number, a boolean, null or a list, not {value!r}")


def titles_of(attributes: Sequence[Attribute]) -> dict[str, str]:
    """What labels call attributes, by name: their titles, unless several have the same."""
    counts = Counter(attribute.label for attribute in attributes)
    return {a.name: a.label if counts[a.label] == 1 else a.name for a in attributes}


def as_text(value: Any) -> str | None:
    """A typed value as labels are written: numbers and booleans as in JSON, lists as its arrays.

    An item of nested models is an object of texts, without what it does not state.
    """
    if isinstance(value, Enum):
        return as_text(value.value)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, list | tuple | set | frozenset):
        items = [_plain(item) for item in value]
        # Without items nothing is stated, which labels call null.
        return json.dumps(items, ensure_ascii=False) if items else None
    return str(value)


def named_rows(attribute: Attribute, rows: Any) -> Any:
    """The items of a list as objects, those of a dict by their keys; others as they are."""
    if not attribute.fields or rows is None:
        return rows
    found = [
        {
            leaf.name: named_rows(leaf, part)
            for leaf, part in zip(attribute.fields, row, strict=True)
        }
        for row in rows
    ]
    return sorted(found, key=lambda pair: str(pair["key"])) if attribute.is_mapping else found


def _plain(value: Any) -> Any:
    """An item of a list: as text; of nested models, all that is stated of them."""
    if not isinstance(value, Mapping):
        return as_text(value)
    texts = {name: as_text(part) for name, part in value.items()}
    return dict(sorted((name, text) for name, text in texts.items() if text is not None))
