"""Shelves: documents of one kind with their values, whatever file they come from.

`listings` marks values in place; `sources` reads annotated rows of public data sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from recipes.embedded.listings import Category
from schemax.evaluation.examples import Example, canonical

Stated = str | tuple[str, ...] | bool
"""What a document states: text as it is written there, several texts, or yes or no."""


@dataclass(frozen=True, slots=True)
class Document:
    """A text and what it states, by attribute."""

    text: str
    values: Mapping[str, Stated]


@dataclass(frozen=True, slots=True)
class About:
    """What may be said of an attribute: descriptions to choose from, and its choices, if any."""

    descriptions: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shelf:
    """Documents that are read for the same attributes.

    about: attribute -> what may be said of it; its keys are all attributes of the shelf.
    nulls: share of missing values that are learnt as null: 1 where annotators looked for
        everything, 0 where a missing value says nothing.
    group: whose attributes are foreign to whose: "goods", "requests", "texts".
    """

    name: str
    documents: Sequence[Document]
    about: Mapping[str, About]
    nulls: float
    group: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Library:
    """All shelves that are trained on, with the share of prompts that each source has."""

    shelves: Mapping[str, Sequence[Shelf]]
    shares: Mapping[str, float] = field(default_factory=dict)


def shelf_of(category: Category, nulls: float, group: str, source: str) -> Shelf:
    """Listings as a shelf."""
    return Shelf(
        name=category.name,
        documents=[document_of(example) for example in category.examples],
        about={
            name: About((description,) if description else ())
            for name, description in category.attributes.items()
        },
        nulls=nulls,
        group=group,
        source=source,
    )


def document_of(example: Example) -> Document:
    stated = {name: canonical(label) for name, label in example.attributes.items()}
    return Document(
        example.text, {name: value.strip() for name, value in stated.items() if value is not None}
    )


def examples_of(shelves: Iterable[Shelf]) -> list[Example]:
    """Documents whose values are all texts, as annotated examples."""
    return [
        Example(shelf.name, document.text, dict(document.values))  # type: ignore[arg-type]
        for shelf in shelves
        for document in shelf.documents
        if all(isinstance(value, str) for value in document.values.values())
    ]
