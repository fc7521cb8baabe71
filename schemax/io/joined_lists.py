"""Joins the items of a list that was read chunk by chunk.

Chunks overlap, so an item of a list in two phases may be read twice, or in part where a chunk ends.
Such items stand at the same place of the document, and the one that states more is kept. Inline
lists name what the document is about: of these, a text that an earlier chunk states is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from schemax.formats import OutputFormat
from schemax.results import SlotText
from schemax.results.fields import Leaf
from schemax.results.spans import Mentions, SpanFinder
from schemax.results.values import texts_of


class ListInChunk(NamedTuple):
    """The slot of a list, read from a chunk of a document that begins at `start`."""

    slot: SlotText
    chunk: str
    start: int


class _Item(NamedTuple):
    """An item: the slots of its leaves, the texts that they state, and their places."""

    slots: tuple[SlotText, ...]
    texts: tuple[str | None, ...]
    places: frozenset[int]

    def is_part_of(self, other: _Item) -> bool:
        is_there = self.places == other.places or not self.places.isdisjoint(other.places)
        pairs = zip(self.texts, other.texts, strict=True)
        return is_there and all(text in (None, stated) for text, stated in pairs)


def joined_list(
    leaf: Leaf, best: SlotText, lists: Sequence[ListInChunk], format: OutputFormat
) -> SlotText:
    """A slot with the items of all lists; `best`, if these are more than the field takes.

    lists: those that state items, in the order of their chunks; best: one of their slots.
    """
    if len(lists) < 2 or leaf.attribute.positions:
        return best
    changes: dict[str, Any]
    if best.items is None:
        texts = _texts(leaf, lists, format)
        count, changes = len(texts), {"raw": format.escape(texts)}
    else:
        items = tuple(item.slots for item in _items(lists, format))
        count, changes = len(items), {"raw": str(len(items)), "items": items}
    if count > dict(leaf.attribute.constraints).get("maxItems", count):
        return best
    slots = [part.slot for part in lists]
    for name in ("confidence", "probability", "legal_probability"):
        known = [getattr(slot, name) for slot in slots]
        changes[name] = None if None in known else min(known)
    return replace(best, tokens=sum(slot.tokens for slot in slots), **changes)


def _texts(leaf: Leaf, lists: Sequence[ListInChunk], format: OutputFormat) -> list[str]:
    joined: list[str] = []
    for part in lists:
        known = set(joined)
        texts = texts_of(leaf, part.slot, format) or ()
        joined += [text for text in texts if text not in known]
    return joined


def _items(lists: Sequence[ListInChunk], format: OutputFormat) -> list[_Item]:
    chunks: list[list[_Item]] = [[]]
    before: list[_Item] = []
    for part in lists:
        mentions = Mentions(SpanFinder({"": part.chunk}))
        items = [_item(slots, part.start, mentions, format) for slots in part.slot.items or ()]
        new = [item for item in items if not any(map(item.is_part_of, before))]
        chunks[-1] = [item for item in chunks[-1] if not any(map(item.is_part_of, new))]
        chunks.append(new)
        before = items
    return [item for items in chunks for item in items]


def _item(
    slots: tuple[SlotText, ...], start: int, mentions: Mentions, format: OutputFormat
) -> _Item:
    texts = tuple(_text(slot, format) for slot in slots)
    spans = [mentions.locate(text) for text in texts if text is not None]
    return _Item(slots, texts, frozenset(start + span.start for span in spans if span))


def _text(slot: SlotText, format: OutputFormat) -> str | None:
    """The text that a slot states; None for null, and for what is no text of its own."""
    try:
        text = None if slot.left_out else format.unescape(slot.raw)
    except ValueError:
        return None
    return text if isinstance(text, str) else None
