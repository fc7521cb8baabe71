"""Repairs: finds the values that were refused, and chooses between first and second answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pydantic import BaseModel

from schemax.attributes import Attribute
from schemax.attributes.field_type import FieldPath
from schemax.base.messages import clipped
from schemax.formats import OutputFormat
from schemax.results.build import row_of
from schemax.results.fields import Leaf
from schemax.results.instance import instance_of
from schemax.results.slot_text import Slots, SlotText


def refusals(
    schema: type[BaseModel],
    attributes: Sequence[Attribute],
    slots: Slots,
    format: OutputFormat,
    texts: Mapping[str, str],
) -> dict[FieldPath, str]:
    """The reasons of types, validators and the JSON Schema document for refusing values.

    Keys are paths of leaves; the path of an item's leaf contains the item's number, from 0 on.
    Truncated texts, nulls, counts, and models as a whole are not included.
    """
    row = row_of(schema, attributes, slots, format, texts)
    instance_of(row, schema)
    pairs = [
        (row.tree.leaves[attribute.path], slot)
        for attribute, slot in zip(attributes, slots, strict=True)
        if slot is not None
    ]
    pairs += (pair for items in row.items.values() for pair in items)
    return {
        _path(leaf): row.refused[leaf.index]
        for leaf, slot in pairs
        if leaf.index in row.refused and slot.items is None and not slot.is_cut
    }


def repaired_slots(
    attributes: Sequence[Attribute],
    slots: Slots,
    refused: Callable[[Slots], dict[FieldPath, str]],
    null: str,
) -> Slots:
    """The slots with second answers in the place of refused values.

    A second answer that is null, cut off or refused is not taken: then the first error stays.

    refused: the refusals of slots, see `refusals`.
    null: the literal, without surrounding space.
    """

    def chosen(take: Callable[[FieldPath, SlotText, SlotText], SlotText]) -> Slots:
        return [
            slot if slot is None else _chosen_slot(slot, attribute.fields, attribute.path, take)
            for attribute, slot in zip(attributes, slots, strict=True)
        ]

    first = refused(slots)
    if not first:
        return slots
    again = refused(chosen(lambda path, slot, second: second))

    def take(path: FieldPath, slot: SlotText, second: SlotText) -> SlotText:
        reason = first.get(path, "")
        tokens, refused = slot.tokens + second.tokens, (slot.raw, reason)
        if path in again or second.is_cut or second.raw.strip() == null:
            return replace(slot, tokens=tokens, repaired=None, refused=refused)
        note = f"{clipped(slot.raw)} was refused ({reason}), and asked for again"
        return replace(second, tokens=tokens, refused=refused, note=note)

    return chosen(take)


def _chosen_slot(
    slot: SlotText,
    fields: tuple[Attribute, ...],
    path: FieldPath,
    take: Callable[[FieldPath, SlotText, SlotText], SlotText],
) -> SlotText:
    """The slot with either answer for each value. fields: of an item, for a list of models."""
    if slot.items is not None:
        leaves = [(leaf.path, leaf.fields) for leaf in fields] or [((), ())]
        items = (
            tuple(
                _chosen_slot(part, below, (*path, str(number), *own), take)
                for part, (own, below) in zip(item, leaves, strict=True)
            )
            for number, item in enumerate(slot.items)
        )
        return replace(slot, items=tuple(items))
    return slot if slot.repaired is None else take(path, slot, slot.repaired)


def _path(leaf: Leaf) -> FieldPath:
    path = leaf.attribute.path
    return path if leaf.number is None else (*path, str(leaf.number - 1))
