"""Tables of Delta Lake and Iceberg: adds rows in one commit, and reads versions of Delta tables.

A commit names its run, so that a run that was killed behind its commit and is resumed does not add
its rows again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, repeat
from operator import itemgetter
from typing import Any, BinaryIO
from urllib.parse import unquote
from weakref import finalize

from schemax.base.messages import reason_of, some_of
from schemax.errors import InputError
from schemax.io.arrow import plain_schema, projected, schema_of
from schemax.io.columns import Column
from schemax.io.storage import ICEBERG, is_remote, local_path, optional

_RUN = "schemax.run"
"""The property of a commit that names its run."""


def is_lake(name: str) -> bool:
    """True if a place is a table of Delta Lake or of Iceberg."""
    return name.startswith(ICEBERG) or is_delta(name)


def is_delta(name: str) -> bool:
    """True if a place is a Delta table, or by its suffix becomes one."""
    if name.rstrip("/").endswith(".delta"):
        return True
    return not is_remote(name) and (local_path(name) / "_delta_log").is_dir()


class DeltaTable:
    """A table of Delta Lake: a folder, or an address of a store."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._module = optional("deltalake", "a Delta table", "delta")
        optional("pyarrow", "a Delta table", "delta")
        self._place = name if is_remote(name) else str(local_path(name))

    def table(self) -> Any:
        """The table in its latest version; None if there is none yet."""
        there = self._module.DeltaTable.is_deltatable(self._place)
        return self._module.DeltaTable(self._place) if there else None

    def has(self, run: str) -> bool:
        table = self.table()
        return table is not None and table.transaction_version(f"{_RUN}.{run}") is not None

    def append(self, batches: Any, run: str, by: Sequence[str]) -> None:
        marks = [self._module.Transaction(f"{_RUN}.{run}", 1)]
        commit = self._module.CommitProperties({_RUN: run}, app_transactions=marks)
        divided: dict[str, Any] = {"partition_by": list(by)} if by else {}
        self._module.write_deltalake(
            self._place, batches, mode="append", commit_properties=commit, **divided
        )


def is_snapshot(name: str) -> bool:
    """True for a version of a Delta table, such as old.delta@v3."""
    place, _, version = name.rpartition("@v")
    return version.isdigit() and is_delta(place)


class Snapshot:
    """A version of a Delta table, by default the latest, which is read as one file."""

    def __init__(self, name: str) -> None:
        place, _, version = name.rpartition("@v") if is_snapshot(name) else (name, "", "")
        self._arrow = optional("pyarrow", "a Delta table", "delta")
        with _naming_table(place):
            self._table = DeltaTable(place).table()
            if self._table is None:
                raise InputError(f"cannot read {place}: it is no Delta table")
            if version:
                latest = self._table.version()
                if int(version) > latest:
                    raise InputError(f"cannot read {name}: the latest version is {latest}")
                self._table.load_as_version(int(version))
            self.name = f"{place}@v{self._table.version()}"
            if self._table.metadata().configuration.get("delta.columnMapping.mode") == "id":
                raise InputError(f"cannot read {place}: its columns are found by number")
            self.id, fields = self._table.metadata().id, self._table.schema().to_arrow()
        self.schema = self._arrow.schema(fields)

    def files(self, columns: Sequence[str] | None) -> Iterator[tuple[str, Any, Any, Any]]:
        """Yields (file, its columns to read, what the table makes of its batches, rows to keep)."""
        names = projected(columns, self.schema.names) or self.schema.names
        fields = [self.schema.field(name) for name in names]
        with _naming_table(self.name):
            actions = self._arrow.table(self._table.get_add_actions()).to_pydict()
            deleted = self._arrow.table(self._table.deletion_vectors()).to_pylist()
            uris = self._table.file_uris()
        values = actions.get("partition", [{}] * len(uris))
        masks = {unquote(row["filepath"]): row["selection_vector"] for row in deleted}
        for uri, constants in sorted(zip(uris, values, strict=True), key=itemgetter(0)):
            mask = masks.pop(uri, None) or masks.pop(f"file://{uri}", ())
            declared = partial(_declared, fields, constants)
            yield uri, [*map(_name_in_files, fields)], declared, chain(mask, repeat(True))
        if masks:
            raise InputError(f"cannot read {self.name}: it marks rows of unknown files as deleted")


def _declared(fields: Sequence[Any], values: Mapping[str, Any], batch: Any) -> Any:
    """A batch of a file as the table declares it. values: of partitions, which files lack."""
    pyarrow, arrays = optional("pyarrow", "a Delta table", "delta"), []
    for field in fields:
        if field.name in values:
            array = pyarrow.array([values[field.name]] * batch.num_rows, field.type)
        elif (name := _name_in_files(field)) in batch.schema.names:
            array = batch.column(name)
            array = array.view(_renamed(array.type, field.type)).cast(field.type)
        else:
            array = pyarrow.nulls(batch.num_rows, field.type)
        arrays.append(array)
    return pyarrow.RecordBatch.from_arrays(arrays, [field.name for field in fields])


def _renamed(kind: Any, declared: Any) -> Any:
    """A type of a file with the names that the table declares for the fields of its structs."""
    pyarrow = optional("pyarrow", "a Delta table", "delta")
    if pyarrow.types.is_struct(kind):
        known = {_name_in_files(field): field for field in declared}
        pairs = [(field, known.get(field.name, field)) for field in kind]
        return pyarrow.struct([(to.name, _renamed(field.type, to.type)) for field, to in pairs])
    if pyarrow.types.is_map(kind):
        return pyarrow.map_(kind.key_type, _renamed(kind.item_type, declared.item_type))
    is_list = pyarrow.types.is_list(kind)
    return pyarrow.list_(_renamed(kind.value_type, declared.value_type)) if is_list else kind


def _name_in_files(field: Any) -> str:
    """The name of a field of the table in its files."""
    mapped: bytes | None = (field.metadata or {}).get(b"delta.columnMapping.physicalName")
    return str(field.name) if mapped is None else mapped.decode()


class IcebergTable:
    """A table of a catalogue in PyIceberg's own settings: iceberg://CATALOG/NAME.TABLE."""

    def __init__(self, name: str) -> None:
        self.name = name
        module = optional("pyiceberg.catalog", "a table of Iceberg", "iceberg")
        optional("pyarrow", "a table of Iceberg", "iceberg")
        catalog, _, self._table_name = name.removeprefix(ICEBERG).partition("/")
        if not catalog or "." not in self._table_name or "/" in self._table_name:
            raise InputError(f"cannot write {name}: name it {ICEBERG}CATALOG/NAMESPACE.TABLE")
        self._catalog = module.load_catalog(catalog)
        finalize(self, self._catalog.close)

    def table(self) -> Any:
        """The table as it is now; None where there is none yet."""
        there = self._catalog.table_exists(self._table_name)
        return self._catalog.load_table(self._table_name) if there else None

    def has(self, run: str) -> bool:
        table = self.table()
        snapshots = () if table is None else table.snapshots()
        return any((snapshot.summary or {}).get(_RUN) == run for snapshot in snapshots)

    def append(self, batches: Any, run: str, by: Sequence[str]) -> None:
        namespace = self._table_name.rpartition(".")[0]
        self._catalog.create_namespace_if_not_exists(namespace)
        table = self._catalog.create_table_if_not_exists(self._table_name, schema=batches.schema)
        table.append(batches, snapshot_properties={_RUN: run})


def lake_table(name: str) -> DeltaTable | IcebergTable:
    """The table of a name. Raises InputError without the package, and if it cannot be reached."""
    with _naming_table(name):
        return DeltaTable(name) if is_delta(name) else IcebergTable(name)


def check_lake(name: str, columns: Sequence[Column], by: Sequence[str]) -> None:
    """Raises InputError if rows with these columns cannot be added."""
    table = lake_table(name)
    if by and isinstance(table, IcebergTable):
        raise InputError(f"cannot partition {name}: make the table with its partitions first")
    with _naming_table(name):
        current = table.table()
        there = None if current is None else [field.name for field in current.schema().fields]
        divided = list(by)
        if by and current is not None and isinstance(table, DeltaTable):
            divided = list(current.metadata().partition_columns)
    if divided != list(by):
        raise InputError(
            f"cannot add rows to {name}: it is divided by {some_of(divided) or 'nothing'}, not by "
            f"{some_of(by)}; leave --partition-by out"
        )
    names = [column.name for column in columns]
    if there is not None and set(there) != set(names):
        missing = [name for name in names if name not in there]
        further = [name for name in there if name not in names]
        differences = [f"the table lacks {some_of(missing)}"] if missing else []
        differences += [f"this run lacks {some_of(further)}"] if further else []
        raise InputError(
            f"cannot add rows to {name}: its columns are others: {', '.join(differences)}; name "
            "another table"
        )


@contextmanager
def adding(
    name: str, columns: Sequence[Column], run: str, by: Sequence[str]
) -> Generator[BinaryIO, None, None]:
    """Yields a file for rows in Arrow's file format, and adds them in one commit in the end.

    run: the run's name; a run that has added its rows before adds nothing.
    """
    pyarrow, ipc = optional("pyarrow", "a table"), optional("pyarrow.ipc", "a table")
    with tempfile.TemporaryFile() as handle:
        yield handle
        handle.seek(0)
        reader = ipc.open_file(handle)
        schema = plain_schema(schema_of(columns))
        stored = map(reader.get_batch, range(reader.num_record_batches))
        batches = (batch.cast(schema) for batch in stored)
        table = lake_table(name)
        with _naming_table(name):
            if not table.has(run):
                stream = pyarrow.RecordBatchReader.from_batches(schema, batches)
                table.append(stream, run, by)


@contextmanager
def _naming_table(name: str) -> Iterator[None]:
    """Turns errors of the packages into one that names the table."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"cannot use {name}: {reason_of(error)}") from error
