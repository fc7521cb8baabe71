"""Messages on one line: reasons for errors, and texts that may hold line breaks."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

_LONGEST = 300


def one_line(text: object) -> str:
    """The text with every run of white space as one space."""
    return " ".join(str(text).split())


def clipped(text: str) -> str:
    """The text on one line of at most 300 characters."""
    line = one_line(text)
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def joined(messages: Iterable[str]) -> str:
    """Different messages in one, clipped."""
    return clipped("; ".join(dict.fromkeys(messages)))


def reason_of(error: Exception) -> str:
    """A ValueError's own message; of other exceptions the type as well."""
    if isinstance(error, ValidationError):  # its text has lines, and an address on each
        details = error.errors(include_url=False, include_context=False, include_input=False)
        return joined([f"{error.title}: {detail['msg']}" for detail in details])
    if type(error) is ValueError and str(error):
        return clipped(str(error))
    return clipped(f"{type(error).__name__}: {error}")
