"""Reads the records of files row by row, each format by its reader, and single documents.

An InputError takes the place of a row that cannot be read, so that order and count hold. A file
that breaks in the middle raises InputError, since its further rows are unknown.
"""

from __future__ import annotations

import csv
import gzip
import io
import logging
import os
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain, compress, islice
from typing import Any, BinaryIO, Literal, TypeAlias
from zipfile import BadZipFile

from schemax.base.messages import counted, did_you_mean, say, some_of
from schemax.errors import InputError
from schemax.io.arrow import arrow_schema_of, read_arrow, read_parquet
from schemax.io.delimited import read_csv, read_header
from schemax.io.document_files import (
    COLUMNS,
    MOST_BYTES,
    READ,
    check_packages,
    is_document,
    read_document,
    unreadable,
)
from schemax.io.excel import EXCEL, read_excel, read_sheet_header
from schemax.io.lake import Snapshot, is_delta, is_snapshot
from schemax.io.office import OLE, ZIP, refusal
from schemax.io.partitions import values_in
from schemax.io.records import STANDARD, Record, Unreadable, bounded_lines, read_records
from schemax.io.storage import expand, is_folder, optional, reading, suffixes

logger = logging.getLogger(__name__)

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather")
CSV = (".csv", ".tsv")
JSON = (".jsonl", ".ndjson", ".json")

# Suffixes of formats that cannot be read; any unknown suffix means JSON Lines.
_FOREIGN = (
    *(".7z", ".avro", ".bz2", ".db", ".gz", ".ipc", ".ods", ".orc"),
    *(".sqlite", ".tar", ".xls", ".xml", ".xz", ".zip", ".zst"),
)

_USE = "use CSV, Parquet, Arrow, Excel (.xlsx) or JSON Lines"

# Errors of readers for broken bytes. Most of pyarrow's are ValueErrors; others report an unknown
# type, too little memory for a cell, or types within types that are too many.
_BROKEN = (
    *(OSError, EOFError, ValueError, NotImplementedError, MemoryError, RecursionError),
    *(zlib.error, csv.Error, BadZipFile),
)

# Records of JSON Lines that are read to find a file's keys.
_LOOKED_AT = 1000

Reader: TypeAlias = Callable[[BinaryIO, str, Sequence[str] | None], Iterator[Record]]


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` equal parts of the input: the rows whose index modulo count is `number`."""

    number: int = 0
    count: int = 1

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Reads "0/4". Raises ValueError."""
        try:
            number, count = map(int, text.split("/"))
        except ValueError:
            number, count = 0, 0
        if not 0 <= number < count:
            raise ValueError(f"shard must be one of 0/N to N-1/N, such as 0/4, not {text!r}")
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True, slots=True)
class InputFiles:
    """Files that are read one after the other; rows are numbered through all of them.

    files: places, or "-" alone for stdin, which holds JSON Lines.
    columns: columns to read, in formats that can leave others unread; None for all.
    limit: the number of first rows, of all files, that are read; the shard is taken of these.
    there: the columns of the files, for JSON Lines the keys of their first 1,000 records; empty if
        unknown.
    """

    files: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    shard: Shard = Shard()
    there: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        names: Iterable[str],
        columns: tuple[str, ...] | None = None,
        limit: int | None = None,
        shard: Shard | None = None,
        required: Sequence[Sequence[str]] = (),
    ) -> InputFiles:
        """Finds the files of names and wildcards.

        required: groups of columns; a file with columns must have one of each group.
        Raises InputError for a name that matches nothing, and for a file that cannot be opened or
        lacks columns.
        """
        files = tuple(file for name in names for file in _files_of(name))
        if not files:
            raise InputError("no input is named")
        if STANDARD in files and len(files) > 1:
            raise InputError("stdin (-) cannot be read together with other inputs")
        if STANDARD in files and sys.stdin is None:
            raise InputError("cannot read stdin: it is closed")
        there: dict[str, None] = {}
        for file in files:
            if file != STANDARD:
                there |= dict.fromkeys(_checked_columns(file, required, columns))
            if required and not there and all(suffixes(file)[0] in _HEADERS for file in files):
                raise InputError(
                    f"cannot read {some_of(files)}: empty, without the header that names columns"
                )
        return cls(files, columns, limit, shard or Shard(), tuple(there))

    @property
    def is_stdin(self) -> bool:
        """True if the source can be read only once."""
        return self.files == (STANDARD,)

    def rows(self) -> Generator[tuple[int, Record], None, None]:
        """Yields (index, record) in order, within limit and shard. Raises InputError."""
        with closing(self._records()) as records:
            numbered = enumerate(islice(records, self.limit))
            yield from islice(numbered, self.shard.number, None, self.shard.count)

    def count(self) -> int | None:
        """The number of rows; None if only reading all rows would tell."""
        total = 0
        for file in self.files:
            if (rows_of_file := count_rows(file)) is None:
                return None
            total += rows_of_file
        rows = total if self.limit is None else min(total, self.limit)
        return len(range(self.shard.number, rows, self.shard.count))

    def _records(self) -> Generator[Record, None, None]:
        if self.is_stdin:
            yield from read_records(bounded_lines(sys.stdin.buffer))
            return
        several = len(self.files) > 1
        for file in self.files:
            is_named = is_document(file)  # in its own errors
            with closing(read_file(file, self.columns)) as records:
                for record in records:
                    if several and not is_named and isinstance(record, InputError):
                        record = InputError(f"{file}, {record}")
                    yield record


def _files_of(name: str) -> list[str]:
    """The files of a name: in a folder, files of known kinds; a Delta table is one, by version."""
    if is_delta(name) and is_folder(name):
        return [Snapshot(name).name]
    present = expand(name)
    if not is_folder(name):
        return present
    files = [
        file for file in present if is_document(file) or suffixes(file)[0] in (*JSON, *_READERS)
    ]
    if not files:
        raise InputError(f"cannot read {name}: no file in it is of a known kind")
    if unknown := sorted(set(present) - set(files)):
        count = counted(len(unknown), "file")
        logger.warning("%s: %s of other kinds left out: %s", name, count, some_of(unknown))
    return files


def read_file(name: str, columns: Sequence[str] | None = None) -> Generator[Record, None, None]:
    """Reads the records of a file in the format of its suffix; unknown suffixes mean JSON Lines.

    Folders around a table, as in category=Shoes/1.parquet, hold values of columns that it lacks.

    Raises InputError for a file that cannot be read, or not to its end; yields the error for a
    document, which is a single record.
    """
    if not is_document(name):
        folders = values_in(name)
        for record in records_in(name, columns):
            if isinstance(record, Unreadable):
                record.cells = {**folders, **record.cells}
            yield {**folders, **record} if isinstance(record, Mapping) else record
        return
    try:
        with _opened(name, "any further") as handle:
            yield read_document(handle, name)
    except InputError as error:
        yield unreadable(name, str(error).removeprefix(f"cannot read {name}: "))


def records_in(name: str, columns: Sequence[str] | None = None) -> Generator[Record, None, None]:
    """Reads the records of a file that is no document, without values of the folders around it."""
    if is_snapshot(name):
        for file, wanted, declared, kept in Snapshot(name).files(columns):
            with _opened(file, "any further") as handle:
                yield from compress(read_parquet(handle, file, wanted, declared), kept)
        return
    check_format(name, "read")
    with _opened(name, "any further") as handle:
        yield from _READERS.get(suffixes(name)[0], _json_lines)(handle, name, columns)


def columns_of(name: str, wanted: Sequence[str] | None = None) -> list[str] | None:
    """The columns of a file, for JSON Lines the keys of its first records; None without any.

    An empty file has no columns. wanted: the columns that will be read; None for all.

    Raises InputError for a file that cannot be read.
    """
    if is_document(name):
        check_packages(name)
        return list(COLUMNS)
    if is_snapshot(name):
        return list(Snapshot(name).schema.names)
    check_format(name, "read")
    suffix = suffixes(name)[0]
    with _opened(name, "at all") as handle:
        if (header := _HEADERS.get(suffix)) is not None:
            names = header(handle, name)
        elif suffix in (*PARQUET, *ARROW):
            names = arrow_schema_of(handle, name, is_parquet=suffix in PARQUET).names
            handle.seek(0)
            next(_READERS[suffix](handle, name, wanted), None)  # damage is found before a run
        else:
            names = _first_keys(_READERS.get(suffix, _json_lines)(handle, name, None)) or []
    return [*dict.fromkeys((*values_in(name), *names))] if names else None


def _first_keys(records: Iterator[Record]) -> list[str] | None:
    keys: dict[str, None] = {}
    try:
        for record in islice(records, _LOOKED_AT):
            keys |= dict.fromkeys(record if isinstance(record, Mapping) else ())
    except _BROKEN:  # records before the break are still read later
        return None
    return list(keys) or None


def _checked_columns(name: str, required: Sequence[Sequence[str]], wanted: Any) -> list[str]:
    there = columns_of(name, wanted) or []
    for group in required:
        if there and not any(key in there for key in group):
            raise InputError(
                f"cannot read {name}: it has no column {' or '.join(map(repr, group))}"
                f"{did_you_mean(group[0], there)}; it has {some_of(there)}"
            )
    return there


@contextmanager
def _opened(name: str, extent: str) -> Iterator[Any]:
    """Opens the plain bytes of a file. Raises InputError for damage, also while it is read."""
    with reading(name) as raw:
        try:
            with decompressed(raw, suffixes(name)[1]) as handle:
                yield handle
        except InputError:
            raise
        except _BROKEN as error:
            reason = str(error) or "more memory is asked for than there is"  # a MemoryError
            raise InputError(f"cannot read {name} {extent}: {reason}") from error


def count_rows(name: str) -> int | None:
    """Counts rows if that is cheap: of Parquet, plain local JSON Lines, a document; else None."""
    if is_document(name):
        return 1
    suffix, compression = suffixes(name)
    if name == STANDARD or is_snapshot(name) or compression or suffix in (*CSV, *ARROW, *EXCEL):
        return None
    try:
        with reading(name) as handle:
            if suffix in PARQUET:
                return int(optional("pyarrow.parquet", name).read_metadata(handle).num_rows)
            return sum(1 for line in handle if line.strip())
    except (OSError, ValueError, InputError):
        return None  # reading it will report the error


def decompressed(raw: BinaryIO, compression: str) -> Any:
    """A reader of the plain bytes of a .gz or .zst file."""
    if compression == ".gz":
        return gzip.GzipFile(fileobj=raw, mode="rb")
    if compression == ".zst":
        pyarrow = optional("pyarrow", "a .zst file")
        return io.BufferedReader(pyarrow.input_stream(raw, compression="zstd"), 1 << 20)
    return nullcontext(raw)


def check_format(name: str, verb: Literal["read", "write"]) -> None:
    """Raises InputError for a format that is not supported, or whose package is missing."""
    suffix, compression = suffixes(name)
    reason = None
    if compression and suffix in (*PARQUET, *ARROW, *EXCEL):
        reason = f"{suffix} files are compressed inside; leave {compression} out of the name"
    elif is_document(name):
        reason = f"{suffix} files are documents, which are read alone; {_USE}"
    elif suffix in EXCEL[1:] and verb == "write":
        reason = f"{suffix} files are only read; {_USE}"
    elif suffix in _FOREIGN:
        reason = f"unknown format {suffix}; {_USE}"
    if reason is not None:
        raise InputError(f"cannot {verb} {name}: {reason}")
    if compression == ".zst" or suffix in (*PARQUET, *ARROW):
        optional("pyarrow", f"a {compression or suffix} file")
    if suffix in EXCEL:
        optional("openpyxl", f"a {suffix} file", "excel")


def _json_lines(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    lines = bounded_lines(handle)
    first = next(lines, b"")
    if first and first.startswith((ZIP, OLE)):
        reason = refusal(io.BytesIO(first + handle.read(MOST_BYTES)))
        raise InputError(f"cannot read {name}: {reason}")
    if first and first.startswith(b"%PDF-"):
        raise InputError(f"cannot read {name}: it is a PDF file; name it .pdf to read it")
    if suffixes(name)[0] == ".json" and first and (first[:1] == b"[" or first.strip() == b"{"):
        raise InputError(
            f"cannot read {name}: expected JSON Lines, with one record on every line; of an array "
            "jq -c '.[]' makes such lines"
        )
    return read_records(chain((first,), lines))


_READERS: Mapping[str, Reader] = {
    **dict.fromkeys(CSV, read_csv),
    **dict.fromkeys(EXCEL, read_excel),
    **dict.fromkeys(PARQUET, read_parquet),
    **dict.fromkeys(ARROW, read_arrow),
}
_HEADERS: Mapping[str, Callable[[BinaryIO, str], list[str]]] = {
    **dict.fromkeys(CSV, read_header),
    **dict.fromkeys(EXCEL, read_sheet_header),
}

_TABLES = (".jsonl", ".ndjson", ".json", *CSV, *PARQUET, *ARROW, *EXCEL)


def load_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a PDF, DOCX, HTML or text file for `extract`: {"id": path, "text": its text}.

    path: a path, or an address such as s3://bucket/invoice.pdf. The file's first bytes decide its
    kind, not its name. Spans in the text have locations (page and boxes, or paragraph).

    Raises InputError for a file that cannot be read, or has no text.
    """
    with closing(read_file(os.fspath(path))) as records:
        record = next(records) if is_document(os.fspath(path)) else None
    if isinstance(record, InputError):
        raise record
    if not isinstance(record, dict):
        raise InputError(f"cannot read {os.fspath(path)}: it is no document ({' '.join(READ)})")
    return record


def load_documents(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> Iterator[Record]:
    """Yields the documents of paths, addresses, folders and patterns ("inbox/*.pdf").

    A document is read as by `load_document`. In the place of an unreadable one comes the
    InputError, which `extract` and `Extractor.stream` turn into a failed row.

    Raises InputError for paths that match nothing, and for a file that is no document.
    """
    names = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    source = InputFiles.of([os.fspath(name) for name in names])
    for file in source.files:
        if not is_document(file):
            raise InputError(f"cannot read {file}: it is no document ({' '.join(READ)})")
    return (record for _, record in source.rows())


def first_document(text: str) -> str | Mapping[str, Any]:
    """The text itself, stdin for "-", or the first document of the file that the text names.

    Raises InputError for a file that is missing, cannot be read or holds no document.
    """
    if text == "-":
        return sys.stdin.read()
    is_word = text.split() == [text]
    if is_word and os.path.isdir(text):
        raise InputError(f"{text} is a folder; name a file, or give the text of a document")
    is_file = os.path.isfile(text)
    is_named = suffixes(text)[0] in _TABLES or is_document(text)
    if not is_named or not (is_file or is_word):
        return text
    if not is_file:
        raise InputError(f"no such file: {text}; give the text of a document")
    say(f"note: the first document of {text}")
    if is_document(text):
        return str(load_document(text)["text"])
    with closing(read_file(text)) as records:
        record = next(records, None)
    if isinstance(record, InputError):
        raise record
    if record is None:
        raise InputError(f"{text} holds no document")
    return record
