"""Annotated products, and what a set of predictions for them is worth."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from schemax.errors import InputError
from schemax.evaluation.pairs import PairScore, add_scores, score_pairs
from schemax.schema import AttrSchema, compile_attributes


@dataclass(frozen=True, slots=True)
class Example:
    """An annotated text: attribute -> value, as it stands there."""

    category: str
    text: str
    attributes: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Scores:
    """by_category counts annotated pairs only; strict counts every attribute of the category."""

    by_category: Mapping[str, PairScore]
    strict: PairScore

    @property
    def protocol(self) -> PairScore:
        """All categories together, by the protocol of ExtractGPT."""
        return add_scores(self.by_category.values())


def read_examples(path: Path) -> list[Example]:
    """The examples of a JSONL file of {"category", "text", "attributes": {name: value}}.

    Raises InputError, naming the line, for anything else.
    """
    examples = []
    # Only a line feed ends a line: JSON strings may hold other separators as they are.
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line.decode())
            examples.append(Example(row["category"], row["text"], dict(row["attributes"])))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path}, line {number}: not an annotated product "
                f"({type(error).__name__}: {error}); it needs category, text and attributes"
            ) from error
    return examples


def attribute_names(examples: Sequence[Example], category: str) -> list[str]:
    """Every attribute that is annotated in the category, most frequent first."""
    found = [name for e in examples if e.category == category for name in e.attributes]
    return sorted(set(found), key=lambda name: (-found.count(name), name))


def schemas_of(examples: Sequence[Example]) -> dict[str, type[BaseModel]]:
    """One schema per category: texts, without descriptions, under the annotated names."""
    schemas: dict[str, type[BaseModel]] = {}
    for category in dict.fromkeys(example.category for example in examples):
        properties = {
            name: {"type": ["string", "null"], "title": name}
            for name in attribute_names(examples, category)
        }
        document = {"title": category, "type": "object", "properties": properties}
        schemas[category] = AttrSchema.from_json_schema(document)
    return schemas


def score_examples(
    examples: Sequence[Example],
    predictions: Sequence[Mapping[str, Any]],
    schemas: Mapping[str, type[BaseModel]],
) -> Scores:
    """predictions: field name -> value, one per example, from the category's schema."""
    by_category, strict = {}, []
    for category, schema in schemas.items():
        labels = {a.name: a.label for a in compile_attributes(schema)}
        rows = [
            (example.attributes, {labels[name]: value for name, value in predicted.items()})
            for example, predicted in zip(examples, predictions, strict=True)
            if example.category == category
        ]
        by_category[category] = score_pairs(rows)
        strict.append(score_pairs(rows, attributes=labels.values()))
    return Scores(by_category, add_scores(strict))
