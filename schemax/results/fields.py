"""`FieldTree`: the leaves and nested models of a schema, and the fallbacks of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from typing import Any

from pydantic import BaseModel, RootModel, create_model
from pydantic.fields import FieldInfo

from schemax.attributes import Attribute, asked_fields, compile_attributes, settings_of
from schemax.attributes.annotations import annotation_of, asked_type, is_bare, root_type
from schemax.attributes.classes import complete
from schemax.attributes.discriminator import Discriminator, MemberName, discriminator_of
from schemax.attributes.field_type import FieldType
from schemax.attributes.json_checks import json_properties
from schemax.attributes.settings import max_depth_of
from schemax.reading.choices import ChoiceReader


class Fallback(Enum):
    """Ways to fill a field without a value from the text; the fallbacks are tried in turn."""

    BUILD = "a nested model: from its leaves"
    OMIT = "left out, so that Pydantic supplies the default"
    NONE = "None"
    EMPTY = "the empty list"
    LOST = "there is no way left"


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """An attribute, with its fallbacks for a text that states no value, or an unusable one.

    annotation: the type with which Pydantic validates the value.
    item: for a list of nested models, an item as a schema of its own.
    number: for an item of a list that was read in two phases, its number, from 1 on.
    """

    index: int
    attribute: Attribute
    when_null: tuple[Fallback, ...]
    when_invalid: tuple[Fallback, ...]
    choices: ChoiceReader | None
    annotation: Any = None
    item: Group | None = None
    number: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The root or a nested model. fallbacks: besides building it; leaves: all below it.

    is_list: True for a list that was read in two phases: the children are the items, named "0",
        "1", ..., and the only leaf is the list.
    is_mapping: True for pairs of a dict.
    kind, branches: for a union, the leaf that names the model (the only child), and a group for
        each of the leaf's choices.
    model: the class of such a branch, or of an item that may stand for its list.
    is_bare: True if the only child stands for the branch.
    is_one_or_several: True for a list for which a single item may stand.
    """

    path: tuple[str, ...]
    children: Mapping[str, Leaf | Group]
    leaves: tuple[Leaf, ...]
    fallbacks: tuple[Fallback, ...]
    is_list: bool = False
    is_mapping: bool = False
    kind: Leaf | None = None
    branches: tuple[Group, ...] = ()
    model: type[Any] | None = None
    is_bare: bool = False
    is_one_or_several: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class FieldTree:
    root: Group
    leaves: Mapping[tuple[str, ...], Leaf]
    title: str


def field_tree_of(schema: Any) -> FieldTree:
    """Returns the fields of a class. Raises SchemaError for a class that cannot be compiled."""
    return _field_tree_of(schema)  # type checkers do not take every class for hashable


@lru_cache(maxsize=128)
def _field_tree_of(schema: Any) -> FieldTree:
    # Keyed by the class alone: attributes hold Enum members, which need not be hashable.
    outer = _Outer(*_numbered_attributes(compile_attributes(schema)))
    is_root = issubclass(schema, RootModel)
    root = _nested_group(root_type(schema), outer) if is_root else _group(schema, outer)
    return FieldTree(
        root=root,
        leaves={leaf.attribute.path: leaf for leaf in root.leaves},
        title=complete(schema),
    )


@lru_cache(maxsize=128)
def part_of(schema: Any, name: str) -> type[BaseModel]:
    """Makes a model of one field of a schema, to read the field before the others are known."""
    field = schema.model_fields[name]
    fields: Any = {name: (field.annotation, field)}
    model: Any = create_model(schema.__name__, __config__=schema.model_config, **fields)
    model.__schema_settings__ = {"language": settings_of(schema).language}
    if own := json_properties(schema).get(name):
        model.__json_properties__ = {name: own}
    part: type[BaseModel] = model
    return part


@dataclass(frozen=True, slots=True)
class _Outer:
    """What stands around a nested model. models: the enclosing models.

    numbered: attributes with their numbers, by path.
    begun: all prefixes of the paths.
    """

    numbered: Mapping[tuple[str, ...], tuple[int, Attribute]]
    begun: frozenset[tuple[str, ...]]
    path: tuple[str, ...] = ()
    fallbacks: tuple[Fallback, ...] = ()
    models: tuple[type[Any], ...] = ()
    max_depth: int | None = None


def _numbered_attributes(
    attributes: Sequence[Attribute],
) -> tuple[Mapping[tuple[str, ...], tuple[int, Attribute]], frozenset[tuple[str, ...]]]:
    paths = [attribute.path for attribute in attributes]
    begun = frozenset(path[:depth] for path in paths for depth in range(1, len(path) + 1))
    return dict(zip(paths, enumerate(attributes), strict=True)), begun


def _group(model: type[Any], outer: _Outer, discriminator: Discriminator | None = None) -> Group:
    """Makes the group of a model. discriminator: of the union that has the model as a member."""
    around = (*outer.models, model)
    children: dict[str, Leaf | Group] = {}
    leaves: list[Leaf] = []
    for name, info in asked_fields(model).items():
        max_depth = max_depth_of(info) or outer.max_depth
        if (field_type := asked_type(info, around, max_depth)) is None:
            continue
        inner = [] if info.is_required() else [Fallback.OMIT]
        inner += [Fallback.NONE] if field_type.nullable else []
        path = (*outer.path, name)
        if discriminator is not None and is_bare(model):
            path = (*outer.path, MemberName(discriminator.text_of(model)))
        elif discriminator is not None and path not in outer.begun:
            path = (*outer.path, MemberName(discriminator.text_of(model)), name)
        below = _Outer(outer.numbered, outer.begun, path, tuple(inner), around, max_depth)
        if field_type.models and not field_type.is_list:
            child = _nested_group(field_type, below)
            leaves += child.leaves
            children[name] = child
            continue
        leaf = _leaf(*outer.numbered[path], info, below.fallbacks)
        if field_type.models:
            inside = _numbered_attributes(leaf.attribute.fields)
            item = _Outer(*inside, (), (Fallback.OMIT,), around, max_depth)
            inner_group = _nested_group(field_type, item)
            if field_type.is_one_or_several and not inner_group.branches:
                inner_group = replace(inner_group, model=field_type.models[0])
            leaf = replace(leaf, item=inner_group)
        children[name] = leaf
        leaves.append(leaf)
    return Group(
        outer.path,
        children,
        tuple(leaves),
        outer.fallbacks,
        model=model if discriminator else None,
        is_bare=is_bare(model),
    )


def _nested_group(field_type: FieldType, outer: _Outer) -> Group:
    if len(field_type.models) == 1:
        return _group(field_type.models[0], outer)
    discriminator = discriminator_of(field_type.models)
    number, attribute = outer.numbered[*outer.path, discriminator.name]
    kind = _leaf(number, attribute, None, ())
    branches = {model: _group(model, outer, discriminator) for model in discriminator.distinct}
    for model, group in branches.items():
        if not discriminator.is_field or group.is_bare:
            # The leaf of the kind counts among the model's leaves, though it is none of its fields.
            branches[model] = replace(group, leaves=(kind, *group.leaves))
    leaves = {leaf.index: leaf for group in branches.values() for leaf in group.leaves}
    leaves[number] = kind
    return Group(
        path=outer.path,
        children={discriminator.name: kind},
        leaves=tuple(leaves[index] for index in sorted(leaves)),
        fallbacks=outer.fallbacks,
        kind=kind,
        branches=tuple(branches[model] for model in discriminator.models),
    )


def items_of(leaf: Leaf, count: int, first: int) -> list[Leaf | Group]:
    """Makes the items of a list, each omitted if it cannot be used.

    first: the index of the first item's first leaf.
    """
    if leaf.item is not None:
        width = len(leaf.item.leaves)
        places = [(*leaf.attribute.path, str(number)) for number in range(count)]
        return [_moved_group(leaf.item, at, first + n * width) for n, at in enumerate(places)]
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


def _moved_group(group: Group, path: tuple[str, ...], first: int) -> Group:
    """Moves a group below a path, with the indices of its leaves shifted by `first`."""
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
        return replace(
            node,
            path=(*path, *node.path),
            children=children,
            leaves=own,
            kind=node.kind and moved[node.kind.index],
            branches=tuple(map(below, node.branches)),
        )

    return below(group)


def _leaf(
    index: int, attribute: Attribute, info: FieldInfo | None, fallbacks: tuple[Fallback, ...]
) -> Leaf:
    choices = dict(zip(attribute.choices, attribute.choice_values, strict=True))
    return Leaf(
        index=index,
        attribute=attribute,
        when_null=(*fallbacks, Fallback.EMPTY) if attribute.is_list else fallbacks,
        when_invalid=fallbacks,
        choices=ChoiceReader(choices) if choices else None,
        annotation=info and annotation_of(info),
    )


def one_or_several(of: Attribute | Group, value: Any) -> Any:
    """The only item of a list, if it may stand for the list; any other value unchanged."""
    is_one = of.is_one_or_several and isinstance(value, list) and len(value) == 1
    return value[0] if is_one else value
