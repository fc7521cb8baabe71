"""Records, and reading them from JSON Lines, row by row."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from numbers import Number
from typing import Any, BinaryIO, TypeAlias

from pydantic_core import PydanticSerializationError, to_jsonable_python

from schemax.base.messages import clipped
from schemax.errors import InputError

Record: TypeAlias = "Mapping[str, Any] | str | InputError"
"""A record, or the error in the place of a record that could not be read."""

STANDARD = "-"
"""The name of stdin and stdout."""

LONGEST = 16 << 20
"""The most bytes of a line of JSON Lines, and characters of a row of CSV or of another cell."""


class Unreadable(InputError):
    """A row with an unreadable cell. cells: the other cells, which may be kept."""

    def __init__(self, message: str, cells: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.cells = cells


def cells_of(record: object) -> Mapping[str, Any]:
    """The cells of a record, or the readable cells of an unreadable one."""
    return record.cells if isinstance(record, Unreadable) else {}


def plain(value: Any) -> Any:
    """A value in Python's types of JSON, if it has one of these forms.

    Dates, times and durations become ISO 8601, bytes the text in UTF-8 that they hold; a UUID or an
    address becomes a text. Other values, such as images, stay what they are.
    """
    if value is None or isinstance(value, (str, Number)):
        return value
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if hasattr(value, "isoformat"):
        return value.isoformat()
    try:
        return value.decode() if isinstance(value, bytes) else to_jsonable_python(value)
    except (UnicodeDecodeError, PydanticSerializationError):
        return value  # bytes that are no text may be kept, but not shown


TOO_LONG = "longer than 16 MiB"

_NAMES = {list: "an array", bool: "true or false", type(None): "null"}


def bounded_lines(handle: BinaryIO) -> Iterator[bytes | None]:
    """Yields lines; None in place of a line longer than LONGEST, which is not read as a whole."""
    while line := handle.readline(LONGEST + 1):
        is_whole = len(line) <= LONGEST or line.endswith(b"\n")
        yield line if is_whole else None
        while not is_whole:
            piece = handle.readline(LONGEST)
            is_whole = not piece or piece.endswith(b"\n")


def read_records(lines: Iterable[bytes | None]) -> Iterator[Record]:
    """Yields the records of a JSON Lines file, an object or string per line; skips blank lines.

    An InputError that names the line takes the place of a line without a record. Extracting from it
    gives a failed row, so that order and count hold.
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
        if line.count(b"[") + line.count(b"{") > 200:
            to_jsonable_python(value)  # at most 254 levels
    except UnicodeDecodeError as error:
        return InputError(f"line {number}: not valid UTF-8 at byte {error.start + 1}")
    except json.JSONDecodeError as error:
        reason = error.msg.removesuffix(" at")  # "Unterminated string starting at"
        return InputError(f"line {number}: broken JSON: {reason} at column {error.colno}")
    except (ValueError, RecursionError) as error:  # numbers too long, brackets too deep
        return InputError(f"line {number}: JSON that cannot be read: {error}")
    if isinstance(value, (dict, str)):
        return value
    kind = _NAMES.get(type(value), "a number")
    return InputError(f"line {number}: a record must be an object or a string, not {kind}")


def check_names(columns: Sequence[str], name: str) -> None:
    """Raises InputError for two columns of one name, of which a record could hold but one."""
    if len(set(columns)) < len(columns):
        twice = next(key for key in columns if columns.count(key) > 1)
        raise InputError(f"cannot read {name}: two columns are named {clipped(repr(twice))}")


def check_header(header: list[str] | InputError, name: str) -> list[str]:
    """The header, with names for columns without one. Raises InputError for an invalid header."""
    if isinstance(header, InputError):
        raise InputError(f"cannot read {name}: its header is in {header}")
    if any(map(is_broken, header)) or "\0" in "".join(header):
        raise InputError(f"cannot read {name}: its header is not UTF-8; save it as CSV in UTF-8")
    named = [cell or f"column {place}" for place, cell in enumerate(header, 1)]
    check_names(named, name)
    return named


def is_broken(cell: str) -> bool:
    """True if a text was decoded from bytes that are no UTF-8."""
    return not cell.isascii() and any("\udc80" <= character <= "\udcff" for character in cell)
