"""Records of files: JSON Lines, CSV, Parquet and Arrow, read row by row in bounded memory.

A row that cannot be read is an InputError in its place, so that order and count hold. A file that
breaks in the middle raises InputError: what follows is not known.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from datetime import date, time
from itertools import islice
from typing import Any, BinaryIO, TypeAlias

from schemax.errors import InputError
from schemax.io import STANDARD, Record, read_records
from schemax.tables.places import expand, optional, reading, suffixes

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
CSV = (".csv",)

# Rows that are made Python objects at a time.
_BATCH = 1024
# A cell; more is a quote that nobody closed, and would take in the whole file.
_LONGEST_CELL = 64_000_000

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
            raise ValueError(f"--shard must be 0/N to N-1/N, such as 0/4, not {text!r}")
        return cls(number, count)

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"

    def of(self, rows: int) -> int:
        """How many of so many rows are in it."""
        return len(range(self.number, rows, self.count))


@dataclass(frozen=True, slots=True)
class Source:
    """Files that are read one after the other; rows are numbered through all of them.

    files: places, or "-" alone for stdin, which holds JSON Lines.
    columns: those that are needed, where a format can leave others unread; None for all.
    limit: the first so many rows of all files; the shard is taken of these.
    """

    files: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    limit: int | None = None
    shard: Shard = Shard()

    @classmethod
    def of(
        cls,
        names: Iterable[str],
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        shard: Shard | None = None,
    ) -> Source:
        """Resolves wildcards. Raises InputError for what matches nothing, or cannot be opened."""
        files = tuple(file for name in names for file in expand(name))
        if STANDARD in files and len(files) > 1:
            raise InputError("stdin (-) cannot be read together with other inputs")
        for file in files:
            if file != STANDARD:
                _reader(file)
                with reading(file):
                    pass
        found = None if columns is None else tuple(columns)
        return cls(files, found, limit, shard or Shard())

    @property
    def standard(self) -> bool:
        """Whether it is stdin, which can be read only once."""
        return self.files == (STANDARD,)

    def rows(self) -> Generator[tuple[int, Record], None, None]:
        """(index, record) in order: of the limit, then of the shard. Raises InputError."""
        with closing(self._records()) as records:
            numbered = enumerate(islice(records, self.limit))
            yield from islice(numbered, self.shard.number, None, self.shard.count)

    def index(self, place: int) -> int:
        """The index of a row, by its place among those that `rows` gives."""
        return self.shard.number + place * self.shard.count

    def count(self) -> int | None:
        """How many rows that gives; None where nothing less than reading all would tell."""
        total = 0
        for file in self.files:
            found = count_rows(file)
            if found is None:
                return None
            total += found
        return self.shard.of(total if self.limit is None else min(total, self.limit))

    def _records(self) -> Generator[Record, None, None]:
        if self.standard:
            yield from read_records(sys.stdin.buffer)
            return
        several = len(self.files) > 1
        for file in self.files:
            with closing(read_file(file, self.columns)) as records:
                for record in records:
                    if several and isinstance(record, InputError):
                        record = InputError(f"{file}, {record.message}")
                    yield record


def read_file(name: str, columns: Sequence[str] | None = None) -> Generator[Record, None, None]:
    """The records of one file, by its suffix; another suffix than those known is JSON Lines.

    Raises InputError for a file that cannot be read, or not to its end.
    """
    read = _reader(name)
    with reading(name) as raw:
        try:
            with decompressed(raw, suffixes(name)[1]) as handle:
                yield from read(handle, name, columns)
        except InputError:
            raise
        except _broken() as error:
            raise InputError(f"cannot read {name} any further: {error}") from error


def count_rows(name: str) -> int | None:
    """Rows of a file where that is cheap to know: Parquet, and plain local JSON Lines."""
    suffix, compression = suffixes(name)
    if name == STANDARD or compression or suffix in (*CSV, *ARROW):
        return None
    try:
        with reading(name) as handle:
            if suffix in PARQUET:
                return int(optional("pyarrow.parquet", name).read_metadata(handle).num_rows)
            return sum(1 for line in handle if line.strip())
    except (OSError, ValueError, InputError):
        return None  # reading it will say what is wrong


def decompressed(raw: BinaryIO, compression: str) -> Any:
    """A reader of the plain bytes of a .gz or .zst file, line by line."""
    if compression == ".gz":
        return gzip.GzipFile(fileobj=raw, mode="rb")
    if compression == ".zst":
        return io.BufferedReader(_Zstd(raw), 1 << 20)
    return nullcontext(raw)


class _Zstd(io.RawIOBase):
    """The plain bytes of frames of zstd; unlike the package's own reader, it sees a missing end."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._decompressor = optional("zstandard", "a .zst file").ZstdDecompressor()
        self._frame: Any = None
        self._rest = self._plain = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._plain:
            if self._frame is not None and self._frame.eof:
                self._rest, self._frame = self._frame.unused_data, None
            data, self._rest = self._rest or self._raw.read(1 << 14), b""
            if not data and self._frame is not None:
                raise EOFError("it ends in the middle of a frame")
            if not data:
                return 0
            self._frame = self._frame or self._decompressor.decompressobj()
            self._plain = self._frame.decompress(data)
        count = min(len(buffer), len(self._plain))
        buffer[:count], self._plain = self._plain[:count], self._plain[count:]
        return count


def _broken() -> tuple[type[Exception], ...]:
    """What readers raise for bytes that are not what they should be; pyarrow's are ValueErrors."""
    module = sys.modules.get("zstandard")
    own = () if module is None else (module.ZstdError,)
    return (OSError, EOFError, ValueError, zlib.error, csv.Error, *own)


def _reader(name: str) -> Reader:
    """Raises InputError for formats whose packages are not there, and those that are none."""
    suffix, compression = suffixes(name)
    if compression == ".zst":
        optional("zstandard", "a .zst file")
    if suffix in CSV:
        return _csv
    if suffix not in (*PARQUET, *ARROW):
        return _json_lines
    if compression:
        raise InputError(f"cannot read {name}: {suffix} files compress themselves")
    optional("pyarrow", f"a {suffix} file")
    return _parquet if suffix in PARQUET else _arrow


def _json_lines(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    return read_records(handle)


def _csv(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    """Every cell is text, as ids such as 0042 need it; an empty one is None."""
    csv.field_size_limit(_LONGEST_CELL)
    # Bytes that are no UTF-8 come through as lone surrogates, and cost their row only.
    text = io.TextIOWrapper(handle, "utf-8-sig", errors="surrogateescape", newline="")
    reader = csv.reader(text)
    try:
        header = next(reader, [])
        if len(set(header)) < len(header):
            twice = next(key for key in header if header.count(key) > 1)
            raise InputError(f"{name}: two columns are called {twice!r}")
        for cells in reader:
            if cells:  # else a blank line
                yield _csv_row(header, cells, reader.line_num)
    finally:
        text.detach()


def _csv_row(header: Sequence[str], cells: Sequence[str], line: int) -> Record:
    if len(cells) != len(header):
        return InputError(f"line {line}: {len(cells)} cells, where the header has {len(header)}")
    if any("\udc80" <= character <= "\udcff" for cell in cells for character in cell):
        return InputError(f"line {line}: not valid UTF-8")
    return {key: cell or None for key, cell in zip(header, cells, strict=True)}


def _parquet(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    parquet = optional("pyarrow.parquet", name)
    # Read as it is needed, and not a whole row group ahead.
    file = parquet.ParquetFile(handle, pre_buffer=False, buffer_size=1 << 20)
    wanted = _projected(columns, file.schema_arrow.names)
    for batch in file.iter_batches(_BATCH, columns=wanted, use_threads=False):
        yield from map(_shown, batch.to_pylist())


def _arrow(handle: BinaryIO, name: str, columns: Sequence[str] | None) -> Iterator[Record]:
    """The file format (Feather, version 2), or else the stream format."""
    pyarrow = optional("pyarrow", name)
    magic = handle.read(6)
    handle.seek(0)
    if magic == b"ARROW1":
        file = pyarrow.ipc.open_file(handle)
        batches = map(file.get_batch, range(file.num_record_batches))
    elif magic.startswith(b"FEA1"):
        raise InputError(f"cannot read {name}: Feather of version 1; write it anew as version 2")
    else:
        batches = iter(pyarrow.ipc.open_stream(handle))
    for batch in batches:
        if (wanted := _projected(columns, batch.schema.names)) is not None:
            batch = batch.select(wanted)
        for at in range(0, batch.num_rows, _BATCH):
            yield from map(_shown, batch.slice(at, _BATCH).to_pylist())


def _shown(value: Any) -> Any:
    """Dates and times as text, which is what a model can be shown."""
    if isinstance(value, dict):
        return {key: _shown(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return value.isoformat() if isinstance(value, (date, time)) else value


def _projected(columns: Sequence[str] | None, there: Sequence[str]) -> list[str] | None:
    """The needed columns in the order of the file; None for all, also if a row is to say why."""
    if columns is None:
        return None
    found = [name for name in there if name in columns]
    return found or None
