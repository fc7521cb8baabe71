"""What is known of a schema before the first row: its leaves, and how each may be filled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, create_model

from schemax.attributes import Attribute, asked_fields, compile_attributes
from schemax.attributes.annotations import annotation_of, field_type_of
from schemax.reading.choices import Choices


class Fallback(Enum):
    """How a field is filled other than by a value of the text; the fallbacks are tried in turn."""

    BUILD = "a nested model: from its leaves"
    OMIT = "left out, so that Pydantic supplies the default"
    NONE = "None"
    EMPTY = "the empty list"
    LOST = "there is no way left"


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """An attribute, and its fallbacks where the text states no value, or one that cannot be used.

    item: of a list of nested models, one of them as if it were a schema of its own.
    number: of an item of a list that was read in two phases, from 1 on.
    """

    index: int
    attribute: Attribute
    when_null: tuple[Fallback, ...]
    when_invalid: tuple[Fallback, ...]
    choices: Choices | None
    item: Group | None = None
    number: int | None = None

    @property
    def key(self) -> str:
        return self.attribute.path[-1]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The root or a nested model. `fallbacks`: besides building it; `leaves`: all below it.

    is_list: whether it is a list that was read in two phases, whose children are its items, named
        "0", "1", ...; the list is then all of its leaves.
    """

    path: tuple[str, ...]
    children: Mapping[str, Leaf | Group]
    leaves: tuple[Leaf, ...]
    fallbacks: tuple[Fallback, ...]
    is_list: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class FieldTree:
    root: Group
    leaves: Mapping[tuple[str, ...], Leaf]
    title: str


@lru_cache(maxsize=128)
def field_tree_of(schema: type[BaseModel]) -> FieldTree:
    """Raises SchemaError for what cannot be compiled."""
    # Keyed by the class alone: attributes hold Enum members, and these need not be hashable.
    attributes = compile_attributes(schema)
    numbered = {attribute.path: (at, attribute) for at, attribute in enumerate(attributes)}
    root = _group(schema, (), (), numbered)
    return FieldTree(
        root=root,
        leaves={leaf.attribute.path: leaf for leaf in root.leaves},
        title=schema.__pydantic_validator__.title,
    )


@lru_cache(maxsize=1024)
def part_of(schema: type[BaseModel], name: str) -> type[BaseModel]:
    """A model of one of the schema's own fields, to read it before the others are there."""
    field = schema.model_fields[name]
    fields: Any = {name: (field.annotation, field)}
    return create_model(schema.__name__, __config__=schema.model_config, **fields)


def _group(
    model: type[BaseModel],
    path: tuple[str, ...],
    fallbacks: tuple[Fallback, ...],
    numbered: Mapping[tuple[str, ...], tuple[int, Attribute]],
) -> Group:
    children: dict[str, Leaf | Group] = {}
    leaves: list[Leaf] = []
    for name, info in asked_fields(model).items():
        field_type = field_type_of(annotation_of(info))
        inner = [] if info.is_required() else [Fallback.OMIT]
        inner += [Fallback.NONE] if field_type.nullable else []
        if field_type.model is None or field_type.is_list:
            leaf = _leaf(*numbered[*path, name], tuple(inner))
            if field_type.model is not None:
                leaf = replace(leaf, item=_item(field_type.model, leaf.attribute))
            children[name] = leaf
            leaves.append(leaf)
        else:
            group = _group(field_type.model, (*path, name), tuple(inner), numbered)
            children[name] = group
            leaves += group.leaves
    return Group(path, children, tuple(leaves), fallbacks)


def _item(model: type[BaseModel], attribute: Attribute) -> Group:
    numbered = {leaf.path: (at, leaf) for at, leaf in enumerate(attribute.fields)}
    return _group(model, (), (Fallback.OMIT,), numbered)


def items_of(leaf: Leaf, count: int, first: int) -> list[Leaf | Group]:
    """The items of a list, which are left out where they cannot be used.

    first: index of the first one's first leaf.
    """
    if leaf.item is not None:
        width = len(leaf.item.leaves)
        places = [(*leaf.attribute.path, str(number)) for number in range(count)]
        return [_moved(leaf.item, at, first + n * width) for n, at in enumerate(places)]
    scalar = replace(leaf.attribute, is_list=False, two_phase=False)
    omit = (Fallback.OMIT,)
    return [
        replace(
            leaf,
            index=first + number,
            attribute=scalar,
            when_null=omit,
            when_invalid=omit,
            number=number + 1,
        )
        for number in range(count)
    ]


def _moved(group: Group, path: tuple[str, ...], first: int) -> Group:
    """The group below a path, its leaves' indices counted from `first` on."""
    leaves = tuple(
        replace(
            leaf,
            index=leaf.index + first,
            attribute=replace(leaf.attribute, path=(*path, *leaf.attribute.path)),
        )
        for leaf in group.leaves
    )
    moved = {leaf.index - first: leaf for leaf in leaves}

    def below(node: Group) -> Group:
        children = {
            name: moved[child.index] if isinstance(child, Leaf) else below(child)
            for name, child in node.children.items()
        }
        own = tuple(moved[leaf.index] for leaf in node.leaves)
        return replace(node, path=(*path, *node.path), children=children, leaves=own)

    return below(group)


def _leaf(index: int, attribute: Attribute, fallbacks: tuple[Fallback, ...]) -> Leaf:
    choices = dict(zip(attribute.choices, attribute.choice_values, strict=True))
    return Leaf(
        index=index,
        attribute=attribute,
        when_null=(*fallbacks, Fallback.EMPTY) if attribute.is_list else fallbacks,
        when_invalid=fallbacks,
        choices=Choices(choices) if choices else None,
    )
