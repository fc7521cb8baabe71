"""Parquet and Arrow in: batches of typed columns, as records of plain values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, time
from typing import Any, BinaryIO

from schemax.errors import InputError
from schemax.io.records import Record
from schemax.io.storage import optional

# Rows that are made Python objects at a time.
_BATCH = 1024


def parquet_columns(handle: BinaryIO, name: str) -> list[str]:
    return list(optional("pyarrow.parquet", name).read_schema(handle).names)


def arrow_columns(handle: BinaryIO, name: str) -> list[str]:
    return list(_open_arrow(handle, name)[0])


def read_parquet(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    parquet = optional("pyarrow.parquet", name)
    # Read as it is needed, and not a whole row group ahead.
    file = parquet.ParquetFile(handle, pre_buffer=False, buffer_size=1 << 20)
    wanted = _projected(columns, file.schema_arrow.names)
    for batch in file.iter_batches(_BATCH, columns=wanted, use_threads=False):
        yield from map(plain_record, batch.to_pylist())


def read_arrow(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    there, batches = _open_arrow(handle, name)
    wanted = _projected(columns, there)
    for batch in batches:
        if wanted is not None:
            batch = batch.select(wanted)
        for at in range(0, batch.num_rows, _BATCH):
            yield from map(plain_record, batch.slice(at, _BATCH).to_pylist())


def _open_arrow(handle: BinaryIO, name: str) -> tuple[Sequence[str], Iterable[Any]]:
    """Columns and batches: of the file format (Feather, version 2), or else the stream format."""
    pyarrow = optional("pyarrow", name)
    is_file = handle.read(6) == b"ARROW1"
    handle.seek(0)
    if is_file:
        file = pyarrow.ipc.open_file(handle)
        return file.schema.names, map(file.get_batch, range(file.num_record_batches))
    stream = pyarrow.ipc.open_stream(handle)
    return stream.schema.names, stream


def _projected(columns: Sequence[str] | None, there: Sequence[str]) -> list[str] | None:
    """The needed columns in the order of the file; None for all, also if a row is to say why."""
    if columns is None:
        return None
    found = [name for name in there if name in columns]
    return found or None


def plain_record(row: dict[str, Any]) -> Record:
    shown, name = {}, ""
    try:
        for name, value in row.items():
            shown[name] = _shown(value)
    except UnicodeDecodeError:
        return InputError(f"column {name!r} holds bytes that are not valid UTF-8")
    return shown


def _shown(value: Any) -> Any:
    """Dates, times and bytes as text, which is what a model can be shown."""
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if isinstance(value, bytes):  # text, of writers that do not say so
        return value.decode()
    return value.isoformat() if isinstance(value, (date, time)) else value
