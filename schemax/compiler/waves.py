"""Later waves of slots: fields that look at others' values, and second chances.

A later slot is a branch like any other, whose key stands behind the keys and values that its field
looks at: `"price": 12.5,` and `"currency":`. So its output is that of one plain request with these
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
from schemax.compiler.list_slots import (
    Fields,
    Lead,
    asked_of,
    key_behind,
    leaves_of_item,
    limits_of,
    spec_behind,
)
from schemax.compiler.slot_specs import Compiling
from schemax.compiler.stops import text_before_stop
from schemax.formats import OutputFormat, Path
from schemax.tokens import AGAIN, ChildSlot, SlotOutput, SlotSpec

Ids = tuple[int, ...]

Review: TypeAlias = Callable[[tuple[SlotOutput, ...]], Mapping[Path, str]]
"""(N,) outputs -> the errors of refused values, by the paths of their leaves. The path of an
item's leaf holds the item's number, from 0 on."""


class _Group:
    """A document's, or an item's, (N,) slots side by side, as far as they are filled.

    around: for an item, the group of its list, the list's place there, and the item's number, from
    0 on. outputs: None for slots not asked yet. again: outputs of second chances, by place.
    """

    def __init__(self, fields: Fields, around: tuple[_Group, int, int] | None = None) -> None:
        self.fields, self.around = fields, around
        self.outputs: list[SlotOutput | None] = [None] * len(fields.specs)
        self.again: dict[int, SlotOutput] = {}
        self.items: dict[int, list[_Group]] = {}

    @cached_property
    def attributes(self) -> tuple[Attribute, ...]:
        if self.around is None:
            return self.fields.attributes
        group, n, number = self.around
        return leaves_of_item(group.attributes[n], number + 1)

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
        found = []
        for m, output in enumerate(self.outputs):
            assert output is not None
            if m in self.items:
                items = (slot for item in self.items[m] for slot in item.tree())
                output = replace(output, followed=tuple(replace(one, role="item") for one in items))
            found.append(replace(output, repaired=self.again.get(m)))
        return tuple(found)

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
        # Numbers below 2 ** 19 are those of slots that the list itself has called for.
        return _called_by(group.number(n), 2**19 + number * len(self.outputs) + m)


def _called_by(number: int, place: int) -> int:
    return ((number + 1) * 2**20 + place) % 2**62


_Asked = list[tuple[_Group, int]]


@dataclass(frozen=True, eq=False)
class Waves:
    """The later waves of a schema's slots; see `tokens.Waves`.

    keys: (N,) keys of all fields, as if none looked at others.
    review: finds refused values, which are asked for once more; None for no second chances.
    """

    fields: Fields
    compiling: Compiling
    keys: tuple[Ids, ...]
    extent: int = 0
    review: Review | None = None

    @classmethod
    def of(cls, fields: Fields, compiling: Compiling, keys: tuple[Ids, ...]) -> Waves:
        made = cls(fields, compiling, keys)
        extents = made._extents(fields, fields.attributes, 0)
        return replace(made, extent=max(extents, default=0))

    @cached_property
    def opened(self) -> tuple[tuple[tuple[Ids, ...], ...], tuple[int, ...], tuple[SlotSpec, ...]]:
        """Keys (1, n), budgets and specs (n,) of the first wave; cached."""
        first, fields = self.fields.first, self.fields
        keys = tuple(self.keys[n] for n in first)
        specs = tuple(with_key(fields.specs[n], self.keys[n]) for n in first)
        return (keys,), tuple(fields.k_max[n] for n in first), specs

    def next_wave(self, outputs: tuple[SlotOutput, ...], room: int | None) -> tuple[ChildSlot, ...]:
        _, asked, refused = self._replayed(outputs)
        return tuple(
            self._slot(group, m, refused.get(group.path(m)) if refused else None, room)
            for group, m in asked
        )

    def settled(self, outputs: tuple[SlotOutput, ...]) -> tuple[SlotOutput, ...]:
        return self._replayed(outputs)[0].tree()

    # --- what comes next -------------------------------------------------------------------------

    def _replayed(self, outputs: Sequence[SlotOutput]) -> tuple[_Group, _Asked, Mapping[Path, str]]:
        """Replays outputs: the filled group, the slots to ask for next, the errors of values."""
        root, rest = _Group(self.fields), iter(outputs)
        asked = list(root.ready())
        while batch := list(islice(rest, len(asked))):
            for (group, m), output in zip(asked, batch, strict=True):
                group.note(m, output)
            asked = [one for group in root.all() for one in group.ready()]
        if asked or self.review is None:
            return root, asked, {}
        refused = self.review(root.tree())
        asked = [
            (group, m)
            for group in root.all()
            for m, items in enumerate(group.fields.items)
            if items is None and group.path(m) in refused
        ]
        if batch := list(islice(rest, len(asked))):
            for (group, m), output in zip(asked, batch, strict=True):
                group.again[m] = output
            asked = []
        return root, asked, refused

    def _slot(self, group: _Group, m: int, refusal: str | None, room: int | None) -> ChildSlot:
        fields, labels = group.fields, asked_of(group.attributes[m]).labels
        lead = told = tuple(self._lead(group, m))
        number, path = group.number(m), group.path(m)
        if refusal is not None:
            said = refused_in_key(labels, refusal, self.compiling.format)
            told = (*lead, *self._written(group, m), said)
            number, path = _called_by(number, 2**20 - 1), (*path, AGAIN)
        key, spec = self._key(told, labels), spec_behind(fields.specs[m], lead)
        if room is not None:
            items = 0 if spec.follow_ups is None else spec.follow_ups.extent
            if max(len(key) + fields.k_max[m], items) > room:
                key, spec = self._key((), labels), fields.specs[m]
        spec = with_key(spec, key)
        return ChildSlot(key, fields.k_max[m], spec, "wave", number=number, path=path)

    # --- keys ------------------------------------------------------------------------------------

    def _key(self, lead: Lead, labels: Path) -> Ids:
        text = key_behind(lead, labels, self.compiling.format)
        return tuple(self.compiling.codec.encode(text))

    def _lead(self, group: _Group, m: int) -> Iterator[tuple[Path, str]]:
        """Yields keys and values of the fields that a field, or a list around it, looks at."""
        if group.around is not None:
            yield from self._lead(*group.around[:2])
        for other in group.fields.after[m]:
            yield from self._written(group, other)

    def _written(self, group: _Group, m: int) -> Iterator[tuple[Path, str]]:
        attribute, output = asked_of(group.attributes[m]), group.outputs[m]
        assert output is not None
        yield attribute.labels, self._literal(output, attribute, group.fields.specs[m])
        for item in group.items.get(m, ()):
            for leaf in range(len(item.outputs)):
                yield from self._written(item, leaf)

    def _literal(self, output: SlotOutput, attribute: Attribute, spec: SlotSpec) -> str:
        codec, form = self.compiling.codec, self.compiling.format
        for one in filter(None, (output.free_text, output)):
            raw, complete = text_before_stop(self.compiling.stop_rule, codec, one.ids)
            cut = one.finish_reason == "length" and not complete
            if one is output or (not cut and _choice_in(raw, spec, form) is not None):
                break
        return in_key(raw, cut, attribute, spec, form)

    def _extents(
        self, fields: Fields, attributes: Sequence[Attribute], before: int
    ) -> Iterator[int]:
        """Yields the position ids that a later slot needs. before: those of the lists' leads."""
        for m, attribute in enumerate(attributes):
            lead = before + sum(self._widest(fields, attributes, d) for d in fields.after[m])
            key = len(self._key((), asked_of(attribute).labels))
            yield lead + key + fields.k_max[m] if lead else 0
            follow_ups, items = fields.specs[m].follow_ups, fields.items[m]
            if items is not None and follow_ups is not None:
                yield lead + follow_ups.extent if lead else 0
                leaves = leaves_of_item(attribute, limits_of(attribute)[1])
                yield from self._extents(items, leaves, lead)

    def _widest(self, fields: Fields, attributes: Sequence[Attribute], m: int) -> int:
        """The most tokens of a value, with its key, in the key of another field."""
        attribute, form = asked_of(attributes[m]), self.compiling.format
        around = form.key(attribute.labels, None) + form.closing(attribute.labels)
        width = len(self.compiling.codec.encode(around))
        width += fields.k_max[m] << self.compiling.config.max_retries
        if (items := fields.items[m]) is not None:
            most = limits_of(attributes[m])[1]
            leaves = leaves_of_item(attributes[m], most)
            width += most * sum(self._widest(items, leaves, n) for n in range(len(leaves)))
        return width


def in_key(
    raw: str, is_cut: bool, attribute: Attribute, spec: SlotSpec, output_format: OutputFormat
) -> str:
    """A slot's literal in the keys of others: the choice that it names, else the text as written;
    null if the text was cut off or cannot be read."""
    if is_cut:
        return output_format.escape(None)
    if (choice := _choice_in(raw, spec, output_format)) is not None:
        return output_format.escape(choice)
    try:
        value = output_format.unescape(raw, is_list=attribute.is_list)
    except Exception:  # a format may be the user's own
        value = None
    return output_format.escape(None) if value is None else raw.rstrip()


def _choice_in(raw: str, spec: SlotSpec, output_format: OutputFormat) -> Any:
    if not isinstance(spec.follow_ups, Branches):
        return None
    return spec.follow_ups.named(raw, output_format)


def refused_in_key(labels: Path, said: str, output_format: OutputFormat) -> tuple[Path, str]:
    """(the path of its key, the literal) of a refused value's error."""
    return (*labels[:-1], f"{labels[-1]} (error)"), output_format.escape(clipped(said))
