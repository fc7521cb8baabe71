"""Places of files: on a local disk, or anywhere that fsspec knows the way to.

A place is a path, or an address such as `s3://bucket/key`. What is written to one appears there
whole or not at all.
"""

from __future__ import annotations

import errno
import glob
import importlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, cast

from schemax.errors import InputError
from schemax.io.stores import Store, reaching

EXTRA = "tables"
ICEBERG = "iceberg://"

# Windows' drive letters are one letter long.
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_WILDCARDS = re.compile(r"[*?\[]")


def optional(module: str, purpose: str, extra: str = EXTRA) -> Any:
    """A module of an extra. Raises InputError, which says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise InputError(
            f"{purpose} needs {package}, which is not installed: pip install '.[{extra}]' in a "
            "checkout of schemax"
        ) from error


def is_remote(name: str) -> bool:
    """Tells whether the place is an address, but for file://, the rest of which is a path."""
    return bool(_ADDRESS.match(name)) and not name.startswith("file://")


def local_path(name: str) -> Path:
    """The path of a place that is not remote; links are followed, so that they stay links."""
    return Path(name.removeprefix("file://")).resolve()


def place_of(name: str) -> str | Path:
    """The place of a file, which all of its names have in common."""
    return name if is_remote(name) else local_path(name)


def sidecar(name: str, suffix: str) -> str:
    """A place beside another, of Iceberg in the working folder.

    Its name begins with `_`, so that readers of tables (pyarrow, Spark, DuckDB) leave it out of a
    folder."""
    if name.startswith(ICEBERG):  # a name in a catalogue, which is no place
        name = name.removeprefix(ICEBERG).replace("/", ".")
    name = name.rstrip("/")
    start = 1 + max(name.rfind("/"), name.rfind(os.sep))
    return f"{name[:start]}_{name[start:]}{suffix}"


def is_replaceable(name: str) -> bool:
    """Tells whether a new file can take that place, as it cannot a device's or a pipe's."""
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
    """Tells whether a path is a folder; an address is one that ends in /."""
    return name.endswith("/") if is_remote(name) else local_path(name).is_dir()


def is_table_folder(name: str) -> bool:
    """Tells whether a place is a local folder, which may be a table in partitions."""
    return not is_remote(name) and is_folder(name)


def expand(name: str) -> list[str]:
    """The files that a name stands for, sorted: itself, what its wildcards match, or what is in it
    and in the folders in it, without hidden files and what runs leave beside tables.

    Raises InputError for no match.
    """
    if is_folder(name):
        system, path = filesystem(name)
        root = path.rstrip("/")
        inner = sorted(one.removeprefix(root).lstrip("/") for one in system.find(path))
        start = name if name.endswith(("/", os.sep)) else f"{name}/"
        found = [f"{start}{one}" for one in inner if not any(p[:1] in "._" for p in one.split("/"))]
    elif not _WILDCARDS.search(name) or (not is_remote(name) and os.path.exists(name)):
        return [name]
    elif is_remote(name):
        system, path = filesystem(name)
        found = sorted(system.unstrip_protocol(one) for one in system.glob(path))
    else:
        found = sorted(path for path in glob.glob(name, recursive=True) if os.path.isfile(path))
    if not found:
        raise InputError(
            f"cannot read {name}: no file {'is in it' if is_folder(name) else 'matches'}"
        )
    return found


def reading(name: str) -> BinaryIO:
    """The bytes of a place. Raises InputError if the place cannot be opened, and for a pipe."""
    if not is_remote(name) and Path(name.removeprefix("file://")).is_fifo():
        raise InputError(
            f"cannot read {name}: it is a pipe, and an input is read more than once; write it into "
            "a file, or pipe it into the command and name the input -"
        )
    return _opened(name, "rb", name)


@contextmanager
def reading_whole(name: str) -> Iterator[BinaryIO]:
    """The bytes of a place, with an InputError that names it where they cannot all be read."""
    with reading(name) as handle:
        try:
            yield handle
        except OSError as error:
            raise InputError(f"cannot read {name}: {error.strerror or error}") from error


@contextmanager
def writing(
    name: str, scratch: str | None = None, *, keep_partial: bool = False
) -> Iterator[BinaryIO]:
    """A new file that gets its name when all is written and on the disk, else never; but for
    devices and pipes.

    scratch: the name until then, on the same file system; None chooses one beside the file.
    keep_partial: whether what was written of a local file stays under that name if an error ends
        the writing; a note on the error gives it.

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
        with suppress(Exception):  # the first error is the one to tell
            if keep_partial and not remote and os.path.getsize(partial):
                error.add_note(f"what was written so far is in {partial}")
            else:
                system, path = filesystem(partial)
                system.rm(path)
        raise


def _opened(place: str, mode: Literal["rb", "wb"], name: str) -> BinaryIO:
    """A handle, for local files Python's own: fsspec's wants to know the size of pipes."""
    try:
        if not is_remote(place):
            return open(place.removeprefix("file://"), mode)
        system, path = filesystem(place)
        return cast(BinaryIO, system.open(path, mode))
    except OSError as error:
        verb = "read" if mode == "rb" else "write"
        raise InputError(f"cannot {verb} {name}: {error.strerror or error}") from error


def _rename(old: str, new: str) -> None:
    """Puts a file in the place of another, whose permissions it takes over."""
    if is_remote(new):
        system, path = filesystem(old)
        system.mv(path, filesystem(new)[1])
        return
    if os.path.exists(new):
        shutil.copymode(new, old)
    os.replace(old, new)
    sync_folder(Path(new).parent)


def is_file(name: str) -> bool:
    """Tells whether a place can be read."""
    system, path = filesystem(name)
    return bool(system.isfile(path))


def remove_file(name: str) -> None:
    """Removes a file, if it is there."""
    system, path = filesystem(name)
    if system.isfile(path):
        system.rm_file(path)


def check_folder(name: str) -> None:
    """Raises InputError if no file of that name could be made."""
    if is_remote(name):
        filesystem(name)
        return
    path, code = local_path(name), 0
    if path.is_dir():
        code = errno.EISDIR
    elif not os.access(path.parent, os.W_OK):
        code = errno.EACCES if path.parent.is_dir() else errno.ENOENT
    if code:
        raise InputError(f"cannot write {name}: {os.strerror(code)}")


def sync_folder(path: Path) -> None:
    """Makes new and gone names in a folder survive a power cut."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        with suppress(OSError):  # some network file systems cannot, and do it by themselves
            os.fsync(handle)
        os.close(handle)


def suffixes(name: str) -> tuple[str, str]:
    """The format's and the compression's suffix, in lower case: (".jsonl", ".gz"), (".csv", "")."""
    found = [one.lower() for one in PurePosixPath(name.replace(os.sep, "/")).suffixes[-2:]]
    compression = found.pop() if found and found[-1] in (".gz", ".zst") else ""
    return (found[-1] if found else "", compression)


class Folder:
    """A folder of small files that appear whole or not at all; it need not be there yet.

    path: on a local disk, where alone a file can grow and a lock be held; None elsewhere.
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
                return  # it was there, and has just been removed: whoever opens it looks again
            raise InputError(f"cannot write {self.name}: {error.strerror or error}") from error
        if self.path is not None:
            sync_folder(self.path.parent)

    def names(self) -> list[str]:
        self._system.invalidate_cache()
        try:
            found = self._system.ls(self._place, detail=False)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def is_file(self, name: str) -> bool:
        """Tells whether it is a file and no link; stores that are not local have nothing else."""
        path = self.path and self.path / name
        return path is None or (path.is_file() and not path.is_symlink())

    def read(self, name: str) -> bytes:
        data: bytes = self._system.cat_file(f"{self._place}/{name}")
        return data

    def write(self, name: str, data: bytes) -> None:
        """Replaces the file, which is on the disk when this returns."""
        with writing(f"{self.name}/{name}", f"{self.name}/{name}.tmp") as handle:
            handle.write(data)

    def rename(self, old: str, new: str) -> None:
        _rename(f"{self.name}/{old}", f"{self.name}/{new}")

    def delete(self, names: Sequence[str]) -> None:
        if names:
            self._system.rm([f"{self._place}/{name}" for name in names])

    def remove(self) -> None:
        """Removes the folder if it is empty, and no link is named."""
        if self._is_link or self.names():
            return
        with suppress(OSError):  # somebody has just put a file into it; some stores have no folders
            self._system.rmdir(self._place)
        if self.path is not None:
            sync_folder(self.path.parent)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes a local folder, and keeps a second run out of it while this process is in it.

        The lock is one on the folder itself: a lock file would have to outlive the folder. Raises
        InputError if another process holds it.
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
        """A handle with the lock; None if the folder was removed by its owner before."""
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
