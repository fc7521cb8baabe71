"""Runs over files in parts that can be resumed, so that each row is computed once."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from heapq import merge
from itertools import count, islice
from typing import Any, Literal, NamedTuple, TypeVar

from schemax.errors import InputError, ServerError
from schemax.extraction.documents import id_of
from schemax.io.checkpoint import REMEDY, Checkpoint, OpenPart, digest, digest_of_all, to_line
from schemax.io.known import Known, body_of
from schemax.io.readers import InputFiles, Shard
from schemax.io.records import Record
from schemax.io.rows import Row, RowForm
from schemax.io.shelf import Shelf
from schemax.io.stream import Extract, compute
from schemax.io.writers import Writer
from schemax.results import Extraction

K = TypeVar("K")

PART_ROWS = 2048
"""The most rows of a part, and so the most that are lost if open parts are not kept."""

PART_LENGTH = 64 << 20
"""The characters, as JSON, of a part's records; the record that exceeds them is the last."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A record whose row is still to compute. index: in the input. key: of its row, see `Known`."""

    index: int
    digest: str
    record: Record
    key: str | None

    def line(self, row: Row) -> bytes:
        """The line of the row in a part."""
        return to_line(self.digest, {**row, "key": self.key})


@dataclass(frozen=True, slots=True)
class Part:
    """Records whose rows are kept together.

    digest: of all its records, finished ones included.
    ready: lines of rows that require no model. pending: the other records.
    """

    number: int
    digest: str
    ready: tuple[bytes, ...]
    pending: tuple[Pending, ...]


class Assembled(NamedTuple):
    """A row of the output. key: see `Known`. origin: the source of its values: a model, another row
    of the run, or an earlier table."""

    row: Row
    key: str | None
    origin: Literal["model", "repeat", "reused"]


@dataclass(frozen=True, slots=True)
class ResumableRun:
    """A run from a source to an output.

    form: of the rows.
    independent: whether rows do not depend on each other. Then all go through one stream, and each
        is kept as it finishes; else parts are computed one by one, and kept as a whole.
    known: rows known before a model reads them. A row that repeats another is kept without values,
        which `assemble` adds.
    """

    source: InputFiles
    checkpoint: Checkpoint
    form: RowForm
    independent: bool
    part_rows: int = PART_ROWS
    known: Known = field(default_factory=Known)

    def parts(self, finished: Mapping[int, str]) -> Generator[Part, None, None]:
        """Yields the parts that are not finished. finished: digests by number.

        The division into parts is always the same. Raises InputError for an input that differs from
        that of the kept rows.
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
        """The digest of all current records."""
        return digest_of_all(
            digest_of_all(row.digest for row in rows) for _, rows in self._read() if rows
        )

    def has_records(self, recorded: Any) -> bool:
        """True for the digest of all current records; in a merged table, the digests of shards."""
        if not isinstance(recorded, list):
            return bool(recorded == self.records_digest())
        shards = (Shard(number, len(recorded)) for number in range(len(recorded)))
        parts = (replace(self, source=replace(self.source, shard=shard)) for shard in shards)
        return recorded == [part.records_digest() for part in parts]

    def _read(self) -> Iterator[tuple[int, tuple[Pending, ...]]]:
        """Yields (number, records) of every part."""
        with closing(self.source.rows()) as rows:
            for number in count():
                if not (found := tuple(self._some(rows))):
                    return
                yield number, found

    def _some(self, rows: Iterator[tuple[int, Record]]) -> Iterator[Pending]:
        """Yields the records of the next part."""
        length = 0
        for index, record in islice(rows, self.part_rows):
            digest_of_it, more = digest(record)
            yield Pending(index, digest_of_it, record, self.known.key(record))
            length += more
            if length >= PART_LENGTH:
                break

    def _ready(self, row: Pending, is_repeat: bool) -> bytes | None:
        """The line of a row that requires no model; None for any other row."""
        body = self.known.body(row.key)
        if body is None and not is_repeat:
            return None
        id = id_of(row.record, self.form.shown)
        first = {"id": id, "index": row.index, **self.form.beside(row.record)}
        origin = {"repeats": True} if body is None else {**body, "reused": True}
        return row.line({**first, **origin})

    def fill(self, extract: Extract) -> Generator[Extraction[Any], None, None]:
        """Computes and keeps missing rows; yields extractions as they finish, indexed as the input.

        Raises InputError for an input that differs from that of the kept rows.
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
        def pending() -> Iterator[tuple[OpenPart, Pending]]:
            for part in parts:
                missing = len(part.ready) + len(part.pending)
                opened = self.checkpoint.open_part(
                    part.number, part.digest, missing, row_by_row=self.independent
                )
                opened.add(*part.ready)
                for row in part.pending:
                    yield opened, row

        try:
            with closing(compute_lines(extract, self.form, pending())) as stream:
                for opened, line, item in stream:
                    opened.add(line)
                    yield item
        finally:
            self.checkpoint.close_parts()

    def assemble(self, writer: Writer, others: Iterable[Row] = ()) -> Iterator[Assembled]:
        """Writes and yields all rows in order. Raises InputError if some are missing.

        others: rows that were finished before, in order, with their keys, to merge in.
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
    """Yields (key, line, extraction) of rows, as they finish. line: as parts hold it.

    Raises ServerError for a row that failed for want of a server, so that a later run may read it.
    """
    rows = (((key, replace(row, record="")), row.index, row.record) for key, row in pending)
    with closing(compute(extract, form, rows)) as stream:
        for (key, asked), item, row in stream:
            if item.is_gone:
                raise ServerError(item.errors[0].message, is_gone=True)
            yield key, asked.line(row), item
