"""Examples on the command line: annotated documents of a file become examples of the schemas."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel

from schemax.attributes import compile_attributes, settings_of
from schemax.commands.console import UsageError
from schemax.compiler.few_shot import FewShotExample, FewShotExamples
from schemax.errors import InputError
from schemax.evaluation.examples import Example, canonical, read_examples, row_ids
from schemax.evaluation.labels import shown_text, slot_text, typed_labels
from schemax.evaluation.schemas import as_declared
from schemax.formats import get_format
from schemax.results import build

Model = type[BaseModel]


def few_shot(path: Path | None, schemas: Model | Mapping[str, Model]) -> FewShotExamples | None:
    """The examples of a file that are of these schemas, as the extractor takes them.

    Categories are compared without regard to case; a single schema has the one it declares.
    Raises InputError for a file that cannot be read and for labels that its schema refuses;
    UsageError for a file without an example of any schema.
    """
    if path is None:
        return None
    path = Path(path)  # a text, where a finished run told of it
    mixed = isinstance(schemas, Mapping)
    named = schemas if isinstance(schemas, Mapping) else {settings_of(schemas).category: schemas}
    try:
        rows = read_examples(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    examples = {
        category: [
            _example(path, name, row, schema)
            for name, row in zip(row_ids(rows), rows, strict=True)
            if row.category.casefold() == category.casefold()
        ]
        for category, schema in named.items()
    }
    if not any(examples.values()):
        wanted, there = (
            ", ".join(map(repr, dict.fromkeys(names)))
            for names in (named, [row.category for row in rows])
        )
        raise UsageError(f"{path} has no example of category {wanted}; it has {there}")
    return examples if mixed else next(iter(examples.values()))


def _example(path: Path, name: str, row: Example, schema: Model) -> FewShotExample:
    """An annotated document with the instance that extraction would build of its labels."""
    written = get_format("json")
    (row,) = as_declared([row], {row.category: schema})
    stated = {label: canonical(value) for label, value in row.attributes.items()}
    try:
        labels = typed_labels(name, row.category, stated, schema, written)
        text = shown_text(name, row)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    attributes = compile_attributes(schema)
    slots = [slot_text(item, labels.values.get(item.name), written) for item in attributes]
    found = build(schema, attributes, slots, written, index=0, document_id=None)
    if errors := [*labels.errors, *found.errors]:
        where = f"{errors[0].field}: " if errors[0].field else ""
        raise InputError(f"{path}: document {name}: {where}{errors[0].message}")
    assert found.value is not None  # else there is an error
    return text, found.value
