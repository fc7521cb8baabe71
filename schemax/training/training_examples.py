"""Training examples: texts, and the values that a model learns to read from them."""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import BaseModel

from schemax.base.messages import counted, say, some_of
from schemax.compiler.skeleton import Rows
from schemax.errors import InputError
from schemax.evaluation.examples import (
    Example,
    duplicated_ids,
    overlap,
    read_examples,
    row_ids,
    shown_text,
)
from schemax.evaluation.shots import Shots
from schemax.extraction.labels import typed_labels
from schemax.extraction.stated import Label, Stated
from schemax.formats import OutputFormat, Writable
from schemax.results import FieldError


@dataclass(frozen=True, slots=True)
class TrainingExample:
    """A document and its gold values.

    name: in messages.
    text: as the model sees it.
    values: attribute name -> value, ready to be written; None is an explicit null. Attributes
        without annotation are missing.
    unknown: attributes with unknown values, which are not learnt.
    labels: the labels that predictions are compared with.
    """

    name: str
    category: str
    text: str
    values: Mapping[str, Writable | Rows]
    unknown: frozenset[str] = frozenset()
    labels: Mapping[str, Label] = field(default_factory=dict)


def gold_examples(
    annotated: Sequence[Example], schemas: Mapping[str, type[BaseModel]], output: OutputFormat
) -> list[TrainingExample]:
    """Returns training examples from annotations; the first of several accepted values is taught.

    Labels that the schema refuses are not taught; see `note_misfits`. Raises InputError, naming the
    document, for labels that the schema lacks.
    """
    examples = []
    for name, labelled in zip(row_ids(annotated), annotated, strict=True):
        example, _ = training_example(name, labelled, labelled.stated, schemas, output)
        examples.append(replace(example, labels=labelled.attributes))
    return examples


def training_example(
    name: str,
    annotated: Example,
    stated: Mapping[str, Stated],
    schemas: Mapping[str, type[BaseModel]],
    output: OutputFormat,
) -> tuple[TrainingExample, Sequence[FieldError]]:
    """Returns a training example, and the errors of values that it leaves out as unknown.

    stated: by name or title of attributes.
    Raises InputError for a category without a schema, an unknown attribute, and an empty text.
    """
    schema = schemas.get(annotated.category)
    if schema is None:
        known = ", ".join(map(repr, schemas))
        raise InputError(
            f"document {name}: no schema for category {annotated.category!r}; known are {known}"
        )
    values, errors = typed_labels(name, annotated.category, stated, schema, output)
    unknown = frozenset(error.field for error in errors if error.field)
    text = shown_text(name, annotated)
    return TrainingExample(name, annotated.category, text, values, unknown), errors


def read_training_examples(
    train: Path, test: Path | None, *, keep_overlap: bool = False
) -> list[Example]:
    """Reads examples to train on; drops examples with a text of `test`, unless keep_overlap.

    Warns of shared texts and of duplicated ids. Raises InputError for invalid files, and if no
    example is left; OSError for files that cannot be read.
    """
    annotated = read_examples(train)
    if doubled := duplicated_ids(annotated):
        warnings.warn(f"{train}: ids that occur more than once: {some_of(doubled)}", stacklevel=2)
    if test is None:
        return annotated
    tested = read_examples(test)
    shared = overlap(tested, annotated)
    if not shared:
        return annotated
    action = "kept in training" if keep_overlap else "dropped from training"
    warnings.warn(
        f"also in {test}, {action}: {counted(len(shared), 'document')} of {train}: "
        f"{some_of(shared)}",
        stacklevel=2,
    )
    if keep_overlap:
        return annotated
    texts = {example.text for example in tested}
    left = [example for example in annotated if example.text not in texts]
    if not left:
        raise InputError(
            f"all documents of {train} are also in {test}; no document is left to train on"
        )
    return left


def left_to_train(
    shots: Shots,
    annotated: Sequence[Example],
    examples: Sequence[TrainingExample],
    file: Path,
) -> tuple[list[Example], list[TrainingExample]]:
    """Returns documents of a file and their training examples, without the shown documents.

    Notes the documents left out. Raises InputError if no document of a category is left.
    """
    texts = {shown_text("", example) for example in shots.examples}
    named = [*zip(row_ids(annotated), annotated, strict=True)]
    kept = [shown_text(name, example) not in texts for name, example in named]
    left = [example for example, keep in zip(annotated, kept, strict=True) if keep]
    dropped = [name for (name, _), keep in zip(named, kept, strict=True) if not keep]
    if dropped:
        say(
            f"note: shown as examples, dropped from training: {counted(len(dropped), 'document')} "
            f"of {file}: {some_of(dropped)}"
        )
    there = {example.category for example in left}
    if gone := [
        c for c in dict.fromkeys(example.category for example in annotated) if c not in there
    ]:
        raise InputError(
            f"all documents of {some_of(map(repr, gone))} in {file} are shown as examples; no "
            "document is left to train on: give fewer --shots"
        )
    return left, [example for example in examples if example.text not in texts]


def split_examples(
    examples: Sequence[TrainingExample], share: float, seed: int
) -> tuple[list[TrainingExample], list[TrainingExample]]:
    """Splits examples into (trained on, held out). Equal texts stay together.

    A share above 0 holds out at least one text. Raises InputError if none is left to train on.
    """
    texts = sorted({example.text for example in examples})
    random.Random(f"{seed}, held out").shuffle(texts)
    count = max(1, round(share * len(texts))) if share else 0
    if count >= len(texts):
        raise InputError(
            f"{counted(len(texts), 'different text is', 'different texts are')} too few to hold "
            f"out {share:.0%}; add documents, or hold out none"
        )
    kept_back = set(texts[:count])
    return (
        [example for example in examples if example.text not in kept_back],
        [example for example in examples if example.text in kept_back],
    )
