"""Progress on stderr: a bar on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

_SECONDS_BETWEEN_LINES = 10.0


def track(
    items: Iterable[T],
    *,
    total: int | None,
    unit: str = "documents",
    note: Callable[[], str] = str,
) -> Iterator[T]:
    """Yields items unchanged and shows their number, speed, remaining time and a note."""
    if sys.stderr.isatty():
        return _bar(items, total, unit, note)
    return _lines(items, total, unit, note)


def _bar(items: Iterable[T], total: int | None, unit: str, note: Callable[[], str]) -> Iterator[T]:
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.SpinnerColumn(),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TextColumn("{task.fields[rate]}"),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total, rate="")
        for done, (item, rate) in enumerate(_timed(items), 1):
            progress.update(task, completed=done, rate=f"{rate:,.1f} {unit}/s {note()}")
            yield item


def _lines(
    items: Iterable[T], total: int | None, unit: str, note: Callable[[], str]
) -> Iterator[T]:
    done, said, rate = 0, time.monotonic(), 0.0
    for item, rate in _timed(items):
        done += 1
        if time.monotonic() - said >= _SECONDS_BETWEEN_LINES:
            said = time.monotonic()
            _say(done, total, rate, unit, note())
        yield item
    _say(done, total, rate, unit, note())


def _timed(items: Iterable[T]) -> Iterator[tuple[T, float]]:
    started = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item, done / max(1e-9, time.monotonic() - started)


def _say(done: int, total: int | None, rate: float, unit: str, note: str) -> None:
    of = "" if total is None else f" of {total:,}"
    left = "" if not rate or total is None else f", {(total - done) / rate:,.0f} s left"
    more = f", {note}" if note else ""
    print(f"{done:,}{of} {unit}, {rate:,.1f}/s{left}{more}", file=sys.stderr, flush=True)
