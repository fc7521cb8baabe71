"""Reads Parquet and Arrow: batches of typed columns become records of plain values.

Dates and times become ISO 8601, in all units of Arrow and without pandas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, BinaryIO

from schemax.base.messages import clipped
from schemax.errors import InputError
from schemax.io.records import LONGEST, TOO_LONG, Record, Unreadable, check_names
from schemax.io.storage import optional

# The most rows, and bytes, that are converted to Python objects at a time; a row may have more.
_BATCH_ROWS, _BATCH_BYTES = 1024, 16 << 20


def read_parquet(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    parquet = optional("pyarrow.parquet", name)
    # Without pre_buffer, which reads a whole row group ahead.
    file = parquet.ParquetFile(handle, pre_buffer=False, buffer_size=1 << 20)
    check_names(file.schema_arrow.names, name)
    wanted = projected(columns, file.schema_arrow.names)
    rows = _rows_of(_bytes_of_row(file.metadata))
    for batch in file.iter_batches(rows, columns=wanted, use_threads=False):
        yield from batch_records(batch)


def read_arrow(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    opened = _open_arrow(handle, name)
    check_names(opened.schema.names, name)
    wanted, batches = projected(columns, opened.schema.names), opened
    if hasattr(opened, "get_batch"):
        batches = map(opened.get_batch, range(opened.num_record_batches))
    for batch in batches:
        yield from batch_records(batch if wanted is None else batch.select(wanted))


def batch_records(batch: Any) -> Iterator[Record]:
    """Yields the rows of a RecordBatch or Table; InputError in place of an unreadable row."""
    step = _rows_of(batch.get_total_buffer_size() / max(1, batch.num_rows))
    for at in range(0, batch.num_rows, step):
        some = batch.slice(at, step)
        columns = [read_cells(column) for column in some.columns]
        for row in range(some.num_rows):
            yield as_record(some.schema.names, [cells[row] for cells in columns])


def _rows_of(bytes_of_row: float) -> int:
    return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(1, bytes_of_row))))


def _bytes_of_row(metadata: Any) -> float:
    """The encoded size of a row in the row group with the longest rows.

    Reads the size of all columns together: for a damaged record of a single column, pyarrow ends
    the process.
    """
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    sizes = (group.total_byte_size / max(1, group.num_rows) for group in groups)
    return max(sizes, default=0.0)


def arrow_schema_of(handle: BinaryIO, name: str, *, is_parquet: bool) -> Any:
    """The pyarrow schema of a Parquet or Arrow file."""
    if is_parquet:
        return optional("pyarrow.parquet", name).read_schema(handle)
    return _open_arrow(handle, name).schema


def _open_arrow(handle: BinaryIO, name: str) -> Any:
    """Opens the file format (Feather, version 2), or else the stream format."""
    pyarrow = optional("pyarrow", name)
    head = handle.read(6)
    if head[:4] == b"FEA1":
        raise InputError(f"cannot read {name}: it is Feather of version 1; write it as version 2")
    is_file = head == b"ARROW1"
    handle.seek(0)
    return (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(handle)


def projected(columns: Sequence[str] | None, there: Sequence[str]) -> list[str] | None:
    """The wanted columns in the order of the file; None for all, also if the file has none."""
    if columns is None:
        return None
    found = [name for name in there if name in columns]
    return found or None


def read_cells(column: Any) -> list[Any]:
    """The values of an Arrow column, for `as_record`; one by one if some may be unreadable.

    An InputError stands in place of an unreadable cell; its message ends a sentence about the
    column. Cells are validated first: pyarrow follows the offsets of a damaged file anywhere.
    """
    is_timed = holds_times(column.type)
    with suppress(ValueError, OverflowError):
        # Dates and times must also be valid in the calendar, which is checked cell by cell.
        if not optional("pyarrow", "a table").types.is_temporal(column.type):
            column.validate(full=True)
        if not is_timed:
            return [_shown(value) for value in column.to_pylist()]
        return [_cell(scalar) for scalar in column]
    return [_checked_cell(column.slice(row, 1)) for row in range(len(column))]


def _checked_cell(column: Any) -> Any:
    """The only value of a column, validated."""
    try:
        column.validate(full=True)
    except ValueError as error:
        is_text = "UTF8" in str(error)
        return InputError(
            "bytes that are not valid UTF-8" if is_text else f"a value that is damaged: {error}"
        )
    return _cell(column[0])


def _cell(scalar: Any) -> Any:
    try:
        return _shown(time_text(scalar))
    except UnicodeDecodeError:
        return InputError("bytes that are not valid UTF-8")
    except (ValueError, OverflowError, LookupError) as error:  # LookupError: unknown time zones
        return InputError(f"a value that cannot be read: {error}")


def as_record(names: Sequence[str], cells: Sequence[Any]) -> Record:
    """A record of cells; InputError if one of them is unreadable or too long."""
    for name, cell in zip(names, cells, strict=True):
        if isinstance(cell, str) and len(cell) > LONGEST:
            cell = InputError(f"a text {TOO_LONG}")
        if isinstance(cell, InputError):
            pairs = zip(names, cells, strict=True)
            rest = {key: one for key, one in pairs if not isinstance(one, InputError)}
            return Unreadable(f"column {clipped(repr(name))} holds {cell}", rest)
    return dict(zip(names, cells, strict=True))


def _shown(value: Any) -> Any:
    """Bytes as text, since some writers do not mark texts."""
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value  # bytes that are no text: may be kept, but not shown


_DAY = {unit: 86_400 * 1000**place for place, unit in enumerate(("s", "ms", "us", "ns"))}


def time_text(scalar: Any) -> Any:
    """The value of an Arrow scalar, with texts in place of dates and times.

    Raises ValueError for dates outside the years 1 to 9999 and times outside a day; ValueError,
    OverflowError or LookupError if pyarrow does.
    """
    kind, types = scalar.type, optional("pyarrow", "a table").types
    if not scalar.is_valid or not holds_times(kind):
        return scalar.as_py()
    if types.is_temporal(kind):
        return _iso(scalar)
    if types.is_struct(kind):
        return {key: time_text(item) for key, item in scalar.items()}
    if types.is_map(kind):
        return [tuple(time_text(entry).values()) for entry in scalar.values]
    if isinstance(scalar, Sequence):
        return [time_text(item) for item in scalar]
    return time_text(scalar.value)  # a scalar that wraps another one, such as a dictionary's


@lru_cache(maxsize=1024)
def holds_times(kind: Any) -> bool:
    """True if values of an Arrow type are dates or times, or hold some."""
    types = optional("pyarrow", "a table").types
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_time(kind):
        return True
    if types.is_duration(kind):
        return True
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    inner += [
        found for name in ("value_type", "storage_type") if (found := getattr(kind, name, None))
    ]
    return any(map(holds_times, inner))


def _iso(scalar: Any) -> str:
    """ISO 8601 with no digits of a second, with six, or with nine if six are too few."""
    pyarrow, kind = optional("pyarrow", "a table"), scalar.type
    is_time, nanoseconds, rest = pyarrow.types.is_time(kind), 0, timedelta()
    unit = kind.unit if is_time or pyarrow.types.is_timestamp(kind) else ""
    if pyarrow.types.is_duration(kind):
        seconds = Decimal(scalar.value) / (_DAY[kind.unit] // 86_400)
        return f"PT{seconds:f}S"
    if is_time and not 0 <= scalar.value < _DAY[unit]:
        raise ValueError("a time outside a day")
    if unit == "ns":  # as_py would give a Timestamp of pandas
        nanoseconds = scalar.value % 1000
        if nanoseconds and scalar.value < 0:  # the cut rounds towards the epoch
            rest = timedelta(microseconds=1)
        kind = pyarrow.time64("us") if is_time else pyarrow.timestamp("us", tz=kind.tz)
        scalar = scalar.cast(kind, safe=False)
    try:
        moment = scalar.as_py()
        moment = moment - rest if rest else moment
    except (OverflowError, ValueError) as error:
        raise ValueError("a date outside the years 1 to 9999") from error
    if not nanoseconds:
        return str(moment.isoformat())
    text = moment.isoformat(timespec="microseconds")
    end = text.index(".") + 7
    return f"{text[:end]}{nanoseconds:03}{text[end:]}"
