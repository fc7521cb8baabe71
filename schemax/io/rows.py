"""Rows of results: the values of a record, and the cells beside them.

A run computes rows in bounded memory; no row holds back more than `MOST_AHEAD` others.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Literal, TypeAlias, TypeVar, get_args

from schemax.base.messages import did_you_mean, reason_of, some_of
from schemax.errors import InputError
from schemax.extraction.documents import RecordFields, category_of
from schemax.io.columns import Schemas
from schemax.io.records import Record, cells_of
from schemax.results import Extraction, failed
from schemax.results.extraction import json_ready
from schemax.results.list_results import without_items

Row: TypeAlias = dict[str, Any]
"""A row of results, of JSON types only."""

Details: TypeAlias = bool | Literal["confidence"]
"""The details of a row's fields: none (False), all (True), or confidences alone."""


def check_details(details: Any) -> None:
    """Raises ValueError for anything but details."""
    if details not in (True, False, *get_args(get_args(Details)[1])):
        raise ValueError(f'details must be True, False or "confidence", not {details!r}')


@dataclass(frozen=True, slots=True)
class RowForm:
    """The form of a row, beyond id, index, attributes and errors.

    keep: keys of the record that are copied to it.
    shown: the roles of its keys.
    categories: the categories with a schema, none if one schema serves all.
    """

    details: Details = False
    keep: tuple[str, ...] = ()
    shown: RecordFields = field(default_factory=RecordFields)
    categories: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, schemas: Schemas, shown: RecordFields, details: Details, keep: Sequence[str]
    ) -> RowForm:
        categories = tuple(schemas) if isinstance(schemas, Mapping) else ()
        return cls(details, tuple(keep), shown, categories)

    def beside(self, record: Record) -> Row:
        """The part of a row that is copied from its record."""
        there = record if isinstance(record, Mapping) else cells_of(record)
        cells: dict[str, Any] = {}
        if self.keep:
            kept = {key: there.get(key) for key in self.keep}
            cells["kept"] = _kept(kept)
        if self.categories:
            name = category_of(there, self.shown)
            cells["schema"] = name if name in self.categories else None
        return cells

    def row(self, item: Extraction[Any], beside: Mapping[str, Any]) -> tuple[Extraction[Any], Row]:
        """(the extraction, its row); the extraction fails if serializers of its schema raise."""
        try:
            row = item.to_row(details=self.details is True)
        except Exception as error:  # an error in the user's serializer costs this row only
            reason = f"cannot be written: {reason_of(error)}"
            item = failed(item.index, item.document_id, reason, steps=item.steps)
            row = item.to_row(details=self.details is True)
        if self.details:
            read = without_items(item.fields)
            known = {name: json_ready(result.confidence) for name, result in read.items()}
            if self.details == "confidence":
                row["confidences"] = known
            stated = [number for number in known.values() if number is not None]
            row["least_confidence"] = min(stated, default=None)
        first = {key: row.pop(key) for key in ("id", "index")}
        return item, {**first, **beside, **row}


def _kept(value: Any) -> Any:
    """The JSON value of a kept cell, with words for numbers that JSON lacks."""
    if isinstance(value, float):
        return value if isfinite(value) else _NOT_FINITE[str(value)]
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {str(key): _kept(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_kept(item) for item in value]
    return json_ready(value)


_NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


def check_kept(
    keep: Sequence[str], there: Sequence[str], source: str, option: str = "keep"
) -> None:
    """Raises InputError for a column to keep that the input, if it is known, lacks.

    option: what names the columns.
    """
    for name in keep:
        if not isinstance(name, str):
            raise InputError(f"{option} names {name!r}, which is no text; write {str(name)!r}")
        if there and name not in there:
            near = did_you_mean(name, there)
            raise InputError(f"{option} names {name!r}{near}, but {source} has {some_of(there)}")


K = TypeVar("K")

Extract: TypeAlias = Callable[[Iterable[Record]], Iterator[Extraction[Any]]]
"""A function from records to extractions, in any order; `index` is the record's place."""

MOST_AHEAD = 16_384
"""The most rows that are read beyond the first unfinished one."""


def compute(
    extract: Extract,
    form: RowForm,
    rows: Iterable[tuple[K, int, Record]],
    *,
    most_ahead: int = MOST_AHEAD,
) -> Generator[tuple[K, Extraction[Any], Row], None, None]:
    """(key, index, record) -> (key, extraction, row), as they finish.

    All rows go through one stream, so that the model never waits between streams. Only if a row
    takes so long that `most_ahead` rows behind it have been read, the stream ends with the rows in
    flight, and a new one continues.

    Raises InputError for an input that breaks off, once all rows before the break are done.
    """
    source = iter(rows)
    # Rows that are read and not finished, by place: key, index, and what is copied of the record.
    waiting: dict[int, tuple[K, int, Row]] = {}
    read = oldest = 0
    broken: InputError | None = None
    is_open = True

    def admitted() -> Iterator[Record]:
        nonlocal read, oldest, broken, is_open
        while True:
            while oldest < read and oldest not in waiting:
                oldest += 1
            if read - oldest >= most_ahead:
                return
            try:
                key, index, record = next(source)
            except StopIteration:
                is_open = False
                return
            except InputError as error:
                broken, is_open = error, False
                return
            waiting[read] = key, index, form.beside(record)
            read += 1
            yield record

    while is_open:
        first = read
        stream = extract(admitted())
        try:
            for item in stream:
                key, index, beside = waiting.pop(first + item.index)
                yield key, *form.row(replace(item, index=index), beside)
        finally:
            if isinstance(stream, Generator):
                stream.close()  # at once, since a thread may be at work
    if broken is not None:
        raise broken


def in_order(
    extract: Extract, form: RowForm, rows: Iterable[tuple[int, Record]]
) -> Generator[tuple[Extraction[Any], Row], None, None]:
    """(index, record) -> (extraction, row), in order.

    At most `MOST_AHEAD` rows are held back.
    """
    numbered = ((place, index, record) for place, (index, record) in enumerate(rows))
    waiting: dict[int, tuple[Extraction[Any], Row]] = {}
    due = 0
    with closing(compute(extract, form, numbered)) as stream:
        for place, item, row in stream:
            waiting[place] = item, row
            while due in waiting:
                yield waiting.pop(due)
                due += 1
