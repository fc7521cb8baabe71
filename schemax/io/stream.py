"""Streams all rows of a run in bounded memory, in which no row holds back too many others."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from schemax.errors import InputError
from schemax.io.records import Record
from schemax.io.rows import Row, RowForm
from schemax.results import Extraction

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
