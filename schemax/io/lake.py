"""Adds rows to tables of Delta Lake and Iceberg, in one commit.

A commit names its run, so that a run that was killed behind its commit and is resumed does not add
its rows again.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

from schemax.base.messages import reason_of, some_of
from schemax.errors import InputError
from schemax.io.arrow import plain_schema, schema_of
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
        """The table as it is now; None where there is none yet."""
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

    def files(self) -> list[str]:
        """The table's current Parquet files. Raises InputError if they do not hold all its data."""
        table = self.table()
        if table is None:
            raise InputError(f"cannot read {self.name}: it is no Delta table")
        features = table.protocol().reader_features or []
        if table.metadata().partition_columns or features:
            raise InputError(
                f"cannot read {self.name}: it is divided into partitions, or has features that "
                f"its files alone do not show ({some_of(features) or 'partitions'}); write its "
                "rows to Parquet first"
            )
        return [str(uri).removeprefix("file://") for uri in table.file_uris()]


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
        raise InputError(
            f"cannot add rows to {name}: its columns are others (it lacks {some_of(missing) or '-'}"
            f", and has {some_of(further) or '-'} beside them); name another table"
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
