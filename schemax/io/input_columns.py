"""Columns of an input: finds the kept ones, and warns of columns that the model is shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from schemax.base.messages import clipped, note_once, some_of
from schemax.extraction.documents import RecordFields
from schemax.io.arrow import arrow_schema_of, column_of
from schemax.io.columns import Column, Schemas, Type
from schemax.io.document_files import is_document
from schemax.io.lake import Snapshot, is_snapshot
from schemax.io.readers import ARROW, CSV, PARQUET, InputFiles, read_file
from schemax.io.records import STANDARD
from schemax.io.rows import Details, check_details, check_kept
from schemax.io.storage import reading, suffixes
from schemax.io.table_schema import TableSchema

_PLAIN: Mapping[type, Type] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def kept_columns(source: InputFiles, keep: Sequence[str]) -> tuple[Column, ...]:
    """The kept columns of a source, with types.

    Types are the declared ones in Parquet and Arrow, and text in CSV; for other formats all records
    are read. Values of several types become text, except for integers among other numbers.
    """
    types: dict[str, set[Column]] = {name: set() for name in keep}
    for file in source.files if keep else ():
        for column in _columns_of(file, keep):
            types[column.name].add(column)
    return tuple(_one(name, columns) for name, columns in types.items())


def _one(name: str, columns: set[Column]) -> Column:
    if len(columns) == 1:
        return next(iter(columns))
    is_number = {column.type for column in columns} == {"integer", "number"}
    return Column(name, "number" if is_number else "string")


def _columns_of(file: str, keep: Sequence[str]) -> Iterable[Column]:
    suffix = suffixes(file)[0]
    if file == STANDARD or suffix in CSV or is_document(file):
        return [Column(name, "string") for name in keep]
    if is_snapshot(file):
        return [column_of(field) for field in Snapshot(file).schema if field.name in keep]
    if suffix in (*PARQUET, *ARROW):
        with reading(file) as handle:
            schema = arrow_schema_of(handle, file, is_parquet=suffix in PARQUET)
        return [column_of(field) for field in schema if field.name in keep]
    kinds: dict[str, set[Any]] = {name: set() for name in keep}
    for record in read_file(file):
        if isinstance(record, Mapping):
            for name in keep:
                kinds[name].add(_kind_of(record.get(name)))
    return [_of_kinds(name, types - {type(None)}) for name, types in kinds.items()]


def _kind_of(value: Any) -> Any:
    """The type of a value; "long" and "longer" for integers beyond a double, and beyond 64 bits."""
    if type(value) is not int or abs(value) <= 2**53:
        return type(value)
    return "long" if -(2**63) <= value < 2**63 else "longer"


def _of_kinds(name: str, kinds: set[Any]) -> Column:
    if kinds == {int, float}:
        return Column(name, "number")
    if kinds and kinds <= {int, "long"}:
        return Column(name, "integer")
    plain = {_PLAIN.get(kind, "json") for kind in kinds}
    return Column(name, plain.pop() if len(plain) == 1 else "string")


def column_notes(there: Iterable[str], shown: RecordFields, schemas: Schemas) -> Iterator[str]:
    """Yields notes: on columns shown because none is named, and on categories that select nothing.

    there: the columns of the input, as far as they are known.
    """
    names = list(there)
    if len(unnamed := shown.unnamed(names)) > 1:
        yield (
            f"the model is shown all of these columns: {some_of(unnamed)}; name those that it is "
            "to read with --text (text=)"
        )
    if shown.category in names and not isinstance(schemas, Mapping):
        is_shown = shown.category in (shown.text or ())
        yield (
            f"the column {clipped(repr(shown.category))} selects no schema, since there is one for "
            f"all rows{'' if is_shown else ', and the model is not shown it'}; name a schema for "
            "each category: Shoes=shoes,Tea=tea"
        )


def tell_of_columns(there: Iterable[str], shown: RecordFields, schemas: Schemas) -> None:
    """Logs the notes, each once in a process."""
    for note in column_notes(there, shown, schemas):
        note_once(note)


def checked_frame(
    there: Sequence[str],
    schemas: Schemas,
    shown: RecordFields,
    details: Details,
    keep: Sequence[str] | None,
    source: str = "the frame",
) -> tuple[list[str], TableSchema]:
    """(the kept columns of a frame, the table of results). keep: None keeps all.

    Logs notes on the columns. Raises InputError for named columns that are missing or repeated.
    """
    check_details(details)
    table = TableSchema.of(schemas, details=details)
    shown.check(there, f"{source} has no column")
    tell_of_columns(there, shown, schemas)
    kept = [keep] if isinstance(keep, str) else list(there if keep is None else keep)
    check_kept(kept, there, source)
    table.check_beside(kept, source)
    return kept, table
