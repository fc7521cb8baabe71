"""DATA on the command line: a JSONL file, or a folder with train.jsonl and test.jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from schemax.commands.console import UsageError
from schemax.commands.declarations import read_schemas
from schemax.evaluation.examples import Example, read_examples
from schemax.evaluation.schemas import (
    annotated_schemas,
    check_labels,
    for_categories,
    read_attributes,
)

ATTRIBUTES = "attributes.json"


@dataclass(frozen=True, slots=True)
class Dataset:
    """What a command reads. test: of a folder, where there is one. schemas: where they stand."""

    file: Path
    test: Path | None
    schemas: str | None


def dataset(path: Path, part: Literal["train", "test"], schemas: str | None) -> Dataset:
    """A file as it is; of a folder that part, with its test part and attributes.json if there.

    schemas: what the user named, which comes first. Raises UsageError for a folder without the
    part.
    """
    if not path.is_dir():
        return Dataset(path, None, schemas)
    file, test, attributes = path / f"{part}.jsonl", path / "test.jsonl", path / ATTRIBUTES
    if not file.is_file():
        raise UsageError(f"{path} is a folder without {file.name}")
    if schemas is None and attributes.is_file():
        schemas = str(attributes)
    return Dataset(file, test if test.is_file() else None, schemas)


def read_annotated(
    path: Path, part: Literal["train", "test"], schemas: str | None, limit: int | None
) -> tuple[Path, Sequence[Example], dict[str, type[BaseModel]]]:
    """The file that is read, its first examples, and a schema for each of their labels."""
    found = dataset(path, part, schemas)
    examples = read_examples(found.file)[:limit]
    declared = declared_schemas(found.schemas, examples)
    check_labels(examples, declared)
    return found.file, examples, declared


def declared_schemas(spec: str | None, examples: Sequence[Example]) -> dict[str, type[BaseModel]]:
    """The schema of every category: as declared, else made of the annotations."""
    if spec is None:
        return annotated_schemas(examples)
    attributes = read_attributes(Path(spec)) if spec.endswith(".json") else None
    return for_categories(attributes or read_schemas(spec), examples)
