"""Finds annotated data by path, a file or a folder of parts, and the schemas of its categories."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from schemax.attributes import compile_attributes
from schemax.base.messages import some_of
from schemax.base.trained import TrainedWith
from schemax.errors import InputError
from schemax.evaluation.examples import Example, row_ids
from schemax.evaluation.labelled_schemas import (
    annotated_schemas,
    as_declared,
    for_categories,
    read_attributes,
    without_extra,
)
from schemax.evaluation.sources import is_table
from schemax.extraction.declarations import in_language, read_schemas, trained_schemas
from schemax.extraction.extractor import Extractor

ATTRIBUTES = "attributes.json"


@dataclass(frozen=True, slots=True)
class Dataset:
    """Paths of annotated documents.

    test: the test part of a folder, or None.
    schemas: the file or name of their schemas; None makes schemas of the annotations.
    language: of the documents; None: the schemas' own.
    ignore_extra: whether labels that a schema lacks are left out; else they are an error.
    """

    file: Path
    test: Path | None
    schemas: str | None
    language: str | None = None
    ignore_extra: bool = False

    def declared(
        self, examples: Sequence[Example], schemas: Mapping[str, type[BaseModel]]
    ) -> list[Example]:
        """Returns the documents with labels as their schemas declare them; see `without_extra`,
        `as_declared`."""
        ignore = self.ignore_extra
        kept = without_extra(examples, row_ids(examples), schemas, self.file, ignore=ignore)
        return as_declared(kept, schemas)

    def declared_schemas(self, examples: Sequence[Example]) -> dict[str, type[BaseModel]]:
        """Returns the schema of every category: declared, or made of the annotations."""
        if self.schemas is None:
            return in_language(annotated_schemas(examples), self.language)
        declared = self._attributes() or read_schemas(self.schemas)
        return in_language(for_categories(declared, examples), self.language)

    def schemas_for(
        self, examples: Sequence[Example], models: Iterable[Extractor]
    ) -> dict[str, type[BaseModel]]:
        """Returns the declared schemas; without a declaration, those of a model's training.

        models: the first model that was trained with schemas provides them. Schemas in the rows
        come first. A category with an annotated attribute that the model's schema lacks has a
        schema made of the annotations, unless ignore_extra. Warns of the source.
        """
        if self.schemas is not None:
            return self.declared_schemas(examples)
        trained = next((model.trained for model in models if model.trained.schemas), TrainedWith())
        of_model = trained_schemas(trained)
        schemas: dict[str, type[BaseModel]] = {}
        brought: list[str] = []
        for category in dict.fromkeys(example.category for example in examples):
            rows = [example for example in examples if example.category == category]
            if any(example.schema is not None for example in rows):
                schemas |= annotated_schemas(rows)
                brought.append(category)
                continue
            try:
                schemas |= for_categories(of_model, rows)
                if not self.ignore_extra:
                    without_extra(rows, row_ids(rows), schemas, "", ignore=False)
            except InputError:
                schemas |= annotated_schemas(rows)
        if reused := [name for name, schema in schemas.items() if schema is of_model.get(name)]:
            warnings.warn(
                f"schemas of the model's training: {some_of(reused)}; --schemas names others",
                stacklevel=2,
            )
        if of_model and (
            untrained := [name for name in schemas if name not in (*reused, *brought)]
        ):
            warnings.warn(
                f"the model was not trained on these attributes of {some_of(untrained)}; their "
                "schemas are made of the annotations",
                stacklevel=2,
            )
        return in_language(schemas, self.language)

    def prepared(
        self, examples: Sequence[Example], models: Iterable[Extractor]
    ) -> tuple[dict[str, type[BaseModel]], list[Example]]:
        """Returns the schemas, and the documents with labels as declared. Raises InputError."""
        schemas = self.schemas_for(examples, models)
        return schemas, self.declared(examples, schemas)

    def as_shown(
        self,
        schemas: dict[str, type[BaseModel]],
        examples: Sequence[Example],
        extractor: Extractor,
        wanted: bool | None,
    ) -> dict[str, type[BaseModel]]:
        """Returns the schemas for a model, with or without the example values of a file.

        wanted: whether to show them; None shows them to models that schemax trained, since other
        models copy them. Raises InputError for False if `schemas` is not an attributes file.
        """
        if self.schemas is None or wanted or (wanted is None and extractor.defaults.is_trained):
            return schemas
        bare = self._attributes(values=False)
        if bare is None:
            if wanted is None:
                return schemas
            raise InputError(
                f"--no-schema-examples is about files of attributes; {self.schemas} declares its "
                "examples, so take them out there"
            )
        has_examples = any(a.examples for s in schemas.values() for a in compile_attributes(s))
        if wanted is None and has_examples:
            warnings.warn(
                f"the example values of {self.schemas} are not shown to a model that schemax did "
                "not train, since such models copy them; --schema-examples shows them",
                stacklevel=2,
            )
        return for_categories(bare, examples)

    def note_texts(self, examples: Sequence[Example], models: Iterable[Extractor]) -> None:
        """Warns of labels without a schema, whose values are texts. models: see `schemas_for`."""
        if self.schemas is not None or any(model.trained.schemas for model in models):
            return
        brought = {example.category for example in examples if example.schema is not None}
        if untyped := dict.fromkeys(e.category for e in examples if e.category not in brought):
            warnings.warn(
                f"no schema is named, so all fields of {some_of(untyped)} are read as texts; name "
                "one by --schemas",
                stacklevel=2,
            )

    def _attributes(self, *, values: bool = True) -> dict[str, type[BaseModel]] | None:
        spec = self.schemas or ""
        return read_attributes(Path(spec), values=values) if spec.endswith(".json") else None


def dataset(
    path: Path,
    part: Literal["train", "test"],
    schemas: str | None,
    language: str | None = None,
    *,
    ignore_extra: bool = False,
) -> Dataset:
    """Returns the data of a file, or of a folder's part with its test part and attributes.json.

    schemas: the user's, which replace the folder's. Raises InputError for a folder without the
    part.
    """
    if not path.is_dir() or is_table(path):
        return Dataset(path, None, schemas, language, ignore_extra)
    file, test, attributes = _part(path, part), _part(path, "test"), path / ATTRIBUTES
    if file is None:
        raise InputError(f"{path} is a folder without {part}.jsonl")
    if schemas is None and attributes.is_file():
        schemas = str(attributes)
    return Dataset(file, test, schemas, language, ignore_extra)


def sha256_of(path: Path) -> str | None:
    """Returns the digest of a file; None for a folder, and for a dataset of the Hub."""
    return sha256(path.read_bytes()).hexdigest() if path.is_file() else None


def _part(folder: Path, part: str) -> Path | None:
    """Returns the path of a folder's part: a file, or a dataset written by `save_to_disk`."""
    names = [f"{part}{suffix}" for suffix in (".jsonl", ".parquet", ".csv", ".json", "")]
    paths = (folder / name for name in names)
    return next(
        (path for path in paths if path.is_file() or (path.is_dir() and is_table(path))), None
    )
