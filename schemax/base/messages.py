"""Messages on one line: reasons for errors, and texts that may hold line breaks."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from itertools import islice
from operator import itemgetter
from traceback import walk_stack
from typing import Any

from pydantic import ValidationError

_LONGEST = 300
_MOST_NAMES = 40

# Characters that control terminals or the direction of writing.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def one_line(text: object) -> str:
    """The text with every run of white space as one space."""
    return " ".join(str(text).split())


def harmless(text: str) -> str:
    """The text with control characters written out: \\x1b for an escape."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def say(text: str) -> None:
    """Writes a line to stderr, whatever the text holds."""
    print(harmless(one_line(text)), file=sys.stderr, flush=True)


def clipped(text: str) -> str:
    """The text on one line of at most 300 characters."""
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def some_of(names: Iterable[object]) -> str:
    """The first 40 names, each clipped."""
    first = [clipped(str(name)) for name in islice(names, _MOST_NAMES + 1)]
    return ", ".join([*first[:_MOST_NAMES], *(["..."] if len(first) > _MOST_NAMES else [])])


def perhaps(name: str, names: Iterable[str]) -> str:
    """ ", perhaps 'title'": suggests the name that was meant; "" if none is close."""
    close = get_close_matches(name, names, 1)
    return f", perhaps {close[0]!r}" if close else ""


def counted(number: int, one: str, several: str | None = None) -> str:
    """ "1 row", "2,000 rows". several: the plural that is not `one` with an s."""
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def joined(messages: Iterable[str]) -> str:
    """Different messages in one, clipped."""
    return clipped("; ".join(dict.fromkeys(messages)))


def reason_of(error: Exception) -> str:
    """A ValueError's own message; of other exceptions the type as well."""
    if isinstance(error, ValidationError):  # its text has lines, and an address on each
        details = error.errors(include_url=False, include_context=False, include_input=False)
        return joined([f"{error.title}: {detail['msg']}" for detail in details])
    try:
        said = str(error)
    except Exception:  # of an exception of the user's own, which must not end a run
        said = ""
    if isinstance(error, ArithmeticError) and "<class" in said:  # decimal names its signals
        said = "no number that can be computed with"
    if type(error) is ValueError and said:
        return clipped(said)
    return clipped(f"{type(error).__name__}: {said}" if said else type(error).__name__)


def message_of(detail: Mapping[str, Any]) -> str:
    """The message of one of Pydantic's errors.

    A bare number in a date has a message of its own, since Pydantic speaks of a time: it takes the
    number for seconds.
    """
    if detail["type"] == "date_from_datetime_inexact":
        return "Input should be a date without a time, not a bare number"
    found: str = detail["msg"]
    return found


def misfit_of(error: ValidationError) -> str:
    """The first error in data, with its place: "engines.0.name: Field required"."""
    wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(map(str, wrong["loc"]))
    return clipped(f"{place}: {wrong['msg']}" if place else wrong["msg"])


def warn(message: str | Warning) -> None:
    """Warns, as UserWarning, of the line that called schemax: no line of schemax's own is shown."""
    frames = map(itemgetter(0), walk_stack(sys._getframe()))
    ours = [frame.f_globals.get("__name__", "").partition(".")[0] == "schemax" for frame in frames]
    # Behind the first call, since other modules may stand between calls of ours.
    warnings.warn(message, UserWarning, stacklevel=len(ours) - ours[::-1].index(True) + 1)
