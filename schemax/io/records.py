"""Records, and reading them from JSON Lines and CSV, row by row.

CSV is text in UTF-8 with a header. The delimiter is the comma, or the semicolon or tab if the
header has more of these, as spreadsheets of many countries write them; for .tsv it is the tab.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any, BinaryIO, TypeAlias

from schemax.base.messages import clipped
from schemax.errors import InputError
from schemax.io.storage import suffixes

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


DELIMITERS = ",;\t"
# A cell in quotes, behind any delimiter.
_QUOTED_CELL = re.compile(r'(?:^|(?<=[,;\t]))"[^"]*(?:""[^"]*)*"')
# The most lines of a header, whose cells may hold line breaks.
_HEADER_LINES = 100
_LINE_ENDS = ("\r", "\n")


def read_header(handle: BinaryIO, name: str) -> list[str]:
    """The names of the columns; [] for an empty file. Raises InputError as `read_csv` does."""
    with closing(_csv_rows(handle, name)) as rows:
        return next(rows, (0, []))[1] or []


def read_csv(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    """Yields records with cells as text, since ids such as 0042 are text; empty cells are None.

    Raises InputError for an invalid header, and for a quote that is never closed.
    """
    with closing(_csv_rows(handle, name)) as rows:
        header = next(rows, (0, []))[1] or []
        for line, cells in rows:
            yield _csv_record(header, cells, line)


def _csv_record(header: Sequence[str], cells: Sequence[str] | None, line: int) -> Record:
    if cells is None:
        return InputError(f"line {line}: {TOO_LONG}")
    if len(cells) != len(header):
        return InputError(
            f"line {line}: number of cells {len(cells)}, but the header has {len(header)}"
        )
    if any(map(_is_broken, cells)):
        return InputError(f"line {line}: not valid UTF-8")
    return {key: cell or None for key, cell in zip(header, cells, strict=True)}


def _csv_rows(handle: BinaryIO, name: str) -> Generator[tuple[int, list[str] | None], None, None]:
    """Yields (last line, cells) of header and rows, without blank rows; None for too long a row."""
    csv.field_size_limit(LONGEST)  # as for a row
    # Bytes that are no UTF-8 become lone surrogates, and cost their own row only.
    text = io.TextIOWrapper(handle, "utf-8-sig", errors="surrogateescape", newline="")
    pieces = iter(partial(text.readline, LONGEST), "")
    try:
        ahead: list[str] = []
        lines_of_header = quotes = length = 0
        for piece in pieces:
            ahead.append(piece)
            lines_of_header += bool(lines_of_header or piece.strip())
            quotes += piece.count('"')
            length += len(piece)
            if lines_of_header and (
                quotes % 2 == 0 or lines_of_header == _HEADER_LINES or length > LONGEST
            ):
                break
        delimiter = _delimiter("".join(ahead[len(ahead) - lines_of_header :]), name)
        lines = _Lines(chain(ahead, pieces))
        header: list[str] | None = None
        for row in csv.reader(lines, delimiter=delimiter):
            if lines.is_open:  # at the end of a file, the module closes quotes by itself
                raise InputError(
                    f"cannot read {name} any further: a quote in line {lines.first} is not closed"
                )
            cells = None if lines.is_long else row
            if header is None and cells != []:
                header = cells
                check_header(header, name)
            if cells != []:
                yield lines.number, cells
            lines.begin_row()
    finally:
        text.detach()


class _Lines:
    """Lines for the csv module, which cut rows that are too long.

    pieces: lines, or pieces of lines that are too long.
    number: the number of the last line; first: of the row's first line.
    is_long: whether the row is too long. Such a row ends with the first line behind which all
        quotes are closed. is_open: whether the file has ended inside quotes.
    """

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces, self.number, self._is_new, self.is_open = pieces, 0, True, False
        self.begin_row()

    def begin_row(self) -> None:
        self.first, self._length, self._quotes, self.is_long = self.number + 1, 0, 0, False

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        is_begun = self._length > 0  # a further line of a row: the module is inside quotes
        for piece in self._pieces:
            self.number += self._is_new
            self._is_new = piece.endswith(_LINE_ENDS)
            self._length += len(piece)
            self._quotes += piece.count('"')
            if self._length < LONGEST:
                return piece
            self.is_long = True
            if self._is_new and self._quotes % 2 == 0:
                break
        else:
            self.is_open = self._quotes % 2 == 1 if self.is_long else is_begun
            if not self.is_long:
                raise StopIteration
        return '"\n' if is_begun else "x\n"


def _delimiter(start: str, name: str) -> str:
    """The most frequent delimiter of the header outside quotes; for .tsv the tab."""
    if suffixes(name)[0] == ".tsv":
        return "\t"
    header = re.split(r"[\r\n]", _QUOTED_CELL.sub("", start), maxsplit=1)[0]
    return max(DELIMITERS, key=header.count)  # the first of equals


def check_header(header: Sequence[str] | None, name: str) -> None:
    """Raises InputError for an invalid header."""
    if header is None:
        raise InputError(f"cannot read {name}: its header is {TOO_LONG}")
    if any(map(_is_broken, header)):
        raise InputError(f"cannot read {name}: its header is not UTF-8; save it as CSV in UTF-8")
    check_names(header, name)


def _is_broken(cell: str) -> bool:
    return not cell.isascii() and any("\udc80" <= character <= "\udcff" for character in cell)
