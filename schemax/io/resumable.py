"""A run over files, in parts: each row is computed once, whatever stops the run in between."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from heapq import merge
from itertools import count, islice
from typing import Any

from schemax.errors import InputError
from schemax.io.checkpoint import (
    REMEDY,
    Checkpoint,
    OpenPart,
    Row,
    digest,
    digest_of_all,
    to_line,
)
from schemax.io.readers import Source
from schemax.io.records import Record
from schemax.io.rows import RowForm
from schemax.io.stream import Extract, stream_rows
from schemax.io.writers import Writer
from schemax.results import Extraction

PART_ROWS = 2048
"""Rows of a part, at most: what is lost at most where open parts are not kept."""

PART_LENGTH = 64 << 20
"""Characters of the records of a part, as JSON; the one that exceeds them is its last."""


@dataclass(frozen=True, slots=True)
class Part:
    """Records whose rows are kept together.

    digest: of all of its records, those whose rows are there already among them.
    pending: (index in the input, digest, record) of the others.
    """

    number: int
    digest: str
    pending: tuple[tuple[int, str, Record], ...]


@dataclass(frozen=True, slots=True)
class ResumableRun:
    """Rows of a source on their way to an output.

    form: of the rows.
    independent: whether a row is the same, whichever others it is computed with. Then all go
        through one stream, and each is kept as it finishes; else parts are computed one by one,
        and kept as a whole.
    """

    source: Source
    checkpoint: Checkpoint
    form: RowForm
    independent: bool
    part_rows: int = PART_ROWS

    def parts(self, finished: Mapping[int, str]) -> Generator[Part, None, None]:
        """The parts that are not among those finished, given with their digests.

        They are the same, whatever has been finished since. Raises InputError for an input that is
        not the one of the rows that are kept.
        """
        rows = self.source.rows()
        for number in count():
            pending = tuple(self._some(rows))
            if not pending:
                break
            found = digest_of_all(known for _, known, _ in pending)
            if number not in finished:
                done = self.checkpoint.open_rows(number) if self.independent else {}
                now = {index: known for index, known, _ in pending}
                if any(now.get(index) != known for index, known in done.items()):
                    raise self._changed(pending[0][0], pending[-1][0])
                yield Part(number, found, tuple(row for row in pending if row[0] not in done))
            elif finished[number] != found:
                raise self._changed(pending[0][0], pending[-1][0])
        if any(done >= number for done in finished):
            raise InputError(
                f"the input has fewer rows than are kept in {self.checkpoint.name}; {REMEDY}"
            )

    def _some(self, rows: Iterator[tuple[int, Record]]) -> Iterator[tuple[int, str, Record]]:
        """The records of the next part: (index, digest, record)."""
        length = 0
        for index, record in islice(rows, self.part_rows):
            known, more = digest(record)
            yield index, known, record
            length += more
            if length >= PART_LENGTH:
                break

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

        def pending() -> Iterator[tuple[tuple[OpenPart, int, str, dict[str, Any]], Record]]:
            for part in parts:
                opened = self.checkpoint.open_part(
                    part.number, part.digest, len(part.pending), row_by_row=self.independent
                )
                if not part.pending:
                    opened.complete()
                    continue
                filling.add(opened)
                for index, known, record in part.pending:
                    yield (opened, index, known, self.form.beside(record)), record

        try:
            with closing(stream_rows(extract, pending())) as stream:
                for (opened, index, known, beside), found in stream:
                    item, row = self.form.row_to_keep(found, index, beside)
                    opened.add(to_line(known, row))
                    if not opened.missing:
                        filling.discard(opened)
                    yield item
        finally:
            for opened in filling:
                opened.close()

    def assemble(self, writer: Writer, others: Iterable[Row] = ()) -> Iterator[Row]:
        """Writes all rows, in order, and passes them on. Raises InputError if some are missing.

        others: rows that were finished before, in order, to go between them.
        """
        for row in merge(self._rows(), others, key=lambda row: row["index"]):
            writer.write(row)
            yield row

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
