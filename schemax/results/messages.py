"""Reasons, on one line each."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import ValidationError

_LONGEST = 300


def one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def joined(messages: Iterable[str]) -> str:
    return one_line("; ".join(dict.fromkeys(messages)))


def reason_of(error: Exception) -> str:
    """A ValueError's own message; of other exceptions the type as well."""
    if isinstance(error, ValidationError):  # its text has lines, and an address on each
        details = error.errors(include_url=False, include_context=False, include_input=False)
        return joined([f"{error.title}: {detail['msg']}" for detail in details])
    if type(error) is ValueError and str(error):
        return one_line(str(error))
    return one_line(f"{type(error).__name__}: {error}")
