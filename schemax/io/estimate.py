"""Estimates the time of a run, from its input and from extracting a sample."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from math import sqrt
from statistics import mean, stdev
from typing import Any

from schemax.base.messages import counted
from schemax.errors import InputError
from schemax.extraction.documents import Document, read_documents
from schemax.io.long_documents import fits_model
from schemax.io.readers import InputFiles
from schemax.io.records import Record
from schemax.io.summary import Duplicates
from schemax.io.task import Task

# Rows are drawn as blocks of neighbours, so that repeats stay together.
_BLOCK, _MOST_BLOCKS = 64, 32
_MOST_SECONDS_READING = 30.0
_FIRST_ROUND = 16  # rows; every round has twice as many as the one before
_SECONDS, _MOST_SECONDS = 10.0, 60.0  # of extracting; the latter if there are too few rows
_ENOUGH = 64
_WHEN_FULL = 0.7  # the share of a row's time in a round that it takes with many more in flight
_UNITS = ((3600, "hours"), (60, "minutes"), (1, "seconds"))
_UNCERTAINTY = 0.25  # of a machine's speed from one minute to the next


@dataclass(slots=True)
class _Look:
    """Findings about the input's rows. all_of_them: whether all rows were read."""

    rows: int = 0
    repeats: int = 0
    all_of_them: bool = True
    duplicates: Duplicates = field(default_factory=Duplicates)
    blocks: list[list[tuple[Record, Document]]] = field(default_factory=list)


def estimate(
    source: InputFiles,
    task: Task,
    price_per_hour: float | None = None,
    wanted: int | None = None,
) -> Iterator[str]:
    """Yields lines of figures: counts, and a range of the time, by extracting from a sample.

    price_per_hour: in dollars.
    wanted: the number of rows to estimate for, of which the source is a sample; None: its own rows.

    Raises as `Extractor.stream` does.
    """
    extractor = task.loaded()
    compiled = task.compiled(extractor)
    fits = fits_model(extractor.model, compiled)
    look = _look(source, task)
    rows = look.rows if look.all_of_them else source.count() or look.rows
    sample = list(chain(*look.blocks))
    sizes: list[int] = []
    fit = 0
    for _, document in sample:
        name = (document.category or "") if isinstance(task.schemas, Mapping) else ""
        if document.text is None or name not in compiled:
            continue
        try:
            sizes.append(len(compiled[name].codec.encode(document.text)))
        except InputError:  # the tokenizer fails on this text
            continue
        fit += fits(name, document.text)
    readable = len(sizes)
    instruction = max(len(item.instruction) for item in compiled.values())
    at_least = "" if rows > look.rows or look.all_of_them else "at least "
    yield f"rows: {at_least}{rows:,}"
    if wanted is not None:
        rows = wanted
        yield f"estimated for: {counted(rows, 'row')} like these"
    extent = "all rows" if look.all_of_them else f"the first {counted(look.rows, 'row')}"
    yield f"sample: {counted(len(sample), 'row')} out of {extent}"
    yield f"duplicates: {look.duplicates.note() or 'none'}"
    spared = rows * look.repeats // max(1, look.rows)
    yield f"repeats: {counted(look.repeats, 'row')} with the text of an earlier row, computed once"
    yield (
        f"tokens: {sum(sizes) / max(1, readable):,.1f} per document (the longest "
        f"{max(sizes, default=0):,}), and {instruction:,} of instructions, read once"
    )
    yield f"tokens of all documents: about {sum(sizes) * rows / max(1, len(sample)):,.0f}"
    unreadable = len(sample) - readable
    yield f"fit the context: {fit:,} of {readable:,}; cannot be read: {unreadable:,}"
    if not sample:
        return
    rounds = _rounds(partial(task.stream, extractor), [record for record, _ in sample])
    timed = sum(number for number, _ in rounds)
    low, high = (value * (rows - spared) for value in _seconds_per_row(rounds, look.blocks))
    seconds = sum(spent for _, spent in rounds)
    yield f"speed: {timed / seconds:,.1f} documents/s, measured on {counted(timed, 'row')}"
    yield f"expected: {_span(low, high)}"
    if price_per_hour is not None:
        costs = (dollars(value / 3600 * price_per_hour) for value in (low, high))
        yield f"expected cost: {' to '.join(costs)}"


def _span(low: float, high: float) -> str:
    """A range of seconds in the unit that people use: "3.1 to 4.5 minutes"."""
    unit, name = next(pair for pair in _UNITS if high >= 2 * pair[0] or pair[0] == 1)
    figures = (f"{value / unit:,.{int(value < 10 * unit)}f}" for value in (low, high))
    return f"{' to '.join(figures)} {name}"


def dollars(cost: float) -> str:
    """A cost as people write it: to the cent from a dollar on, else to four digits, "$0.0013"."""
    return f"${cost:,.2f}" if cost >= 1 else f"${cost:.4f}"


def _look(source: InputFiles, task: Task) -> _Look:
    """Reads the input, for half a minute at most, and draws blocks with equal probability."""
    look, drawn, texts = _Look(), random.Random(0), set[int]()
    started = time.monotonic()
    with closing(source.rows()) as numbered:
        while block := [record for _, record in islice(numbered, _BLOCK)]:
            documents = list(read_documents(iter(block), task.shown))
            for document in documents:
                look.duplicates.add(document.id)
                key = hash((document.category, document.text))
                look.repeats += document.text is not None and key in texts
                texts.add(key)
            number = look.rows // _BLOCK
            look.rows += len(block)
            pairs = list(zip(block, documents, strict=True))
            if len(look.blocks) < _MOST_BLOCKS:
                look.blocks.append(pairs)
            elif (place := drawn.randrange(number + 1)) < _MOST_BLOCKS:
                look.blocks[place] = pairs
            if time.monotonic() - started > _MOST_SECONDS_READING:
                look.all_of_them = next(numbered, None) is None
                break
    drawn.shuffle(look.blocks)
    return look


def _rounds(run: Any, sample: list[Record]) -> list[tuple[int, float]]:
    """(rows, seconds) of rounds, each twice as long as the one before.

    A first row, not counted, pays for everything that is made once.
    """
    for _ in run(sample[:1]):
        pass
    rounds: list[tuple[int, float]] = []
    at, size, spent = 0, _FIRST_ROUND, 0.0
    while at < len(sample) and (spent < _SECONDS or (at < _ENOUGH and spent < _MOST_SECONDS)):
        rows = sample[at : at + size]
        started = time.monotonic()
        for _ in run(rows):
            pass
        rounds.append((len(rows), max(1e-9, time.monotonic() - started)))
        at, size, spent = at + len(rows), 2 * size, spent + rounds[-1][1]
    return rounds


def _seconds_per_row(
    rounds: list[tuple[int, float]], blocks: list[list[tuple[Record, Document]]]
) -> tuple[float, float]:
    """The least and the most seconds per row of a long run.

    A round begins and ends with few rows in flight, which a long run does only once. So its rows
    take at most as long as in the longest round, and at least as the rows that this round had more
    than another one.
    """
    ordered = sorted(rounds)
    rows, seconds = ordered[-1]
    rates = [seconds / rows, _WHEN_FULL * seconds / rows]
    for fewer, less in ordered[:-1]:
        if rows >= 2 * fewer and seconds > less:
            rates.append(max((seconds - less) / (rows - fewer), rates[0] / 2))
    lengths = [mean(len(document.text or "") for _, document in block) for block in blocks]
    spread = 0.0
    if len(lengths) > 1:
        spread = 2 * stdev(lengths) / max(1e-9, mean(lengths)) / sqrt(len(lengths))
    width = 1 + _UNCERTAINTY + min(1.0, spread)
    return min(rates) / width, max(rates) * width
