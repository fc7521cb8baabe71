"""Reads CSV, text in UTF-8 with a header, row by row.

The delimiter is the comma, or the semicolon or tab if the header has more of these, as spreadsheets
of many countries write them; for .tsv it is the tab.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import BinaryIO

from schemax.errors import InputError
from schemax.io.records import LONGEST, TOO_LONG, Record, check_names
from schemax.io.storage import suffixes

DELIMITERS = ",;\t"
# A cell in quotes, behind any delimiter.
_QUOTED_CELL = re.compile(r'(?:^|(?<=[,;\t]))"[^"]*(?:""[^"]*)*"')
# The most lines of a header, whose cells may hold line breaks.
_HEADER_LINES = 100
_LINE_ENDS = ("\r", "\n")


def read_header(handle: BinaryIO, name: str) -> list[str]:
    """The names of the columns; [] for an empty file. Raises InputError as `read_csv` does."""
    with closing(_rows(handle, name)) as rows:
        return next(rows, (0, []))[1] or []


def read_csv(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    """Yields records with cells as text, since ids such as 0042 are text; empty cells are None.

    Raises InputError for an invalid header, and for a quote that is never closed.
    """
    with closing(_rows(handle, name)) as rows:
        header = next(rows, (0, []))[1] or []
        for line, cells in rows:
            yield _record(header, cells, line)


def _record(header: Sequence[str], cells: Sequence[str] | None, line: int) -> Record:
    if cells is None:
        return InputError(f"line {line}: {TOO_LONG}")
    if len(cells) != len(header):
        return InputError(
            f"line {line}: number of cells {len(cells)}, but the header has {len(header)}"
        )
    if any(map(_is_broken, cells)):
        return InputError(f"line {line}: not valid UTF-8")
    return {key: cell or None for key, cell in zip(header, cells, strict=True)}


def _rows(handle: BinaryIO, name: str) -> Generator[tuple[int, list[str] | None], None, None]:
    """Yields (last line, cells) of header and rows, without blank rows; None for too long a row."""
    csv.field_size_limit(LONGEST)  # as for a row
    # Bytes that are no UTF-8 become lone surrogates, and cost their own row only.
    text = io.TextIOWrapper(handle, "utf-8-sig", errors="surrogateescape", newline="")
    pieces = iter(partial(text.readline, LONGEST), "")
    try:
        ahead: list[str] = []
        taken = quotes = length = 0
        for piece in pieces:
            ahead.append(piece)
            taken += bool(taken or piece.strip())
            quotes += piece.count('"')
            length += len(piece)
            if taken and (quotes % 2 == 0 or taken == _HEADER_LINES or length > LONGEST):
                break
        delimiter = _delimiter("".join(ahead[len(ahead) - taken :]), name)
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
