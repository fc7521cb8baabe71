"""Tables of results, read back as the rows that they were written of."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping
from typing import Any

from schemax.errors import InputError
from schemax.io.columns import Column
from schemax.io.readers import read_file
from schemax.io.table_schema import SEPARATOR, TableSchema
from schemax.io.writers import is_typed


def read_results(name: str, table: TableSchema | None) -> Generator[dict[str, Any], None, None]:
    """The rows of a file that `schemax extract` has written, in its order.

    table: its columns, which JSON Lines need not have. Raises InputError for a file that cannot be
    read, or holds no such rows.
    """
    for record in read_file(name):
        try:
            if isinstance(record, InputError):
                raise record
            row = _row(record, table if is_typed(name) else None)
            if type(row["index"]) is not int or not row.keys() >= {"id", "attributes", "errors"}:
                raise ValueError("a row without index")
        except (InputError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{name} holds a row that schemax has not written: {error}") from error
        yield row


def _row(record: Any, table: TableSchema | None) -> dict[str, Any]:
    if table is None:
        return dict(record)
    return table.row({column.name: _value(column, record, "") for column in table.columns})


def _value(column: Column, record: Mapping[str, Any], around: str) -> Any:
    """What JSON has for a cell, also of tables where all is text, and structs are taken apart."""
    name = f"{around}{column.name}"
    if column.type == "struct" and not column.is_list and name not in record:
        inside = f"{name}{SEPARATOR}"
        found = {child.name: _value(child, record, inside) for child in column.children}
        return found if any(value is not None for value in found.values()) else None
    value = record[name]
    if not isinstance(value, str):
        return value
    return json.loads(value) if column.is_list else _OF_TEXT.get(column.type, str)(value)


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text]


_OF_TEXT: Mapping[str, Callable[[str], Any]] = {
    "integer": int,
    "number": float,
    "boolean": _boolean,
    "date": lambda text: text[:10],  # Excel has times in dates
    "json": json.loads,
}
