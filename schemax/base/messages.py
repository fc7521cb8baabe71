"""Messages on one line: reasons for errors, warnings, and progress on stderr."""

from __future__ import annotations

import logging
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from traceback import walk_stack
from typing import Any, TypeVar

from pydantic import ValidationError

_LONGEST = 300
_MOST_NAMES = 40

# Characters that control terminals or the direction of writing.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def one_line(text: object) -> str:
    """The text with every run of white space as one space."""
    return " ".join(str(text).split())


def escape_controls(text: str) -> str:
    """The text with control characters written out: \\x1b for an escape."""
    return _CONTROLS.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def say(text: str) -> None:
    """Writes a line to stderr, whatever the text holds."""
    print(escape_controls(one_line(text)), file=sys.stderr, flush=True)


def clipped(text: str) -> str:
    """The text on one line of at most 300 characters."""
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def some_of(names: Iterable[object]) -> str:
    """The first 40 names, each clipped."""
    first = [clipped(str(name)) for name in islice(names, _MOST_NAMES + 1)]
    return ", ".join([*first[:_MOST_NAMES], *(["..."] if len(first) > _MOST_NAMES else [])])


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """ ", perhaps 'title'": suggests the name that was meant; "" if none is close."""
    close = get_close_matches(name, names, 1)
    return f", perhaps {close[0]!r}" if close else ""


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """ "1 row", "2,000 rows". plural: the noun's plural; None adds an s."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def joined(messages: Iterable[str]) -> str:
    """Different messages in one, clipped."""
    return clipped("; ".join(dict.fromkeys(messages)))


def reason_of(error: Exception) -> str:
    """A ValueError's own message; of other exceptions the type as well."""
    if isinstance(error, ValidationError):  # its text has lines, and an address on each
        details = error.errors(include_url=False, include_context=False, include_input=False)
        return joined([f"{error.title}: {detail['msg']}" for detail in details])
    try:
        text = str(error)
    except Exception:  # of an exception of the user's own, which must not end a run
        text = ""
    if isinstance(error, ArithmeticError) and "<class" in text:  # decimal names its signals
        text = "no number that can be computed with"
    if type(error) is ValueError and text:
        return clipped(text)
    return clipped(f"{type(error).__name__}: {text}" if text else type(error).__name__)


def message_of(detail: Mapping[str, Any]) -> str:
    """The message of one of Pydantic's errors.

    Pydantic takes a bare number in a date for seconds, and so speaks of a time; its message is
    replaced.
    """
    if detail["type"] == "date_from_datetime_inexact":
        return "Input should be a date without a time, not a bare number"
    message: str = detail["msg"]
    return message


def misfit_of(error: ValidationError) -> str:
    """The first error in data, with its place: "engines.0.name: Field required"."""
    wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, wrong["loc"]))
    return clipped(f"{place}: {wrong['msg']}" if place else wrong["msg"])


@lru_cache(maxsize=256)
def note_once(note: str) -> None:
    """Logs a warning, once in a process: a file is opened for its columns and for its rows."""
    logging.getLogger("schemax").warning("%s", note)


def warn(message: str | Warning) -> None:
    """Warns, as UserWarning, at the line of the user's code that called schemax."""
    frames = map(itemgetter(0), walk_stack(sys._getframe()))
    ours = [frame.f_globals.get("__name__", "").partition(".")[0] == "schemax" for frame in frames]
    # Other modules may stand between two calls of schemax.
    warnings.warn(message, UserWarning, stacklevel=len(ours) - ours[::-1].index(True) + 1)


T = TypeVar("T")

_SECONDS_BETWEEN_LINES = 10.0


def track(
    items: Iterable[T],
    *,
    total: int | None,
    unit: str = "documents",
    note: Callable[[], str] = str,
    bar: bool = True,
) -> Iterator[T]:
    """Yields items unchanged; shows their number, speed, remaining time and a note.

    A terminal shows a bar, unless `bar` is False; a file gets a line now and then.
    """
    if bar and sys.stderr.isatty():
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
    done, printed, rate = 0, time.monotonic(), 0.0
    for item, rate in _timed(items):
        done += 1
        if time.monotonic() - printed >= _SECONDS_BETWEEN_LINES:
            printed = time.monotonic()
            left = "" if not rate or total is None else f", {(total - done) / rate:,.0f} s left"
            _say(done, total, rate, unit, left, note())
        yield item
    _say(done, total, rate, unit, "", note())


def _timed(items: Iterable[T]) -> Iterator[tuple[T, float]]:
    started = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item, done / max(1e-9, time.monotonic() - started)


def _say(done: int, total: int | None, rate: float, unit: str, left: str, note: str) -> None:
    of = "" if total is None else f" of {total:,}"
    more = f", {note}" if note else ""
    print(f"{done:,}{of} {unit}, {rate:,.1f}/s{left}{more}", file=sys.stderr, flush=True)
