"""Lists whose items have slots of their own: merges the slots of a list into one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from schemax.attributes import Attribute
from schemax.formats import OutputFormat
from schemax.formats.json_format import objects_in
from schemax.results.extraction import FieldResult, SlotText
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
