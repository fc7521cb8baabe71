"""What is known of a schema before the first row: its leaves, and how each may be filled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

from pydantic import BaseModel

from schemax.schema import Attribute, compile_attributes
from schemax.shapes import annotation_of, shape_of


class Way(Enum):
    """How a field is filled other than by a value of the text; the ways are tried in turn."""

    BUILD = "a nested model: from its leaves"
    OMIT = "left out, so that Pydantic supplies the default"
    NONE = "None"
    EMPTY = "the empty list"
    LOST = "there is no way left"


@dataclass(frozen=True, slots=True, eq=False)
class Leaf:
    """An attribute, and its ways where the text states no value, or one that cannot be used."""

    index: int
    attribute: Attribute
    when_null: tuple[Way, ...]
    when_invalid: tuple[Way, ...]
    choices: Mapping[str, Any]
    folded_choices: Mapping[str, Any]

    @property
    def key(self) -> str:
        return self.attribute.path[-1]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The root or a nested model. `ways`: besides building it; `leaves`: all below it."""

    path: tuple[str, ...]
    children: Mapping[str, Leaf | Group]
    leaves: tuple[Leaf, ...]
    ways: tuple[Way, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    root: Group
    leaves: Mapping[tuple[str, ...], Leaf]
    dated: tuple[Leaf, ...]
    title: str


@lru_cache(maxsize=128)
def layout_of(schema: type[BaseModel]) -> Layout:
    """Raises SchemaError for what cannot be compiled."""
    # Keyed by the class alone: attributes hold Enum members, and these need not be hashable.
    attributes = compile_attributes(schema)
    numbered = {attribute.path: (at, attribute) for at, attribute in enumerate(attributes)}
    root = _group(schema, (), (), numbered)
    return Layout(
        root=root,
        leaves={leaf.attribute.path: leaf for leaf in root.leaves},
        dated=tuple(leaf for leaf in root.leaves if leaf.attribute.kind in ("date", "datetime")),
        title=schema.__pydantic_validator__.title,
    )


def _group(
    model: type[BaseModel],
    path: tuple[str, ...],
    ways: tuple[Way, ...],
    numbered: Mapping[tuple[str, ...], tuple[int, Attribute]],
) -> Group:
    children: dict[str, Leaf | Group] = {}
    leaves: list[Leaf] = []
    for name, info in model.model_fields.items():
        shape = shape_of(annotation_of(info))
        inner = [] if info.is_required() else [Way.OMIT]
        inner += [Way.NONE] if shape.nullable else []
        if shape.model is None:
            leaf = _leaf(*numbered[*path, name], tuple(inner))
            children[name] = leaf
            leaves.append(leaf)
        else:
            group = _group(shape.model, (*path, name), tuple(inner), numbered)
            children[name] = group
            leaves += group.leaves
    return Group(path, children, tuple(leaves), ways)


def _leaf(index: int, attribute: Attribute, ways: tuple[Way, ...]) -> Leaf:
    exact = dict(zip(attribute.choices, attribute.choice_values, strict=True))
    folds = [folded(text) for text in exact]
    times = Counter(folds)
    return Leaf(
        index=index,
        attribute=attribute,
        when_null=(*ways, Way.EMPTY) if attribute.is_list else ways,
        when_invalid=ways,
        choices=exact,
        folded_choices={
            fold: value
            for fold, value in zip(folds, exact.values(), strict=True)
            if times[fold] == 1
        },
    )


def folded(text: str) -> str:
    return " ".join(text.split()).casefold()
