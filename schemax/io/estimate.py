"""What a run would take, from a look at the beginning of its input."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import closing
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


def estimate(source: Source, task: Task, price_per_hour: float | None = None) -> Iterator[str]:
    """Lines of figures: counts, and the speed of up to 128 rows in at most about ten seconds.

    Raises what `Extractor.stream` raises.
    """
    extractor = task.loaded()
    compiled = compiled_schemas(extractor, task.schemas, task.options)
    fits = fits_model(extractor.model, compiled)
    with closing(source.rows()) as numbered:
        sample = [record for _, record in islice(numbered, SAMPLE)]
        rows = source.count()
        if rows is None:
            rows = len(sample) + sum(1 for _ in numbered)
    duplicates = Duplicates()
    sizes: list[int] = []
    fit = 0
    for document in read_documents(sample, task.shown):
        duplicates.add(document.id)
        name = (document.category or "") if isinstance(task.schemas, Mapping) else ""
        if document.text is None or name not in compiled:
            continue
        try:
            sizes.append(len(compiled[name].codec.encode(document.text)))
        except InputError:  # the tokenizer fails on this text
            continue
        fit += fits(name, document.text)
    readable = len(sizes)
    mean = sum(sizes) / max(1, readable)
    instruction = max(len(item.instruction) for item in compiled.values())
    yield f"rows: {rows:,}"
    yield f"sample: the first {counted(len(sample), 'row')}"
    yield f"duplicates: {duplicates.note() or 'none'}"
    yield (
        f"tokens: {mean:,.1f} per document (the longest {max(sizes, default=0):,}), and "
        f"{instruction:,} of instructions, read once"
    )
    yield f"tokens of all documents: about {sum(sizes) * rows / max(1, len(sample)):,.0f}"
    unreadable = len(sample) - readable
    yield f"fit the context: {fit:,} of {readable:,}; cannot be read: {unreadable:,}"
    timed, seconds = _timed(partial(task.stream, extractor), sample)
    if not timed:
        return
    hours = seconds / timed * rows / 3600
    speed = timed / max(1e-9, seconds)
    yield f"speed: {speed:,.1f} documents/s, measured on {counted(timed, 'row')}"
    yield f"expected: {hours:,.3g} hours"
    if price_per_hour is not None:
        yield f"expected cost: {hours * price_per_hour:,.2f}"


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
