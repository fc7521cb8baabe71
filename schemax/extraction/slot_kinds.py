"""Kinds of a schema's slots, by which outputs are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from schemax.attributes import Attribute
from schemax.compiler import CompiledSchema
from schemax.compiler.choices import Branches, Choices
from schemax.compiler.slot_specs import Fields
from schemax.results.fields import field_tree_of


@dataclass(frozen=True, slots=True, eq=False)
class SlotKind:
    """The kind of a slot, known before a document is read.

    choices: the attribute's choices, if decoding keeps to them.
    branches: the slots that follow a choice.
    optional: whether the field may go without a value.
    is_list: whether the slot holds all items of a list.
    items: the kinds of an item's slots, for a count.
    """

    is_typed: bool
    is_list: bool
    choices: Choices | None
    optional: bool
    items: tuple[SlotKind, ...] | None
    branches: Branches | None = None


@lru_cache(maxsize=128)
def kinds_of(compiled: CompiledSchema) -> tuple[SlotKind, ...]:
    """(N,) kinds of slots. A field that a nested model requires is not optional, since its null
    would cost the values beside it."""
    leaves = field_tree_of(compiled.schema).leaves
    optional = [
        bool(leaves[a.path].when_null) and a.may_be_null and not a.two_phase
        for a in compiled.attributes
    ]
    assert compiled.fields is not None  # else the model writes the keys
    return _kinds_of(compiled.fields, optional)


def _kinds_of(fields: Fields, optional: Sequence[bool]) -> tuple[SlotKind, ...]:
    return tuple(
        SlotKind(
            is_typed=segment.attribute.is_typed,
            is_list=segment.attribute.is_list,
            choices=choices,
            optional=is_optional,
            items=None if items is None else _kinds_of_items(segment.declared, items),
            branches=spec.follow_ups if isinstance(spec.follow_ups, Branches) else None,
        )
        for segment, choices, spec, items, is_optional in zip(
            fields.segments, fields.choices, fields.specs, fields.items, optional, strict=True
        )
    )


def _kinds_of_items(attribute: Attribute, items: Fields) -> tuple[SlotKind, ...]:
    """The kinds of an item's slots; an item that is no model is optional if the list may shrink."""
    if attribute.fields:
        optional = [leaf.omittable and not leaf.two_phase for leaf in attribute.fields]
    else:
        optional = [attribute.num_items[0] == 0]
    return _kinds_of(items, optional)
