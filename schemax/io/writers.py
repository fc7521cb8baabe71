"""Tables out: rows as JSON Lines, CSV, Parquet or Arrow, by the name of the file.

A file gets its name only when all of its rows are written, so that it is never half a result and
may be the file that is being read.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from decimal import Decimal
from typing import Any, BinaryIO, Protocol

from schemax.errors import InputError
from schemax.io.arrow import record_batch, table_schema
from schemax.io.columns import at, leaves, printable
from schemax.io.readers import ARROW, CSV, PARQUET, unusable
from schemax.io.records import RowWriter
from schemax.io.storage import optional, suffixes, writing
from schemax.io.table_schema import Layout

# Rows that are held back to become one row group.
_GROUP = 16_384


class Writer(Protocol):
    """Takes rows as `Extraction.to_row` makes them."""

    def write(self, row: Mapping[str, Any]) -> None: ...


def is_typed(name: str) -> bool:
    """Whether a file of this name holds typed columns, and so needs one type per field."""
    return suffixes(name)[0] in (*CSV, *PARQUET, *ARROW)


def check_target(name: str) -> None:
    """Raises InputError for a format that cannot be written, or whose package is not there."""
    suffix, compression = suffixes(name)
    if reason := unusable(name):
        raise InputError(f"cannot write {name}: {reason}")
    if compression == ".zst":
        optional("zstandard", "a .zst file")
    if suffix in (*PARQUET, *ARROW):
        optional("pyarrow", f"a {suffix} file")


@contextmanager
def open_table(name: str, layout: Layout | None, *, scratch: str | None = None) -> Iterator[Writer]:
    """A writer of a new file; nothing stays of it if an error ends the run.

    layout: of the columns; None for JSON Lines, which need none.
    scratch: see `writing`.
    Raises InputError for what cannot be written.
    """
    check_target(name)
    suffix, compression = suffixes(name)
    with writing(name, scratch) as raw, _compressed(raw, compression) as handle:
        if not is_typed(name):
            yield RowWriter(handle, flush=False)
            return
        assert layout is not None
        if suffix in CSV:
            yield _Csv(handle, layout, "\t" if suffix == ".tsv" else ",")
            return
        table = _Arrow(handle, layout, parquet=suffix in PARQUET)
        yield table
        table.close()


def _compressed(raw: BinaryIO, compression: str) -> Any:
    if compression == ".gz":
        # Without name and time: equal rows give equal files.
        return gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0)
    if compression == ".zst":
        compressor = optional("zstandard", "a .zst file").ZstdCompressor()
        return compressor.stream_writer(raw, closefd=False)
    return nullcontext(raw)


class _Csv:
    """A cell per value: nested models have one per field, lists are JSON, null is empty."""

    def __init__(self, handle: BinaryIO, layout: Layout, delimiter: str) -> None:
        self._layout = layout
        self._delimiter = delimiter
        self._paths = leaves(layout.columns)
        self._handle = handle
        self._put([".".join(path) for path in self._paths])

    def write(self, row: Mapping[str, Any]) -> None:
        cells = self._layout.cells(row)
        self._put([_text(at(cells, path)) for path in self._paths])

    def _put(self, cells: list[str]) -> None:
        line = io.StringIO()
        csv.writer(line, delimiter=self._delimiter, lineterminator="\n").writerow(cells)
        self._handle.write(line.getvalue().encode())


def _text(value: Any) -> str:
    if value is None or value == []:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return printable(json.dumps(value, ensure_ascii=False, default=_text))
    if isinstance(value, Decimal):  # without the zeros that fill the column's places
        return format(value.normalize(), "f")
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


class _Arrow:
    """Parquet, or Arrow's file format: rows are gathered to groups."""

    def __init__(self, handle: BinaryIO, layout: Layout, *, parquet: bool) -> None:
        self._layout = layout
        self._cells: list[Mapping[str, Any]] = []
        schema = table_schema(layout.columns)
        self._writer: Any
        if parquet:
            module = optional("pyarrow.parquet", "a Parquet file")
            self._writer = module.ParquetWriter(handle, schema, compression="zstd")
        else:
            self._writer = optional("pyarrow.ipc", "an Arrow file").new_file(handle, schema)

    def write(self, row: Mapping[str, Any]) -> None:
        self._cells.append(self._layout.cells(row))
        if len(self._cells) >= _GROUP:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._cells:
            self._writer.write_batch(record_batch(self._layout.columns, self._cells))
            self._cells = []
