"""Columns in pyarrow: types, arrays, and the schema of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from schemax.io.arrow_out import native_array
from schemax.io.columns import Column, Schemas
from schemax.io.rows import Details
from schemax.io.storage import optional
from schemax.io.table_schema import TableSchema


def arrow_schema(schema: Schemas, *, details: Details = False) -> Any:
    """The pyarrow schema of the table that `schemax extract -o OUT.parquet` writes.

    schema: a Pydantic model, or one per category: then the table has the fields of all of them.
    details: with the raw text, the confidence and the place of every value; "confidence": with the
        confidences alone.

    Text is string, int int64, float double, bool bool, date date32; Enum and Literal are
    dictionaries; lists are lists and nested models structs. Decimal is decimal128 of the declared
    `max_digits` and `decimal_places`, else of (38, 9). A datetime is timestamp[us]; AwareDatetime
    is in UTC. All columns are nullable, since a row may fail.

    Raises InputError without pyarrow; SchemaError for what cannot be declared, and for categories
    that differ in the type of a field.
    """
    return schema_of(TableSchema.of(schema, details=details).columns)


def schema_of(columns: Sequence[Column]) -> Any:
    pyarrow = _pyarrow()
    return pyarrow.schema([(column.name, arrow_type(column)) for column in columns])


def plain_schema(schema: Any) -> Any:
    """A schema with the type of the choices in place of every dictionary, for `cast`."""
    return _pyarrow().schema([field.with_type(_plain(field.type)) for field in schema])


def _plain(kind: Any) -> Any:
    pyarrow = _pyarrow()
    if pyarrow.types.is_dictionary(kind):
        return kind.value_type
    if pyarrow.types.is_struct(kind):
        return pyarrow.struct([field.with_type(_plain(field.type)) for field in kind])
    return pyarrow.list_(_plain(kind.value_type)) if pyarrow.types.is_list(kind) else kind


def record_batch(columns: Sequence[Column], cells: Sequence[Mapping[str, Any]]) -> Any:
    """Rows of cells, as `TableSchema.cells` gives them, as a pyarrow.RecordBatch."""
    arrays = [_array(column, [row[column.name] for row in cells]) for column in columns]
    return _pyarrow().record_batch(arrays, schema=schema_of(columns))


@lru_cache(maxsize=1024)
def arrow_type(column: Column) -> Any:
    item = _item_type(column)
    return _pyarrow().list_(item) if column.is_list else item


def _item_type(column: Column) -> Any:
    pyarrow = _pyarrow()
    if column.type == "native":
        return column.native
    if column.type == "struct":
        return pyarrow.struct([(child.name, arrow_type(child)) for child in column.children])
    if column.type == "choice":
        # Of all choices, since the batches of an Arrow file must share one dictionary.
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


def _array(column: Column, values: Sequence[Any]) -> Any:
    """Choices stand in front until the array is made, so that all arrays share one dictionary."""
    if column.type == "native":
        return native_array(column.native, values)
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


def _pyarrow() -> Any:
    return optional("pyarrow", "a table")
