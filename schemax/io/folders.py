"""Folders of small files that appear whole or not at all, on a disk or behind fsspec."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from schemax.errors import InputError
from schemax.io.storage import filesystem, is_remote, local_path, sync_folder, writing


class Folder(Protocol):
    """Named files. `local` is its path, where there is a disk: only there a file can grow."""

    local: Path | None

    def make(self) -> None: ...

    def names(self) -> list[str]: ...

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, data: bytes) -> None:
        """Replaces the file, which is on the disk when this returns."""

    def delete(self, name: str) -> None: ...

    def remove(self) -> None:
        """With all that is in it."""


def open_folder(name: str) -> Folder:
    """A folder that need not be there yet. Raises InputError for an unknown kind of address."""
    return _Remote(name) if is_remote(name) else _Local(local_path(name))


class _Local:
    def __init__(self, path: Path) -> None:
        self.local: Path | None = path
        self._path = path

    def make(self) -> None:
        try:
            self._path.mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot write {self._path}: {error.strerror}") from error
        sync_folder(self._path.parent)

    def names(self) -> list[str]:
        return sorted(os.listdir(self._path)) if self._path.is_dir() else []

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def write(self, name: str, data: bytes) -> None:
        with writing(str(self._path / name)) as handle:
            handle.write(data)

    def delete(self, name: str) -> None:
        (self._path / name).unlink(missing_ok=True)

    def remove(self) -> None:
        if self._path.is_dir():
            shutil.rmtree(self._path)
            sync_folder(self._path.parent)


class _Remote:
    def __init__(self, name: str) -> None:
        self.local: Path | None = None
        self._name = name
        self._system: Any
        self._system, self._path = filesystem(name)

    def make(self) -> None:
        self._system.makedirs(self._path, exist_ok=True)

    def names(self) -> list[str]:
        self._system.invalidate_cache()
        if not self._system.isdir(self._path):
            return []
        found = self._system.ls(self._path, detail=False)
        return sorted(path.rstrip("/").rpartition("/")[2] for path in found)

    def read(self, name: str) -> bytes:
        data: bytes = self._system.cat_file(f"{self._path}/{name}")
        return data

    def write(self, name: str, data: bytes) -> None:
        with writing(f"{self._name}/{name}") as handle:
            handle.write(data)

    def delete(self, name: str) -> None:
        self._system.rm(f"{self._path}/{name}")

    def remove(self) -> None:
        if self._system.exists(self._path):
            self._system.rm(self._path, recursive=True)


@contextmanager
def locked(folder: Folder) -> Iterator[None]:
    """Keeps a second run out of a folder on a disk. It ends with the process, at the latest.

    Raises InputError if somebody else holds it.
    """
    if folder.local is None or os.name != "posix":
        yield
        return
    import fcntl

    handle = os.open(folder.local, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another run is writing to {folder.local}") from None
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(handle)
