"""Where files lie: on a local disk, or anywhere that fsspec knows the way to.

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
    """Whether the place is an address. file:// is not remote: the rest of it is a path."""
    return bool(_ADDRESS.match(name)) and not name.startswith("file://")


def local_path(name: str) -> Path:
    """The path of a place that is not remote; links are followed, so that they stay links."""
    return Path(name.removeprefix("file://")).resolve()


def place_of(name: str) -> str | Path:
    """What names of the same file have in common."""
    return name if is_remote(name) else local_path(name)


def sidecar(name: str, suffix: str) -> str:
    """A place beside another: its name begins with `_`, so that readers of a folder leave it out.

    Readers of tables (pyarrow, Spark, DuckDB's Hive layouts) take files that begin with `_` or `.`
    for no part of the table. Of Iceberg, the place is the folder that one works in."""
    if name.startswith(ICEBERG):  # a name in a catalogue, which is no place
        name = name.removeprefix(ICEBERG).replace("/", ".")
    name = name.rstrip("/")
    start = 1 + max(name.rfind("/"), name.rfind(os.sep))
    return f"{name[:start]}_{name[start:]}{suffix}"


def is_replaceable(name: str) -> bool:
    """Whether a new file can take the place of what is there; a device or a pipe cannot go."""
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
    """Whether a path is a folder; an address is one that ends in /."""
    return name.endswith("/") if is_remote(name) else local_path(name).is_dir()


def expand(name: str) -> list[str]:
    """The files that a name stands for, sorted: itself, what its wildcards match, or what is in it.

    A file whose name holds such characters is meant itself. In a folder are also the files of
    folders in it, but no hidden ones and not what runs leave beside tables. Raises InputError for
    no match.
    """
    if is_folder(name):
        return _files_in(name)
    if not _WILDCARDS.search(name):
        return [name]
    if is_remote(name):
        system, path = filesystem(name)
        found = sorted(system.unstrip_protocol(one) for one in system.glob(path))
    elif os.path.exists(name):
        return [name]
    else:
        found = sorted(path for path in glob.glob(name, recursive=True) if os.path.isfile(path))
    if not found:
        raise InputError(f"cannot read {name}: no file matches")
    return found


def _files_in(folder: str) -> list[str]:
    system, path = filesystem(folder)
    root = path.rstrip("/")
    inner = sorted(one.removeprefix(root).lstrip("/") for one in system.find(path))
    start = folder if folder.endswith(("/", os.sep)) else f"{folder}/"
    found = [f"{start}{one}" for one in inner if not any(p[:1] in "._" for p in one.split("/"))]
    if not found:
        raise InputError(f"cannot read {folder}: no file is in it")
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
def writing(
    name: str, scratch: str | None = None, *, keep_partial: bool = False
) -> Iterator[BinaryIO]:
    """A new file that gets its name when all is written and on the disk, else never.

    A device or a pipe is written to as it is.

    scratch: the name until then, on the same file system; None chooses one beside the file.
    keep_partial: if an error ends the writing of a local file, what was written stays under the
        other name, which a note on the error gives.

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
    """fsspec opens what is remote: its local files want to know the size of pipes."""
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
    """Whether a place can be read."""
    system, path = filesystem(name)
    return bool(system.isfile(path))


def remove_file(name: str) -> None:
    """Of a place that need not be there."""
    system, path = filesystem(name)
    if system.isfile(path):
        system.rm_file(path)


def check_folder(name: str) -> None:
    """Raises InputError if no file of that name could be made."""
    if is_remote(name):
        filesystem(name)
        return
    path = local_path(name)
    refusals = (
        (path.is_dir(), errno.EISDIR),
        (not path.parent.is_dir(), errno.ENOENT),
        (not os.access(path.parent, os.W_OK), errno.EACCES),
    )
    for is_refused, code in refusals:
        if is_refused:
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

    Raises InputError for an unknown kind of address.
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
        """Whether it is a file, and no link to one; stores that are not local have nothing else."""
        if self.path is None:
            return True
        path = self.path / name
        return path.is_file() and not path.is_symlink()

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
        """If it is empty. A link to a folder stays, and so does that folder."""
        if self._is_link or self.names():
            return
        with suppress(OSError):  # somebody has just put a file into it; some stores have no folders
            self._system.rmdir(self._place)
        if self.path is not None:
            sync_folder(self.path.parent)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes a local folder, and keeps a second run out of it while this process is in it.

        Raises InputError if somebody else holds it.
        """
        if self.path is None or os.name != "posix":
            self.make()
            yield
            return
        handle = self._lock(self.path)
        try:
            yield
        finally:
            os.close(handle)

    def _lock(self, path: Path) -> int:
        """A handle with the lock on the folder that lies at the path now.

        Whoever held the lock before may have removed the folder: then another one is made.
        """
        import fcntl

        while True:
            self.make()
            try:
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
            except FileNotFoundError:
                continue
