"""Places of files: on a local disk, or in any store that fsspec supports.

A place is a path, or an address such as `s3://bucket/key`. A written file appears whole or not at
all. For missing credentials, endpoints that do not answer and invalid names of buckets, each
store's package raises classes of its own, which become InputErrors here. A `Shelf` keeps values on
the disk that do not fit into memory.
"""

from __future__ import annotations

import errno
import glob
import importlib
import io
import os
import re
import shutil
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, TypeAlias, cast
from weakref import finalize

from schemax.errors import InputError

_ANSWERS = (FileNotFoundError, FileExistsError, NotADirectoryError)


@contextmanager
def reaching(
    place: str, answers: tuple[type[Exception], ...] = _ANSWERS
) -> Generator[None, None, None]:
    """Turns errors into an InputError that names the place. answers: errors that pass unchanged."""
    try:
        yield
    except InputError:
        raise
    except answers:
        raise
    except Exception as error:
        reason = str(error) or "no reason is given"
        if isinstance(error, OSError):
            reason = error.strerror or reason
        elif not isinstance(error, (ImportError, ValueError)):  # their texts suffice
            reason = f"{type(error).__name__}: {reason}"
        raise InputError(f"cannot reach {place}: {reason}") from error


class _Reached:
    """An object of fsspec whose methods raise InputError, except for `answers`.

    place: an address, for messages.
    answers: errors that the caller distinguishes.
    """

    def __init__(
        self, inner: Any, place: str, answers: tuple[type[Exception], ...] = _ANSWERS
    ) -> None:
        self._inner, self._place, self._answers = inner, place, answers

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        return reaching(self._place, self._answers)(attribute) if callable(attribute) else attribute


class _RawFile(_Reached):
    """An open file. It is closed once, though files in fsspec's memory say that they stay open."""

    closed = False

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            reaching(self._place, self._answers)(self._inner.close)()


class Store(_Reached):
    """A file system of fsspec."""

    def open(self, path: str, mode: Literal["rb", "wb"] = "rb") -> BinaryIO:
        """Opens a file with Python's buffer, since fsspec's cannot bound the length of lines."""
        answers = (OSError,) if mode == "rb" else _ANSWERS  # readers report how far they came
        with reaching(self._place):
            raw: Any = _RawFile(self._inner.open(path, mode), self._place, answers)
        return cast(BinaryIO, (io.BufferedReader if mode == "rb" else io.BufferedWriter)(raw))


EXTRA = "tables"
ICEBERG = "iceberg://"

# Windows' drive letters are one letter long.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_WILDCARDS = re.compile(r"[*?\[]")


def optional(module: str, purpose: str, extra: str = EXTRA) -> Any:
    """Imports a module of an extra. Raises InputError, with the command that installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(
            f"{purpose} needs {package}, which is not installed: pip install '.[{extra}]' in a "
            "checkout of schemax"
        ) from error


def is_remote(name: str) -> bool:
    """True if the place is an address, except for file://, whose rest is a path."""
    return bool(_ADDRESS.match(name)) and not name.startswith("file://")


def local_path(name: str) -> Path:
    """The path of a local place; links are followed, so that writing keeps them."""
    return Path(name.removeprefix("file://")).resolve()


def place_of(name: str) -> str | Path:
    """The place of a file, the same for all its names."""
    return name if is_remote(name) else local_path(name)


def refuse_inputs(output: str, inputs: Iterable[str]) -> None:
    """Raises InputError for an output that is one of the inputs, which it would replace."""
    if place_of(output) in map(place_of, inputs):
        raise InputError(f"cannot write {output}: it is an input; name another file")


def sidecar(name: str, suffix: str) -> str:
    """A place beside another one; in the working folder for Iceberg.

    Its name begins with `_`, so that readers of tables (pyarrow, Spark, DuckDB) skip it."""
    if name.startswith(ICEBERG):  # a name in a catalogue, which is no place
        name = name.removeprefix(ICEBERG).replace("/", ".")
    name = name.rstrip("/")
    start = 1 + max(name.rfind("/"), name.rfind(os.sep))
    return f"{name[:start]}_{name[start:]}{suffix}"


def is_replaceable(name: str) -> bool:
    """True if a new file can replace the place, False for devices and pipes."""
    return is_remote(name) or not local_path(name).exists() or local_path(name).is_file()


def filesystem(name: str) -> tuple[Any, str]:
    """The fsspec file system of a place, and the path in it. Raises InputError."""
    if not is_remote(name):
        from fsspec.implementations.local import LocalFileSystem

        return LocalFileSystem(), str(local_path(name))
    from fsspec.core import url_to_fs

    with reaching(name):
        system, path = url_to_fs(name)
    return Store(system, name), path


def is_folder(name: str) -> bool:
    """True if a path is a folder; an address is one that ends in /."""
    return name.endswith("/") if is_remote(name) else local_path(name).is_dir()


def is_table_folder(name: str) -> bool:
    """True if a place is a local folder, which may be a table in partitions."""
    return not is_remote(name) and is_folder(name)


def expand(name: str) -> list[str]:
    """The files of a name, sorted: itself, the matches of its wildcards, or the files in a folder
    and its subfolders, without hidden files and files that runs leave beside tables.

    Raises InputError for no match.
    """
    if is_folder(name):
        system, path = filesystem(name)
        root = path.rstrip("/")
        inner = sorted(file.removeprefix(root).lstrip("/") for file in system.find(path))
        start = name if name.endswith(("/", os.sep)) else f"{name}/"
        seen = (file for file in inner if not any(p[:1] in "._" for p in file.split("/")))
        files = [f"{start}{file}" for file in seen]
    elif not _WILDCARDS.search(name) or (not is_remote(name) and os.path.exists(name)):
        return [name]
    elif is_remote(name):
        system, path = filesystem(name)
        files = sorted(map(system.unstrip_protocol, system.glob(path)))
    else:
        files = sorted(path for path in glob.glob(name, recursive=True) if os.path.isfile(path))
    if not files:
        raise InputError(
            f"cannot read {name}: no file {'is in it' if is_folder(name) else 'matches'}"
        )
    return files


def reading(name: str) -> BinaryIO:
    """Opens a place for reading. Raises InputError if it cannot be opened, and for a pipe."""
    if not is_remote(name) and Path(name.removeprefix("file://")).is_fifo():
        raise InputError(
            f"cannot read {name}: it is a pipe, and an input is read more than once; write it into "
            "a file, or pipe it into the command and name the input -"
        )
    return _opened(name, "rb", name)


@contextmanager
def reading_whole(name: str) -> Iterator[BinaryIO]:
    """Opens a place for reading. Raises InputError, naming it, if it cannot be read to the end."""
    with reading(name) as handle:
        try:
            yield handle
        except OSError as error:
            raise InputError(f"cannot read {name}: {error.strerror or error}") from error


@contextmanager
def writing(
    name: str, scratch: str | None = None, *, keep_partial: bool = False
) -> Iterator[BinaryIO]:
    """Yields a new file, which gets its name when all is written and on the disk, else never;
    devices and pipes are written directly.

    scratch: the name until then, on the same file system; None chooses one beside the file.
    keep_partial: whether a partly written local file stays under that name after an error, to which
        a note adds the name.

    Raises InputError if the place cannot be opened.
    """
    if not is_replaceable(name):
        with _opened(name, "wb", name) as handle:
            yield handle
        return
    remote = is_remote(name)
    target = name if remote else str(local_path(name))
    partial = scratch or sidecar(target, f".{os.getpid()}.partial")
    handle = _opened(partial, "wb", name)
    try:
        with handle:
            yield handle
            handle.flush()
            if not remote:
                os.fsync(handle.fileno())
        _rename(partial, target)
    except BaseException as error:
        with suppress(Exception):  # the first error is the one to raise
            if keep_partial and not remote and os.path.getsize(partial):
                error.add_note(f"what was written so far is in {partial}")
            else:
                system, path = filesystem(partial)
                system.rm(path)
        raise


def _opened(place: str, mode: Literal["rb", "wb"], name: str) -> BinaryIO:
    """Opens a place; local files by Python itself, since fsspec asks pipes for their size."""
    try:
        if not is_remote(place):
            return open(place.removeprefix("file://"), mode)
        system, path = filesystem(place)
        return cast(BinaryIO, system.open(path, mode))
    except OSError as error:
        verb = "read" if mode == "rb" else "write"
        raise InputError(f"cannot {verb} {name}: {error.strerror or error}") from error


def _rename(old: str, new: str) -> None:
    """Replaces a file by another one, which takes over its permissions."""
    if is_remote(new):
        system, path = filesystem(old)
        system.mv(path, filesystem(new)[1])
        return
    if os.path.exists(new):
        shutil.copymode(new, old)
    os.replace(old, new)
    sync_folder(Path(new).parent)


def is_file(name: str) -> bool:
    """True if a place can be read."""
    system, path = filesystem(name)
    return bool(system.isfile(path))


def check_folder(name: str) -> None:
    """Raises InputError if no file can be made in the folder of a name."""
    if is_remote(name):
        filesystem(name)
        return
    path, code = local_path(name), 0
    if path.is_dir():
        raise InputError(
            f"cannot write {name}: it is a folder; name a file, or partition the table by columns "
            "(--partition-by)"
        )
    if not os.access(path.parent, os.W_OK):
        code = errno.EACCES if path.parent.is_dir() else errno.ENOENT
    if code:
        raise InputError(f"cannot write {name}: {os.strerror(code)}")


def sync_folder(path: Path) -> None:
    """Writes a folder's names to the disk, so that they survive a power cut."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        with suppress(OSError):  # some network file systems cannot, but sync by themselves
            os.fsync(handle)
        os.close(handle)


def suffixes(name: str) -> tuple[str, str]:
    """(suffix of the format, of the compression) in lower case: (".jsonl", ".gz"), (".csv", "")."""
    names = [suffix.lower() for suffix in PurePosixPath(name.replace(os.sep, "/")).suffixes[-2:]]
    compression = names.pop() if names and names[-1] in (".gz", ".zst") else ""
    return (names[-1] if names else "", compression)


class Folder:
    """A folder of small files that appear whole or not at all; it need not exist yet.

    path: the path on a local disk, where alone files can grow and locks be held; else None.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._system, self._place = filesystem(name)
        self.path = None if is_remote(name) else Path(self._place)
        self._is_link = self.path is not None and os.path.islink(name.removeprefix("file://"))

    def make(self) -> None:
        try:
            self._system.makedirs(self._place, exist_ok=True)
        except OSError as error:
            if isinstance(error, FileExistsError) and not os.path.isfile(self._place):
                return  # it has just been removed again: opening it checks once more
            raise InputError(f"cannot write {self.name}: {error.strerror or error}") from error
        if self.path is not None:
            sync_folder(self.path.parent)

    def sizes(self) -> dict[str, int]:
        """The sizes of the files in the folder by name."""
        self._system.invalidate_cache()
        try:
            entries = self._system.ls(self._place, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return {entry["name"].rstrip("/").rpartition("/")[2]: entry["size"] for entry in entries}

    def is_file(self, name: str) -> bool:
        """True for a file that is no link; stores that are not local have files alone."""
        path = self.path and self.path / name
        return path is None or (path.is_file() and not path.is_symlink())

    def read(self, name: str) -> bytes:
        data: bytes = self._system.cat_file(f"{self._place}/{name}")
        return data

    def write(self, name: str, data: bytes) -> None:
        """Replaces a file; it is on the disk when this returns."""
        with writing(f"{self.name}/{name}", f"{self.name}/{name}.tmp") as handle:
            handle.write(data)

    def delete(self, names: Sequence[str]) -> None:
        if names:
            self._system.rm([f"{self._place}/{name}" for name in names])

    def remove(self) -> None:
        """Removes the folder if it is empty, and no link is named."""
        if self._is_link or self.sizes():
            return
        with suppress(OSError):  # somebody has just put a file into it; some stores have no folders
            self._system.rmdir(self._place)
        if self.path is not None:
            sync_folder(self.path.parent)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes a local folder and locks it against other runs, for as long as the context lasts.

        The folder itself is locked: a lock file would have to outlive it. Raises InputError if
        another process holds the lock.
        """
        self.make()
        handle = None
        while self.path is not None and os.name == "posix" and handle is None:
            handle = self._lock(self.path)
        try:
            yield
        finally:
            if handle is not None:
                os.close(handle)

    def _lock(self, path: Path) -> int | None:
        """A handle that holds the lock; None if its owner has just removed the folder."""
        import fcntl

        self.make()
        with suppress(FileNotFoundError):
            handle = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(handle)
                raise InputError(f"another run is writing to {self.name}") from None
            except OSError:
                pass  # a file system without locks
            if path.exists() and os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
            os.close(handle)
        return None


Key: TypeAlias = str | bytes | int


class Shelf:
    """Values by key in a temporary file, of which a few MiB are in memory."""

    def __init__(self) -> None:
        # Streams may read their input in another thread than the one that began them.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        finalize(self, self._database.close)
        self._database.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
            "CREATE TABLE shelf (key BLOB PRIMARY KEY, value TEXT) WITHOUT ROWID; BEGIN"
        )

    def put(self, key: Key, value: str | None = None) -> None:
        self._database.execute("INSERT OR REPLACE INTO shelf VALUES (?, ?)", (key, value))

    def add(self, key: Key, value: str | None = None) -> bool:
        """Adds a key; True if the key is new. An old key keeps its value."""
        cursor = self._database.execute("INSERT OR IGNORE INTO shelf VALUES (?, ?)", (key, value))
        return cursor.rowcount == 1

    def get(self, key: Key) -> tuple[str | None] | None:
        """The value in a tuple; None for an unknown key."""
        row: tuple[str | None] | None = self._database.execute(
            "SELECT value FROM shelf WHERE key = ?", (key,)
        ).fetchone()
        return row

    def items(self) -> Iterator[tuple[bytes, str]]:
        """Yields keys and values, in the order of the keys."""
        yield from self._database.execute("SELECT key, value FROM shelf ORDER BY key")

    def unset(self) -> int:
        """The number of keys without a value."""
        query = "SELECT count(*) FROM shelf WHERE value IS NULL"
        return int(self._database.execute(query).fetchone()[0])
