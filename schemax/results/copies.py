"""Copies: items that a model wrote more often than the document states them.

Items of lists in two phases do not see each other, so a model that does not count repeats an item.
Equal items that the document states as often stay; so do items of which the document states no
text, since it may state them in other words.
"""

from __future__ import annotations

from typing import Any

from schemax.base.messages import some_of
from schemax.results.fields import Fallback, Group, Leaf
from schemax.results.row import Row
from schemax.results.spans import SpanFinder


def leave_out_copies(row: Row, finder: SpanFinder) -> None:
    """Removes the values of copies, which are thus left out; a note of the list names the items."""
    for index, group in row.lists.items():
        (leaf,) = group.leaves
        items = [*group.children.values()]
        if group.is_mapping or not (leaf.item or _is_text(leaf)):
            continue
        copies = _copies(row, items, finder)
        if not copies or len(items) - len(copies) < dict(leaf.attribute.constraints).get(
            "minItems", 0
        ):
            continue
        for inner in (inner for at in copies for inner in _leaves(items[at])):
            row.chosen[inner.index] = inner.when_null[0] if inner.when_null else Fallback.LOST
            row.stated[inner.index] = ()
        said = some_of(f"{at + 1} (of item {first + 1})" for at, first in copies.items())
        note = f"items left out as copies: {said}"
        row.notes[index] = "; ".join(filter(None, (row.notes.get(index), note)))


def _copies(row: Row, items: list[Leaf | Group], finder: SpanFinder) -> dict[int, int]:
    """The places of surplus items -> the place of the first equal item."""
    places: dict[Any, list[int]] = {}
    for at, item in enumerate(items):
        places.setdefault(_values(row, item), []).append(at)
    copies: dict[int, int] = {}
    for first, *others in places.values():
        if others:
            texts = {text for leaf in _leaves(items[first]) for text in row.stated[leaf.index]}
            times = max(map(finder.times, texts), default=0)
            copies |= dict.fromkeys(others[times - 1 :] if times else (), first)
    return dict(sorted(copies.items()))


def _values(row: Row, node: Leaf | Group) -> Any:
    """The values that were read for an item and all its leaves, hashable."""
    node = row.node(node)
    if isinstance(node, Leaf):
        return repr(row.chosen[node.index])
    return tuple((name, _values(row, child)) for name, child in node.children.items())


def _leaves(node: Leaf | Group) -> tuple[Leaf, ...]:
    return (node,) if isinstance(node, Leaf) else node.leaves


def _is_text(leaf: Leaf) -> bool:
    return leaf.attribute.is_text and leaf.choices is None
