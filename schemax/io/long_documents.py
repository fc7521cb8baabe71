"""Cuts documents that exceed a model's context, or reads them chunk by chunk."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from schemax.attributes import Attribute
from schemax.compiler import CompiledSchema
from schemax.documents import RecordFields, category_of, shown_text
from schemax.errors import InputError
from schemax.formats import OutputFormat
from schemax.io.records import Record
from schemax.io.stream import Extract
from schemax.reading.markup import as_plain, plain_text
from schemax.results import Extraction, FieldError, build

TooLong = Literal["error", "truncate", "chunk"]

Fits: TypeAlias = Callable[[str, str], bool]
"""(category, text) of a document -> whether it fits, with its instruction, keys and budgets."""

# The share of a chunk that the next one repeats, so that one of them holds a value at the seam.
_OVERLAP = 0.1
# The most characters by which the end of a chunk moves back to the end of a word.
_WORD = 40


@dataclass(slots=True)
class _Row:
    """A record under way: the number of its chunks, and their extractions so far."""

    index: int
    record: Record
    chunks: list[Record]
    results: dict[int, Extraction[Any]]


@dataclass(frozen=True, slots=True)
class Fitted:
    """An `extract` that also takes records that are too long.

    extract: the one that takes them as they are. compiled: by category; a single schema under "".
    mode: "truncate" drops the end of their longest text; `errors` say how much is left. "chunk"
        reads their longest text in chunks, and takes every field, with all that was decoded for
        it, from the chunk that states it with the highest confidence, lists from the chunk that
        states most items; spans are offsets into the whole text.
    """

    extract: Extract
    compiled: Mapping[str, CompiledSchema]
    fits: Fits
    shown: RecordFields
    mode: TooLong

    def __call__(self, records: Iterable[Record]) -> Iterator[Extraction[Any]]:
        owners: dict[int, tuple[_Row, int]] = {}

        def chunks() -> Iterator[Record]:
            place = 0
            for index, record in enumerate(records):
                row = _Row(index, record, self.chunks(record), {})
                for number, chunk in enumerate(row.chunks):
                    owners[place] = row, number
                    place += 1
                    yield chunk

        for item in self.extract(chunks()):
            row, number = owners.pop(item.index)
            row.results[number] = replace(item, index=row.index)
            if len(row.results) == len(row.chunks):
                yield self.joined(row)

    def category(self, record: Record) -> str:
        return "" if "" in self.compiled else category_of(record, self.shown) or ""

    def chunks(self, record: Record) -> list[Record]:
        """The record itself, if it fits or cannot be shown; else the records read in its place."""
        try:
            text, texts = shown_text(record, self.shown)
        except ValueError:
            return [record]
        category = self.category(record)
        if not texts or self.fits(category, text):
            return [record]
        key = max(texts, key=lambda name: len(texts[name]))
        whole = plain_text(texts[key])
        found: list[Record] = []
        start = 0
        while start < len(whole):
            length = self._most(record, key, whole[start:], category)
            if not length:
                return [record]  # the rest of the record alone is too long
            found.append(_with(record, key, as_plain(whole[start : start + length])))
            if self.mode == "truncate" or start + length == len(whole):
                break
            start += max(1, length - int(length * _OVERLAP))
        return found

    def _most(self, record: Record, key: str, text: str, category: str) -> int:
        """The length of the longest beginning of the text that fits; 0 if none does."""

        def is_too_much(length: int) -> bool:
            piece = as_plain(text[:length])
            shown = shown_text(_with(record, key, piece), self.shown)[0]
            return not self.fits(category, shown)

        most = bisect_left(range(1, len(text) + 1), True, key=is_too_much)
        space = text.rfind(" ", max(1, most - _WORD), most) if most < len(text) else 0
        return space if space > 0 else most

    def joined(self, row: _Row) -> Extraction[Any]:
        found = [row.results[number] for number in range(len(row.chunks))]
        first = found[0]
        if row.chunks[0] is row.record or any(not item.fields for item in found):
            return next((item for item in found if not item.fields), first)
        texts = shown_text(row.record, self.shown)[1]
        schema = self.compiled[self.category(row.record)]
        slots = [
            max(found, key=lambda item: _rank(item, place, attribute, schema.format)).slots[place]
            for place, attribute in enumerate(schema.attributes)
        ]
        item = build(
            schema.schema,
            schema.attributes,
            slots,
            schema.format,
            index=row.index,
            document_id=first.document_id,
            steps=sum(item.steps for item in found),
            texts=texts,
            strict=schema.decoding.strict,
        )
        if self.mode == "chunk":
            return item
        kept, all_of_it = (
            sum(map(len, map(plain_text, some.values()))) for some in (first.texts, texts)
        )
        message = f"too long for the model: cut to {kept:,} of {all_of_it:,} characters"
        return replace(item, errors=(*item.errors, FieldError(None, message)))


def _with(record: Record, key: str, text: str) -> Record:
    return {**record, key: text} if isinstance(record, Mapping) else text


def _rank(
    item: Extraction[Any], place: int, attribute: Attribute, format: OutputFormat
) -> tuple[bool, int, float]:
    """A measure of how well a chunk states an attribute, to compare chunks by."""
    result, slot = item.fields[attribute.name], item.slots[place]
    stated = result.value is not None and result.value != []
    # A default may stand in the place of a value.
    null = format.escape(None).strip()
    stated = stated and slot is not None and not slot.left_out and slot.raw.strip() != null
    # An error in a list of two phases may be of one item, and must not drop the others.
    if not attribute.two_phase:
        stated = stated and all(error.field != attribute.name for error in item.errors)
    size = len(result.value) if isinstance(result.value, (list, tuple, set, frozenset)) else 0
    return stated, size, result.confidence or 0.0


def fits_model(model: Any, compiled: Mapping[str, CompiledSchema]) -> Fits:
    """A function that tells whether a text fits; tokenizes only texts that could be too long."""
    from schemax.runtime.requests import new_request

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
        return model.misfit(new_request(prompt, schema.stop, schema.decoding)) is None

    room = {}
    for name, schema in compiled.items():
        (prompt,) = schema.encode(["x"])
        room[name] = new_request(prompt, schema.stop, schema.decoding).max_position + 1
    return fits
