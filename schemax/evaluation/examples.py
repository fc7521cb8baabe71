"""Annotated products, and what a set of predictions for them is worth."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from schemax.attributes import compile_attributes
from schemax.errors import InputError
from schemax.evaluation.pairs import OUTCOMES, Outcome, PairScore, count_outcomes, outcome_of
from schemax.schema import AttrSchema

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

Label = str | None | tuple[str, ...]
"""What an annotator wrote: a value, an explicit null, or several accepted values, the first of
which is the canonical one. An attribute without a label is not annotated, which is not null."""


@dataclass(frozen=True, slots=True)
class Example:
    """An annotated text: attribute -> label.

    description: more text of the same product, shown below `text`.
    """

    category: str
    text: str
    attributes: Mapping[str, Label]
    description: str | None = None
    id: str | None = None


def canonical(label: Label) -> str | None:
    """The value that stands for a label: the first of several accepted ones."""
    return label[0] if isinstance(label, tuple) else label


def accepted(label: Label) -> tuple[str | None, ...]:
    """Every value that is right, the canonical one first; (None,) for an explicit null."""
    return label if isinstance(label, tuple) else (label,)


def read_examples(path: Path) -> list[Example]:
    """The examples of a JSONL file of {"category", "text", "attributes": {name: label}} and,
    optionally, "id" and "description"; other keys are ignored.

    A label is text, null, a number or boolean (taken as its JSON text), or a list of accepted
    values, best first. Raises InputError, naming the line, for anything else, and for a file
    without products.
    """
    examples = []
    # Only a line feed ends a line: JSON strings may hold other separators as they are.
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(
                line.decode(),
                parse_int=_NumberText,
                parse_float=_NumberText,
                parse_constant=_refuse_constant,
            )
            examples.append(_example(row))
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{path}, line {number}: not an annotated product ({error}); "
                "it needs category, text and attributes"
            ) from error
    if not examples:
        raise InputError(f"{path} holds no products")
    return examples


def shown_record(example: Example) -> dict[str, str]:
    """What the extractor is given of an example, under the key "category" and those of the file."""
    record = {"category": example.category, "text": example.text}
    return record if not example.description else record | {"description": example.description}


def row_ids(examples: Sequence[Example]) -> tuple[str, ...]:
    """What each example is called in reports: its id, else its place, as in "#3" for the third."""
    return tuple(
        f"#{place}" if example.id is None else example.id
        for place, example in enumerate(examples, 1)
    )


def duplicated_ids(examples: Sequence[Example]) -> tuple[str, ...]:
    """Every id that more than one example has, in order of appearance."""
    counts = Counter(example.id for example in examples if example.id is not None)
    return tuple(id for id, count in counts.items() if count > 1)


def overlap(train: Sequence[Example], test: Sequence[Example]) -> tuple[str, ...]:
    """Names, as in `row_ids`, of the examples of `test` whose text also occurs in `train`."""
    known = {example.text for example in train}
    names = zip(row_ids(test), test, strict=True)
    return tuple(name for name, example in names if example.text in known)


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


@dataclass(frozen=True, slots=True)
class Pair:
    """One attribute of one product, scored.

    product: its place among the examples. annotated: whether it has a label.
    """

    product: int
    category: str
    attribute: str
    outcome: Outcome
    annotated: bool


@dataclass(frozen=True, slots=True)
class Scores:
    """What became of every attribute of every product.

    products: how many there are. pairs: all attributes of their categories, labelled or not.

    The protocol counts annotated pairs only; the strict variant counts all, those without a label
    as null.
    """

    products: int
    pairs: tuple[Pair, ...]

    @property
    def protocol(self) -> PairScore:
        """All categories together, by the protocol of ExtractGPT."""
        return count_outcomes(pair.outcome for pair in self.pairs if pair.annotated)

    @property
    def strict(self) -> PairScore:
        """All categories together, an attribute without a label taken as null."""
        return count_outcomes(pair.outcome for pair in self.pairs)

    @property
    def by_category(self) -> dict[str, PairScore]:
        """By the protocol, categories in order of appearance."""
        return self.by_part(lambda pair: pair.category)

    @property
    def by_attribute(self) -> dict[tuple[str, str], PairScore]:
        """By the protocol; an attribute is one of a category, (category, attribute)."""
        return self.by_part(lambda pair: (pair.category, pair.attribute))

    def by_part(self, part: Callable[[Pair], K], *, strict: bool = False) -> dict[K, PairScore]:
        """Scores of the pairs for which `part` is the same, in order of appearance."""
        found: dict[K, list[Outcome]] = {}
        for pair in self.pairs:
            outcomes = found.setdefault(part(pair), [])
            if strict or pair.annotated:
                outcomes.append(pair.outcome)
        return {key: count_outcomes(outcomes) for key, outcomes in found.items()}

    def counts(self, *, strict: bool = False) -> npt.NDArray[np.int64]:
        """(products, 5): how many pairs of a product had which outcome, as in `OUTCOMES`."""
        counts = np.zeros((self.products, len(OUTCOMES)), np.int64)
        for pair in self.pairs:
            if strict or pair.annotated:
                counts[pair.product, OUTCOMES.index(pair.outcome)] += 1
        return counts


def score_examples(
    examples: Sequence[Example],
    predictions: Sequence[Mapping[str, Any]],
    schemas: Mapping[str, type[BaseModel]],
) -> Scores:
    """predictions: field name -> value, one per example, from the category's schema."""
    return score_predictions(examples, labelled(examples, predictions, schemas))


def labelled(
    examples: Sequence[Example],
    predictions: Sequence[Mapping[str, Any]],
    schemas: Mapping[str, type[BaseModel]],
) -> list[dict[str, Any]]:
    """Predictions by attribute instead of field name, as texts: all of the product's category.

    An attribute is called as the labels call it. A field without a prediction, as of a product
    that could not be read, gets None.
    """
    found = by_attribute(examples, predictions, schemas)
    return [{name: as_text(value) for name, value in row.items()} for row in found]


def by_attribute(
    examples: Sequence[Example],
    rows: Sequence[Mapping[str, V]],
    schemas: Mapping[str, type[BaseModel]],
) -> list[dict[str, V | None]]:
    """What is known of fields, by attribute, as `labelled` calls them; None for the others."""
    names = {
        category: {a.name: a.label for a in compile_attributes(schema)}
        for category, schema in schemas.items()
    }
    return [
        {
            name if name in example.attributes else label: row.get(name)
            for name, label in names[example.category].items()
        }
        for example, row in zip(examples, rows, strict=True)
    ]


def as_text(value: Any) -> str | None:
    """A typed value as labels are written: numbers and booleans as in JSON, lists as its arrays."""
    if isinstance(value, Enum):
        return as_text(value.value)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, list | tuple | set | frozenset):
        return json.dumps([as_text(item) for item in value], ensure_ascii=False)
    return str(value)


def score_predictions(
    examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]
) -> Scores:
    """predictions: attribute -> value or None, one per example, all attributes of its category."""
    pairs = (
        Pair(
            product=place,
            category=example.category,
            attribute=name,
            outcome=outcome_of(example.attributes.get(name), predicted.get(name)),
            annotated=name in example.attributes,
        )
        for place, (example, predicted) in enumerate(zip(examples, predictions, strict=True))
        for name in dict.fromkeys((*predicted, *example.attributes))
    )
    return Scores(len(examples), tuple(pairs))


class _NumberText(str):
    """A number as it is written in the file: 1.50 stays 1.50, and is no text where text belongs."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _example(row: Any) -> Example:
    if not isinstance(row, dict):
        raise ValueError(f"{_kind(row)} where an object belongs")
    attributes = row.get("attributes")
    if not isinstance(attributes, dict):
        raise ValueError(f"attributes: {_kind(attributes)} where an object belongs")
    return Example(
        category=_text(row, "category"),
        text=_text(row, "text"),
        attributes={name: _label(name, value) for name, value in attributes.items()},
        description=None if row.get("description") is None else _text(row, "description"),
        id=_id(row.get("id")),
    )


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if type(value) is not str:
        raise ValueError(f"{key}: {_kind(value)} where text belongs")
    return value


def _id(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    raise ValueError(f"id: {_kind(value)} where text or a number belongs")


def _label(name: str, value: Any) -> Label:
    if value is None:
        return None
    if not isinstance(value, list):
        return _scalar(name, value)
    accepted = tuple(dict.fromkeys(_scalar(name, item) for item in value))
    if not accepted:
        raise ValueError(f"attribute {name!r}: an empty list; null says that there is no value")
    return accepted if len(accepted) > 1 else accepted[0]


def _scalar(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return str(value)
    raise ValueError(f"attribute {name!r}: {_kind(value)} where a value belongs")


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    kinds = {dict: "an object", list: "a list", bool: "a boolean", _NumberText: "a number"}
    return kinds.get(type(value), "text")
