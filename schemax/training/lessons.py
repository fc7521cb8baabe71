"""Training examples: texts, and the values that a model learns to read from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import BaseModel

from schemax.errors import InputError
from schemax.evaluation.examples import Example, canonical, row_ids
from schemax.evaluation.labels import Stated, shown_text, typed_labels
from schemax.formats import OutputFormat, Writable
from schemax.results import FieldError


@dataclass(frozen=True, slots=True)
class Lesson:
    """A text and its right values.

    name: what messages call it; text: as the model is shown it.
    values: attribute name -> value, ready to be written; None is an explicit null, and what is
        absent was not annotated.
    unknown: attributes of which nothing is known, so that nothing may be learnt.
    """

    name: str
    category: str
    text: str
    values: Mapping[str, Writable]
    unknown: frozenset[str] = frozenset()


def gold_lessons(
    examples: Sequence[Example], schemas: Mapping[str, type[BaseModel]], output: OutputFormat
) -> list[Lesson]:
    """Annotated products as lessons, of whose accepted values the canonical ones are taught.

    Raises InputError, naming product and attribute, for labels that the schema does not know, or
    whose value is not of its type.
    """
    lessons = []
    for name, example in zip(row_ids(examples), examples, strict=True):
        stated = {label: canonical(value) for label, value in example.attributes.items()}
        lesson, errors = make_lesson(name, example, stated, schemas, output)
        if errors:
            raise InputError(f"product {name}: {errors[0].field}: {errors[0].message}")
        lessons.append(lesson)
    return lessons


def make_lesson(
    name: str,
    example: Example,
    stated: Mapping[str, Stated],
    schemas: Mapping[str, type[BaseModel]],
    output: OutputFormat,
) -> tuple[Lesson, tuple[FieldError, ...]]:
    """A lesson, and what is wrong with values stated for it, which it leaves out as unknown.

    stated: by attribute, under its name or the one that the model is shown.
    Raises InputError for a category without a schema, an unknown attribute, and an empty text.
    """
    schema = schemas.get(example.category)
    if schema is None:
        known = ", ".join(map(repr, schemas))
        raise InputError(
            f"product {name}: no schema for category {example.category!r}; there are {known}"
        )
    labels = typed_labels(name, example.category, stated, schema, output)
    unknown = frozenset(error.field for error in labels.errors if error.field)
    text = shown_text(name, example)
    return Lesson(name, example.category, text, labels.values, unknown), labels.errors
