"""Reads and writes workbooks of Excel: reads records of the first sheet, writes rows to sheets."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from math import isfinite
from typing import Any, BinaryIO
from xml.etree.ElementTree import ParseError
from zipfile import BadZipFile

from schemax.base.messages import counted
from schemax.errors import InputError
from schemax.io.columns import cell_text
from schemax.io.office import readable
from schemax.io.records import Record, check_header
from schemax.io.storage import optional
from schemax.io.table_schema import TableSchema

logger = logging.getLogger(__name__)

EXCEL = (".xlsx", ".xlsm")

MOST_ROWS = 1_048_576
"""The most rows of a sheet, header included."""

_MOST_CHARACTERS = 32_767  # of a cell
_MOST_DIGITS = 15  # of a number
_FIRST_YEAR = 1900


def read_sheet_header(handle: BinaryIO, name: str) -> list[str]:
    """The names of the first sheet's columns; [] for an empty sheet. Raises InputError."""
    return next(_rows(handle, name), [])


def read_excel(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    """Yields records of numbers, booleans and texts; dates in ISO 8601, formulas as results."""
    rows = _rows(handle, name)
    header = next(rows, [])
    for cells in rows:
        if len(cells) > len(header):
            yield InputError(
                f"a row has {counted(len(cells), 'cell')}, but the header has {len(header)}"
            )
        else:
            filled = [*map(_value, cells), *[None] * (len(header) - len(cells))]
            yield dict(zip(header, filled, strict=True))


@lru_cache(maxsize=256)
def _tell_of_sheet(name: str, sheet: str) -> None:
    """Warns once, since a file is opened for its columns, its header and its rows."""
    logger.warning("%s: only the first of its sheets is read, %r", name, sheet)


def _rows(handle: BinaryIO, name: str) -> Iterator[list[Any]]:
    """Yields the header, as texts, and all rows that are not empty, without empty last cells."""
    openpyxl = optional("openpyxl", name, "excel")
    try:
        book = openpyxl.load_workbook(
            readable(handle, "Excel workbook"), read_only=True, data_only=True
        )
        sheet = book.worksheets[0]
        if len(book.worksheets) > 1:
            _tell_of_sheet(name, sheet.title)
        sheet.reset_dimensions()  # many programs state wrong ones
        header: list[str] | None = None
        for row in sheet.iter_rows(values_only=True):
            cells = list(row)
            while cells and cells[-1] is None:
                cells.pop()
            if not cells:
                continue
            if header is None:
                header = ["" if cell is None else str(_value(cell)) for cell in cells]
                check_header(header, name)
                yield header
            else:
                yield cells
    except (BadZipFile, KeyError, IndexError, ParseError, TypeError) as error:
        raise ValueError(f"not a workbook: {error}") from error


def _value(cell: Any) -> Any:
    return cell.isoformat() if hasattr(cell, "isoformat") else cell


class ExcelWriter:
    """Writes typed cells, one per value as in CSV; adds sheets when one is full."""

    def __init__(self, handle: BinaryIO, table: TableSchema, name: str) -> None:
        openpyxl = optional("openpyxl", name, "excel")
        self._handle, self._table, self._name = handle, table, name
        self._cell_of = openpyxl.cell.WriteOnlyCell
        self._illegal = openpyxl.cell.cell.ILLEGAL_CHARACTERS_RE
        self._book = openpyxl.Workbook(write_only=True)
        self._is_cut = False
        self._begin()

    def _begin(self) -> None:
        self._sheet = self._book.create_sheet()
        self._sheet.append(list(map(self._cell, self._table.flat_names)))
        self._left = MOST_ROWS - 1

    def write(self, row: Mapping[str, Any]) -> None:
        if not self._left:
            self._begin()
        self._sheet.append(list(map(self._cell, self._table.flat_cells(row))))
        self._left -= 1

    def close(self) -> None:
        self._book.save(self._handle)

    def _cell(self, value: Any) -> Any:
        """A typed cell; a text, never a formula, for values that Excel lacks."""
        if value is None or value == []:
            return None
        if isinstance(value, float) and not isfinite(value):
            value = str(value)
        if isinstance(value, (bool, float)) or (
            isinstance(value, (int, Decimal))
            and len(cell_text(Decimal(value)).replace(".", "").strip("-0")) <= _MOST_DIGITS
        ):
            return value
        is_zoned = isinstance(value, datetime) and value.tzinfo is not None
        if getattr(value, "year", 0) >= _FIRST_YEAR and not is_zoned:
            return value
        text = self._illegal.sub("\ufffd", cell_text(value))
        if len(text) > _MOST_CHARACTERS:
            if not self._is_cut:
                longest = _MOST_CHARACTERS
                logger.warning("%s: texts are cut to %d characters of a cell", self._name, longest)
            self._is_cut = True
            text = f"{text[: _MOST_CHARACTERS - 1]}…"
        cell = self._cell_of(self._sheet, text)
        cell.data_type = "s"
        return cell
