"""Lists whose items have slots of their own: merges a list's slots, and leaves out copies of items.

Items of such a list do not see each other, so a model that does not count repeats an item. Equal
items that the document states as often stay; so do items of which the document states no text,
since it may state them in other words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from schemax.attributes import Attribute
from schemax.base.messages import some_of
from schemax.formats import OutputFormat
from schemax.formats.json_format import objects_in
from schemax.results.extraction import FieldResult
from schemax.results.fields import Fallback, Group, Leaf
from schemax.results.row import RowBuilder
from schemax.results.slot_text import SlotText
from schemax.results.spans import SpanFinder
from schemax.tokens import FinishReason

_WORST: tuple[FinishReason, ...] = ("length", "eos", "stop")


def with_items(
    slot: SlotText | None, attribute: Attribute, format: OutputFormat
) -> SlotText | None:
    """Splits a list of nested models that the model wrote as JSON into count and items.

    Returns other slots unchanged; errors show in the results.
    """
    rows = objects_in(slot.raw.strip()) if slot is not None and attribute.fields else None
    if slot is None or rows is None:
        return slot
    paths = [leaf.labels for leaf in attribute.fields]
    items = []
    for row in rows:
        literals = format.parse(row, paths)
        raws = [SlotText(literals.get(path, "null"), "stop", 0, complete=True) for path in paths]
        leaves = zip(raws, attribute.fields, strict=True)
        items.append(tuple(with_items(raw, leaf, format) or raw for raw, leaf in leaves))
    return replace(slot, raw=str(len(rows)), items=tuple(items))


def taken_together(slot: SlotText) -> SlotText:
    """Merges a count and its items into one slot; returns any other slot unchanged.

    raw: the texts of the items, with ", " between an item's leaves and "; " between items; the
    count, if there are no items. confidence: the count's, times the geometric mean over all leaves.
    probability, legal_probability: the product. finish_reason: the worst. tokens: the sum.
    """
    if not slot.items:
        return slot
    items = [[taken_together(leaf) for leaf in item] for item in slot.items]
    leaves = [leaf for item in items for leaf in item]
    reasons = {slot.finish_reason, *(leaf.finish_reason for leaf in leaves)}
    return replace(
        slot,
        raw="; ".join(", ".join(leaf.raw.strip() for leaf in item) for item in items),
        finish_reason=next(reason for reason in _WORST if reason in reasons),
        tokens=slot.tokens + sum(leaf.tokens for leaf in leaves),
        complete=slot.complete and all(leaf.complete for leaf in leaves),
        confidence=_product(slot.confidence, [leaf.confidence for leaf in leaves], 1 / len(leaves)),
        probability=_product(slot.probability, [leaf.probability for leaf in leaves], 1),
        legal_probability=_product(
            slot.legal_probability, [leaf.legal_probability for leaf in leaves], 1
        ),
    )


def _product(count: float | None, leaves: list[float | None], exponent: float) -> float | None:
    known = [leaf for leaf in leaves if leaf is not None]
    if count is None or len(known) < len(leaves):
        return None
    return float(count * prod(probability**exponent for probability in known))


def without_items(fields: Mapping[str, FieldResult]) -> dict[str, FieldResult]:
    """The results without the leaves of items, which the results of their lists include.

    Names of items' leaves contain the number of the item, "lines.0.price".
    """
    return {
        name: result
        for name, result in fields.items()
        if not any(part.isdecimal() for part in name.split("."))
    }


def leave_out_copies(row: RowBuilder, finder: SpanFinder) -> None:
    """Removes the values of copies, which are thus left out; a note of the list names the items."""
    for index, group in row.lists.items():
        (leaf,) = group.leaves
        items = [*group.children.values()]
        is_text = leaf.attribute.is_text and leaf.choices is None
        if group.is_mapping or not (leaf.item or is_text):
            continue
        copies = _copies(row, items, finder)
        if not copies or len(items) - len(copies) < leaf.attribute.num_items[0]:
            continue
        for inner in (inner for at in copies for inner in _leaves(items[at])):
            row.chosen[inner.index] = inner.when_null[0] if inner.when_null else Fallback.LOST
            row.stated[inner.index] = ()
        names = some_of(f"{at + 1} (of item {first + 1})" for at, first in copies.items())
        note = f"items left out as copies: {names}"
        row.notes[index] = "; ".join(filter(None, (row.notes.get(index), note)))


def _copies(row: RowBuilder, items: list[Leaf | Group], finder: SpanFinder) -> dict[int, int]:
    """The places of surplus items -> the place of the first equal item."""
    places: dict[Any, list[int]] = {}
    for at, item in enumerate(items):
        places.setdefault(_values(row, item), []).append(at)
    copies: dict[int, int] = {}
    for first, *repeats in places.values():
        if repeats:
            texts = {text for leaf in _leaves(items[first]) for text in row.stated[leaf.index]}
            times = max(map(finder.times, texts), default=0)
            copies |= dict.fromkeys(repeats[times - 1 :] if times else (), first)
    return dict(sorted(copies.items()))


def _values(row: RowBuilder, node: Leaf | Group) -> Any:
    """The values that were read for an item and all its leaves, hashable."""
    node = row.node(node)
    if isinstance(node, Leaf):
        return repr(row.chosen[node.index])
    return tuple((name, _values(row, child)) for name, child in node.children.items())


def _leaves(node: Leaf | Group) -> tuple[Leaf, ...]:
    return (node,) if isinstance(node, Leaf) else node.leaves
