"""Dependent fields: the leaves that each leaf depends on, and the waves in which they are read."""

from __future__ import annotations

from collections.abc import Sequence
from graphlib import CycleError, TopologicalSorter

from schemax.attributes.field_type import FieldPath, UnsupportedType
from schemax.base.messages import some_of


def resolved(
    paths: Sequence[FieldPath], named: Sequence[Sequence[FieldPath]]
) -> list[tuple[FieldPath, ...]]:
    """(N,) the leaves that each leaf depends on, in order, leaves of its own group last.

    named: (N,) the paths that the declaration names: leaves, and models for all leaves in them.
    Raises Misplaced for an unknown name, a leaf that depends on itself, and a cycle.
    """
    found = []
    for path, wanted in zip(paths, named, strict=True):
        leaves: dict[FieldPath, None] = {}
        for name in wanted:
            inside = [leaf for leaf in paths if leaf[: len(name)] == name]
            if not inside:
                known = some_of(".".join(leaf) for leaf in paths if leaf != path)
                raise Misplaced(
                    path,
                    f"after names {'.'.join(name)!r}, which is not asked for; "
                    f"there are {known or 'no others'}",
                )
            if path in inside:
                raise Misplaced(
                    path, f"after names {'.'.join(name)!r}, which is the field itself; remove it"
                )
            leaves.update(dict.fromkeys(inside))
        # In declaration order, except that leaves of the leaf's own group come last, so that the
        # group stays in one piece.
        near = sorted(filter(leaves.__contains__, paths), key=lambda leaf: _shared(leaf, path))
        found.append(tuple(near))
    waves_of(paths, found)
    return found


def waves_of(paths: Sequence[FieldPath], after: Sequence[Sequence[FieldPath]]) -> list[int]:
    """(N,) the wave in which each leaf is read, from 1 on. Raises Misplaced for a cycle."""
    sorter = TopologicalSorter(dict(zip(paths, after, strict=True)))
    try:
        sorter.prepare()
    except CycleError as error:
        circle = error.args[1][::-1]
        shown = " after ".join(".".join(path) for path in circle)
        raise Misplaced(
            circle[0], f"after goes in a circle ({shown}); remove one of them"
        ) from None
    number, waves = 0, {}
    while sorter.is_active():
        number, ready = number + 1, sorter.get_ready()
        waves.update(dict.fromkeys(ready, number))
        sorter.done(*ready)
    return [waves[path] for path in paths]


class Misplaced(UnsupportedType):
    """An `UnsupportedType` at a leaf. path: the leaf's path."""

    def __init__(self, path: FieldPath, reason: str) -> None:
        super().__init__(reason)
        self.path = path


def _shared(path: FieldPath, other: FieldPath) -> int:
    """The number of groups that enclose both leaves."""
    depth = 0
    for mine, theirs in zip(path[:-1], other[:-1], strict=False):
        if mine != theirs:
            break
        depth += 1
    return depth
