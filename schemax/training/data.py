"""Training data as it comes: examples without what must not be trained on, and their schemas."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from schemax.errors import InputError
from schemax.evaluation.examples import (
    Example,
    attribute_names,
    duplicated_ids,
    overlap,
    read_examples,
    schemas_of,
)
from schemax.schema import AttrSchema

_MOST_IDS = 20


def read_training_examples(
    train: Path, test: Path | None, *, keep_overlap: bool = False
) -> list[Example]:
    """Examples to train on: without those whose text is also in `test`, unless these are kept.

    Warns of both, and of ids that occur twice. Raises InputError for files that cannot be read,
    and where nothing is left.
    """
    examples = _read(train)
    if doubled := duplicated_ids(examples):
        warnings.warn(f"{train}: ids that occur more than once: {_some(doubled)}", stacklevel=2)
    if test is None:
        return examples
    tested = _read(test)
    shared = overlap(tested, examples)
    if not shared:
        return examples
    what = "kept all the same" if keep_overlap else "dropped from training"
    warnings.warn(
        f"{len(shared)} products of {train} are also in {test}, {what}: {_some(shared)}",
        stacklevel=2,
    )
    if keep_overlap:
        return examples
    texts = {example.text for example in tested}
    left = [example for example in examples if example.text not in texts]
    if not left:
        raise InputError(f"all products of {train} are also in {test}; none is left to train on")
    return left


def _read(path: Path) -> list[Example]:
    try:
        return read_examples(path)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error


def _some(names: Sequence[str]) -> str:
    more = f", and {len(names) - _MOST_IDS} more" if len(names) > _MOST_IDS else ""
    return ", ".join(names[:_MOST_IDS]) + more


def annotated_schemas(examples: Sequence[Example]) -> dict[str, type[BaseModel]]:
    """One schema per category, of what is annotated there.

    Raises InputError for a category in which nothing is.
    """
    for category in dict.fromkeys(example.category for example in examples):
        if not attribute_names(examples, category):
            raise InputError(
                f"nothing is annotated in category {category!r}, so that it has no attributes; "
                "name its schema with --schemas"
            )
    return schemas_of(examples)


def read_attributes(path: Path) -> dict[str, type[BaseModel]] | None:
    """Schemas of a file of {"categories": {category: [attribute, ...]}}; None for another file.

    An attribute is a name, or an object with "name" and, optionally, "description" and "examples".
    Raises InputError for a file of this form whose attributes cannot be read.
    """
    try:
        written = json.loads(path.read_text("utf-8-sig"))
    except (OSError, ValueError):
        return None  # whoever reads declarations says what is wrong with it
    if not isinstance(written, dict) or not isinstance(written.get("categories"), dict):
        return None
    return {
        category: _schema(path, category, attributes)
        for category, attributes in written["categories"].items()
    }


def _schema(path: Path, category: str, attributes: Any) -> type[BaseModel]:
    properties = {}
    for attribute in attributes if isinstance(attributes, list) else [None]:
        entry = {"name": attribute} if isinstance(attribute, str) else attribute
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
            raise InputError(
                f"{path}: the attributes of {category!r} must be names, or objects with a name"
            )
        shown = {key: entry[key] for key in ("description", "examples") if entry.get(key)}
        properties[entry["name"]] = {"type": ["string", "null"], "title": entry["name"], **shown}
    document = {"title": category, "type": "object", "properties": properties}
    return AttrSchema.from_json_schema(document)


def for_categories(
    schemas: type[BaseModel] | Mapping[str, type[BaseModel]], examples: Sequence[Example]
) -> dict[str, type[BaseModel]]:
    """The schemas of the categories that occur; a single schema serves all of them.

    Raises InputError for a category without one.
    """
    found = dict.fromkeys(example.category for example in examples)
    if not isinstance(schemas, Mapping):
        return dict.fromkeys(found, schemas)
    if lacking := [name for name in found if name not in schemas]:
        raise InputError(
            f"no schema for category {lacking[0]!r}; there are {', '.join(map(repr, schemas))}"
        )
    return {name: schemas[name] for name in found}
