"""Writes rows as JSON Lines, CSV, Parquet, Arrow or Excel, by the name of the file.

A file gets its name only when all rows are written, so that it is never half a result, and may be
the file that is being read.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, BinaryIO, Literal, Protocol, TypeAlias

from schemax.errors import InputError
from schemax.io.arrow import record_batch, schema_of
from schemax.io.columns import Column, cell_text
from schemax.io.delimited import DELIMITERS
from schemax.io.excel import EXCEL, ExcelWriter
from schemax.io.lake import adding, is_lake, lake_table
from schemax.io.partitions import Layout, Sorted, created, replacing
from schemax.io.readers import ARROW, CSV, JSON, PARQUET, check_format
from schemax.io.records import STANDARD
from schemax.io.storage import is_replaceable, is_table_folder, optional, suffixes, writing
from schemax.io.table_schema import TableSchema

# The rows of a row group.
_GROUP = 16_384

# Characters that JSON may hold unescaped, but that control terminals.
_CONTROLS = re.compile(r"[\x7f-\x9f]")


class Writer(Protocol):
    """A writer of rows as of `Extraction.to_row`."""

    def write(self, row: Mapping[str, Any]) -> None: ...

    def close(self) -> None: ...


def is_typed(name: str) -> bool:
    """True if a file of this name holds typed columns, and so requires a type per field."""
    kinds = (*CSV, *PARQUET, *ARROW, *EXCEL)
    return suffixes(name)[0] in kinds or is_lake(name) or is_table_folder(name)


def check_target(name: str, layout: Layout | None = None) -> None:
    """Raises InputError for a format that cannot be written, or whose package is missing."""
    if is_lake(name):
        lake_table(name)
        return
    suffix, compression = suffixes(name)
    if layout is not None:
        optional("pyarrow", "--partition-by")
        if compression or suffix in (*CSV, *ARROW, *EXCEL, *JSON):
            raise InputError(f"cannot write {name}: --partition-by writes a folder of Parquet")
        return
    check_format(name, "write")


@contextmanager
def open_writer(
    name: str,
    table: TableSchema | None,
    *,
    scratch: str | None = None,
    csv_formulas: Formulas = "keep",
    layout: Layout | None = None,
    run: str = "",
) -> Iterator[Writer]:
    """Yields a writer of a new file, or of lines to stdout for "-".

    table: the columns; None for JSON Lines.
    scratch: the name of the file until it is complete, see `writing`. Without it, a partly written
        local file of JSON Lines stays beside the output after an error.
    csv_formulas: whether texts in CSV that spreadsheets take for formulas get an apostrophe.
    layout: the division of a folder of Parquet, or of a new Delta table; None for one file.
    run: the name of the run in commits to a table of Delta Lake or Iceberg.

    Raises InputError for an output that cannot be written.
    """
    if name == STANDARD:
        # The handle is taken now, since a progress bar replaces sys.stdout.
        handle = sys.stdout.buffer
        handle.write(b"")  # raises before a model is loaded if stdout is closed
        yield JsonLines(handle, flush=True)
        return
    check_target(name, layout)
    if is_lake(name):
        assert table is not None
        by = () if layout is None else layout.by
        with adding(name, table.columns, run, by) as handle:
            writer: Writer = _Arrow(handle, table, table.columns, parquet=False)
            yield writer
            writer.close()
        return
    if layout is not None:
        assert table is not None
        ordered = Sorted(table, layout)
        yield ordered
        with replacing(name) as folder:
            columns = [column for column in table.columns if column.name not in layout.by]
            for file, rows_of_file in ordered.files():
                with created(folder, file) as handle:
                    part = _Arrow(handle, table, columns, parquet=True)
                    for row in rows_of_file:
                        part.write(row)
                    part.close()
        return
    keep = scratch is None and not is_typed(name)
    with (
        writing(name, scratch, keep_partial=keep) as raw,
        _compressed(raw, suffixes(name)[1]) as handle,
    ):
        writer = _writer(handle, name, table, csv_formulas)
        yield writer
        writer.close()


def _writer(handle: Any, name: str, table: TableSchema | None, formulas: Formulas) -> Writer:
    suffix = suffixes(name)[0]
    if not is_typed(name):
        return JsonLines(handle, flush=not is_replaceable(name))
    assert table is not None
    if suffix in CSV:
        return CsvWriter(handle, table, "\t" if suffix == ".tsv" else ",", formulas)
    if suffix in EXCEL:
        return ExcelWriter(handle, table, name)
    return _Arrow(handle, table, table.columns, parquet=suffix in PARQUET)


def _compressed(raw: BinaryIO, compression: str) -> Any:
    if compression == ".gz":
        # Without name and time, so that equal rows give equal files.
        return gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0)
    if compression == ".zst":
        pyarrow = optional("pyarrow", "a .zst file")
        return pyarrow.output_stream(_Unclosed(raw), compression="zstd")
    return nullcontext(raw)


class _Unclosed:
    """A file that stays open when pyarrow closes its wrapper."""

    closed = False

    def __init__(self, raw: BinaryIO) -> None:
        self.write, self.flush = raw.write, raw.flush

    def close(self) -> None: ...


class JsonLines:
    """Writes a row per line. flush: whether to flush every row, for a waiting reader."""

    def __init__(self, handle: BinaryIO, *, flush: bool) -> None:
        self._handle = handle
        self._flush = flush

    def write(self, row: Mapping[str, Any]) -> None:
        try:
            text = json.dumps(row, ensure_ascii=False, allow_nan=False)
            line = _CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text).encode()
        except UnicodeEncodeError:  # a lone surrogate, which UTF-8 cannot hold unescaped
            line = json.dumps(row, allow_nan=False).encode()
        self._handle.write(line + b"\n")
        if self._flush:
            self._handle.flush()

    def close(self) -> None: ...


class _Arrow:
    """Writes Parquet, or Arrow's file format, in groups of rows."""

    def __init__(
        self, handle: BinaryIO, table: TableSchema, columns: Sequence[Column], *, parquet: bool
    ) -> None:
        self._table, self._columns = table, columns
        self._cells: list[Mapping[str, Any]] = []
        schema = schema_of(columns)
        self._writer: Any
        if parquet:
            module = optional("pyarrow.parquet", "a Parquet file")
            self._writer = module.ParquetWriter(handle, schema, compression="zstd")
        else:
            self._writer = optional("pyarrow.ipc", "an Arrow file").new_file(handle, schema)

    def write(self, row: Mapping[str, Any]) -> None:
        self._cells.append(self._table.cells(row))
        if len(self._cells) >= _GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._cells:
            self._writer.write_batch(record_batch(self._columns, self._cells))
            self._cells = []


Formulas: TypeAlias = Literal["keep", "escape"]
"""The treatment of texts that a spreadsheet would take for formulas."""

# Texts that spreadsheets compute, also with wide characters of Asian keyboards, or behind
# characters that they strip. Plain numbers do no harm.
_FORMULA = re.compile(r"\s*[=+\-@＝＋－＠]|[\t\r\n]")
_NUMBER = re.compile(r"[+-]?\d+([.,]\d+)*")


class CsvWriter:
    """Writes a cell per value: nested models have one per field, lists are JSON, null is empty."""

    def __init__(
        self, handle: BinaryIO, table: TableSchema, delimiter: str, formulas: Formulas
    ) -> None:
        self._table = table
        self._delimiter = delimiter
        self._escapes = formulas == "escape"
        self._handle = handle
        header = table.flat_names
        # Readers guess the delimiter from the header, outside quotes.
        is_clear = not set("".join(header)) & ({*DELIMITERS} - {delimiter})
        self._put(header, csv.QUOTE_MINIMAL if is_clear else csv.QUOTE_ALL)

    def write(self, row: Mapping[str, Any]) -> None:
        self._put(list(map(self._cell, self._table.flat_cells(row))))

    def _cell(self, value: Any) -> str:
        text = cell_text(value)
        return escaped(text) if self._escapes and isinstance(value, str) else text

    def _put(self, cells: Sequence[str], quoting: Literal[0, 1] = csv.QUOTE_MINIMAL) -> None:
        line = io.StringIO()
        # csv quotes only characters of the line's end, so that the end must have both of them.
        csv.writer(
            line, delimiter=self._delimiter, quoting=quoting, lineterminator="\r\n"
        ).writerow(cells)
        self._handle.write(line.getvalue().removesuffix("\r\n").encode() + b"\n")

    def close(self) -> None: ...


def escaped(text: str) -> str:
    """The text, with an apostrophe in front if a spreadsheet would take it for a formula."""
    if _FORMULA.match(text) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text
