"""Unions with models: a choice names the member, and the fields of all members are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemax.attributes.annotations import annotation_of, field_type_of, is_bare
from schemax.attributes.attribute import Attribute
from schemax.attributes.classes import asked_fields, fields_of, is_instance, is_typed_dict, value_in
from schemax.attributes.field_type import UnsupportedType
from schemax.attributes.settings import words_in, words_of

MOST_MODELS = 100
"""The most models of a union. The fields of all models are read at once."""


class MemberName(str):
    """A part of an attribute's path that names a union's member, whose field follows.

    model: the class of the member.
    """

    model: type[Any]


@dataclass(frozen=True, slots=True)
class Discriminator:
    """The discriminator of the models of a union: a field of all models, or their names.

    name, label, description: of the field, or of the attribute that is read in its place.
    choices, values, models: (C,) the text and value of a choice, and the model that it stands for.
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


def choice_of(value: Any, leaf: Attribute) -> Any:
    """The choice that stands for a value, or None. leaf: the discriminator's attribute."""
    name = leaf.path[-1]
    fitting = [model for model in leaf.discriminated if model is type(value)]
    fitting += (model for model in leaf.discriminated if is_instance(value, model))
    if fitting and not is_bare(fitting[0]) and name in fields_of(fitting[0]):
        return value_in(value, name)
    return leaf.choice_values[leaf.discriminated.index(fitting[0])] if fitting else None


def discriminator_of(models: Sequence[type[Any]]) -> Discriminator:
    """The discriminator. Raises UnsupportedType for indistinguishable, or too many, models."""
    if len(models) > MOST_MODELS:
        raise UnsupportedType(
            f"is a union of {len(models):,} models; at most {MOST_MODELS} are read: divide it"
        )
    classes = [model for model in models if not is_bare(model)]
    fields = [asked_fields(model) for model in classes]
    names_of_fields = {folded_label(name) for own in fields for name in own}
    names_of_fields |= {
        folded_label(own[name].title or words_in(name)) for own in fields for name in own
    }
    bare = [(_bare_name(model, names_of_fields), model) for model in models if is_bare(model)]
    for name, first in (fields[0] if len(fields) > 1 else {}).items():
        if choices := list(_choices(name, classes)):
            choices += ((text, text, model) for text, model in bare)
            texts, values, owners = zip(*choices, strict=True)
            label = first.title or words_in(name)
            return Discriminator(name, True, label, first.description, texts, values, owners)
    if len(classes) > 1 and any(map(is_typed_dict, classes)):
        raise UnsupportedType(
            "is a union of TypedDicts, whose values do not tell which one they are; give each a "
            'field such as kind: Literal["person"]'
        )
    names = (*(words_of(model.__name__) for model in classes), *(name for name, _ in bare))
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise UnsupportedType(
            f"is a union of two models called {twice!r}; rename one of them"
            if twice not in dict(bare)
            else f"is a union in which {twice!r} names two; declare one of them as a model"
        )
    name = "kind"
    while any(name in own for own in fields):
        name += "_"
    owners = (*classes, *(model for _, model in bare))
    return Discriminator(name, False, name.rstrip("_"), None, names, names, owners)


def _bare_name(model: type[Any], used: Container[str]) -> str:
    """The name of a scalar, list or dict in a union with models.

    taken: names of the models' fields, which the name must differ from.
    """
    field_type = field_type_of(annotation_of(fields_of(model)["root"]))
    name = field_type.scalar.word if field_type.scalar else "value"
    if field_type.is_list:
        name = "dict" if field_type.is_mapping else "list"
    while name in used:
        name = f"plain {name}"
    return name


def with_discriminator(
    first: Attribute, discriminator: Discriminator, leaves: Mapping[type[Any], Sequence[Attribute]]
) -> Iterator[Attribute]:
    """Yields the leaf of the discriminator, then fields of a single form, of several, bare members.

    first: the leaf of the discriminator.
    leaves: the leaves of every model, with paths as if the model stood in the union's place.
    """
    yield first
    place = first.path[:-1]
    depth = len(place)
    leaves_of: dict[str, dict[type[Any], list[Attribute]]] = {}
    for model, own in leaves.items():
        for leaf in () if is_bare(model) else own:
            if leaf.path[depth] != discriminator.name or not discriminator.is_field:
                leaves_of.setdefault(leaf.path[depth], {}).setdefault(model, []).append(leaf)
    shown = {folded_label(discriminator.label): discriminator.name}
    forms = {
        name: forms
        for name, forms in leaves_of.items()
        if shown.setdefault(folded_label(next(iter(forms.values()))[0].labels[depth]), name) != name
        or any(form != next(iter(forms.values())) for form in forms.values())
    }
    tags = {model: MemberName(discriminator.text_of(model)) for model in leaves}
    for model, tag in tags.items():
        tag.model = model

    def looking(leaf: Attribute, models: Iterable[type[Any]]) -> Attribute:
        """The leaf, with `after` renamed to the new paths."""
        after = [
            (*place, tags[model], *path[depth:])
            if path[:depth] == place and model in forms.get((*path[depth:], "")[0], ())
            else path
            for path in leaf.after
            for model in models
        ]
        return replace(leaf, after=tuple(dict.fromkeys(after)))

    for name, by_model in leaves_of.items():
        if name not in forms:
            for leaf in next(iter(by_model.values())):
                is_common = len(by_model) == len(leaves)
                leaf = looking(leaf, by_model)
                yield leaf if is_common else _only(leaf, discriminator, [*by_model])
    for model, tag in tags.items():
        own = [leaf for form in forms.values() for leaf in form.get(model, ())]
        inner = depth + is_bare(model)  # the name of its only field is not shown
        for leaf in leaves[model] if is_bare(model) else own:
            yield replace(
                looking(_only(leaf, discriminator, [model]), [model]),
                path=(*place, tag, *leaf.path[inner:]),
                labels=(*first.labels[:-1], str(tag), *leaf.labels[inner:]),
            )


def _only(leaf: Attribute, discriminator: Discriminator, models: Sequence[type[Any]]) -> Attribute:
    """The leaf with the members that have it in its description; null for all other members."""
    pairs = zip(discriminator.choices, discriminator.models, strict=True)
    members = " or ".join(text for text, model in pairs if model in models)
    only = f"only of {discriminator.label} {members}"
    description = f"{leaf.description} ({only})" if leaf.description else only
    return replace(leaf, description=description, omittable=True)


def folded_label(label: str) -> str:
    """A key that labels share if they look the same to the model."""
    return " ".join(label.split()).casefold()


def _choices(name: str, models: Sequence[type[Any]]) -> Iterator[tuple[str, Any, type[Any]]]:
    """Yields the choices of a field of all models, if no two models share a choice."""
    seen: set[str] = set()
    choices = []
    for model in models:
        field = asked_fields(model).get(name)
        field_type = field_type_of(annotation_of(field)) if field is not None else None
        if field_type is None or field_type.kind != "enum" or field_type.is_list:
            return
        texts = {text for text, _ in field_type.choices}
        if texts & seen:
            return
        seen |= texts
        choices += [(text, value, model) for text, value in field_type.choices]
    yield from choices
