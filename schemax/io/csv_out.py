"""CSV out: a cell per value, in quotes wherever a reader could take it for something else."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, BinaryIO, Literal, TypeAlias

from schemax.io.columns import at, leaves, printable
from schemax.io.csv_in import DELIMITERS
from schemax.io.table_schema import SEPARATOR, TableSchema

Formulas: TypeAlias = Literal["keep", "escape"]
"""What becomes of texts that a spreadsheet would take for formulas."""

# Texts that spreadsheets compute, also with the wide characters of Asian keyboards, or after what
# they strip. Plain numbers do no harm.
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n]")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)*")


class CsvWriter:
    """A cell per value: nested models have one per field, lists are JSON, null is empty."""

    def __init__(
        self, handle: BinaryIO, table: TableSchema, delimiter: str, formulas: Formulas
    ) -> None:
        self._table = table
        self._delimiter = delimiter
        self._escapes = formulas == "escape"
        self._paths = leaves(table.columns)
        self._handle = handle
        header = [SEPARATOR.join(path) for path in self._paths]
        # Readers tell what divides cells by the header, outside of quotes.
        is_clear = not set("".join(header)) & ({*DELIMITERS} - {delimiter})
        self._put(header, csv.QUOTE_MINIMAL if is_clear else csv.QUOTE_ALL)

    def write(self, row: Mapping[str, Any]) -> None:
        cells = self._table.cells(row)
        self._put([self._cell(at(cells, path)) for path in self._paths])

    def _cell(self, value: Any) -> str:
        text = cell_text(value)
        return escaped(text) if self._escapes and isinstance(value, str) else text

    def _put(self, cells: Sequence[str], quoting: Literal[0, 1] = csv.QUOTE_MINIMAL) -> None:
        line = io.StringIO()
        # Characters of the line's end are quoted in cells, so it must have both of them.
        csv.writer(
            line, delimiter=self._delimiter, quoting=quoting, lineterminator="\r\n"
        ).writerow(cells)
        self._handle.write(line.getvalue().removesuffix("\r\n").encode() + b"\n")


def escaped(text: str) -> str:
    """With an apostrophe in front where a spreadsheet would take the text for a formula."""
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def cell_text(value: Any) -> str:
    """A value as text; lists as JSON, null as nothing."""
    if value is None or value == []:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return printable(json.dumps(value, ensure_ascii=False, default=cell_text))
    if isinstance(value, Decimal):  # without the zeros that fill the column's places
        return format(value.normalize(), "f")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
