"""What a run would take, from a look at the beginning of its input."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

from schemax.documents import read_documents
from schemax.errors import InputError
from schemax.io.long_documents import compiled_schemas, fits_model
from schemax.io.readers import Source
from schemax.io.records import Record
from schemax.io.summary import Duplicates, counted
from schemax.io.task import Task

SAMPLE = 1000
"""Rows that are looked at."""

_MOST_SECONDS = 10.0  # of extracting some of them
_MOST_TIMED = 128


@dataclass(frozen=True, slots=True)
class Estimate:
    """rows: of the whole input; the other counts are of the first `sample` rows.

    tokens: of the documents of the sample, `longest` of one of them.
    instruction_tokens: of the longest instruction, which is read once.
    too_long: documents that the model's context does not hold; unreadable: records without text.
    seconds_per_row: of rows that were extracted one batch after the other; None where none was.
    """

    rows: int
    sample: int
    duplicates: str | None
    tokens: int
    longest: int
    instruction_tokens: int
    too_long: int
    unreadable: int
    timed: int
    seconds_per_row: float | None

    def lines(self, price_per_hour: float | None = None) -> Iterator[str]:
        yield f"rows: {self.rows:,}"
        yield f"sample: the first {counted(self.sample, 'row')}"
        yield f"duplicates: {self.duplicates or 'none'}"
        readable = self.sample - self.unreadable
        mean = self.tokens / readable if readable else 0.0
        yield (
            f"tokens: {mean:,.1f} per document (the longest {self.longest:,}), and "
            f"{self.instruction_tokens:,} of instructions, read once"
        )
        expected = mean * (self.rows * readable / self.sample if self.sample else 0)
        yield f"tokens of all documents: about {expected:,.0f}"
        fit = readable - self.too_long
        yield f"fit the context: {fit:,} of {readable:,}; cannot be read: {self.unreadable:,}"
        if self.seconds_per_row is None:
            return
        hours = self.seconds_per_row * self.rows / 3600
        speed = 1 / max(1e-9, self.seconds_per_row)
        yield f"speed: {speed:,.1f} documents/s, measured on {counted(self.timed, 'row')}"
        yield f"expected: {hours:,.3g} hours"
        if price_per_hour is not None:
            yield f"expected cost: {hours * price_per_hour:,.2f}"


def estimate(source: Source, task: Task) -> Estimate:
    """Counts, and extracts up to 128 rows for at most about ten seconds.

    Raises what `Extractor.stream` raises.
    """
    extractor = task.loaded()
    compiled = compiled_schemas(extractor, task.schemas, task.shown, task.options)
    fits = fits_model(extractor.model, compiled)
    with closing(source.rows()) as rows:
        sample = [record for _, record in islice(rows, SAMPLE)]
        total = source.count()
        if total is None:
            total = len(sample) + sum(1 for _ in rows)
    duplicates = Duplicates()
    sizes: list[int] = []
    unreadable = too_long = 0
    for document in read_documents(sample, task.shown):
        duplicates.add(document.id)
        name = (document.category or "") if isinstance(task.schemas, Mapping) else ""
        if document.text is None or name not in compiled:
            unreadable += 1
            continue
        try:
            sizes.append(len(compiled[name].codec.encode(document.text)))
        except InputError:  # the tokenizer fails on this text
            unreadable += 1
            continue
        too_long += not fits(name, document.text)

    timed, seconds = _timed(partial(task.stream, extractor), sample)
    return Estimate(
        rows=total,
        sample=len(sample),
        duplicates=duplicates.note(),
        tokens=sum(sizes),
        longest=max(sizes, default=0),
        instruction_tokens=max(len(item.instruction) for item in compiled.values()),
        too_long=too_long,
        unreadable=unreadable,
        timed=timed,
        seconds_per_row=seconds / timed if timed else None,
    )


def _timed(run: Any, sample: list[Record]) -> tuple[int, float]:
    """(rows, seconds): the first row alone pays for what is made once."""
    for _ in run(sample[:1]):
        pass
    timed, started = 0, time.monotonic()
    with closing(run(sample[:_MOST_TIMED])) as items:
        for _ in items:
            timed += 1
            if time.monotonic() - started > _MOST_SECONDS:
                break
    return timed, time.monotonic() - started
