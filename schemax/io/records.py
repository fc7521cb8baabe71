"""Records, and JSON Lines of them."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, TypeAlias

from schemax.errors import InputError

Record: TypeAlias = "Mapping[str, Any] | str | InputError"
"""A record as readers give it; the error stands for one that could not be read."""

STANDARD = "-"
"""The name that stands for stdin and stdout."""

LONGEST = 16 << 20
"""Bytes of a line of JSON Lines; characters of a row of CSV and of a cell of other tables."""


class Unreadable(InputError):
    """A row of which one cell cannot be read; cells: the others, which may be kept."""

    def __init__(self, message: str, cells: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.cells = cells


def cells_of(record: object) -> Mapping[str, Any]:
    """The cells of a record, or of one that cannot be read as a whole."""
    return record.cells if isinstance(record, Unreadable) else {}


TOO_LONG = "longer than 16 MiB"

_NAMES = {list: "an array", bool: "true or false", type(None): "null"}


def bounded_lines(handle: BinaryIO) -> Iterator[bytes | None]:
    """Lines; None in place of one longer than LONGEST, which is never in memory as a whole."""
    while line := handle.readline(LONGEST + 1):
        is_whole = len(line) <= LONGEST or line.endswith(b"\n")
        yield line if is_whole else None
        while not is_whole:
            rest = handle.readline(LONGEST)
            is_whole = not rest or rest.endswith(b"\n")


def read_records(lines: Iterable[bytes | None]) -> Iterator[Record]:
    """The records of a JSON Lines file: one object or string per line; blank lines are skipped.

    In place of a line that holds no record comes an InputError that names the line. Extracting
    from it gives a failed row, so that order and count hold and the other lines are done.
    """
    for number, line in enumerate(lines, 1):
        if line is None:
            yield InputError(f"line {number}: {TOO_LONG}")
            continue
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.strip():
            yield _record(line, number)


def _record(line: bytes, number: int) -> Record:
    try:
        value = json.loads(line.decode().rstrip("\r\n"))
    except UnicodeDecodeError as error:
        return InputError(f"line {number}: not valid UTF-8 at byte {error.start + 1}")
    except json.JSONDecodeError as error:
        reason = error.msg.removesuffix(" at")  # "Unterminated string starting at"
        return InputError(f"line {number}: broken JSON: {reason} at column {error.colno}")
    except (ValueError, RecursionError) as error:  # numbers too long, brackets too deep
        return InputError(f"line {number}: JSON that cannot be read: {error}")
    if isinstance(value, (dict, str)):
        return value
    found = _NAMES.get(type(value), "a number")
    return InputError(f"line {number}: a record must be an object or a string, not {found}")
