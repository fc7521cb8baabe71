"""Places of published files: a folder, a zip archive, or an address of either."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath

import httpx2

from schemax.errors import InputError

_LARGEST = 1 << 30  # bytes of a file, unpacked
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class PublishedFiles:
    """The files of a place.

    names: paths within the place; () if the place cannot list them.
    read: name -> bytes of the file, None if there is no such file. Raises InputError.
    """

    names: Sequence[str]
    read: Callable[[str], bytes | None]

    def matching(self, pattern: str) -> list[str]:
        """Returns the names whose ends match a pattern, `annotations/*.jsonl`, sorted."""
        return sorted(name for name in self.names if fnmatch(f"/{name}", f"*/{pattern}"))


def open_files(place: str) -> PublishedFiles:
    """Opens a folder, a .zip file, or the http(s) address of either. Raises InputError."""
    if place.startswith(("http://", "https://")):
        if not place.partition("?")[0].endswith(".zip"):
            return PublishedFiles((), lambda name: _fetched(f"{place.rstrip('/')}/{name}"))
        packed = _fetched(place)
        if packed is None:
            raise InputError(f"there is no file at {place}")
        return _archive(packed, place)
    path = Path(place)
    if path.is_dir():
        return _folder(path)
    if path.suffix == ".zip" and path.is_file():
        return _archive(path.read_bytes(), place)
    raise InputError(f"{place} is no folder, no .zip file, and no address of either")


def _folder(folder: Path) -> PublishedFiles:
    def read(name: str) -> bytes | None:
        path = folder / name
        return path.read_bytes() if path.is_file() else None

    files = (path for path in folder.rglob("*") if path.is_file())
    return PublishedFiles([path.relative_to(folder).as_posix() for path in files], read)


def _archive(content: bytes, place: str) -> PublishedFiles:
    try:
        packed = zipfile.ZipFile(io.BytesIO(content))
    except zipfile.BadZipFile as error:
        raise InputError(f"{place} is no zip archive") from error
    files = {info.filename: info for info in packed.infolist() if not info.is_dir()}

    def read(name: str) -> bytes | None:
        # Archives of repositories have a top folder, which names leave out.
        found = [f for f in files if f == name or PurePosixPath(f).match(f"*/{name}")]
        if not found:
            return None
        file = files[min(found, key=len)]
        if file.file_size > _LARGEST:
            raise InputError(
                f"{file.filename} has {file.file_size:,} bytes, more than {_LARGEST:,}"
            )
        return packed.read(file)

    return PublishedFiles(list(files), read)


def _fetched(url: str) -> bytes | None:
    """Returns the bytes at an address; None for an address without a file."""
    try:
        response = httpx2.get(url, follow_redirects=True, timeout=_SECONDS)
        if response.status_code in (404, 410):
            return None
        response.raise_for_status()
    except httpx2.HTTPError as error:
        raise InputError(f"cannot fetch {url}: {error}") from error
    return response.content
