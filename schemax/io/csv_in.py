"""CSV in: text in UTF-8 with a header, row by row.

Cells are divided by commas, or by semicolons or tabs where the header has more of these, as
spreadsheets of many countries write them; those of .tsv by tabs.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import BinaryIO

from schemax.errors import InputError
from schemax.io.records import LONGEST, TOO_LONG, Record
from schemax.io.storage import suffixes
from schemax.messages import clipped

DELIMITERS = ",;\t"
# A cell in quotes, whichever of these it stands behind.
_QUOTED_CELL = re.compile(r'(?:^|(?<=[,;\t]))"[^"]*(?:""[^"]*)*"')
# Lines that are looked at for the end of the header, as its cells may hold line breaks.
_HEADER_LINES = 100
_LINE_ENDS = ("\r", "\n")
# Where a reader is: before a cell, in one, in one in quotes, behind a quote in such a one, which
# ends the cell unless another quote follows. A state is a text that leads to it.
_START, _PLAIN, _QUOTED, _CLOSED = "", "x", '"', '""'
_CELLS = r'"[^"]*"?|[^"{0}][^{0}]*|{0}'


def read_header(handle: BinaryIO, name: str) -> list[str]:
    """The names of the columns; none of an empty file. Raises InputError, as `read_csv`."""
    with closing(_rows(handle, name)) as rows:
        return next(rows, (0, []))[1] or []


def read_csv(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    """Every cell is text, as ids such as 0042 need it; an empty one is None.

    Raises InputError for a header that cannot be one, and for a quote that is never closed.
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
    """(last line, cells) of the header and of all rows; None for a row that is too long.

    Blank lines are left out.
    """
    csv.field_size_limit(LONGEST)  # of a row, which is no longer
    # Bytes that are no UTF-8 come through as lone surrogates, and cost their row only.
    text = io.TextIOWrapper(handle, "utf-8-sig", errors="surrogateescape", newline="")
    lines = iter(partial(text.readline, LONGEST), "")
    try:
        ahead: list[str] = []
        taken = quotes = length = 0
        for line in lines:
            ahead.append(line)
            taken += bool(taken or line.strip())
            quotes += line.count('"')
            length += len(line)
            if taken and (quotes % 2 == 0 or taken == _HEADER_LINES or length > LONGEST):
                break
        delimiter = _delimiter("".join(ahead[len(ahead) - taken :]), name)
        header: list[str] | None = None
        for number, row in _split(chain(ahead, lines), delimiter, name):
            cells = None if row is None else next(csv.reader((row,), delimiter=delimiter), [])
            if header is None and cells != []:
                header = cells
                check_header(header, name)
            if cells != []:
                yield number, cells
    finally:
        text.detach()


def _split(lines: Iterable[str], delimiter: str, name: str) -> Iterator[tuple[int, str | None]]:
    """(last line, text) of all rows, with their line breaks in quotes; None for a row too long.

    lines: or pieces of them, where they are too long. Raises InputError for a quote left open.
    """
    pieces: list[str] = []
    length, number, first = 0, 1, 1
    state = _START
    for line in lines:
        is_end = line.endswith(_LINE_ENDS)
        if state != _START or '"' in line or not is_end:
            state = _state_after(line, state, delimiter)
        length += len(line)
        if length <= LONGEST:
            pieces.append(line)
        else:
            pieces.clear()
        if is_end:
            if state != _QUOTED:
                yield number, "".join(pieces) if length <= LONGEST else None
                pieces, length, first, state = [], 0, number + 1, _START
            number += 1
    if state == _QUOTED:
        raise InputError(f"cannot read {name} any further: a quote in line {first} is not closed")
    if length:
        yield number, "".join(pieces) if length <= LONGEST else None


def _state_after(text: str, state: str, delimiter: str) -> str:
    """Where a piece of a row leaves its reader, who was in that state before."""
    last = ""
    for found in re.finditer(_CELLS.format(delimiter), state + text):
        last = found[0]
    if last in ("", delimiter):
        return _START
    if last[0] != '"':
        return _PLAIN
    return _CLOSED if len(last) > 1 and last[-1] == '"' else _QUOTED


def _delimiter(start: str, name: str) -> str:
    """What stands in the header most often, but in cells in quotes; of .tsv, the tab."""
    if suffixes(name)[0] == ".tsv":
        return "\t"
    header = re.split(r"[\r\n]", _QUOTED_CELL.sub("", start), maxsplit=1)[0]
    return max(DELIMITERS, key=header.count)  # the first of equals


def check_header(header: Sequence[str] | None, name: str) -> None:
    """Raises InputError for a header that cannot be one."""
    if header is None:
        raise InputError(f"cannot read {name}: its header is {TOO_LONG}")
    if any(map(_is_broken, header)):
        raise InputError(f"cannot read {name}: its header is not UTF-8; save it as CSV in UTF-8")
    if len(set(header)) < len(header):
        twice = next(key for key in header if header.count(key) > 1)
        raise InputError(f"cannot read {name}: two columns are named {clipped(repr(twice))}")


def _is_broken(cell: str) -> bool:
    return not cell.isascii() and any("\udc80" <= character <= "\udcff" for character in cell)
