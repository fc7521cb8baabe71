"""Finished tables: reads their rows back, and computes failed rows again.

_OUT.run.json holds the table's settings and summary. _OUT.keys holds the keys of its rows, in their
order, behind a digest of the table, which ties the keys to its rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from hashlib import blake2b, file_digest
from itertools import repeat
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError, with_config
from typing_extensions import TypedDict

from schemax.base.messages import counted, misfit_of
from schemax.errors import InputError
from schemax.io import fingerprint
from schemax.io.columns import Column
from schemax.io.lake import is_lake
from schemax.io.partitions import in_order
from schemax.io.readers import read_file, records_in
from schemax.io.rows import Row
from schemax.io.storage import (
    expand,
    is_file,
    is_table_folder,
    reading,
    reading_whole,
    sidecar,
    writing,
)
from schemax.io.summary import Summary
from schemax.io.table_schema import SEPARATOR, TableSchema
from schemax.io.writers import is_typed

_VERSION = 1
_RECORD = ".run.json"

_KEY_SIZE = 16  # bytes of a key; `fingerprint.digest` has twice as many digits
_NO_KEY = bytes(_KEY_SIZE)


def is_table(name: str) -> bool:
    """True if a file, a local folder or a table of a lake exists."""
    return is_lake(name) or is_table_folder(name) or is_file(name)


def tables_of(name: str) -> list[str]:
    """The tables that a name matches: files of `expand`, or a folder in partitions with the record
    of its run. Raises InputError for no match."""
    is_one = is_table_folder(name) and is_file(record_name(name))
    return [name] if is_one else expand(name)


def record_name(output: str) -> str:
    return sidecar(output, _RECORD)


def keys_name(output: str) -> str:
    return sidecar(output, ".keys")


@with_config(ConfigDict(extra="allow"))
class _Settings(TypedDict):
    """The settings that decide which records a run has read."""

    text: list[str] | None
    id: str | None
    category: str | None
    html: Literal["strip", "keep"]
    limit: Annotated[int, Field(ge=0, lt=2**63)] | None
    shard: Annotated[str, Field(pattern=r"^\d+/\d+$")]


@with_config(ConfigDict(extra="allow"))
class _Command(TypedDict, total=False):
    schema: str | None
    input: list[str] | str | None


class _Checked(TypedDict):
    settings: _Settings
    command: _Command


_CHECKED = TypeAdapter(_Checked)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The record of the run that has finished a table.

    finished: the time, in ISO 8601. settings: the settings that rows depend on, as in the manifest.
    model: its folder, Hub id or server. table: the columns; None if rows have none in common.
    category: the only schema's; with several schemas, rows hold theirs.
    command: the arguments of the command line, if there was one.
    schemas: JSON Schema documents of the schemas that have one, by category.
    """

    summary: Summary
    settings: Mapping[str, Any]
    model: str | None
    table: TableSchema | None
    category: str | None = None
    command: Mapping[str, Any] = field(default_factory=dict)
    schemas: Mapping[str, Any] = field(default_factory=dict)
    finished: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def write(self, scratch: str | None = None) -> None:
        """Writes the record beside the table. scratch: see `writing`."""
        data = {"version": _VERSION, **asdict(self)}
        with writing(record_name(self.summary.output), scratch) as handle:
            handle.write(json.dumps(data, indent=1, default=str).encode() + b"\n")


def read_run_record(output: str) -> RunRecord:
    """Reads a table's record. Raises InputError for a table that no run over files has made."""
    name = record_name(output)
    try:
        with reading(name) as handle:
            data = json.load(handle)
    except InputError as error:
        if not is_table(output):
            with reading(output):  # raises if the table is missing
                pass
        raise InputError(
            f"cannot tell how {output} was made: {error}; a run of schemax extract from "
            "files to a file writes it"
        ) from None
    except ValueError as error:
        raise InputError(f"cannot read {name}: {error}") from error
    if not isinstance(data, dict) or data.get("version") != _VERSION:
        raise InputError(f"cannot read {name}: it was not written by this version of schemax")
    try:
        record = TypeAdapter(RunRecord).validate_python(data)
        _CHECKED.validate_python({"settings": record.settings, "command": record.command})
        return record
    except ValidationError as error:
        raise InputError(f"cannot read {name}: {misfit_of(error)}") from error


def finished_note(output: str, known: Mapping[str, Any]) -> tuple[str, str] | None:
    """A finished table and what a run does to it, in words; None if there is no table.

    known: the settings that rows depend on, as far as they are known before a model is loaded.
    """
    try:
        if not is_table(output) or not is_file(record_name(output)):
            return None
        record = read_run_record(output)
    except InputError:  # an unreadable record is replaced
        return None
    rows = f"{counted(record.summary.rows, 'row')}, {record.summary.failed:,} failed"
    note = f"{output} is complete ({rows}, finished {record.finished})"
    if changes := fingerprint.differences(record.settings, known):
        return f"{note} and was made otherwise: {'; '.join(changes)}", "this run replaces it"
    return note, (
        "this run computes all rows again and replaces it; to do the failed rows alone, "
        f"schemax extract --retry-failed {output} (retry_failed=True)"
    )


def read_results(name: str, table: TableSchema | None) -> Generator[Row, None, None]:
    """Reads the rows of a file that `schemax extract` has written, in its order.

    table: its columns; None for JSON Lines. Raises InputError for a file that cannot be read, or
    holds other rows.
    """
    if is_lake(name):
        raise InputError(
            f"cannot read rows of {name} back, to which others may write: --retry-failed, --reuse "
            "and pages take files and folders"
        )
    if is_table_folder(name):
        yield from in_order(row for file in expand(name) for row in _rows_of(file, table))
    else:
        yield from _rows_of(name, table if is_typed(name) else None)


def _rows_of(name: str, table: TableSchema | None) -> Iterator[Row]:
    """Reads the rows of one file."""
    for record in records_in(name) if table is None else read_file(name):
        try:
            if isinstance(record, InputError):
                raise record
            row: Any = record
            if table is not None:
                row = table.row({column.name: _value(column, row, "") for column in table.columns})
            if type(row["index"]) is not int or not row.keys() >= {"id", "attributes", "errors"}:
                raise ValueError("a row without index")
        except (InputError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{name} holds a row that schemax has not written: {error}") from error
        yield row


def keyed_results(output: str) -> Iterator[Row]:
    """Yields the rows of a finished table, each with its "key"; None if it is unknown.

    Raises InputError for a table that no run over files has made.
    """
    with closing(read_results(output, read_run_record(output).table)) as rows:
        for row, key in zip(rows, _keys_of(output), strict=False):
            yield {**row, "key": key}


def add_key(keys: bytearray, key: str | None) -> None:
    keys += _NO_KEY if key is None else bytes.fromhex(key)


def write_keys(output: str, keys: bytes, scratch: str | None = None) -> None:
    """Writes the keys of a finished table's rows, with a digest of the table."""
    with writing(keys_name(output), scratch) as handle:
        handle.write(_digest_of(output) + keys)


def _keys_of(output: str) -> Iterator[str | None]:
    """Yields the keys of a table's rows, without end; None for a row without a key, and for unknown
    keys, as of a table that was replaced by other means."""
    name = keys_name(output)
    if is_file(name) and is_table(output):
        with reading_whole(name) as handle:
            if handle.read(_KEY_SIZE) == _digest_of(output):
                while len(key := handle.read(_KEY_SIZE)) == _KEY_SIZE:
                    yield None if key == _NO_KEY else key.hex()
    yield from repeat(None)


def _digest_of(name: str) -> bytes:
    """A digest of a file, or of a folder's files and their names."""
    handle: Any
    if not is_table_folder(name):
        with reading_whole(name) as handle:
            return file_digest(handle, lambda: blake2b(digest_size=_KEY_SIZE)).digest()
    whole = blake2b(digest_size=_KEY_SIZE)
    for file in expand(name):
        whole.update(file.removeprefix(name).encode("utf-8", "surrogateescape"))
        whole.update(_digest_of(file))
    return whole.digest()


def _value(column: Column, record: Mapping[str, Any], around: str) -> Any:
    """The JSON value of a cell, also of tables with texts and flattened structs alone."""
    name = f"{around}{column.name}"
    if column.type == "struct" and not column.is_list and name not in record:
        inside = f"{name}{SEPARATOR}"
        values = {child.name: _value(child, record, inside) for child in column.children}
        return values if any(value is not None for value in values.values()) else None
    value = record[name]
    if not isinstance(value, str):
        return value
    return json.loads(value) if column.is_list else _OF_TEXT.get(column.type, str)(value)


_OF_TEXT: Mapping[str, Callable[[str], Any]] = {
    "integer": int,
    "number": float,
    "boolean": {"true": True, "false": False}.__getitem__,
    "date": lambda text: text[:10],  # Excel has times in dates
    "json": json.loads,
}
