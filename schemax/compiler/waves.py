"""Later waves of slots: fields that look at values of other fields, and second chances.

A later slot is a branch whose key stands behind the keys and values that its field looks at:
`"price": 12.5,` and `"currency":`. So its output equals that of one plain request with these
values. The error of a refused value stands in the branch in the same way, under a key of its own,
`"price (error)":`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Any, TypeAlias

from schemax.attributes import Attribute
from schemax.base.messages import clipped
from schemax.compiler.choices import Branches, with_key
from schemax.compiler.skeleton import key_behind, leaves_of_item, slot_attribute
from schemax.compiler.slot_specs import Fields, SlotCompiler, spec_behind
from schemax.compiler.tokenizer import TextCodec
from schemax.formats import OutputFormat, Path
from schemax.tokens import (
    AGAIN,
    ITEM_WAVES,
    SECOND_CHANCE,
    ChildSlot,
    Ids,
    SlotOutput,
    SlotSpec,
    child_number,
)

Review: TypeAlias = Callable[[tuple[SlotOutput, ...]], Mapping[Path, str]]
"""(N,) outputs -> the errors of refused values, by the paths of their leaves. The path of an
item's leaf holds the item's number, from 0 on."""


def _declared_attributes(fields: Fields) -> tuple[Attribute, ...]:
    return tuple(segment.declared for segment in fields.segments)


class _Group:
    """A document's, or an item's, (N,) slots side by side, as far as they are filled.

    around: for an item, the group of its list, the list's place there, and the item's number, from
        0 on.
    outputs: (N,) None for slots not asked yet; slots of results for known values.
    again: outputs of second chances, by slot index.
    items: the groups of a list's items, by slot index.
    """

    def __init__(self, fields: Fields, around: tuple[_Group, int, int] | None = None) -> None:
        self.fields, self.around = fields, around
        self.outputs: list[Any] = [None] * len(fields.specs)
        self.again: dict[int, SlotOutput] = {}
        self.items: dict[int, list[_Group]] = {}
        if around is None:
            self.attributes = _declared_attributes(fields)
        else:
            group, n, number = around
            self.attributes = leaves_of_item(group.attributes[n], number + 1)

    def note(self, m: int, output: SlotOutput) -> None:
        """Stores a slot's output, and the outputs of the items that it called for."""
        self.outputs[m] = output
        if (fields := self.fields.items[m]) is None:
            return
        width, items = len(fields.first), output.items
        count = len(items) // width
        self.items[m] = [_Group(fields, (self, m, number)) for number in range(count)]
        for number, item in enumerate(self.items[m]):
            for place, leaf in enumerate(fields.first, number * width):
                item.note(leaf, items[place])

    def all(self) -> Iterator[_Group]:
        """Yields this group and the groups of all items."""
        yield self
        for items in self.items.values():
            for item in items:
                yield from item.all()

    def is_whole(self, m: int) -> bool:
        """True if a value is known, with all of its items."""
        items = self.items.get(m, ())
        return self.outputs[m] is not None and all(
            item.is_whole(leaf) for item in items for leaf in range(len(item.outputs))
        )

    def ready(self) -> Iterator[tuple[_Group, int]]:
        """Yields the slots not asked yet whose fields look at complete values alone."""
        for m, after in enumerate(self.fields.after):
            if self.outputs[m] is None and all(map(self.is_whole, after)):
                yield self, m

    def tree(self) -> tuple[SlotOutput, ...]:
        outputs = []
        for m, output in enumerate(self.outputs):
            if m in self.items:
                leaves = (leaf for item in self.items[m] for leaf in item.tree())
                items = tuple(replace(leaf, role="item") for leaf in leaves)
                output = replace(output, followed=items)
            outputs.append(replace(output, repaired=self.again.get(m)))
        return tuple(outputs)

    def lead(self, m: int, literal: _Literal) -> Iterator[tuple[Path, str]]:
        """Yields keys and values of the fields that a field, or a list around it, looks at."""
        if self.around is not None:
            group, n, _ = self.around
            yield from group.lead(n, literal)
        for place in self.fields.after[m]:
            yield from self.written(place, literal)

    def written(self, m: int, literal: _Literal) -> Iterator[tuple[Path, str]]:
        """Yields the key and the literal of a value, and those of its items."""
        yield slot_attribute(self.attributes[m]).labels, literal(self, m)
        for item in self.items.get(m, ()):
            for leaf in range(len(item.outputs)):
                yield from item.written(leaf, literal)

    def path(self, m: int) -> Path:
        own = self.fields.paths[m]
        if self.around is None:
            return own
        group, n, number = self.around
        return (*group.path(n), str(number), *own)

    def number(self, m: int) -> int:
        """The number that a slot's random numbers depend on."""
        if self.around is None:
            return m
        group, n, number = self.around
        return child_number(group.number(n), ITEM_WAVES + number * len(self.outputs) + m)


_Literal: TypeAlias = Callable[[_Group, int], str]
"""The literal of a group's slot, by its place."""

_Slots = list[tuple[_Group, int]]
"""Slots, each as its group and its place there."""


@dataclass(frozen=True, eq=False)
class Waves:
    """The later waves of a schema's slots; see `tokens.Waves`.

    keys: (N,) keys of all fields, as if no field looked at other fields.
    review: finds refused values, whose slots are filled once more; None for no second chances.
    """

    fields: Fields
    compiler: SlotCompiler
    keys: tuple[Ids, ...]
    extent: int = 0
    review: Review | None = None

    @classmethod
    def of(cls, fields: Fields, compiler: SlotCompiler, keys: tuple[Ids, ...]) -> Waves:
        waves = cls(fields, compiler, keys)
        extents = waves._extents(fields, _declared_attributes(fields), 0)
        return replace(waves, extent=max(extents, default=0))

    @cached_property
    def opened(self) -> tuple[tuple[tuple[Ids, ...], ...], tuple[int, ...], tuple[SlotSpec, ...]]:
        """Keys (1, n), budgets and specs (n,) of the first wave; cached."""
        first, fields = self.fields.first, self.fields
        keys = tuple(self.keys[n] for n in first)
        specs = tuple(with_key(fields.specs[n], self.keys[n]) for n in first)
        return (keys,), tuple(fields.k_max[n] for n in first), specs

    def next_wave(self, outputs: tuple[SlotOutput, ...], room: int | None) -> tuple[ChildSlot, ...]:
        _, slots, refused = self._replay(outputs)
        return tuple(
            self._slot(group, m, refused.get(group.path(m)) if refused else None, room)
            for group, m in slots
        )

    def final_outputs(self, outputs: tuple[SlotOutput, ...]) -> tuple[SlotOutput, ...]:
        return self._replay(outputs)[0].tree()

    # --- what comes next -------------------------------------------------------------------------

    def _replay(self, outputs: Sequence[SlotOutput]) -> tuple[_Group, _Slots, Mapping[Path, str]]:
        """Replays outputs: the filled group, the slots to ask for next, the errors of values."""
        root, remaining = _Group(self.fields), iter(outputs)
        slots = list(root.ready())
        while batch := list(islice(remaining, len(slots))):
            for (group, m), output in zip(slots, batch, strict=True):
                group.note(m, output)
            slots = [slot for group in root.all() for slot in group.ready()]
        if slots or self.review is None:
            return root, slots, {}
        refused = self.review(root.tree())
        slots = [
            (group, m)
            for group in root.all()
            for m, items in enumerate(group.fields.items)
            if items is None and group.path(m) in refused
        ]
        if batch := list(islice(remaining, len(slots))):
            for (group, m), output in zip(slots, batch, strict=True):
                group.again[m] = output
            slots = []
        return root, slots, refused

    def _slot(self, group: _Group, m: int, refusal: str | None, room: int | None) -> ChildSlot:
        fields, labels = group.fields, slot_attribute(group.attributes[m]).labels
        lead = before = tuple(group.lead(m, self._literal))
        number, path = group.number(m), group.path(m)
        if refusal is not None:
            error = _refused_in_key(labels, refusal, self.compiler.format)
            before = (*lead, *group.written(m, self._literal), error)
            number, path = child_number(number, SECOND_CHANCE), (*path, AGAIN)
        key, spec = self.compiler.key(before, labels), spec_behind(fields.specs[m], lead)
        if room is not None:
            items = 0 if spec.follow_ups is None else spec.follow_ups.extent
            if max(len(key) + fields.k_max[m], items) > room:
                key, spec = self.compiler.key((), labels), fields.specs[m]
        spec = with_key(spec, key)
        return ChildSlot(key, fields.k_max[m], spec, "wave", number=number, path=path)

    def _literal(self, group: _Group, m: int) -> str:
        output, spec, output_format = group.outputs[m], group.fields.specs[m], self.compiler.format
        for answer in filter(None, (output.free_text, output)):
            raw, complete = self.compiler.text(answer.ids)
            is_cut = answer.finish_reason == "length" and not complete
            if not is_cut and _choice_in(raw, spec, output_format) is not None:
                break
        return _in_key(raw, is_cut, group.attributes[m], spec, output_format)

    def _extents(
        self, fields: Fields, attributes: Sequence[Attribute], before: int
    ) -> Iterator[int]:
        """Yields the position ids that a later slot needs. before: those of the lists' leads."""
        for m, attribute in enumerate(attributes):
            lead = before + sum(self._widest(fields, attributes, d) for d in fields.after[m])
            key = len(self.compiler.key((), slot_attribute(attribute).labels))
            yield lead + key + fields.k_max[m] if lead else 0
            follow_ups, items = fields.specs[m].follow_ups, fields.items[m]
            if items is not None and follow_ups is not None:
                yield lead + follow_ups.extent if lead else 0
                leaves = leaves_of_item(attribute, attribute.num_items[1])
                yield from self._extents(items, leaves, lead)

    def _widest(self, fields: Fields, attributes: Sequence[Attribute], m: int) -> int:
        """The most tokens of a value, with its key, in the key of another field."""
        attribute, form = slot_attribute(attributes[m]), self.compiler.format
        around = form.key(attribute.labels, None) + form.closing(attribute.labels)
        width = len(self.compiler.codec.encode(around))
        width += fields.k_max[m] << self.compiler.config.max_retries
        if (items := fields.items[m]) is not None:
            most = attributes[m].num_items[1]
            leaves = leaves_of_item(attributes[m], most)
            width += most * sum(self._widest(items, leaves, n) for n in range(len(leaves)))
        return width


def _in_key(
    raw: str, is_cut: bool, attribute: Attribute, spec: SlotSpec, output_format: OutputFormat
) -> str:
    """A slot's literal in keys of other slots. attribute: as declared.

    It is the choice that the text names, else the text as written; null if the text was cut off or
    cannot be read.
    """
    if is_cut:
        return output_format.escape(None)
    if (choice := _choice_in(raw, spec, output_format)) is not None:
        return output_format.escape(choice)
    try:
        value = output_format.unescape(raw, is_list=slot_attribute(attribute).is_list)
    except Exception:  # a format may be the user's own
        value = None
    return output_format.escape(None) if value is None else raw.rstrip()


def _choice_in(raw: str, spec: SlotSpec, output_format: OutputFormat) -> Any:
    if not isinstance(spec.follow_ups, Branches):
        return None
    return spec.follow_ups.named(raw, output_format)


def _refused_in_key(labels: Path, error: str, output_format: OutputFormat) -> tuple[Path, str]:
    """(the path of its key, the literal) of a refused value's error."""
    return (*labels[:-1], f"{labels[-1]} (error)"), output_format.escape(clipped(error))


# --- known values, for training and for counting tokens ------------------------------------------


@dataclass(frozen=True, slots=True)
class KnownSlot:
    """A slot with its key and its text.

    attribute_index: of its declared attribute.
    attribute: the attribute that the slot asks for.
    key: token ids, with the lead before the key.
    k_max: the slot's budget.
    is_further: True for a slot of an item, and for a second chance.
    """

    attribute_index: int
    attribute: Attribute
    key: tuple[int, ...]
    k_max: int
    raw: str
    is_further: bool = False


def known_slots(
    fields: Fields, slots: Sequence[Any], output_format: OutputFormat, codec: TextCodec
) -> Iterator[KnownSlot]:
    """Yields all slots of (N,) fields, the slots of items behind the list's own.

    slots: (N,) the slots of results. For a value that was asked for again, `refused` is the first
    text and its error.
    """

    def filled(group: _Group, slots: Sequence[Any]) -> _Group:
        group.outputs = list(slots)
        for m, inner in enumerate(group.fields.items):
            if inner is not None:
                items = enumerate(slots[m].items or ())
                group.items[m] = [filled(_Group(inner, (group, m, n)), item) for n, item in items]
        return group

    def literal(group: _Group, m: int) -> str:
        slot, spec = group.outputs[m], group.fields.specs[m]
        raw = slot.raw if slot.refused is None else slot.refused[0]
        return _in_key(raw, slot.is_cut, group.attributes[m], spec, output_format)

    def slots_of(group: _Group) -> Iterator[KnownSlot]:
        for m, slot in enumerate(group.outputs):
            attribute = slot_attribute(group.attributes[m])
            leads = [tuple(group.lead(m, literal))]
            if slot.refused is not None:
                error = _refused_in_key(attribute.labels, slot.refused[1], output_format)
                leads.append((*leads[0], *group.written(m, literal), error))
            for number, lead in enumerate(leads):
                key = tuple(codec.encode(key_behind(lead, attribute.labels, output_format)))
                k_max = group.fields.k_max[m]
                yield KnownSlot(m, attribute, key, k_max, slot.raw, number > 0)
            for item in group.items.get(m, ()):
                yield from (
                    replace(below, attribute_index=m, is_further=True) for below in slots_of(item)
                )

    return slots_of(filled(_Group(fields), slots))
