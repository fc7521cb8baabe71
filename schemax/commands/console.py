"""What commands say on stderr: one line each, and never a traceback for a user's mistake."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from schemax.errors import SchemaxError
from schemax.messages import harmless, one_line


class UsageError(SchemaxError):
    """Options or arguments that cannot be used."""


def say(text: str) -> None:
    """One line on stderr, whatever the text holds."""
    print(harmless(one_line(text)), file=sys.stderr, flush=True)


@contextmanager
def refused_settings() -> Iterator[None]:
    """Turns the ValueError of a setting into a UsageError.

    To be put around the reading of settings only: elsewhere a ValueError is a bug, and should
    show where it came from.
    """
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


@contextmanager
def plain_warnings(*, quiet: bool = False) -> Iterator[None]:
    """Shows warnings meant for users as one line each, once, and hides those for developers."""
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
