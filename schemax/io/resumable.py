"""Runs over files that can be resumed: which rows are kept, and which a model computes.

A row is kept if it stands in the checkpoint, in an earlier table (`EarlierTable`), or if it repeats
another row of the run. Its values depend on its key: a digest of the part of the record that the
model sees, and of the settings of the run (schema, model, prompt, decoding). Rows with the same key
have the same values in all tables.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby
from typing import Any, Literal, TypeAlias, TypeVar

from schemax.errors import InputError, ServerError
from schemax.extraction.documents import category_of, id_of, shown_text
from schemax.io.checkpoint import REMEDY, Checkpoint, Files, digest, to_line
from schemax.io.earlier import EarlierTable, values_of
from schemax.io.fingerprint import digest as digest_of_text
from schemax.io.readers import InputFiles
from schemax.io.records import Record
from schemax.io.rows import Extract, Row, RowForm, compute
from schemax.io.storage import Shelf
from schemax.io.writers import Writer
from schemax.results import Extraction

K = TypeVar("K")

Origin: TypeAlias = Literal["model", "repeat", "reused"]
"""The source of a row's values: a model, another row of the run, or a reused table."""

PART_LENGTH = 64 << 20
"""The characters, as JSON, of a batch's records; the record that exceeds them is the last."""

# The settings of a run that no row's values depend on.
_NOT_IN_ROW_KEY = ("limit", "shard", "keep", "id", "part rows", "part length", "retried")
_KINDS_NOT_IN_ROW_KEY = ("input", "outline")


def salt_of(settings: Mapping[str, Any]) -> str:
    """A digest of the settings that all rows of a run depend on."""
    decisive = {
        key: value
        for key, value in settings.items()
        if key not in _NOT_IN_ROW_KEY and key.partition(" ")[0] not in _KINDS_NOT_IN_ROW_KEY
    }
    return digest_of_text(json.dumps(decisive, sort_keys=True, default=str))


def records_digests(source: InputFiles, shards: int = 1) -> list[str]:
    """The digests of all current records, by shard."""
    digests = [blake2b(digest_size=8) for _ in range(shards)]
    with closing(source.rows()) as rows:
        for index, record in rows:
            digests[index % shards].update(digest(record)[0].encode())
    return [records.hexdigest() for records in digests]


@dataclass(frozen=True, slots=True)
class Pending:
    """A record whose row is still to compute. index: in the input. key: of its row."""

    index: int
    digest: str
    record: Record
    key: str | None

    def line(self, row: Mapping[str, Any]) -> bytes:
        """The line of the row in a part. A row of an earlier table keeps its key."""
        return to_line(self.digest, {"key": self.key, **row})


@dataclass(frozen=True, slots=True)
class Batch:
    """Missing rows of a part. ready: lines of rows that require no model. pending: records."""

    part: int
    ready: tuple[bytes, ...]
    pending: tuple[Pending, ...]


@dataclass(frozen=True, slots=True)
class ResumableRun:
    """A run from a source to an output.

    form: of the rows: the part of a record that the model sees, and the schema that reads it.
    independent: whether rows do not depend on each other. Then all go through one stream, and each
        is kept as it finishes; else batches are computed one by one, and kept as a whole.
    salt: see `salt_of`; None if rows have no keys, since they depend on each other.
    earlier: a table whose rows are kept.
    """

    source: InputFiles
    checkpoint: Checkpoint
    form: RowForm
    independent: bool
    salt: str | None = None
    earlier: EarlierTable | None = None

    def batches(self, files: Files) -> Generator[Batch, None, None]:
        """Yields the missing rows. files: of the checkpoint.

        The division into batches is always the same. Raises InputError for an input that differs
        from that of the kept rows.
        """
        first_rows, number = Shelf(), -1
        with closing(self.source.rows()) as records:
            for number, part in groupby(records, self._part_of):
                kept = self.checkpoint.rows(number, files)
                for rows in self._divided(part):
                    batch = self._missing(number, rows, kept, first_rows)
                    if batch.ready or batch.pending:
                        yield batch
                if kept:
                    raise self._shorter()
        if any(part > number for part in files):
            raise self._shorter()

    def _shorter(self) -> InputError:
        return InputError(
            f"the input has fewer rows than are kept in {self.checkpoint.name}; {REMEDY}"
        )

    def _part_of(self, row: tuple[int, Record]) -> int:
        return row[0] // self.source.shard.count // self.checkpoint.part_rows

    def _divided(self, rows: Iterable[tuple[int, Record]]) -> Iterator[list[Pending]]:
        """Yields the records of a part in batches of bounded length."""
        batch: list[Pending] = []
        length = 0
        for index, record in rows:
            record_digest, characters = digest(record)
            batch.append(Pending(index, record_digest, record, self.key(record)))
            length += characters
            if length >= PART_LENGTH:
                yield batch
                batch, length = [], 0
        yield batch

    def _missing(
        self, part: int, rows: list[Pending], kept: dict[int, tuple[str, Row]], first_rows: Shelf
    ) -> Batch:
        """The rows that are not kept in the checkpoint.

        kept: rows of the part, from which these rows are removed.
        first_rows: the index of the first row with a key.
        """
        ready, pending = [], []
        is_complete = all(row.index in kept for row in rows)
        for row in rows:
            values = self._known(row, first_rows)
            kept_digest, _ = kept.pop(row.index, (None, None))
            if kept_digest not in (None, row.digest):
                raise InputError(
                    f"the input has changed since {self.checkpoint.name} was written: row "
                    f"{row.index} differs; {REMEDY}"
                )
            if kept_digest is not None and (self.independent or is_complete):
                continue
            if values is None:
                pending.append(row)
            else:
                id = id_of(row.record, self.form.shown)
                cells = {"id": id, "index": row.index, **self.form.beside(row.record)}
                ready.append(row.line({**cells, **values}))
        return Batch(part, tuple(ready), tuple(pending))

    def _known(self, row: Pending, first_rows: Shelf) -> dict[str, Any] | None:
        """The values of a row that requires no model; None for a row to compute."""
        if self.earlier is not None:
            values = self.earlier.row(row.index, row.key)
            if values is not None:
                return {**values, "reused": True}
        if row.key is None or first_rows.add(row.key, str(row.index)):
            return None
        stored = first_rows.get(row.key)
        return stored and {"repeats": int(str(stored[0]))}

    def key(self, record: Record) -> str | None:
        """The key of a row in 32 digits; None without keys, and for an unreadable record."""
        if self.salt is None or isinstance(record, InputError):
            return None
        try:
            text, texts = shown_text(record, self.form.shown)
        except ValueError:
            return None
        category = category_of(record, self.form.shown) if self.form.categories else None
        return digest_of_text(json.dumps([self.salt, category, text, texts]))

    def fill(self, extract: Extract) -> Generator[Extraction[Any], None, None]:
        """Computes and keeps missing rows; yields extractions as they finish, indexed as the input.

        Raises InputError for an input that differs from that of the kept rows.
        """
        missing = self.batches(self.checkpoint.files())
        if self.independent:
            yield from self._fill(missing, extract)
        else:
            for batch in missing:
                yield from self._fill([batch], extract)

    def _fill(
        self, batches: Iterable[Batch], extract: Extract
    ) -> Generator[Extraction[Any], None, None]:
        def pending() -> Iterator[tuple[int, Pending]]:
            for batch in batches:
                if batch.ready:
                    self.checkpoint.add(batch.part, batch.ready)
                for row in batch.pending:
                    yield batch.part, row

        lines: list[bytes] = []
        with closing(compute_lines(extract, self.form, pending())) as stream:
            for part, line, item in stream:
                if self.independent:
                    self.checkpoint.add(part, [line])
                else:
                    lines.append(line)
                yield item
        if lines:
            self.checkpoint.add(part, lines)

    def assemble(self, writer: Writer) -> Iterator[tuple[Row, str | None, str, Origin]]:
        """Writes all rows in order; yields (row, its key, its record's digest, its origin).

        Raises InputError if a row is missing.
        """
        files = self.checkpoint.files()
        repeated = Shelf()  # the values of rows that are repeated, by index
        for number in files:
            for _, row in self.checkpoint.rows(number, files, mark=b'"repeats":').values():
                if "repeats" in row:
                    repeated.add(row["repeats"])
        due = self.source.shard.number
        for number in files:
            for index, (record_digest, row) in self.checkpoint.rows(number, files).items():
                if index != due:
                    raise self._lacks(due)
                due += self.source.shard.count
                key, is_reused = row.pop("key"), row.pop("reused", False)
                origin: Origin = "reused" if is_reused else "model"
                if (first := row.pop("repeats", None)) is not None:
                    stored, origin = repeated.get(first), "repeat"
                    if stored is None or stored[0] is None:
                        raise self._lacks(first)
                    row |= json.loads(stored[0])
                elif repeated.get(index) is not None:
                    repeated.put(index, json.dumps(values_of(row)))
                writer.write(row)
                yield row, key, record_digest, origin

    def _lacks(self, index: int) -> InputError:
        return InputError(f"{self.checkpoint.name} lacks row {index}; {REMEDY}")


def compute_lines(
    extract: Extract, form: RowForm, pending: Iterable[tuple[K, Pending]]
) -> Generator[tuple[K, bytes, Extraction[Any]], None, None]:
    """Yields (key, line, extraction) of rows, as they finish. line: as parts hold it.

    Raises ServerError for a row that failed for want of a server, so that a later run may read it.
    """
    rows = (((key, replace(row, record="")), row.index, row.record) for key, row in pending)
    with closing(compute(extract, form, rows)) as stream:
        for (key, row), item, cells in stream:
            if item.is_gone:
                raise ServerError(item.errors[0].message, cause="server")
            yield key, row.line(cells), item
