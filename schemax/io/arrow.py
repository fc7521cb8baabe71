"""Columns in pyarrow: the types, arrays and schema of a table, and records of Parquet and Arrow.

Batches of typed columns become records of plain values. Dates and times become ISO 8601, in all
units of Arrow and without pandas. Kept columns have their own types, whose values are restored from
their JSON form.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import repeat, zip_longest
from os import SEEK_END
from types import SimpleNamespace
from typing import Any, BinaryIO

from schemax.base.messages import clipped
from schemax.errors import InputError
from schemax.io.columns import Column, Schemas, Type
from schemax.io.records import LONGEST, TOO_LONG, Record, Unreadable, check_names, plain
from schemax.io.rows import Details
from schemax.io.storage import optional
from schemax.io.table_schema import TableSchema

_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_FRACTION = re.compile(r"\.(\d+)")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def arrow_schema(schema: Schemas, *, details: Details = False) -> Any:
    """The pyarrow schema of the table that `schemax extract -o OUT.parquet` writes.

    schema: a Pydantic model, or one per category; the table then has the fields of all models.
    details: True adds raw text, confidence and place of every value, "confidence" the confidences
        alone.

    Text is string, int int64, float double, bool bool, date date32; Enum and Literal are
    dictionaries; lists are lists and nested models structs. Decimal is decimal128 of the declared
    `max_digits` and `decimal_places`, else of (38, 9). A datetime is timestamp[us]; AwareDatetime
    is in UTC. All columns are nullable, since a row may fail.

    Raises InputError without pyarrow; SchemaError for a schema that cannot be declared, and for
    categories that differ in the type of a field.
    """
    return schema_of(TableSchema.of(schema, details=details).columns)


def schema_of(columns: Sequence[Column]) -> Any:
    pyarrow = _pyarrow()
    return pyarrow.schema([(column.name, arrow_type(column)) for column in columns])


def plain_schema(schema: Any) -> Any:
    """The schema, for `cast`, with the type of its choices in place of every dictionary."""
    return _pyarrow().schema([field.with_type(_plain(field.type)) for field in schema])


def _plain(kind: Any) -> Any:
    pyarrow = _pyarrow()
    if pyarrow.types.is_dictionary(kind):
        return kind.value_type
    if pyarrow.types.is_struct(kind):
        return pyarrow.struct([field.with_type(_plain(field.type)) for field in kind])
    return pyarrow.list_(_plain(kind.value_type)) if pyarrow.types.is_list(kind) else kind


def record_batch(columns: Sequence[Column], cells: Sequence[Mapping[str, Any]]) -> Any:
    """A pyarrow.RecordBatch of rows of cells from `TableSchema.cells`."""
    arrays = [_array(column, [row[column.name] for row in cells]) for column in columns]
    return _pyarrow().record_batch(arrays, schema=schema_of(columns))


def arrow_type(column: Column) -> Any:
    item = _item_type(column)
    return _pyarrow().list_(item) if column.is_list else item


def _item_type(column: Column) -> Any:
    pyarrow = _pyarrow()
    if column.type == "native":
        return _type_in(column.native)
    if column.type == "struct":
        return pyarrow.struct([(child.name, arrow_type(child)) for child in column.children])
    if column.type == "choice":
        # It has all choices, since the batches of an Arrow file must share one dictionary.
        return pyarrow.dictionary(pyarrow.int32(), pyarrow.array(column.choices).type)
    if column.type == "decimal":
        return pyarrow.decimal128(*column.digits)
    types = {
        "string": pyarrow.string(),
        "json": pyarrow.string(),
        "integer": pyarrow.int64(),
        "number": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
        "date": pyarrow.date32(),
        "datetime": pyarrow.timestamp("us"),
        "instant": pyarrow.timestamp("us", tz="UTC"),
    }
    return types[column.type]


def column_of(field: Any) -> Column:
    """The column that keeps an Arrow field of the input."""
    types, kind = _pyarrow().types, field.type
    while types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        kind = kind.value_type
    if types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return Column(field.name, "decimal", digits=(kind.precision, kind.scale))
    if types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"):
        return Column(field.name, "instant" if kind.tz else "datetime")
    plain: list[tuple[bool, Type]] = [
        (types.is_integer(kind) and not types.is_uint64(kind), "integer"),
        (types.is_floating(kind), "number"),
        (types.is_boolean(kind), "boolean"),
        (types.is_date(kind), "date"),
        (types.is_string(kind) or types.is_large_string(kind), "string"),
    ]
    if type_name := next((name for fits, name in plain if fits), None):
        return Column(field.name, type_name)
    if _is_native(kind):
        return Column(field.name, "native", native=_written(kind))
    is_json = types.is_nested(kind) and not types.is_union(kind)
    return Column(field.name, "json" if is_json else "string")


def _array(column: Column, values: Sequence[Any]) -> Any:
    """An array of values; made with all choices in front, so that arrays share one dictionary."""
    if column.type == "native":
        kind = _type_in(column.native)
        return _pyarrow().array([_native(kind, value) for value in values], kind)
    first = _all_choices(column)
    return _pyarrow().array([*first, *values], arrow_type(column)).slice(len(first))


def _all_choices(column: Column) -> list[Any]:
    """Values of a column that together have every choice in it."""
    items: list[Any] = list(column.choices)
    if column.children:
        names = [child.name for child in column.children]
        parts = zip_longest(*map(_all_choices, column.children))
        items = [dict(zip(names, part, strict=True)) for part in parts]
    return [items] if column.is_list and items else items


def _type_in(text: str) -> Any:
    """The type of a text from `_written`. Raises InputError for any other text."""
    try:
        return _pyarrow().ipc.read_schema(_pyarrow().py_buffer(b64decode(text))).field(0).type
    except (OSError, ValueError) as error:
        raise InputError(f"pyarrow cannot read {text} as the type of a column") from error


def _written(kind: Any) -> str:
    """A type as text, for records of finished tables."""
    return b64encode(_pyarrow().schema([("", kind)]).serialize()).decode()


def _native(kind: Any, value: Any) -> Any:
    types = _pyarrow().types
    if value is None:
        return None
    if types.is_struct(kind):
        return {field.name: _native(field.type, value.get(field.name)) for field in kind}
    if types.is_map(kind):
        return [(_native(kind.key_type, k), _native(kind.item_type, v)) for k, v in value]
    if types.is_nested(kind):
        return [_native(kind.value_type, item) for item in value]
    if types.is_decimal(kind):
        return Decimal(value)
    if types.is_floating(kind):
        return float(value)
    if types.is_date(kind):
        return date.fromisoformat(value[:10])
    if types.is_timestamp(kind):
        return _moment(value, _TICKS[kind.unit])
    if types.is_time(kind):
        return _moment(f"1970-01-01T{value}", _TICKS[kind.unit])
    if types.is_duration(kind):
        return int(Decimal(value.removeprefix("PT").removesuffix("S")) * _TICKS[kind.unit])
    if _is_binary(kind) and not isinstance(value, bytes):
        return b64decode(value["base64"]) if isinstance(value, dict) else value.encode()
    return value


def _is_binary(kind: Any) -> bool:
    types = _pyarrow().types
    return bool(
        types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind)
    )


def _moment(text: str, ticks: int) -> int:
    """The ticks since 1970 of an ISO text, with any number of digits of a second."""
    fraction = _FRACTION.search(text)
    moment = datetime.fromisoformat(_FRACTION.sub("", text))
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    whole = (since.days * 86_400 + since.seconds) * ticks
    return whole + int(Decimal(f"0.{fraction[1]}") * ticks) if fraction else whole


def _is_native(kind: Any) -> bool:
    """True if all values of a type can be restored from their JSON form."""
    types = _pyarrow().types
    if types.is_map(kind):
        return _is_native(kind.key_type) and _is_native(kind.item_type)
    if types.is_struct(kind):
        names = [field.name for field in kind]
        return len(set(names)) == len(names) and all(_is_native(field.type) for field in kind)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _is_native(kind.value_type)
    plain = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean)
    timed = (types.is_date, types.is_timestamp, types.is_time, types.is_duration, _is_binary)
    return any(is_one(kind) for is_one in (*plain, *timed, types.is_string, types.is_large_string))


def _pyarrow() -> Any:
    return optional("pyarrow", "a table")


# The most rows, and bytes, that are converted to Python objects at a time; a row may have more.
_BATCH_ROWS, _BATCH_BYTES = 1024, 16 << 20


# What unfolds to more than _DENSE times its size is not read beyond _MOST bytes.
_DENSE, _MOST = 32, 128 << 20
# Begins a compressed buffer of Arrow (zstd, LZ4), behind the 8 bytes of its plain size.
_FRAME = re.compile(rb"\x28\xb5\x2f\xfd|\x04\x22\x4d\x18")


def read_parquet(
    handle: BinaryIO,
    name: str,
    columns: Sequence[str] | None,
    declared: Callable[[Any], Any] | None = None,
) -> Iterator[Record]:
    """Yields the records of a Parquet file. declared: what a table makes of its batches."""
    file = _open_parquet(handle)
    names = file.schema_arrow.names
    check_names(names, name)
    wanted = projected(columns, names)
    leaves = map(file.schema.column, range(len(file.schema)))  # pyarrow reads intervals as bytes
    intervals = {leaf.path.split(".")[0] for leaf in leaves if leaf.converted_type == "INTERVAL"}
    _check_intervals(intervals, wanted or names, name)
    size = handle.seek(0, SEEK_END)
    for number in range(file.num_row_groups):
        count, chunks = file.metadata.row_group(number).num_rows, _chunks(file, handle, number)
        pairs = [(chunk.total_uncompressed_size, chunk.total_compressed_size) for chunk in chunks]
        # In the file, equal items of lists may take no bytes.
        sizes = [chunk.total_uncompressed_size + 8 * (chunk.num_values - count) for chunk in chunks]
        if (unfolded := sum(sizes)) > max(_MOST, _DENSE * size):
            column = clipped(repr(chunks[sizes.index(max(sizes))].path_in_schema.split(".")[0]))
            reason = f"its row group unfolds to {unfolded:,} bytes, in a file of {size:,}"
            yield from repeat(InputError(f"{reason}; the column {column} is the largest"), count)
            continue
        # Each row may have the one long text of a dense column.
        dense = [plain for plain, packed in pairs if plain > _DENSE * packed]
        rows = rows_at_once(max(unfolded / max(1, count), *dense, 0))
        for batch in file.iter_batches(rows, [number], wanted, use_threads=False):
            count -= batch.num_rows
            yield from batch_records(batch if declared is None else declared(batch))
        if count:
            raise ValueError(f"{count:,} of its rows are missing")


def _chunks(file: Any, handle: BinaryIO, number: int) -> list[Any]:
    """The metadata of a row group's columns. Raises OSError if it is damaged: pyarrow ends the
    process for damage, unless it is about to read the column."""
    reader = _open_parquet(_read_by(handle, None), file.metadata).reader
    for leaf in range(len(file.schema)):
        with suppress(TypeError):
            reader.read_row_group(number, column_indices=[leaf], use_threads=False)
    return [*map(file.metadata.row_group(number).column, range(len(file.schema)))]


def _read_by(handle: BinaryIO, read: Callable[[int], bytes] | None) -> Any:
    """The file for pyarrow, with another function that reads bytes; None raises TypeError."""
    return SimpleNamespace(read=read, seek=handle.seek, tell=handle.tell, closed=False, mode="rb")


def _open_parquet(handle: Any, metadata: Any = None) -> Any:
    """Opens a file without pre_buffer, which reads a whole row group ahead; INT96, whose years go
    beyond 2262, as microseconds."""
    options = {"pre_buffer": False, "buffer_size": 1 << 20, "coerce_int96_timestamp_unit": "us"}
    parquet = optional("pyarrow.parquet", "a Parquet file")
    return parquet.ParquetFile(handle, metadata=metadata, **options)


_INTERVALS = {"month_interval", "day_time_interval"}  # of which pyarrow has no arrays in Python


def read_arrow(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    opened = _open_arrow(handle, name)
    check_names(opened.schema.names, name)
    wanted, batches = projected(columns, opened.schema.names), opened
    kinds = {field.name: {*map(str, types_in(field.type))} for field in opened.schema}
    intervals = [key for key, within in kinds.items() if within & _INTERVALS]
    _check_intervals(intervals, wanted or [*kinds], name)
    if hasattr(opened, "get_batch"):
        batches = map(opened.get_batch, range(opened.num_record_batches))
    for batch in batches:
        yield from batch_records(batch if wanted is None else batch.select(wanted))


def batch_records(batch: Any) -> Iterator[Record]:
    """Yields the rows of a RecordBatch or Table; InputError in place of an unreadable row."""
    mean = batch.get_total_buffer_size() / max(1, batch.num_rows)
    step = rows_at_once(max(mean, *map(_longest, batch.columns), 0))
    for at in range(0, batch.num_rows, step):
        part = batch.slice(at, step)
        columns = [read_cells(column) for column in part.columns]
        for row in range(part.num_rows):
            yield as_record(part.schema.names, [cells[row] for cells in columns])


def _longest(column: Any) -> int:
    """The bytes of the longest text of a dictionary or a run, which all rows may have; else 0."""
    compute = optional("pyarrow.compute", "a table")
    texts: Any = getattr(column, "dictionary", getattr(column, "values", None))
    with suppress(ValueError, AttributeError, NotImplementedError, TypeError):
        texts.validate()
        return int(compute.max(compute.binary_length(texts)).as_py())
    return 0


def rows_at_once(bytes_of_row: float) -> int:
    """The number of rows that are converted to Python objects together."""
    return max(1, min(_BATCH_ROWS, int(_BATCH_BYTES / max(1, bytes_of_row))))


def arrow_schema_of(handle: BinaryIO, name: str, *, is_parquet: bool) -> Any:
    """The pyarrow schema of a Parquet or Arrow file."""
    return _open_parquet(handle).schema_arrow if is_parquet else _open_arrow(handle, name).schema


def _open_arrow(handle: BinaryIO, name: str) -> Any:
    """Opens the file format (Feather, version 2), or else the stream format."""
    pyarrow = optional("pyarrow", name)
    head = handle.read(6)
    if head[:4] == b"FEA1":
        raise InputError(f"cannot read {name}: it is Feather of version 1; write it as version 2")
    is_file = head == b"ARROW1"
    handle.seek(0)
    checked = _read_by(handle, lambda size: _checked(handle.read(size), name))
    return (pyarrow.ipc.open_file if is_file else pyarrow.ipc.open_stream)(checked)


def _checked(data: bytes, name: str) -> bytes:
    """The bytes of a message. Raises InputError if its buffers together inflate too much."""
    starts = [frame.start() for frame in _FRAME.finditer(data)]
    sizes = [int.from_bytes(data[max(0, at - 8) : at], "little") for at in starts]
    # A larger number stands before other bytes that look like a frame.
    unfolded, size = sum(size for size in sizes if size < 1 << 40), len(data)
    if unfolded > max(_MOST, _DENSE * size):
        raise InputError(f"cannot read {name}: a batch of {size:,} bytes unfolds to {unfolded:,}")
    return data


def _check_intervals(columns: Collection[str], wanted: Sequence[str], name: str) -> None:
    """Raises InputError for a wanted column that is among these columns of intervals."""
    if column := next(filter(columns.__contains__, wanted), None):
        raise InputError(
            f"cannot read {name}: the column {clipped(repr(column))} holds intervals, which "
            "pyarrow cannot read; name other columns with --text (text=)"
        )


def projected(columns: Sequence[str] | None, there: Sequence[str]) -> list[str] | None:
    """The wanted columns in the order of the file; None for all, also if the file has none."""
    if columns is None:
        return None
    names = [name for name in there if name in columns]
    return names or None


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
            return [plain(value) for value in column.to_pylist()]
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
        return plain(time_text(scalar))
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
            readable = {key: value for key, value in pairs if not isinstance(value, InputError)}
            return Unreadable(f"column {clipped(repr(name))} holds {cell}", readable)
    return dict(zip(names, cells, strict=True))


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


def holds_times(kind: Any) -> bool:
    """True if values of an Arrow type are dates or times, or hold some."""
    return any(map(_pyarrow().types.is_temporal, types_in(kind)))


def types_in(kind: Any) -> Iterator[Any]:
    """Yields an Arrow type and the types within it."""
    yield kind
    inner = [kind.field(number).type for number in range(kind.num_fields)]
    inner += [getattr(kind, name, None) for name in ("value_type", "storage_type")]
    for within in filter(None, inner):
        yield from types_in(within)


def _iso(scalar: Any) -> str:
    """ISO 8601 with no digits of a second, with six, or with nine if six are too few."""
    pyarrow, kind = optional("pyarrow", "a table"), scalar.type
    is_time, nanoseconds, correction = pyarrow.types.is_time(kind), 0, timedelta()
    unit = kind.unit if is_time or pyarrow.types.is_timestamp(kind) else ""
    if pyarrow.types.is_duration(kind):
        seconds = Decimal(scalar.value) / _TICKS[kind.unit]
        return f"PT{seconds:f}S"
    if pyarrow.types.is_interval(kind):
        months, days, ticks = scalar.as_py()
        return f"P{months}M{days}DT{Decimal(ticks) / 10**9:f}S"
    if is_time and not 0 <= scalar.value < 86_400 * _TICKS[unit]:
        raise ValueError("a time outside a day")
    if unit == "ns":  # as_py would give a Timestamp of pandas
        nanoseconds = scalar.value % 1000
        if nanoseconds and scalar.value < 0:  # the cut rounds towards the epoch
            correction = timedelta(microseconds=1)
        kind = pyarrow.time64("us") if is_time else pyarrow.timestamp("us", tz=kind.tz)
        scalar = scalar.cast(kind, safe=False)
    try:
        moment = scalar.as_py()
        moment = moment - correction if correction else moment
    except (OverflowError, ValueError) as error:
        raise ValueError("a date outside the years 1 to 9999") from error
    if not nanoseconds:
        return str(moment.isoformat())
    text = moment.isoformat(timespec="microseconds")
    end = text.index(".") + 7
    return f"{text[:end]}{nanoseconds:03}{text[end:]}"
