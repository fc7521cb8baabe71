"""The values of a row's leaves in its instance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import RootModel

from schemax.attributes.classes import value_in
from schemax.attributes.discriminator import MemberName
from schemax.results.fields import Group
from schemax.results.row import Row

MOVED = object()


def of_other_members(row: Row, group: Group) -> Iterator[int]:
    """Yields the indices of leaves in models of unions that were not chosen."""
    node = row.branch(group)
    own = {leaf.index for leaf in node.leaves}
    yield from (leaf.index for leaf in group.leaves if leaf.index not in own)
    for child in node.children.values():
        below = child if isinstance(child, Group) else row.node(child)
        if isinstance(below, Group):
            yield from of_other_members(row, below)


def final(row: Row, instance: Any, path: tuple[str, ...]) -> Any:
    """The leaf's value in the instance; None where a nested model is absent.

    MOVED where the leaf's item cannot be identified, since Pydantic or the model's validators have
    removed or added items.
    """
    for depth, name in enumerate(path):
        while isinstance(instance, RootModel):
            instance = instance.root
        kept = row.kept.get(path[:depth])
        if isinstance(name, MemberName):
            continue
        if kept is None:
            instance = value_in(instance, name)
        elif name not in kept.values():
            return None
        elif None in kept:
            continue
        elif not isinstance(instance, (Sequence, Mapping)) or len(instance) != len(kept):
            return MOVED
        else:
            place = list(kept.values()).index(name)
            if isinstance(instance, Mapping):
                pair = list(instance.items())[place]
                instance = dict(zip(("key", "value"), pair, strict=True))
            else:
                instance = instance[place]
    return instance
