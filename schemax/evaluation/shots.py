"""Annotated documents that prompts show as examples, from files, training data or prompt files."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from schemax.attributes import settings_of
from schemax.attributes.examples import FewShotExample, FewShotExamples
from schemax.base.messages import counted, say, some_of
from schemax.errors import InputError
from schemax.evaluation.datasets import Dataset
from schemax.evaluation.examples import (
    Example,
    accepted,
    canonical_value,
    read_examples,
    row_ids,
    shown_text,
)
from schemax.evaluation.labelled_schemas import as_declared, without_extra
from schemax.extraction.extractor import Extractor
from schemax.extraction.labels import labelled_instance

Model = type[BaseModel]

NONE = "none"
"""The word that stands for no examples, in the place of a file."""


@dataclass(frozen=True, slots=True)
class Shots:
    """Annotated documents for prompts to show.

    path: their file.
    rows: (name, document) by the category whose prompt shows them; under "" for a prompt file,
        which has all categories in one order.
    """

    path: Path | str
    rows: Mapping[str, Sequence[tuple[str, Any]]]

    @classmethod
    def read(cls, path: Path, categories: Collection[str]) -> Shots:
        """Reads the documents of a file in these categories, in upper or lower case.

        The path "none" gives no documents, and hides the examples of schemas. Raises InputError for
        a file that cannot be read, and for a file without documents of the categories.
        """
        path = Path(path)  # a finished run gives it as text
        if str(path) == NONE:
            return cls(path, dict.fromkeys(categories, ()))
        try:
            rows = read_examples(path)
        except OSError as error:
            raise InputError(f"cannot read {path}: {error.strerror}") from error
        named = [*zip(row_ids(rows), rows, strict=True)]
        by_category = {
            category: [pair for pair in named if pair[1].category.casefold() == category.casefold()]
            for category in categories
        }
        if not any(by_category.values()):
            wanted, there = (
                ", ".join(map(repr, dict.fromkeys(names)))
                for names in (categories, [row.category for row in rows])
            )
            raise InputError(f"{path} has no example of category {wanted}; it has {there}")
        return cls(path, by_category)

    @classmethod
    def among(cls, examples: Sequence[Example], path: Path) -> Shots:
        """Returns all examples that were read from a file, by category."""
        rows: dict[str, list[tuple[str, Example]]] = {}
        for name, row in zip(row_ids(examples), examples, strict=True):
            rows.setdefault(row.category, []).append((name, row))
        return cls(path, rows)

    @property
    def most(self) -> int:
        """The number of documents of the largest category."""
        return max(map(len, self.rows.values()))

    @property
    def examples(self) -> list[Any]:
        return [row for rows in self.rows.values() for _, row in rows]

    def without(self, texts: Collection[str], file: Path, of: str = "examples") -> Shots:
        """Leaves out documents with texts of `file`; notes their names.

        of: the word for the documents in the note. Raises InputError if no example is left.
        """
        left_out = dict.fromkeys(
            name for rows in self.rows.values() for name, row in rows if row.text in texts
        )
        if not left_out:
            return self
        say(
            f"note: also in {file}, left out of the {of}: {counted(len(left_out), 'document')} of "
            f"{self.path}: {some_of(left_out)}"
        )
        left = {
            category: [pair for pair in rows if pair[1].text not in texts]
            for category, rows in self.rows.items()
        }
        if of == "examples" and not any(left.values()):
            raise InputError(f"no example is left: all of {self.path} are also in {file}")
        return replace(self, rows=left)

    def first(self, count: int) -> Shots:
        """Returns the first `count` of every category."""
        return replace(self, rows={name: rows[:count] for name, rows in self.rows.items()})

    def asked_by(self, schemas: Mapping[str, Model], *, ignore: bool = True) -> Shots:
        """Leaves out labels that schemas lack; see `without_extra`."""
        pairs = [pair for rows in self.rows.values() for pair in rows]
        names, rows = [name for name, _ in pairs], [row for _, row in pairs]
        kept = iter(without_extra(rows, names, schemas, self.path, ignore=ignore))
        reduced = {
            category: [(name, next(kept)) for name, _ in pairs]
            for category, pairs in self.rows.items()
        }
        return replace(self, rows=reduced)

    def note_lacking(self, count: int) -> None:
        """Notes the categories with fewer than `count` documents."""
        if lacking := [f"{name} ({len(r)})" for name, r in self.rows.items() if len(r) < count]:
            wanted = counted(count, "example")
            say(f"note: {self.path} has fewer than {wanted} of {some_of(lacking)}")

    def of(self, schemas: Mapping[str, Model]) -> dict[str, list[FewShotExample]]:
        """Returns the examples by category, for the extractor.

        Raises InputError, naming the document, for labels that its schema refuses.
        """
        return {
            category: [_example(self.path, name, row, schemas[category]) for name, row in rows]
            for category, rows in self.rows.items()
        }

    def write(self, path: Path) -> None:
        """Writes a file that `read` reads."""
        with path.open("w", encoding="utf-8") as handle:
            for category, rows in self.rows.items():
                for name, row in rows:
                    handle.write(json.dumps(_row(name, category, row), ensure_ascii=False) + "\n")


def few_shot(
    path: Path | None, schemas: Model | Mapping[str, Model], *, ignore_extra: bool = False
) -> FewShotExamples | None:
    """Returns the examples of a file for the schemas' categories, for the extractor.

    A single schema has its declared category. ignore_extra: leaves out labels that it lacks.
    Raises what `Shots.read`, `Shots.asked_by` and `Shots.of` raise.
    """
    if path is None:
        return None

    def of_file(schemas: Mapping[str, Model]) -> dict[str, list[FewShotExample]]:
        return Shots.read(path, schemas).asked_by(schemas, ignore=ignore_extra).of(schemas)

    if not isinstance(schemas, Mapping):
        category = settings_of(schemas).category
        return of_file({category: schemas})[category]
    return of_file(schemas)


def shots_for(
    shots: Shots,
    schemas: Mapping[str, Model],
    data: Dataset,
    *,
    hidden: Collection[str] = (),
    file: Path | None = None,
    count: int | None = None,
) -> Shots:
    """Returns the first `count` examples of every category (None: all) whose text is not hidden.

    hidden: texts of `file`, by default of the data. Raises InputError if no example is left.
    """
    shown = shots.without(hidden, file or data.file)
    if count is not None:
        shown.note_lacking(count)
        shown = shown.first(count)
    return shown.asked_by(schemas, ignore=data.ignore_extra or data.schemas is None)


def with_prompts(
    extractor: Extractor, schemas: Mapping[str, Model], examples: Sequence[Example], data: Dataset
) -> Extractor:
    """Returns the extractor with a prompt file without documents of the data.

    Demonstrations keep only labels that the schemas ask for.
    """
    prompt = extractor.defaults.prompt
    if not prompt.demonstrations:
        return extractor
    named = [
        (f"demonstrations[{n}]", demonstration)
        for n, demonstration in enumerate(prompt.demonstrations)
    ]
    texts = {shown_text("", example) for example in examples}
    shown = Shots(prompt.source, {"": named}).without(texts, data.file, "prompt")
    if data.ignore_extra or data.schemas is None:
        shown = shown.asked_by(schemas)
    changed = copy(extractor)
    prompt = replace(prompt, demonstrations=tuple(shown.examples))
    changed.defaults = replace(extractor.defaults, prompt=prompt)
    return changed


def _row(name: str, category: str, row: Example) -> dict[str, Any]:
    """Returns a document as a row that can be read again."""
    labels = {
        label: list(accepted(value)) if isinstance(value, tuple) else value
        for label, value in row.attributes.items()
    }
    described = {"description": row.description} if row.description else {}
    return {"id": name, "category": category, "text": row.text, **described, "attributes": labels}


def _example(path: Path | str, name: str, row: Example, schema: Model) -> FewShotExample:
    """Returns an annotated document and the instance that its labels make."""
    (row,) = as_declared([row], {row.category: schema})
    stated = {label: canonical_value(value) for label, value in row.attributes.items()}
    try:
        return shown_text(name, row), labelled_instance(name, row.category, stated, schema)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
