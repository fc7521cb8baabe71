"""A run over files, in parts: each row is computed once, whatever stops the run in between."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import count, islice
from typing import Any, Literal, NamedTuple, TypeVar

from schemax.documents import id_of
from schemax.errors import InputError, ServerError
from schemax.io.checkpoint import REMEDY, Checkpoint, OpenPart, digest, digest_of_all, to_line
from schemax.io.known import Known, body_of
from schemax.io.readers import InputFiles
from schemax.io.records import Record
from schemax.io.rows import Row, RowForm
from schemax.io.shelf import Shelf
from schemax.io.stream import Extract, compute
from schemax.io.writers import Writer
from schemax.results import Extraction

K = TypeVar("K")

PART_ROWS = 2048
"""Rows of a part, at most: what is lost at most where open parts are not kept."""

PART_LENGTH = 64 << 20
"""Characters of the records of a part, as JSON; the one that exceeds them is its last."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A record whose row is to be computed; index: in the input; key: of its row, see `Known`."""

    index: int
    digest: str
    record: Record
    key: str | None

    def line(self, row: Row) -> bytes:
        """The row as parts hold it."""
        return to_line(self.digest, {**row, "key": self.key})


@dataclass(frozen=True, slots=True)
class Part:
    """Records whose rows are kept together.

    digest: of all of its records, those whose rows are there already among them.
    ready: lines of rows that need no model. pending: the others.
    """

    number: int
    digest: str
    ready: tuple[bytes, ...]
    pending: tuple[Pending, ...]


class Assembled(NamedTuple):
    """A row of the output. key: see `Known`. origin: its maker, or what it was taken from: another
    row of the run, or an earlier table."""

    row: Row
    key: str | None
    origin: Literal["model", "repeat", "reused"]


@dataclass(frozen=True, slots=True)
class ResumableRun:
    """Rows of a source on their way to an output.

    form: of the rows.
    independent: whether a row is the same, whichever others it is computed with. Then all go
        through one stream, and each is kept as it finishes; else parts are computed one by one,
        and kept as a whole.
    known: what is known of rows before a model reads them. A row that repeats another is kept
        without its values, which `assemble` puts in.
    """

    source: InputFiles
    checkpoint: Checkpoint
    form: RowForm
    independent: bool
    part_rows: int = PART_ROWS
    known: Known = field(default_factory=Known)

    def parts(self, finished: Mapping[int, str]) -> Generator[Part, None, None]:
        """The parts that are not among those finished, given with their digests.

        They are the same, whatever has been finished since. Raises InputError for an input that is
        not the one of the rows that are kept.
        """
        seen, there = Shelf(), 0
        for number, rows in self._read():
            there = number + 1
            found = digest_of_all(row.digest for row in rows)
            again = [row.key is not None and not seen.add(row.key) for row in rows]
            if number not in finished:
                done = self.checkpoint.open_rows(number) if self.independent else {}
                now = {row.index: row.digest for row in rows}
                if any(now.get(index) != known for index, known in done.items()):
                    raise self._changed(rows[0].index, rows[-1].index)
                pending, ready = [], []
                for row, is_repeat in zip(rows, again, strict=True):
                    if row.index in done:
                        continue
                    line = self._ready(row, is_repeat)
                    pending += [row] if line is None else []
                    ready += [] if line is None else [line]
                yield Part(number, found, tuple(ready), tuple(pending))
            elif finished[number] != found:
                raise self._changed(rows[0].index, rows[-1].index)
        if any(done >= there for done in finished):
            raise InputError(
                f"the input has fewer rows than are kept in {self.checkpoint.name}; {REMEDY}"
            )

    def records_digest(self) -> str:
        """The digest of all records, as they are now."""
        return digest_of_all(
            digest_of_all(row.digest for row in rows) for _, rows in self._read() if rows
        )

    def _read(self) -> Iterator[tuple[int, tuple[Pending, ...]]]:
        """The records of every part, with its number."""
        with closing(self.source.rows()) as rows:
            for number in count():
                if not (found := tuple(self._some(rows))):
                    return
                yield number, found

    def _some(self, rows: Iterator[tuple[int, Record]]) -> Iterator[Pending]:
        """The records of the next part."""
        length = 0
        for index, record in islice(rows, self.part_rows):
            digest_of_it, more = digest(record)
            yield Pending(index, digest_of_it, record, self.known.key(record))
            length += more
            if length >= PART_LENGTH:
                break

    def _ready(self, row: Pending, is_repeat: bool) -> bytes | None:
        """The line of a row that needs no model; None for one that does."""
        body = self.known.body(row.key)
        if body is None and not is_repeat:
            return None
        id = id_of(row.record, self.known.shown)
        first = {"id": id, "index": row.index, **self.form.beside(row.record)}
        origin = {"repeats": True} if body is None else {**body, "reused": True}
        return row.line({**first, **origin})

    def fill(self, extract: Extract) -> Generator[Extraction[Any], None, None]:
        """Computes and keeps what is missing; yields it as it finishes, `index` as in the input.

        Raises InputError for an input that is not the one of the rows that are kept.
        """
        missing = self.parts(self.checkpoint.finished())
        if self.independent:
            yield from self._fill(missing, extract)
        else:
            for part in missing:
                yield from self._fill([part], extract)

    def _fill(
        self, parts: Iterable[Part], extract: Extract
    ) -> Generator[Extraction[Any], None, None]:
        filling: set[OpenPart] = set()

        def pending() -> Iterator[tuple[OpenPart, Pending]]:
            for part in parts:
                missing = len(part.ready) + len(part.pending)
                opened = self.checkpoint.open_part(
                    part.number, part.digest, missing, row_by_row=self.independent
                )
                if not missing:
                    opened.complete()
                    continue
                filling.add(opened)
                for line in part.ready:
                    opened.add(line)
                for row in part.pending:
                    yield opened, row
                if not opened.missing:
                    filling.discard(opened)

        try:
            with closing(compute_lines(extract, self.form, pending())) as stream:
                for opened, line, item in stream:
                    opened.add(line)
                    if not opened.missing:
                        filling.discard(opened)
                    yield item
        finally:
            for opened in filling:
                opened.close()

    def assemble(self, writer: Writer, others: Iterable[Row] = ()) -> Iterator[Assembled]:
        """Writes all rows, in order, and passes them on. Raises InputError if some are missing.

        others: rows that were finished before, in order, with their keys, to go between them.
        """
        repeated = Shelf()
        for part in self.checkpoint.finished().items():
            for row in self.checkpoint.rows_with(b'"repeats":true', *part):
                if "repeats" in row:
                    repeated.put(row["key"])
        for row in merge(self._rows(), others, key=lambda row: row["index"]):
            row = dict(row)
            key = row.pop("key", None)
            is_repeat, is_reused = row.pop("repeats", False), row.pop("reused", False)
            there = None if key is None else repeated.get(key)
            if is_repeat:
                if there is None or there[0] is None:
                    raise InputError(
                        f"{self.checkpoint.name} lacks the row that row {row['index']} repeats; "
                        f"{REMEDY}"
                    )
                row |= json.loads(there[0])
            elif there == (None,):
                repeated.put(str(key), json.dumps(body_of(row)))
            writer.write(row)
            origin: Literal["model", "repeat", "reused"] = "reused" if is_reused else "model"
            yield Assembled(row, key, "repeat" if is_repeat else origin)

    def _rows(self) -> Iterator[Row]:
        finished = self.checkpoint.finished()
        for number in range(len(finished)):
            if number not in finished:
                raise InputError(f"{self.checkpoint.name} lacks part {number}; {REMEDY}")
            yield from self.checkpoint.rows(number, finished[number])

    def _changed(self, first: int, last: int) -> InputError:
        return InputError(
            f"the input has changed since {self.checkpoint.name} was written: it differs between "
            f"rows {first} and {last}; {REMEDY}"
        )


def compute_lines(
    extract: Extract, form: RowForm, pending: Iterable[tuple[K, Pending]]
) -> Generator[tuple[K, bytes, Extraction[Any]], None, None]:
    """(key, line, extraction) of rows that parts keep, as they finish.

    Raises ServerError for a row that another run may still read.
    """
    rows = (((key, replace(row, record="")), row.index, row.record) for key, row in pending)
    with closing(compute(extract, form, rows)) as stream:
        for (key, asked), item, row in stream:
            if item.is_gone:
                raise ServerError(item.errors[0].message, is_gone=True)
            yield key, asked.line(row), item
