"""CSV in: text in UTF-8 with a header, row by row.

Cells are divided by commas, or by semicolons or tabs where the header has more of these, as
spreadsheets of many countries write them; those of .tsv by tabs.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import BinaryIO

from schemax.errors import InputError
from schemax.io.records import Record
from schemax.io.storage import suffixes

_DELIMITERS = ",;\t"
# A cell in quotes, whichever of these it stands behind.
_QUOTED = re.compile(r'(?:^|(?<=[,;\t]))"[^"]*(?:""[^"]*)*"')
# Lines that are looked at for the end of the header, as its cells may hold line breaks.
_HEADER_LINES = 100
# A cell; more is a quote that nobody closed, and would take in the whole file.
_LONGEST_CELL = 64_000_000
# Behind the last line: a row of its own, unless a quote was left open, which it closes.
_END, _END_ROW = '"', [""]


def read_header(handle: BinaryIO, name: str) -> list[str]:
    """The names of the columns; none of an empty file. Raises InputError, as `read_csv`."""
    with closing(_rows(handle, name)) as rows:
        return next(rows, (0, []))[1]


def read_csv(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    """Every cell is text, as ids such as 0042 need it; an empty one is None.

    Raises InputError for a header that cannot be one, and for a quote that is never closed.
    """
    with closing(_rows(handle, name)) as rows:
        header = next(rows, (0, []))[1]
        for line, cells in rows:
            yield _record(header, cells, line)


def _record(header: Sequence[str], cells: Sequence[str], line: int) -> Record:
    if len(cells) != len(header):
        return InputError(
            f"line {line}: number of cells {len(cells)}, but the header has {len(header)}"
        )
    if any(map(_is_broken, cells)):
        return InputError(f"line {line}: not valid UTF-8")
    return {key: cell or None for key, cell in zip(header, cells, strict=True)}


def _rows(handle: BinaryIO, name: str) -> Generator[tuple[int, list[str]], None, None]:
    """(last line, cells) of the header and of all rows; blank lines are left out."""
    csv.field_size_limit(_LONGEST_CELL)
    # Bytes that are no UTF-8 come through as lone surrogates, and cost their row only.
    text = io.TextIOWrapper(handle, "utf-8-sig", errors="surrogateescape", newline="")
    ahead: list[str] = []
    ended = False

    def lines() -> Generator[str, None, None]:
        nonlocal ended
        yield from ahead
        yield from iter(text.readline, "")  # of the text itself, it would close that with it
        ended = True
        yield _END

    try:
        taken = quotes = 0
        for ahead_line in text:
            ahead.append(ahead_line)
            taken += bool(taken or ahead_line.strip())
            quotes += ahead_line.count('"')
            if taken and (quotes % 2 == 0 or taken == _HEADER_LINES):
                break
        delimiter = _delimiter("".join(ahead[len(ahead) - taken :]), name)
        header, line = None, 0
        with closing(lines()) as source:
            reader = csv.reader(source, delimiter=delimiter)
            for cells in reader:
                if ended and cells != _END_ROW:
                    raise InputError(
                        f"cannot read {name} any further: a quote in line {line + 1} is not closed"
                    )
                line = reader.line_num
                if ended or not cells:
                    continue
                if header is None:
                    header = cells
                    _check_header(header, name)
                yield line, cells
    finally:
        text.detach()


def _delimiter(start: str, name: str) -> str:
    """What stands in the header most often, but in cells in quotes; of .tsv, the tab."""
    if suffixes(name)[0] == ".tsv":
        return "\t"
    header = re.split(r"[\r\n]", _QUOTED.sub("", start), maxsplit=1)[0]
    return max(_DELIMITERS, key=header.count)  # the first of equals


def _check_header(header: Sequence[str], name: str) -> None:
    if any(map(_is_broken, header)):
        raise InputError(f"cannot read {name}: its header is not UTF-8; save it as CSV in UTF-8")
    if len(set(header)) < len(header):
        twice = next(key for key in header if header.count(key) > 1)
        raise InputError(f"cannot read {name}: two columns are named {twice!r}")


def _is_broken(cell: str) -> bool:
    return not cell.isascii() and any("\udc80" <= character <= "\udcff" for character in cell)
