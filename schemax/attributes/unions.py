"""Unions: of scalars, of models, of an item and a list of such items, or a mixture."""

from __future__ import annotations

import copyreg
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Generic, TypeVar, Union

from pydantic import BaseModel, RootModel

from schemax.attributes.constraints import LIST_KEYWORDS
from schemax.attributes.field_type import (
    MOST_MEMBERS,
    FieldType,
    UnsupportedType,
    distinct,
    unlike,
)

T = TypeVar("T")
Member = tuple[Any, FieldType]
"""The annotation of a member of a union, and its type."""


class _Class(type(BaseModel)):  # type: ignore[misc]  # Pydantic's metaclass has no public name
    """The metaclass of classes that `ValueOf[...]` makes, by which pickle knows them."""


class ValueOf(RootModel[T], Generic[T], metaclass=_Class):
    """A model that stands in a union of models for a scalar, a list or a dict."""


def is_bare(model: type[Any]) -> bool:
    """True if a model of a union stands for a scalar, a list or a dict."""
    return issubclass(model, ValueOf)


def union_type(members: Sequence[Member]) -> FieldType:
    """The type of a union. Raises UnsupportedType."""
    nullable = any(found.nullable for _, found in members)
    stated = [
        (annotation, replace(found, nullable=False))
        for annotation, found in members
        if found.kind or found.models
    ]
    return replace(_union_of(stated), nullable=nullable)


def _union_of(members: Sequence[Member]) -> FieldType:
    types = [found for _, found in members]
    if len(types) < 2:
        return types[0] if types else FieldType()
    if all(found.models and not found.is_list for found in types):
        return FieldType(models=tuple(dict.fromkeys(m for found in types for m in found.models)))
    if not any(found.models or found.is_list for found in types):
        return _scalar(types)
    return _one_or_several(members) or _mixed(members)


def _scalar(types: Sequence[FieldType]) -> FieldType:
    # Constraints of a single member do not bind the value.
    shared = types[0].constraints
    if any(found.constraints != shared for found in types):
        shared = ()
    members = [one for found in types for one in found.members or (found,)]
    kinds = {member.kind for member in members}
    if kinds == {"enum"}:
        merged = dict.fromkeys(choice for member in members for choice in member.choices)
        return FieldType(kind="enum", choices=distinct(tuple(merged)))
    if all(member.is_text for member in members):
        kinds = {"string"}
    if len(kinds) == 1:
        return FieldType(kind=kinds.pop(), constraints=shared)
    if kinds == {"integer", "number"}:
        return FieldType(kind="number", constraints=shared)
    plain = unlike(members)
    if len(plain) > MOST_MEMBERS:
        raise UnsupportedType(
            f"a union of {len(plain):,} types is more than {MOST_MEMBERS}; declare it as str"
        )
    return FieldType(kind="union", members=plain)


def _one_or_several(members: Sequence[Member]) -> FieldType | None:
    """The list type of `X | list[X]`, for which one item may stand; None for other unions."""
    lists = [found for _, found in members if found.is_list]
    if len(lists) != 1:
        return None
    one = _union_of([member for member in members if not member[1].is_list])
    own = tuple(pair for pair in lists[0].constraints if pair[0] not in LIST_KEYWORDS)
    if replace(lists[0], is_list=False, constraints=()) != replace(one, constraints=()):
        return None
    # One item is enough, and constraints of a single member do not bind the value.
    of_list = (pair for pair in lists[0].constraints if pair[0] in LIST_KEYWORDS)
    kept = [(word, min(value, 1) if word == "minItems" else value) for word, value in of_list]
    return replace(
        lists[0],
        constraints=(*(own if own == one.constraints else ()), *kept),
        is_one_or_several=True,
    )


def _mixed(members: Sequence[Member]) -> FieldType:
    """The type of models with one `ValueOf` for all scalars, and one for each list and dict."""

    def is_scalar(found: FieldType) -> bool:
        return not found.is_list and not found.models

    union: Any = Union
    scalars = [annotation for annotation, found in members if is_scalar(found)]
    models: dict[type[Any], None] = {}
    for annotation, found in members:
        if found.models and not found.is_list:
            models |= dict.fromkeys(found.models)
        elif found.is_list or annotation is scalars[0]:
            models[_value_of(annotation if found.is_list else union[tuple(scalars)])] = None
    return FieldType(models=tuple(models))


def _reduce(made: type[Any]) -> str | tuple[Callable[..., Any], tuple[Any, ...]]:
    arguments = made.__pydantic_generic_metadata__["args"]
    return (_value_of, arguments) if arguments else made.__qualname__


def _value_of(annotation: Any) -> type[Any]:
    made: type[Any] = ValueOf[annotation]
    return made


copyreg.pickle(_Class, _reduce)
