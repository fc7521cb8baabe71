"""Tables and texts on the terminal."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from schemax.base.messages import say

Item = TypeVar("Item")
Columns: TypeAlias = Mapping[str, Callable[[Any], Any]]
"""The title of a column -> the cell of an item."""


def table(
    items: Iterable[Item], columns: Mapping[str, Callable[[Item], Any]], *, left: int = 1
) -> Table:
    """A row per item, a cell per column. Floats have three decimals, and None is a dash.

    left: the number of first columns that are aligned left; figures are aligned right.
    """
    rows = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for place, name in enumerate(columns):
        justify: Literal["left", "right"] = "left" if place < left else "right"
        rows.add_column(Text(name), justify=justify, overflow="fold")
    for item in items:
        rows.add_row(*(Text(_cell(of(item))) for of in columns.values()))
    return rows


def _cell(value: Any) -> str:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


_USUAL_WIDTH = 80
_WIDTH_OF_FILES = 1_000
_GAP = 2  # between two columns


def in_blocks(
    items: Sequence[Item], columns: Mapping[str, Callable[[Item], Any]], *, beside: int
) -> list[dict[str, Callable[[Item], Any]]]:
    """Splits columns into blocks that fit the terminal's width, for a table each.

    beside: the width of a column that stands in every table.
    """
    room = _console().width - beside - _GAP
    blocks: list[dict[str, Callable[[Item], Any]]] = [{}]
    used = 0
    for name, of in columns.items():
        cells = (name, *(_cell(of(item)) for item in items))
        width = max(len(line) for cell in cells for line in cell.split("\n")) + _GAP
        if blocks[-1] and used + width > room:
            blocks.append({})
            used = 0
        blocks[-1][name] = of
        used += width
    return blocks


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # ends the command line


def _console(*, on_stderr: bool = False) -> Console:
    """A console as wide as COLUMNS or the terminal says; one that writes a file folds no table."""
    console = _Console(stderr=on_stderr)
    if not (console.is_terminal or "COLUMNS" in os.environ):
        console.width = _WIDTH_OF_FILES
    elif not console.width:  # COLUMNS=0, or a terminal that does not know its width
        console.width = _USUAL_WIDTH
    return console


def show(*parts: str | Table, on_stderr: bool = False) -> None:
    """Shows tables and texts. Raises BrokenPipeError where nobody reads stdout."""
    console = _console(on_stderr=on_stderr)
    for part in parts:
        if not isinstance(part, str):
            console.print(part)
        elif on_stderr:
            say(part)
        else:
            print(part)
