"""Shelves: documents of one kind with their values, independent of the source.

`listings` marks values in place; `sources` reads annotated rows of public data sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from recipes.embedded.listings import Category, Kind
from schemax.evaluation.examples import Example, canonical_value


@dataclass(frozen=True, slots=True)
class Chosen:
    """One of an attribute's choices, which the document does not write."""

    value: str


Stated = str | tuple[str, ...] | bool | Chosen
"""A stated value: text as written in the document, several texts, yes or no, or a choice."""


def pieces_of(value: Stated) -> tuple[str, ...]:
    """Returns the texts of a value that a document writes."""
    if isinstance(value, str):
        return (value,)
    return value if isinstance(value, tuple) else ()


@dataclass(frozen=True, slots=True)
class Document:
    """A text and its stated values, by attribute."""

    text: str
    values: Mapping[str, Stated]


@dataclass(frozen=True, slots=True)
class About:
    """Facts on an attribute: descriptions to choose from, and its choices, if any."""

    descriptions: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shelf:
    """Documents that are read for the same attributes.

    about: attribute -> facts on it, for all attributes of the shelf.
    nulls: the share of missing values that are learnt as null: 1 if the annotation is complete, 0
        if a missing value may be stated.
    group: "goods", "requests" or "texts", whose attributes are foreign to each other; a shelf of
        any other group has no foreign attributes and is foreign to none.
    """

    name: str
    documents: Sequence[Document]
    about: Mapping[str, About]
    nulls: float
    group: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Library:
    """All shelves that are trained on, with each source's share of prompts."""

    shelves: Mapping[str, Sequence[Shelf]]
    shares: Mapping[str, float] = field(default_factory=dict)


def shelf_of(category: Category, nulls: float, group: str, source: str) -> Shelf:
    """Converts listings to a shelf."""
    return Shelf(
        name=category.name,
        documents=[document_of(example, category.kinds) for example in category.examples],
        about={
            name: About((description,) if description else (), _choices(name, category))
            for name, description in category.attributes.items()
        },
        nulls=nulls,
        group=group,
        source=source,
    )


def _choices(name: str, category: Category) -> tuple[str, ...]:
    if category.kinds.get(name) != "choice":
        return ()
    values = (str(e.attributes[name]) for e in category.examples if name in e.attributes)
    return tuple(dict.fromkeys(values))


def document_of(example: Example, kinds: Mapping[str, Kind] = MappingProxyType({})) -> Document:
    """Converts an annotated example. kinds: of attributes that are not text."""
    values: dict[str, Stated] = {}
    for name, label in example.attributes.items():
        kind = kinds.get(name, "text")
        if kind == "list" and isinstance(label, tuple):
            values[name] = tuple(map(str, label))
            continue
        text = (canonical_value(label) or "").strip()
        if kind == "boolean":
            values[name] = text == "yes"
        elif kind == "choice":
            values[name] = Chosen(text)
        elif text:
            values[name] = text
    return Document(example.text, values)


def examples_of(shelves: Iterable[Shelf]) -> list[Example]:
    """Converts documents whose values are all texts to annotated examples."""
    return [
        Example(shelf.name, document.text, dict(document.values))  # type: ignore[arg-type]
        for shelf in shelves
        for document in shelf.documents
        if all(isinstance(value, str) for value in document.values.values())
    ]
