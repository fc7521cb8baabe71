"""Keys of all slots of a document whose values are known, for training and for counting tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from schemax.attributes import Attribute
from schemax.compiler.list_slots import Fields, Lead, asked_of, key_behind, leaves_of_item
from schemax.compiler.tokenizer import TextCodec
from schemax.compiler.waves import in_key, refused_in_key
from schemax.formats import OutputFormat, Path


class Known(Protocol):
    """A slot whose text is known, as in results.

    items: the slots of every item of a list in two phases. refused: (the first text, its error),
    where the value was asked for again.
    """

    @property
    def raw(self) -> str: ...
    @property
    def is_cut(self) -> bool: ...
    @property
    def items(self) -> Sequence[Sequence[Known]] | None: ...
    @property
    def refused(self) -> tuple[str, str] | None: ...


@dataclass(frozen=True, slots=True)
class KnownSlot:
    """A slot with its key and its text.

    place: the place of its attribute. asked: the attribute that the slot asks for.
    key: token ids, with the lead before the key. k_max: the slot's budget.
    is_further: True for a slot of an item, and for a second chance.
    """

    place: int
    asked: Attribute
    key: tuple[int, ...]
    k_max: int
    raw: str
    is_further: bool = False


@dataclass(frozen=True, slots=True)
class _Keys:
    format: OutputFormat
    codec: TextCodec

    def slots(
        self,
        fields: Fields,
        attributes: Sequence[Attribute],
        slots: Sequence[Known],
        lead: Lead = (),
    ) -> Iterator[KnownSlot]:
        """Yields the slots of fields. lead: keys and values before all keys."""
        for m, (attribute, slot) in enumerate(zip(attributes, slots, strict=True)):
            asked = asked_of(attribute)
            looked_at = [self.written(fields, attributes, slots, d) for d in fields.after[m]]
            before = (*lead, *(pair for pairs in looked_at for pair in pairs))
            leads = [before]
            if slot.refused is not None:
                own = self.written(fields, attributes, slots, m)
                said = refused_in_key(asked.labels, slot.refused[1], self.format)
                leads.append((*before, *own, said))
            for number, one in enumerate(leads):
                key = tuple(self.codec.encode(key_behind(one, asked.labels, self.format)))
                yield KnownSlot(m, asked, key, fields.k_max[m], slot.raw, number > 0)
            if (inner := fields.items[m]) is not None:
                for number, item in enumerate(slot.items or (), 1):
                    leaves = leaves_of_item(attribute, number)
                    for below in self.slots(inner, leaves, item, before):
                        yield replace(below, place=m, is_further=True)

    def written(
        self, fields: Fields, attributes: Sequence[Attribute], slots: Sequence[Known], m: int
    ) -> Iterator[tuple[Path, str]]:
        """Yields (the key's path, the literal) of a value and of its items."""
        attribute, slot, spec = asked_of(attributes[m]), slots[m], fields.specs[m]
        raw = slot.raw if slot.refused is None else slot.refused[0]
        yield attribute.labels, in_key(raw, slot.is_cut, attribute, spec, self.format)
        if (inner := fields.items[m]) is not None:
            for number, item in enumerate(slot.items or (), 1):
                leaves = leaves_of_item(attributes[m], number)
                for leaf in range(len(leaves)):
                    yield from self.written(inner, leaves, item, leaf)


def known_slots(
    fields: Fields, slots: Sequence[Known], output_format: OutputFormat, codec: TextCodec
) -> Iterator[KnownSlot]:
    """Yields all slots of (N,) fields, the slots of items behind the list's own."""
    return _Keys(output_format, codec).slots(fields, fields.attributes, slots)
