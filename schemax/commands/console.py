"""Output of commands: results on stdout, and on stderr one line each, never a traceback."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from schemax.errors import SchemaxError
from schemax.messages import one_line, say

Item = TypeVar("Item")


class UsageError(SchemaxError):
    """Options or arguments that cannot be used."""


def listed(text: str) -> list[str]:
    """The names in the value of an option, separated by commas."""
    return [name for part in text.split(",") if (name := part.strip())]


def table(
    items: Iterable[Item], columns: Mapping[str, Callable[[Item], Any]], *, left: int = 1
) -> Table:
    """A row per item, a cell per column; the first few columns stand left, figures right.

    Floats get three digits behind the point, and None is a dash.
    """
    made = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for place, name in enumerate(columns):
        justify: Literal["left", "right"] = "left" if place < left else "right"
        made.add_column(Text(name), justify=justify, overflow="fold")
    for item in items:
        made.add_row(*(Text(_cell(of(item))) for of in columns.values()))
    return made


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


_USUAL_WIDTH = 80


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # for the command line to end as it does everywhere


def show(*parts: str | Table) -> None:
    """Tables and texts on stdout. Raises BrokenPipeError where nobody reads stdout."""
    console = _Console()
    if not console.width:  # COLUMNS=0, or a terminal that does not know its width
        console.width = _USUAL_WIDTH
    for part in parts:
        print(part) if isinstance(part, str) else console.print(part)


@contextmanager
def refused_settings(where: str = "") -> Iterator[None]:
    """Turns the ValueError of a setting into a UsageError. where: the head of its message.

    To be put around the reading of settings only: elsewhere a ValueError is a bug, and should
    show where it came from.
    """
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{where}{error}") from error


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
