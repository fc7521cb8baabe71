"""Cuts documents that exceed a model's context, or reads them in chunks and joins the results."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

from schemax.attributes import Attribute
from schemax.compiler import CompiledSchema
from schemax.errors import InputError
from schemax.extraction.documents import RecordFields, category_of, shown_text
from schemax.formats import OutputFormat
from schemax.io.records import Record
from schemax.io.rows import Extract
from schemax.reading.markup import as_plain, plain_text
from schemax.results import Extraction, FieldError, SlotText, build
from schemax.results.boundaries import CLEAN, boundary
from schemax.results.fields import Leaf, field_tree_of
from schemax.results.spans import Mentions, SpanFinder
from schemax.results.values import texts_of

TooLong = Literal["error", "truncate", "chunk"]

Fits: TypeAlias = Callable[[str, str], bool]
"""(category, text) of a document -> whether it fits, with its instruction, keys and budgets."""

# The share of a chunk that the next one repeats, so that one of them holds a value at the seam.
_OVERLAP = 0.1
# The most characters by which the end of a chunk moves back to white space.
_WORD = 40
_LONGEST_TAG = 1000
_TAG = re.compile(rf"</?[A-Za-z][^<>]{{0,{_LONGEST_TAG}}}>")
# The characters that are tried first.
_TRIED = 1024


class _Chunk(NamedTuple):
    """A record read in place of a long record; holds its longest text from `start` on."""

    record: Record
    text: str = ""
    start: int = 0


_List: TypeAlias = tuple[SlotText, _Chunk]
"""The slot of a list, and the chunk from which it was read."""


@dataclass(slots=True)
class _ChunkedRecord:
    """A record under way: its chunks, and their extractions so far."""

    index: int
    record: Record
    chunks: list[_Chunk]
    results: dict[int, Extraction[Any]]


@dataclass(frozen=True, slots=True)
class Fitted:
    """An `extract` that also takes records that are too long.

    extract: the extraction of records that fit.
    compiled: schemas by category; a single schema under "".
    fits: whether a text fits.
    shown: the keys of a record's texts.
    mode: "truncate" drops the end of the longest text; `errors` say how much is left. "chunk" reads
        the longest text in chunks. Each field, with its decoded slot, comes from the chunk that
        states it with the highest confidence. Lists have the items of all chunks, each once: see
        `joined_list`. Spans are offsets into the whole text.
    """

    extract: Extract
    compiled: Mapping[str, CompiledSchema]
    fits: Fits
    shown: RecordFields
    mode: TooLong

    def __call__(self, records: Iterable[Record]) -> Iterator[Extraction[Any]]:
        owners: dict[int, tuple[_ChunkedRecord, int]] = {}

        def chunks() -> Iterator[Record]:
            place = 0
            for index, record in enumerate(records):
                row = _ChunkedRecord(index, record, self.chunks(record), {})
                for number, chunk in enumerate(row.chunks):
                    owners[place] = row, number
                    place += 1
                    yield chunk.record

        for item in self.extract(chunks()):
            row, number = owners.pop(item.index)
            row.results[number] = replace(item, index=row.index)
            if len(row.results) == len(row.chunks):
                yield self.joined(row)

    def category(self, record: Record) -> str:
        return "" if "" in self.compiled else category_of(record, self.shown) or ""

    def chunks(self, record: Record) -> list[_Chunk]:
        """The record itself, if it fits or cannot be shown; else the records read in its place."""
        whole_record = [_Chunk(record)]
        try:
            text, texts = shown_text(record, self.shown)
        except ValueError:
            return whole_record
        category = self.category(record)
        if not texts or self.fits(category, text):
            return whole_record
        key = max(texts, key=lambda name: len(texts[name]))
        whole = plain_text(texts[key])
        chunks: list[_Chunk] = []
        start = 0
        while True:
            end = self._end(record, key, whole, start, category)
            if end == start:
                return whole_record  # the rest of the record alone is too long
            piece = whole[start:end]
            if not piece.isspace():
                chunks.append(_Chunk(_with(record, key, as_plain(piece)), piece, start))
            if self.mode == "truncate" or end == len(whole):
                return chunks
            start = _cut(whole, start + 1, end - int((end - start) * _OVERLAP))

    def _end(self, record: Record, key: str, whole: str, start: int, category: str) -> int:
        """The end of the longest chunk from `start` that fits; `start` if none does."""

        def is_too_much(length: int) -> bool:
            piece = as_plain(whole[start : start + length])
            shown = shown_text(_with(record, key, piece), self.shown)[0]
            return not self.fits(category, shown)

        left, tried = len(whole) - start, _TRIED
        while tried < left and not is_too_much(tried):
            tried *= 2
        fitting = tried // 2 if tried > _TRIED else 0
        length = bisect_left(range(1, min(tried, left) + 1), True, fitting, key=is_too_much)
        return _cut(whole, start + 1, start + length) if length else start

    def joined(self, row: _ChunkedRecord) -> Extraction[Any]:
        parts = [row.results[number] for number in range(len(row.chunks))]
        first = parts[0]
        if row.chunks[0].record is row.record or any(not part.fields for part in parts):
            return next((part for part in parts if not part.fields), first)
        texts = shown_text(row.record, self.shown)[1]
        schema = self.compiled[self.category(row.record)]
        slots, errors = [], []
        for place, attribute in enumerate(schema.attributes):
            ranks = [_rank(part, place, attribute, schema.format) for part in parts]
            best = parts[max(range(len(parts)), key=ranks.__getitem__)].slots[place]
            if attribute.is_list and best is not None and max(ranks)[0]:
                leaf = field_tree_of(schema.schema).leaves[attribute.path]
                lists = [
                    (slot, chunk)
                    for part, chunk, rank in zip(parts, row.chunks, ranks, strict=True)
                    if rank[0] and (slot := part.slots[place]) is not None
                ]
                best = joined_list(leaf, best, lists, schema.format)
                errors += [
                    replace(error, message=f"chunk {number}: {error.message}")
                    for number, (part, rank) in enumerate(zip(parts, ranks, strict=True), 1)
                    for error in part.errors
                    if error.field == attribute.name and not rank[0]
                ]
            slots.append(best)
        item = build(
            schema.schema,
            schema.attributes,
            slots,
            schema.format,
            index=row.index,
            document_id=first.document_id,
            steps=sum(part.steps for part in parts),
            texts=texts,
        )
        if self.mode == "truncate":
            kept, size = (
                sum(map(len, map(plain_text, shown.values()))) for shown in (first.texts, texts)
            )
            message = f"too long for the model: cut to {kept:,} of {size:,} characters"
            errors.append(FieldError(None, message))
        return replace(item, errors=(*item.errors, *errors))


def _cut(text: str, least: int, most: int) -> int:
    """The best place to cut a text: at white space, else between tokens, and never in a tag.

    Ties go to the last position up to `most`. No cut lies before `least`.
    """
    if most >= len(text):
        return len(text)
    near = _TAG.finditer(text, max(0, most - _LONGEST_TAG), most + _LONGEST_TAG)
    tags = [tag.span() for tag in near]
    most = min([most, *(start for start, end in tags if start < most < end)])

    def quality(at: int) -> tuple[bool, bool, bool, bool, int]:
        is_outside = not any(start < at < end for start, end in tags)
        kind = boundary(text, at, is_end=False) if is_outside else None
        is_space = kind == CLEAN and (text[at - 1].isspace() or text[at].isspace())
        return is_space, kind == CLEAN, kind is not None, is_outside, at

    return max(range(max(least, most - _WORD), most + 1), key=quality, default=least)


def _with(record: Record, key: str, text: str) -> Record:
    return {**record, key: text} if isinstance(record, Mapping) else text


def _rank(
    item: Extraction[Any], place: int, attribute: Attribute, format: OutputFormat
) -> tuple[bool, int, float]:
    """A measure of how well a chunk states an attribute, to compare chunks by."""
    result, slot = item.fields[attribute.name], item.slots[place]
    stated = result.value is not None and result.value != []
    # A default may replace a value.
    null = format.escape(None).strip()
    stated = stated and slot is not None and not slot.left_out and slot.raw.strip() != null
    # An error in a list of two phases may be of one item, and must not drop the others.
    if not attribute.two_phase:
        stated = stated and all(error.field != attribute.name for error in item.errors)
    size = len(result.value) if isinstance(result.value, (list, tuple, set, frozenset)) else 0
    return stated, size, result.confidence or 0.0


def fits_model(model: Any, compiled: Mapping[str, CompiledSchema]) -> Fits:
    """A function that tells whether a text fits; tokenizes only texts that could be too long."""
    from schemax.runtime.slots.outputs import exceeds
    from schemax.runtime.slots.requests import new_request

    def fits(category: str, text: str) -> bool:
        schema = compiled.get(category)
        bound = model.max_positions
        if schema is None:
            return True
        # A token has at least one byte; only nearest examples differ from text to text.
        is_short = bound is not None and len(text) * 4 + room[category] <= bound
        if is_short and schema.nearest is None:
            return True
        try:
            (prompt,) = schema.encode([text])
        except InputError:  # extraction raises it again, for the row
            return True
        furthest = new_request(prompt, schema.stop, schema.decoding).max_position
        return exceeds(furthest, bound) is None

    room = {}
    for name, schema in compiled.items():
        (prompt,) = schema.encode(["x"])
        room[name] = new_request(prompt, schema.stop, schema.decoding).max_position + 1
    return fits


class _Item(NamedTuple):
    """An item: the slots of its leaves, the texts that they state, and their places."""

    slots: tuple[SlotText, ...]
    texts: tuple[str | None, ...]
    places: frozenset[int]

    def is_part_of(self, item: _Item) -> bool:
        is_there = self.places == item.places or not self.places.isdisjoint(item.places)
        pairs = zip(self.texts, item.texts, strict=True)
        return is_there and all(text in (None, stated) for text, stated in pairs)


def joined_list(
    leaf: Leaf, best: SlotText, lists: Sequence[_List], format: OutputFormat
) -> SlotText:
    """A slot with the items of all lists; `best`, if the field takes fewer items.

    best: a slot of `lists`.
    lists: the lists that state items, in the order of their chunks.
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
    slots = [slot for slot, _ in lists]
    for name in ("confidence", "probability", "legal_probability"):
        known = [getattr(slot, name) for slot in slots]
        changes[name] = None if None in known else min(known)
    return replace(best, tokens=sum(slot.tokens for slot in slots), **changes)


def _texts(leaf: Leaf, lists: Sequence[_List], format: OutputFormat) -> list[str]:
    joined: list[str] = []
    for slot, _ in lists:
        known = set(joined)
        texts = texts_of(leaf, slot, format) or ()
        joined += [text for text in texts if text not in known]
    return joined


def _items(lists: Sequence[_List], format: OutputFormat) -> list[_Item]:
    chunks: list[list[_Item]] = [[]]
    before: list[_Item] = []
    for slot, chunk in lists:
        mentions = Mentions(SpanFinder({"": chunk.text}))
        items = [_item(slots, chunk.start, mentions, format) for slots in slot.items or ()]
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
    """The text of a slot; None for null, and for a literal that is not text."""
    try:
        text = None if slot.left_out else format.unescape(slot.raw)
    except ValueError:
        return None
    return text if isinstance(text, str) else None
