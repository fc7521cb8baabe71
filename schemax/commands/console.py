"""Errors and warnings of commands: a line each on stderr, never a traceback."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from schemax.base.messages import one_line, say
from schemax.errors import SchemaxError


class UsageError(SchemaxError):
    """Options or arguments that cannot be used."""


def listed(text: str) -> list[str]:
    """Splits the value of an option into names at commas."""
    return [name for part in text.split(",") if (name := part.strip())]


@contextmanager
def refused_settings(where: str = "") -> Iterator[None]:
    """Turns the ValueError of a setting into a UsageError. where: the head of its message.

    For code that reads settings only: elsewhere a ValueError is a bug, whose traceback should be
    seen.
    """
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{where}{error}") from error


@contextmanager
def plain_warnings(*, quiet: bool = False) -> Iterator[None]:
    """Shows each warning for users once, as one line, and hides warnings for developers."""
    said: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = one_line(message)
        if text not in said:
            said.add(text)
            say(f"note: {text}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not quiet:
            warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield
