"""Reads the records of CSV row by row, and finds what divides and quotes the cells of a file.

CSV is text in UTF-8, or as its byte order mark tells, with a header. Only quotes around a whole
cell are quotes.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import BinaryIO, NamedTuple, TypeAlias

from schemax.base.messages import clipped, note_once
from schemax.errors import InputError
from schemax.io.html_files import MARKS
from schemax.io.records import LONGEST, TOO_LONG, Record, check_header, is_broken
from schemax.io.storage import suffixes

# Of two delimiters that divide a file alike, the first is taken: texts and numbers have commas.
DELIMITERS = "\t|;,"
# A cell in quotes, behind any delimiter.
_QUOTED_CELL = re.compile(r'(?:^|(?<=[\t|;,]))"[^"]*(?:""[^"]*)*"')
# The line before the header in which Excel names the delimiter.
_HINT = re.compile(r'"?sep=(\t|[^\w\s"])"?\r?\n', re.IGNORECASE)
# The characters of a file by which its dialect is chosen.
_HEAD = 1 << 18
_LINE_ENDS = ("\r", "\n")


class _Dialect(NamedTuple):
    """quoted: whether quotes enclose cells. escaped: whether \\" is a quote within a cell."""

    delimiter: str
    quoted: bool = True
    escaped: bool = False


_Rows: TypeAlias = Iterator[tuple[int, list[str] | InputError]]
"""(last line, cells) of rows that are not blank."""


def read_header(handle: BinaryIO, name: str) -> list[str]:
    """The names of the columns; [] for an empty file. Raises InputError as `read_csv` does."""
    with _header_and_rows(handle, name) as (header, _):
        return header


def read_csv(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    """Yields records with cells as text, since ids such as 0042 are text; empty cells are None.

    Raises InputError for an invalid header.
    """
    with _header_and_rows(handle, name) as (header, rows):
        for line, cells in rows:
            if isinstance(cells, InputError):
                yield cells
            elif not _fits(cells, len(header)):
                counts = f"{len(cells)}, but the header has {len(header)}"
                yield InputError(f"line {line}: number of cells {counts}")
            elif any(map(is_broken, cells)):
                yield InputError(f"line {line}: not valid UTF-8")
            else:
                yield {key: cell or None for key, cell in zip(header, cells, strict=False)}


def _fits(cells: Sequence[str], columns: int) -> bool:
    """True if a row has a cell for each column; it may end with further delimiters."""
    return len(cells) >= columns and not any(cells[columns:])


@contextmanager
def _header_and_rows(handle: BinaryIO, name: str) -> Iterator[tuple[list[str], _Rows]]:
    # Bytes that are no UTF-8 become lone surrogates, and cost their own row only.
    data = io.BufferedReader(handle)  # type: ignore[type-var]
    encoding = next((name for mark, name in MARKS if data.peek(4).startswith(mark)), "utf-8")
    text = io.TextIOWrapper(data, encoding, errors="surrogateescape", newline="")
    try:
        head = text.read(_HEAD)
        hint = _HINT.match(head)
        head = head[hint.end() :] if hint else head
        dialect = _dialect(head, hint[1] if hint else None, name)
        whole_lines = io.StringIO(head + text.readline(LONGEST), newline="")
        pieces = chain(whole_lines, iter(partial(text.readline, LONGEST), ""))
        rows = _rows(pieces, dialect, 1 if hint else 0, name)
        header = check_header(next(rows, (0, []))[1], name)
        if len(header) == 1 and re.search(r"[^\w\s.-]", header[0]):
            column = f"{name}: it has one column, {clipped(repr(header[0]))}"
            note_once(f"{column}; a first line sep=^ names another delimiter than , ; | and tab")
        yield header, rows
    finally:
        text.detach().detach()


def _dialect(head: str, hinted: str | None, name: str) -> _Dialect:
    """The dialect that reads the head of a file with the fewest faults."""
    start = head.lstrip("\r\n")
    header = re.split(r"[\r\n]", _QUOTED_CELL.sub("", start), maxsplit=1)[0]
    tab = "\t" if suffixes(name)[0] == ".tsv" else ""
    delimiters = hinted or tab or [mark for mark in DELIMITERS if mark in header] or ","
    dialects = [_Dialect(mark) for mark in delimiters]
    if '\\"' in head:
        dialects += [_Dialect(mark, escaped=True) for mark in delimiters]
    if '"' in head and '"' not in re.split(r"[\r\n]", start, maxsplit=1)[0]:
        literal = [mark for mark in delimiters if mark in "\t|" and mark in header]
        dialects += [_Dialect(mark, quoted=False) for mark in literal]
    if len(dialects) == 1:
        return dialects[0]
    dialect = min(dialects, key=partial(_misfit, head))
    if not dialect.quoted:
        note_once(f"{name}: quotes enclose no cells in it, and are read as characters")
    return dialect


def _misfit(head: str, dialect: _Dialect) -> tuple[int, int, int]:
    """(rows unlike the header, -columns, -rows), without the last row, which may be cut."""
    sample = _rows(io.StringIO(head, newline=""), dialect, 0, None)
    rows = [() if isinstance(cells, InputError) else cells for _, cells in sample]
    rows = rows[:-1] if len(head) == _HEAD else rows
    columns = len(rows[0]) if rows else 0
    misfits = sum(not cells or not _fits(cells, columns) for cells in rows)
    return misfits, -columns, -len(rows)


def _rows(pieces: Iterable[str], dialect: _Dialect, line: int, name: str | None) -> _Rows:
    """Reads pieces of a file. line: the lines before them. name: None gives no notes.

    A row whose quotes are wrong is its first line alone; the next lines are rows of their own.
    """
    csv.field_size_limit(LONGEST)  # as for a row
    if dialect.escaped:  # a backslash before other characters is a character
        escape = re.compile(rf'\\([\\"{re.escape(dialect.delimiter)}])|\\')
        pieces = (escape.sub(lambda at: at[0] if at[1] else r"\\", piece) for piece in pieces)
    lines = _Lines(iter(pieces), line)
    reader = csv.reader(
        lines,
        delimiter=dialect.delimiter,
        quoting=csv.QUOTE_MINIMAL if dialect.quoted else csv.QUOTE_NONE,
        escapechar="\\" if dialect.escaped else None,
        strict=True,
    )
    while True:
        cells: list[str] | InputError
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error:
            lines.begin_again()
            end = f"a quote before {dialect.delimiter!r} or the end of a line"
            cells = InputError(f"line {lines.number}: a cell in quotes does not end with {end}")
        except _TooLong:
            first = lines.number - len(lines.row) + 1
            if not lines.pass_over(is_quoted=dialect.quoted):
                raise ValueError(f"a quote in line {first} is not closed") from None
            cells = InputError(f"line {lines.number}: {TOO_LONG}")
        if name and len(lines.row) > 1 and isinstance(cells, list):
            marks = {text.count(dialect.delimiter) for text in lines.row}
            if marks == {len(cells) - 1} and len(cells) > 1:
                span = f"{len(lines.row)} lines up to line {lines.number}"
                note_once(f"{name}: {span} are one row in quotes, but each would make a row")
                name = None  # said of the first such row
        if cells:
            yield lines.number, cells
        lines.begin_row()


class _TooLong(Exception):
    """A row is longer than LONGEST."""


class _Lines:
    """Lines for the csv module. number: of the last line; row: the lines of the row so far.

    pieces: lines, or pieces of lines that are too long.
    """

    def __init__(self, pieces: Iterator[str], number: int) -> None:
        self._pieces, self.number = pieces, number
        self._again: deque[str] = deque()
        self.begin_row()

    def begin_row(self) -> None:
        self.row: list[str] = []
        self._length = 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self.row and self._again:  # lines are read again once, so that faults cost linear time
            raise csv.Error
        line = self._again.popleft() if self._again else next(self._pieces)
        self.number += 1
        self.row.append(line)
        self._length += len(line)
        if self._length >= LONGEST:
            raise _TooLong
        return line

    def begin_again(self) -> None:
        """Goes back to the line behind the first of the row."""
        self._again.extendleft(reversed(self.row[1:]))
        self.number -= len(self.row) - 1

    def pass_over(self, *, is_quoted: bool) -> bool:
        """Passes over the rest of a row that is too long; False if the file ends in its quotes.

        Its end is the first line end behind which all quotes are closed.
        """
        last, quotes = self.row[-1], "".join(self.row).count('"') * is_quoted
        while not last.endswith(_LINE_ENDS) or quotes % 2:
            if not (piece := next(self._pieces, "")):
                return quotes % 2 == 0
            self.number += last.endswith(_LINE_ENDS)
            quotes += piece.count('"') * is_quoted
            last = piece
        return True
