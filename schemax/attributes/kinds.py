"""Unions of models: which of them is meant is one choice, beside the fields of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemax.attributes.annotations import annotation_of, field_type_of
from schemax.attributes.attribute import Attribute
from schemax.attributes.classes import asked_fields, fields_of, is_typed_dict, value_in
from schemax.attributes.field_type import UnsupportedType
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


def with_kind(
    kind: Attribute, kinds: Kinds, leaves: Mapping[type[Any], Sequence[Attribute]]
) -> Iterator[Attribute]:
    """The kind, what its models have alike or alone, and last what they have in several forms.

    leaves: of every model, as if it stood in the place of the union.
    """
    yield kind
    place = kind.path[:-1]
    depth = len(place)
    found: dict[str, dict[type[Any], list[Attribute]]] = {}
    for model, own in leaves.items():
        for leaf in own:
            if leaf.path[depth] != kinds.name or not kinds.is_field:
                found.setdefault(leaf.path[depth], {}).setdefault(model, []).append(leaf)
    shown = {folded(kinds.label): kinds.name}
    forms = {
        name: forms
        for name, forms in found.items()
        if shown.setdefault(folded(next(iter(forms.values()))[0].labels[depth]), name) != name
        or any(form != next(iter(forms.values())) for form in forms.values())
    }
    tags = {model: KindName(kinds.text_of(model)) for model in leaves}
    for model, tag in tags.items():
        tag.model = model

    def looking(leaf: Attribute, models: Iterable[type[Any]]) -> Attribute:
        """The leaf, which names what it looks at where this now stands."""
        after = [
            (*place, tags[model], *path[depth:])
            if path[:depth] == place and model in forms.get((*path[depth:], "")[0], ())
            else path
            for path in leaf.after
            for model in models
        ]
        return replace(leaf, after=tuple(dict.fromkeys(after)))

    for name, by_model in found.items():
        if name not in forms:
            for leaf in next(iter(by_model.values())):
                is_common = len(by_model) == len(leaves)
                leaf = looking(leaf, by_model)
                yield leaf if is_common else _only(leaf, kinds, [*by_model])
    for model, tag in tags.items():
        for leaf in (leaf for form in forms.values() for leaf in form.get(model, ())):
            yield replace(
                looking(_only(leaf, kinds, [model]), [model]),
                path=(*place, tag, *leaf.path[depth:]),
                labels=(*kind.labels[:-1], str(tag), *leaf.labels[depth:]),
            )


def _only(leaf: Attribute, kinds: Kinds, models: Sequence[type[Any]]) -> Attribute:
    """A leaf of some kinds; of any other it is null, also where it is required."""
    pairs = zip(kinds.choices, kinds.models, strict=True)
    only = f"only of {kinds.label} {' or '.join(text for text, model in pairs if model in models)}"
    description = f"{leaf.description} ({only})" if leaf.description else only
    return replace(leaf, description=description, omittable=True)


def folded(label: str) -> str:
    """What labels have in common that look the same to the model."""
    return " ".join(label.split()).casefold()


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
