"""Tables as folders of Parquet files, with a folder for each value of some columns.

    televisions/category=Shoes/part-0.parquet
    televisions/category=__HIVE_DEFAULT_PARTITION__/part-0.parquet     null, and an empty text

Names of folders alone hold these columns, where readers (pyarrow, DuckDB, pandas, polars, Spark)
look for them. The whole folder is made beside its place, and put there in one step.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from json import dumps, loads
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from schemax.base.messages import clipped, did_you_mean, some_of
from schemax.errors import InputError
from schemax.io.columns import Column, Schemas, columns_of
from schemax.io.storage import Shelf, is_remote, local_path, sidecar, sync_folder
from schemax.io.table_schema import TableSchema

NULL = "__HIVE_DEFAULT_PARTITION__"
ROWS_PER_FILE = 1_000_000

_TYPES = ("string", "choice", "integer", "boolean", "date")
_FILE = re.compile(r"part-\d+\.parquet")
# Characters that Hive escapes in names of folders.
_ESCAPED = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{}\\[\\]^]")


@dataclass(frozen=True, slots=True)
class Layout:
    """The division of a table: by the values of some columns, and by a number of rows per file."""

    by: tuple[str, ...]
    rows_per_file: int = ROWS_PER_FILE

    def settings(self) -> dict[str, Any]:
        return {"partition by": list(self.by), "rows per file": self.rows_per_file}

    def check(self, columns: Sequence[Column], own: Sequence[Column]) -> None:
        """Raises InputError for missing columns, and for columns that cannot name folders."""
        there = {column.name: column for column in columns}
        for name in self.by:
            if name not in there:
                near = did_you_mean(name, there)
                raise InputError(f"cannot partition by {name!r}{near}: it is no column")
            if name.startswith(("_", ".")):
                raise InputError(
                    f"cannot partition by {name!r}: readers leave out folders whose names begin "
                    "with _ or .; name the column of the input (category)"
                )
            column = there[name]
            if column in own or column.is_list or column.type not in _TYPES:
                kind = "list" if column.is_list else column.type
                raise InputError(
                    f"cannot partition by {name!r} ({kind}): name columns of texts, choices, whole "
                    "numbers, truth values or dates, and not id and index"
                )
        if len(self.by) == len(columns):
            raise InputError("cannot partition by all columns: none would be left in the files")

    def path(self, cells: Mapping[str, Any]) -> str:
        """The folder of a row, such as "category=Shoes/smart=true"."""
        return "/".join(f"{escaped(name)}={_text(cells[name])}" for name in self.by)


def escaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _text(value: Any) -> str:
    if value is None or value == "":
        return NULL
    return str(value).lower() if isinstance(value, bool) else escaped(str(value))


def values_in(path: str) -> dict[str, str | None]:
    """The values in the folders of a path, as texts."""
    pairs = (part.partition("=") for part in path.split("/")[:-1] if part.find("=") > 0)
    return {unquote(key): None if text == NULL else unquote(text) for key, _, text in pairs}


def kept_for(by: Sequence[str], keep: Sequence[str], schemas: Schemas) -> tuple[str, ...]:
    """Columns of the input to keep: the named ones, and the ones that a table is divided by."""
    fields = {column.name for column in columns_of(schemas)} | {"id", "index"}
    return tuple(dict.fromkeys((*keep, *(name for name in by if name not in fields))))


def check_place(name: str) -> None:
    """Raises InputError if no folder can be made, or no run has made the existing one."""
    if is_remote(name):
        raise InputError(
            f"cannot write {name}: a folder of partitions is put in place in one step, "
            "which stores cannot do; name a local folder, or a Delta table (NAME.delta)"
        )
    path = local_path(name)
    restore(name)
    if path.exists() and not path.is_dir():
        raise InputError(f"cannot write {name}: it is a file; --partition-by writes a folder")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"cannot write {name}: {path.parent} is no folder that can be written to")
    own = (_is_own(file.relative_to(path)) for file in path.rglob("*") if not file.is_dir())
    if path.is_dir() and not all(own):
        raise InputError(
            f"cannot write {name}: it holds files that no run with --partition-by has written; "
            "name another folder"
        )


def _is_own(path: Path) -> bool:
    parents = path.parts[:-1]
    is_hidden = path.name.startswith((".", "_"))
    return is_hidden or (
        bool(_FILE.fullmatch(path.name))
        and bool(parents)
        and all("=" in parent for parent in parents)
    )


def _beside(name: str) -> tuple[Path, Path]:
    """The paths where a new folder is made, and where the old one waits for it."""
    target = str(local_path(name))
    return Path(sidecar(target, ".new")), Path(sidecar(target, ".old"))


def restore(name: str) -> None:
    """Puts a folder back that a kill between two renames has left beside its place."""
    path, (_, old) = local_path(name), _beside(name)
    if old.is_dir() and not path.exists():
        os.rename(old, path)


@contextmanager
def replacing(name: str) -> Generator[Path, None, None]:
    """Yields a new folder, which replaces the old one in the end."""
    path, (new, old) = local_path(name), _beside(name)
    for left in (new, old):
        shutil.rmtree(left, ignore_errors=True)
    new.mkdir()
    try:
        yield new
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    for folder, _, files in os.walk(new):
        for file in files:
            with open(Path(folder, file), "rb") as handle:
                os.fsync(handle.fileno())
        sync_folder(Path(folder))
    if path.exists():
        os.rename(path, old)
    os.rename(new, path)
    sync_folder(path.parent)
    shutil.rmtree(old, ignore_errors=True)


class Sorted:
    """Sorts rows by folder, in the order of the input, on the disk."""

    def __init__(self, table: TableSchema, layout: Layout) -> None:
        self._table, self._layout, self._rows = table, layout, Shelf()

    def write(self, row: Mapping[str, Any]) -> None:
        path = self._layout.path(self._table.cells(row)).encode()
        self._rows.put(path + b"\0" + int(row["index"]).to_bytes(8, "big"), dumps(row))

    def close(self) -> None: ...

    def files(self) -> Iterator[tuple[str, Iterator[dict[str, Any]]]]:
        """Yields (path of a file, its rows)."""
        size = self._layout.rows_per_file
        for path, items in groupby(self._rows.items(), lambda item: item[0][:-9]):
            numbered = groupby(enumerate(items), lambda pair: pair[0] // size)
            for number, rows in numbered:
                lines = (loads(line) for _, (_, line) in rows)
                yield f"{path.decode()}/part-{number}.parquet", lines


@contextmanager
def created(folder: Path, file: str) -> Iterator[Any]:
    """Creates a file of a table, and its folders. Raises InputError for too long names."""
    path = folder / file
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open(path, "wb")  # noqa: SIM115
    except OSError as error:
        raise InputError(
            f"cannot write the folder {clipped(str(path.parent.name))}: {error.strerror}; a value "
            "that --partition-by makes a folder of has at most some 200 characters. Name other "
            "columns: the rows that are finished are kept"
        ) from error
    with handle:
        yield handle


def in_order(rows: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields rows in the order of their indexes."""
    shelf = Shelf()
    for row in rows:
        shelf.put(int(row["index"]).to_bytes(8, "big"), dumps(row))
    for _, line in shelf.items():
        yield loads(line)


def layout_of(by: Sequence[str], rows_per_file: int | None) -> Layout | None:
    """The layout, if any. Raises ValueError for rows below 1, and for a column named twice."""
    if not by:
        if rows_per_file is not None:
            raise ValueError("rows_per_file requires partition_by")
        return None
    if rows_per_file is not None and rows_per_file < 1:
        raise ValueError(f"rows_per_file must be at least 1, not {rows_per_file}")
    if len(set(by)) != len(by):
        raise ValueError(f"partition_by names a column twice: {some_of(by)}")
    return Layout(tuple(by), rows_per_file or ROWS_PER_FILE)
