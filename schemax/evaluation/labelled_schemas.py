"""The schemas of annotated products: declared in a file, or made of annotations."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, RootModel, create_model

from schemax.attributes import Attribute, asked_fields, compile_attributes, settings_of
from schemax.attributes.classes import fields_of
from schemax.base.messages import clipped, counted, say, some_of
from schemax.errors import InputError
from schemax.evaluation.examples import Example, ObjectText, attribute_names, row_ids
from schemax.extraction.labels import typed_labels
from schemax.extraction.schema import AttrSchema
from schemax.extraction.stated import as_array, named, titles_of
from schemax.formats import get_format

_MOST_MISFITS = 5  # in a note

Labelled = TypeVar("Labelled", bound=Any)
"""A dataclass with a category and attributes: an example, or a demonstration."""


def annotated_schemas(examples: Sequence[Example]) -> dict[str, type[BaseModel]]:
    """Makes a schema per category: the schema in its rows, else a text field per annotated name.

    The most frequent name comes first. Raises InputError for a category with neither, and for a
    category with several schemas; SchemaError for a document that cannot be declared.
    """
    schemas: dict[str, type[BaseModel]] = {}
    for category in dict.fromkeys(example.category for example in examples):
        if (document := _brought(examples, category)) is not None:
            schemas[category] = AttrSchema.from_json_schema(document)
            continue
        names = attribute_names(examples, category)
        if not names:
            raise InputError(
                f"nothing is annotated in category {category!r}, so it has no attributes; "
                "name its schema with --schemas"
            )
        schemas[category] = _text_schema(category, {name: {} for name in names})
    return schemas


def _brought(examples: Sequence[Example], category: str) -> str | None:
    documents = {e.schema for e in examples if e.category == category and e.schema is not None}
    if len(documents) > 1:
        raise InputError(
            f"rows of category {category!r} bring {len(documents)} different schemas along; name "
            "the right one with --schemas"
        )
    return next(iter(documents), None)


def read_attributes(path: Path, *, values: bool = True) -> dict[str, type[BaseModel]] | None:
    """Reads a file of {"categories": {category: [attribute, ...]}}; None for any other file.

    An attribute is a name, or an object with "name" and, optionally, "description" and "examples".
    values: whether to keep the examples.
    Raises InputError for a file of this form whose attributes cannot be read.
    """
    try:
        written = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError):
        return None  # the reader of declarations reports the error
    if not isinstance(written, dict) or not isinstance(written.get("categories"), dict):
        return None
    return {
        category: _described_schema(path, category, attributes, values)
        for category, attributes in written["categories"].items()
    }


def _described_schema(path: Path, category: str, attributes: Any, values: bool) -> type[BaseModel]:
    keys = ("description", "examples") if values else ("description",)
    described = {}
    for attribute in attributes if isinstance(attributes, list) else [None]:
        entry = {"name": attribute} if isinstance(attribute, str) else attribute
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise InputError(
                f"{path}: the attributes of {category!r} must be names, or objects with a name"
            )
        shown = {key: entry[key] for key in keys if entry.get(key)}
        described[entry["name"]] = shown
    return _text_schema(category, described)


def _text_schema(category: str, described: Mapping[str, Mapping[str, Any]]) -> type[BaseModel]:
    """Returns a schema of optional texts. described: name -> description and examples, if any."""
    properties = {
        name: {"type": ["string", "null"], "title": name, **shown}
        for name, shown in described.items()
    }
    document = {"title": category, "type": "object", "properties": properties}
    return AttrSchema.from_json_schema(document)


def for_categories(
    schemas: type[BaseModel] | Mapping[str, type[BaseModel]], examples: Sequence[Example]
) -> dict[str, type[BaseModel]]:
    """Returns the schemas of the categories that occur; a single schema serves all categories.

    Raises InputError for a category without a schema.
    """
    categories = dict.fromkeys(example.category for example in examples)
    if not isinstance(schemas, Mapping):
        return dict.fromkeys(categories, schemas)
    if lacking := [name for name in categories if name not in schemas]:
        raise InputError(
            f"no schema for category {lacking[0]!r}; known are {', '.join(map(repr, schemas))}"
        )
    return {name: schemas[name] for name in categories}


def known_names(schemas: Mapping[str, type[BaseModel]]) -> dict[str, set[str]]:
    """Returns the possible names of labels by category: names and titles of attributes."""
    return {
        category: {name for pair in titles_of(compile_attributes(schema)).items() for name in pair}
        for category, schema in schemas.items()
    }


def without_extra(
    rows: Sequence[Labelled],
    names: Sequence[str],
    schemas: Mapping[str, type[BaseModel]],
    source: Path | str,
    *,
    ignore: bool,
) -> list[Labelled]:
    """Returns rows without labels that the schema of their category lacks; notes these labels.

    A label that differs in case from the only attribute that it can mean gets the attribute's name.

    names: of the rows. source: their file. Raises InputError for such labels, unless `ignore`.
    """
    attributes = {category: compile_attributes(schema) for category, schema in schemas.items()}
    known = known_names(schemas)
    by_folded = {category.casefold(): category for category in schemas}
    kept: list[Labelled] = []
    extra: dict[str, None] = {}
    first, count = "", 0
    for name, row in zip(names, rows, strict=True):
        folded = by_folded.get(row.category.casefold())
        category = row.category if row.category in known else folded
        if category is None:
            kept.append(row)
            continue
        own: dict[str, Any] = {}
        for label, value in row.attributes.items():
            attribute = None if label in known[category] else named(label, attributes[category])
            if attribute is not None:
                own[attribute.name] = value
            elif label in known[category]:
                own[label] = value
            else:
                there = ", ".join(map(repr, titles_of(attributes[category]).values()))
                first = first or (
                    f"{source}: document {name}: the schema of {category!r} has no attribute "
                    f"{label!r}; it has {there}"
                )
                extra[f"{category} > {label}"] = None
        count += len(own) < len(row.attributes)
        kept.append(replace(row, attributes=own))
    if extra and not ignore:
        raise InputError(
            f"{first}. Labels without an attribute are in {count} of "
            f"{counted(len(rows), 'document')}: declare them, correct them, or leave them out by "
            "--ignore-extra"
        )
    if extra:
        say(f"note: annotated in {source} and not asked for: {some_of(extra)}")
    return kept


def as_declared(
    examples: Sequence[Example], schemas: Mapping[str, type[BaseModel]]
) -> list[Example]:
    """Returns the examples with labels of lists as JSON arrays, as predictions are written.

    The texts of a label are the items of a list, or accepted lists if they are arrays.
    Raises InputError, naming the document, for objects in the label of another field.
    """
    lists = {category: lists_of(schema) for category, schema in schemas.items()}
    declared = []
    for example, document in zip(examples, row_ids(examples), strict=True):
        known, labels = lists[example.category], dict(example.attributes)
        for name, label in labels.items():
            if name in known:
                labels[name] = as_array(known[name], label)
            elif isinstance(label, ObjectText):
                raise InputError(
                    f"document {document}: attribute {name!r}: expected a value, got an object: "
                    f"{clipped(label)}"
                )
        declared.append(replace(example, attributes=labels))
    return declared


def note_misfits(examples: Sequence[Example], schemas: Mapping[str, type[BaseModel]]) -> None:
    """Warns of labels that extraction would refuse as values of their fields.

    examples: as `as_declared` returns them.
    """
    output, misfits = get_format("json"), []
    for example, document in zip(examples, row_ids(examples), strict=True):
        category = example.category
        _, errors = typed_labels(document, category, example.stated, schemas[category], output)
        misfits += [f"{document}: {error.field}: {error.message}" for error in errors]
    if misfits:
        shown = "; ".join(
            [*misfits[:_MOST_MISFITS], *(["..."] if len(misfits) > _MOST_MISFITS else [])]
        )
        warnings.warn(
            f"{counted(len(misfits), 'label')} that the schema refuses, so that no value is right "
            f"and none is taught: {shown}",
            stacklevel=2,
        )


def lists_of(schema: type[BaseModel]) -> dict[str, Attribute]:
    """Attributes that are lists, by their names and by the names shown to the model."""
    attributes = compile_attributes(schema)
    titles = titles_of(attributes)
    return {name: a for a in attributes if a.is_list for name in (a.name, titles[a.name])}


def parts_of(schemas: Mapping[str, type[BaseModel]]) -> list[dict[str, type[BaseModel]]]:
    """Splits schemas by field: the first field of every category, then the second, and so on."""
    fields = {category: list(asked_fields(schema)) for category, schema in schemas.items()}
    longest = max(map(len, fields.values()))
    return [
        {
            category: _only(schema, fields[category][place])
            for category, schema in schemas.items()
            if place < len(fields[category])
        }
        for place in range(longest)
    ]


def _only(schema: type[BaseModel], name: str) -> type[BaseModel]:
    """Returns a schema of the same category with a single field, without the model's validators."""
    if issubclass(schema, RootModel):
        return schema  # a union, whose kind takes all fields
    settings = {key: value for key, value in asdict(settings_of(schema)).items() if value}
    field = fields_of(schema)[name]
    declared: dict[str, Any] = {name: (field.annotation, field)}
    return create_model(schema.__name__, __base__=AttrSchema, __cls_kwargs__=settings, **declared)
