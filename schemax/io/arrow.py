"""Columns in pyarrow: types, arrays, and the schema of a table.

Kept columns have their own types, whose values are restored from their JSON form.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from schemax.errors import InputError
from schemax.io.columns import Column, Schemas, Type
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


@lru_cache(maxsize=1024)
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
    if types.is_dictionary(kind):
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
    if found := next((name for fits, name in plain if fits), None):
        return Column(field.name, found)
    if _is_native(kind):
        return Column(field.name, "native", native=_written(kind))
    return Column(field.name, "json" if types.is_nested(kind) else "string")


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
