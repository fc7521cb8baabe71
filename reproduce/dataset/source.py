"""Places of published files: a folder, a zip archive, or an address of either."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Protocol

import httpx2

from schemax.errors import InputError

_LARGEST = 1 << 30  # bytes of a file, unpacked
_SECONDS = 60.0


class PublishedFiles(Protocol):
    """Files by their names, which are paths within their place."""

    def names(self) -> Sequence[str]:
        """The names of all files; none where the place cannot list them."""

    def read(self, name: str) -> bytes | None:
        """The bytes of a file; None where there is none of that name. Raises InputError."""


def open_files(place: str) -> PublishedFiles:
    """place: a folder, a .zip file, or the http(s) address of either. Raises InputError."""
    if place.startswith(("http://", "https://")):
        if not place.partition("?")[0].endswith(".zip"):
            return _Website(place.rstrip("/"))
        packed = _fetched(place)
        if packed is None:
            raise InputError(f"there is no file at {place}")
        return _archive(packed, place)
    path = Path(place)
    if path.is_dir():
        return _Folder(path)
    if path.suffix == ".zip" and path.is_file():
        return _archive(path.read_bytes(), place)
    raise InputError(f"{place} is no folder, no .zip file, and no address of either")


def matching(source: PublishedFiles, pattern: str) -> list[str]:
    """The files whose path ends as the pattern says, `annotations/*.jsonl`, sorted."""
    return sorted(name for name in source.names() if fnmatch(f"/{name}", f"*/{pattern}"))


class _Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def names(self) -> Sequence[str]:
        files = (path for path in self._path.rglob("*") if path.is_file())
        return [path.relative_to(self._path).as_posix() for path in files]

    def read(self, name: str) -> bytes | None:
        path = self._path / name
        return path.read_bytes() if path.is_file() else None


class _Archive:
    def __init__(self, packed: zipfile.ZipFile) -> None:
        self._packed = packed
        self._files = {i.filename: i for i in packed.infolist() if not i.is_dir()}

    def names(self) -> Sequence[str]:
        return list(self._files)

    def read(self, name: str) -> bytes | None:
        """Archives of repositories hold one folder with everything, which names leave out."""
        found = [f for f in self._files if f == name or PurePosixPath(f).match(f"*/{name}")]
        if not found:
            return None
        file = self._files[min(found, key=len)]
        if file.file_size > _LARGEST:
            raise InputError(
                f"{file.filename} has {file.file_size:,} bytes, more than {_LARGEST:,}"
            )
        return self._packed.read(file)


class _Website:
    def __init__(self, url: str) -> None:
        self._url = url

    def names(self) -> Sequence[str]:
        return ()

    def read(self, name: str) -> bytes | None:
        return _fetched(f"{self._url}/{name}")


def _archive(packed: bytes, place: str) -> _Archive:
    try:
        return _Archive(zipfile.ZipFile(io.BytesIO(packed)))
    except zipfile.BadZipFile as error:
        raise InputError(f"{place} is no zip archive") from error


def _fetched(url: str) -> bytes | None:
    """None for an address without a file."""
    try:
        response = httpx2.get(url, follow_redirects=True, timeout=_SECONDS)
        if response.status_code in (404, 410):
            return None
        response.raise_for_status()
    except httpx2.HTTPError as error:
        raise InputError(f"cannot fetch {url}: {error}") from error
    return response.content
