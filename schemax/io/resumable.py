"""A run over files: part by part, each row once, whatever stops it in between."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Any, TypeAlias

from schemax.errors import InputError
from schemax.io.checkpoint import Parts, Row, digest, mark_of
from schemax.io.fingerprint import differences
from schemax.io.readers import Source
from schemax.io.records import Record
from schemax.io.writers import Writer
from schemax.results import Extraction, failed

Extract: TypeAlias = Callable[[Iterable[Record]], Iterator[Extraction[Any]]]
"""Reads records; `index` of what it yields, in any order, is the place among these."""

PART_ROWS = 2048
"""Rows of a part. A part is computed as a whole, so small ones leave passes half empty."""


@dataclass(frozen=True, slots=True)
class Part:
    """Records that are computed and kept together.

    records: with their indices in the input; digests: theirs, in the same order.
    done: rows that an earlier run has finished, by index.
    """

    number: int
    records: Sequence[tuple[int, Record]]
    digests: Sequence[str]
    done: Mapping[int, Row]

    @property
    def mark(self) -> str:
        return mark_of(self.digests)

    def compute(
        self, extract: Extract, *, details: bool
    ) -> Iterator[tuple[Extraction[Any], dict[str, Any]]]:
        """What is missing, as it finishes; `index` as in the input."""
        missing = [(index, record) for index, record in self.records if index not in self.done]
        for found in extract([record for _, record in missing]):
            yield as_row(replace(found, index=missing[found.index][0]), details=details)

    def in_order(self, computed: Mapping[int, Row]) -> list[Row]:
        """All rows, those of the earlier run among them."""
        rows = {**self.done, **computed}
        return [rows[index] for index, _ in self.records]


@dataclass(frozen=True, slots=True)
class Job:
    """Rows of a source, on their way to an output.

    part_rows: how many make a part.
    details: of every field, see `Extraction.to_row`.
    separable: whether a row is the same, whichever others it is computed with. Then what is done
        of a part is kept, else only whole parts are.
    """

    source: Source
    parts: Parts
    part_rows: int = PART_ROWS
    details: bool = False
    separable: bool = True

    def finished_rows(self) -> int:
        """How many rows earlier runs have finished."""
        unfinished = _next(self.parts.finished())
        return self.parts.count() + (len(self.parts.open_rows(unfinished)) if self.separable else 0)

    def fill(self, extract: Extract) -> Generator[Extraction[Any], None, None]:
        """Computes what is missing; yields it as it finishes, `index` as in the input.

        Raises InputError for an input that is not the one of the rows that are there.
        """
        for part in self.missing(self.parts.finished()):
            yield from self._fill(part, extract)

    def missing(self, finished: Mapping[int, str]) -> Generator[Part, None, None]:
        """The parts that are not among those finished, given with their marks. Raises InputError.

        The same ones, whatever has been finished since.
        """
        rows = self.source.rows()
        for number in count():
            chunk = list(islice(rows, self.part_rows))
            if not chunk:
                break
            digests = [digest(record) for _, record in chunk]
            if number not in finished:
                yield Part(number, chunk, digests, self._done(number, chunk, digests))
            elif finished[number] != mark_of(digests):
                raise self._changed(chunk)
        if any(done >= number for done in finished):
            raise InputError(f"the input has fewer rows than {self.parts.name}; {_REMEDY}")

    def _done(
        self, number: int, chunk: Sequence[tuple[int, Record]], digests: Sequence[str]
    ) -> dict[int, Row]:
        if not self.separable:
            return {}
        digest_of = {index: found for (index, _), found in zip(chunk, digests, strict=True)}
        rows: dict[int, Row] = {}
        for known, row in self.parts.open_rows(number):
            if digest_of.get(row["index"]) != known:
                raise self._changed(chunk)
            rows[row["index"]] = row
        return rows

    def _fill(self, part: Part, extract: Extract) -> Iterator[Extraction[Any]]:
        digest_of = {
            index: found for (index, _), found in zip(part.records, part.digests, strict=True)
        }
        rows: dict[int, Row] = {}
        with self.parts.journal(part.number) as journal:
            for item, row in part.compute(extract, details=self.details):
                rows[item.index] = row
                if journal is not None and self.separable:
                    journal.add(digest_of[item.index], row)
                yield item
        self.parts.finish(part.number, part.mark, part.in_order(rows))

    def assemble(self, writer: Writer) -> Iterator[Row]:
        """Writes all rows, in order, and passes them on. Raises InputError if one is missing."""
        numbers = sorted(self.parts.finished())
        if numbers != list(range(len(numbers))):
            raise InputError(f"{self.parts.name} lacks a part; {_REMEDY}")
        last = -1
        for row in self.parts.rows():
            if row["index"] <= last:
                raise InputError(f"{self.parts.name} is damaged at row {last}; {_REMEDY}")
            last = row["index"]
            writer.write(row)
            yield row

    def _changed(self, chunk: Sequence[tuple[int, Record]]) -> InputError:
        first, last = chunk[0][0], chunk[-1][0]
        return InputError(
            f"the input is not the one that {self.parts.name} was made of: it differs between "
            f"rows {first} and {last}; {_REMEDY}"
        )


_REMEDY = "--overwrite starts anew"


def refuse_changes(parts: Parts, now: Mapping[str, Any]) -> bool:
    """Whether there is an unfinished run to go on with.

    Raises InputError if that has other settings or another input, and names what differs.
    """
    before = parts.manifest()
    if before is None:
        return False
    if found := differences(before, now):
        raise InputError(
            f"{parts.name} holds an unfinished run that was another: {'; '.join(found)}; go on "
            f"with what it had, or {_REMEDY}"
        )
    return True


def as_row(item: Extraction[Any], *, details: bool) -> tuple[Extraction[Any], dict[str, Any]]:
    """The row of an extraction, and the extraction: failed, if its own serializers raise."""
    try:
        return item, item.to_row(details=details)
    except Exception as error:  # a serializer's of the user's schema: costs this row only
        reason = f"cannot be written: {type(error).__name__}: {error}"
        item = failed(item.index, item.document_id, reason, steps=item.steps)
        return item, item.to_row(details=details)


def in_order(items: Iterable[Extraction[Any]]) -> Generator[Extraction[Any], None, None]:
    """Extractions by index, as soon as all before them are there.

    Bounded, because a stream finishes one window of records before it reads the next.
    """
    waiting: dict[int, Extraction[Any]] = {}
    due = 0
    for item in items:
        waiting[item.index] = item
        while due in waiting:
            yield waiting.pop(due)
            due += 1


def _next(finished: Mapping[int, str]) -> int:
    return next(number for number in count() if number not in finished)
