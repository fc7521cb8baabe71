"""Reads and writes workbooks of Excel: records of the first visible sheet, rows to sheets."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Any, BinaryIO
from zipfile import BadZipFile

from schemax.base.messages import counted, note_once
from schemax.errors import InputError
from schemax.io.arrow import as_record
from schemax.io.columns import cell_text
from schemax.io.office import readable
from schemax.io.records import Record, check_header, plain
from schemax.io.storage import optional
from schemax.io.table_schema import TableSchema

logger = logging.getLogger(__name__)

EXCEL = (".xlsx", ".xlsm")

MOST_ROWS = 1_048_576
"""The most rows of a sheet, header included."""

_MOST_CHARACTERS = 32_767  # of a cell
_MOST_DIGITS = 15  # of a number
_FIRST_YEAR = 1900
_NO_RESULT = "a formula without a stored result; save the file in a spreadsheet program"
_EXACT = 2**53  # smaller whole doubles are exact
# How texts hold characters that XML lacks; and those, with texts that look like an escape.
_ESCAPE = re.compile(r"_x([0-9A-Fa-f]{4})_")
_ESCAPED = re.compile(r"[\x00-\x08\x0b-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")


def read_sheet_header(handle: BinaryIO, name: str) -> list[str]:
    """The names of the sheet's columns; [] for an empty sheet. Raises InputError."""
    return next(_rows(handle, name), (0, []))[1]


def read_excel(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    """Yields records of numbers, booleans and texts; dates in ISO 8601, formulas as results."""
    rows = _rows(handle, name)
    header = next(rows, (0, []))[1]
    for number, cells in rows:
        if len(cells) > len(header):
            yield InputError(
                f"row {number} has {counted(len(cells), 'cell')}, but the header has {len(header)}"
            )
        else:
            yield as_record(header, [*cells, *[None] * (len(header) - len(cells))])


def _rows(handle: BinaryIO, name: str) -> Iterator[tuple[int, list[Any]]]:
    """Yields (number, values) of the header, as texts, and of all rows that are not empty.

    Rows lack their empty last cells. A formula without a result is an InputError.
    """
    openpyxl = optional("openpyxl", name, "excel")
    try:
        handle = readable(handle, "Excel workbook")
        book = openpyxl.load_workbook(handle, read_only=True, data_only=True)
        sheet = next((page for page in book.worksheets if page.sheet_state == "visible"), None)
        if sheet is None:
            raise ValueError("no sheet of cells in it is visible")
        if len(book.worksheets) > 1:
            note_once(f"{name}: only the first visible one of its sheets is read, {sheet.title!r}")
        sheet.reset_dimensions()  # many programs state wrong ones
        formulas = enumerate(_formulas(openpyxl, handle, sheet.title))
        header: list[str] | None = None
        for place, row in enumerate(sheet.iter_rows()):
            values = [_value(cell.value) for cell in row]
            if bare := [at for at, cell in enumerate(row) if _is_bare(cell)]:
                with_formulas = next(cells for at, cells in formulas if at == place)
                for at in bare:
                    if with_formulas[at].data_type == "f":
                        values[at] = InputError(f"{_NO_RESULT} (in {row[at].coordinate})")
            while values and values[-1] is None:
                values.pop()
            if not values:
                continue
            if header is None:
                if missing := [value for value in values if isinstance(value, InputError)]:
                    raise InputError(f"cannot read {name}: its header holds {missing[0]}")
                header = ["" if value is None else str(value) for value in values]
                values = header = check_header(header, name)
            yield place + 1, values
    except (BadZipFile, KeyError, IndexError, SyntaxError, TypeError) as error:
        remedy = "open it in a spreadsheet program and save it"
        raise ValueError(f"not a workbook: {error}; {remedy}") from error


def _formulas(openpyxl: Any, handle: BinaryIO, title: str) -> Iterator[Sequence[Any]]:
    """Yields the rows of a sheet with formulas in place of their results."""
    sheet = openpyxl.load_workbook(handle, read_only=True)[title]
    sheet.reset_dimensions()
    yield from sheet.iter_rows()


def _is_bare(cell: Any) -> bool:
    """True for a cell with a style alone, or a formula alone; the result "" is a text."""
    return cell.value is None and hasattr(cell, "row") and cell.data_type == "n"


def _value(cell: Any) -> Any:
    """A plain value; some programs write whole numbers as 1.0."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < _EXACT:
        return int(cell)
    if isinstance(cell, str):
        return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), cell)
    return plain(cell)


class ExcelWriter:
    """Writes typed cells, one per value as in CSV; adds sheets when one is full."""

    def __init__(self, handle: BinaryIO, table: TableSchema, name: str) -> None:
        openpyxl = optional("openpyxl", name, "excel")
        self._handle, self._table, self._name = handle, table, name
        self._cell_of = openpyxl.cell.WriteOnlyCell
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
        text = cell_text(value)
        if len(text) > _MOST_CHARACTERS:
            if not self._is_cut:
                longest = _MOST_CHARACTERS
                logger.warning("%s: texts are cut to %d characters of a cell", self._name, longest)
            self._is_cut = True
            text = f"{text[: _MOST_CHARACTERS - 1]}…"
        text = _ESCAPED.sub(lambda match: f"_x{ord(match[0]):04X}_", text)
        cell = self._cell_of(self._sheet, text)
        cell.data_type = "s"
        return cell
