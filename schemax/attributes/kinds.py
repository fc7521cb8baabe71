"""Unions of models: which of them is meant is one choice, beside the fields of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemax.attributes.annotations import UnsupportedType, annotation_of, field_type_of
from schemax.attributes.classes import asked_fields, fields_of, is_typed_dict, value_in
from schemax.attributes.settings import spaced, words_of

MOST_KINDS = 100
"""Models of a union. The fields of all of them are asked for at once."""


class KindName(str):
    """A part of an attribute's path that is no field: the kind whose field follows.

    model: the class of that kind.
    """

    model: type[Any]


@dataclass(frozen=True, slots=True)
class Kinds:
    """What tells the models of a union apart: a field of all of them, or else their names.

    name, label, description: of that field, or of what is asked for in its place.
    choices, values, models: (C,) texts and values of all choices, and the model each stands for.
    """

    name: str
    is_field: bool
    label: str
    description: str | None
    choices: tuple[str, ...]
    values: tuple[Any, ...]
    models: tuple[type[Any], ...]

    @property
    def distinct(self) -> tuple[type[Any], ...]:
        return tuple(dict.fromkeys(self.models))

    def text_of(self, model: type[Any]) -> str:
        """The first choice that stands for a model."""
        return self.choices[self.models.index(model)]


def kind_of(instance: Any, name: str) -> Any:
    """The choice that stands for an instance. name: of the field that tells, if one does."""
    if isinstance(instance, Mapping) or name in fields_of(type(instance)):
        return value_in(instance, name)
    return words_of(type(instance).__name__)


def kinds_of(models: Sequence[type[Any]]) -> Kinds:
    """Raises UnsupportedType for models that nothing tells apart, and for too many."""
    if len(models) > MOST_KINDS:
        raise UnsupportedType(
            f"is a union of {len(models):,} models; at most {MOST_KINDS} are read: divide it"
        )
    fields = [asked_fields(model) for model in models]
    for name, first in fields[0].items():
        if found := list(_choices(name, models)):
            texts, values, owners = zip(*found, strict=True)
            label = first.title or spaced(name)
            return Kinds(name, True, label, first.description, texts, values, owners)
    if any(map(is_typed_dict, models)):
        raise UnsupportedType(
            "is a union of TypedDicts, whose values do not tell which one they are; give each a "
            'field such as kind: Literal["person"]'
        )
    names = tuple(words_of(model.__name__) for model in models)
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise UnsupportedType(f"is a union of two models called {twice!r}; rename one of them")
    name = "kind"
    while any(name in one for one in fields):
        name += "_"
    return Kinds(name, False, name.rstrip("_"), None, names, names, tuple(models))


def _choices(name: str, models: Sequence[type[Any]]) -> Iterator[tuple[str, Any, type[Any]]]:
    """Texts and values of a field that all models have, if each model has its own."""
    seen: set[str] = set()
    found = []
    for model in models:
        field = asked_fields(model).get(name)
        one = field_type_of(annotation_of(field)) if field is not None else None
        if one is None or one.kind != "enum" or one.is_list:
            return
        texts = {text for text, _ in one.choices}
        if texts & seen:
            return
        seen |= texts
        found += [(text, value, model) for text, value in one.choices]
    yield from found
