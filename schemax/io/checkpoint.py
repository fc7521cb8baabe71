"""Finished rows of a run that is not finished: OUT.parts, from which the next run goes on.

    manifest.json              what the rows depend on; written first
    part-00000-MARK.jsonl      rows of the first N records, in order
    part-00001-MARK.jsonl      of the next N; the mark is a digest of these records
    open-00002.jsonl           rows of the part that is being worked on, as they finish

The names alone say what is done, so no two files have to agree. A part gets its name when it is
complete and on the disk; the open file may end in half a line, which is dropped. It is kept on
disks only, and only where rows do not depend on what they were computed with.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any, BinaryIO, TypeAlias

from schemax.errors import InputError
from schemax.io.folders import Folder, locked, open_folder
from schemax.io.records import Record
from schemax.io.storage import is_remote

Row: TypeAlias = Mapping[str, Any]

_MANIFEST = "manifest.json"
_PART = re.compile(r"part-(\d+)-([0-9a-f]+)\.jsonl")
_OPEN = re.compile(r"open-(\d+)\.jsonl")


def digest(record: Record) -> str:
    """Of all that a record says, whatever kind of file it came from."""
    said = str(record) if isinstance(record, InputError) else record
    text = json.dumps(said, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest()


def mark_of(digests: Iterable[str]) -> str:
    return blake2b("".join(digests).encode(), digest_size=8).hexdigest()


class Parts:
    """The finished rows beside an output `name`."""

    def __init__(self, name: str) -> None:
        if not is_remote(name) and os.path.islink(name):
            name = os.path.realpath(name)  # where the whole can be put in place by renaming it
        self.name = f"{name}.parts"
        self._folder: Folder = open_folder(self.name)

    def manifest(self) -> dict[str, Any] | None:
        """What an unfinished run wrote down of itself; None if no row of one is there."""
        if not self.hold_rows() or _MANIFEST not in self._folder.names():
            return None
        found: dict[str, Any] = json.loads(self._folder.read(_MANIFEST))
        return found

    @contextmanager
    def opened(self, manifest: Mapping[str, Any], *, overwrite: bool = False) -> Iterator[None]:
        """Makes the folder where there is none, and keeps others out.

        It goes again if an error ends the run before a row is finished: then there is nothing to
        go on with. Raises InputError, also for a folder that holds what no run has written.
        """
        self._folder.make()
        with locked(self._folder):
            if foreign := [name for name in self._folder.names() if not _is_own(name)]:
                raise InputError(f"cannot write {self.name}: {foreign[0]} in it is of no run")
            if overwrite or self.manifest() is None:
                for name in self._folder.names():
                    self._folder.delete(name)
                self._folder.write(_MANIFEST, json.dumps(manifest, indent=1).encode())
            try:
                yield
            except BaseException:
                with suppress(Exception):  # the first error is the one to tell
                    if not self.hold_rows():
                        self.remove()
                raise

    def hold_rows(self) -> bool:
        """Whether a run has finished any, so that there is something to go on with."""
        local = self._folder.local
        for name in self._folder.names():
            if _PART.fullmatch(name):
                return True
            if _OPEN.fullmatch(name) and local is not None:
                with suppress(FileNotFoundError):  # its part was finished at this very moment
                    if (local / name).stat().st_size:
                        return True
        return False

    def remove(self) -> None:
        """The manifest first: what a kill leaves of the rest is nothing to go on with."""
        if _MANIFEST in self._folder.names():
            self._folder.delete(_MANIFEST)
        self._folder.remove()

    def finished(self) -> dict[int, str]:
        """The marks of the parts that are done, by number."""
        found = map(_PART.fullmatch, self._folder.names())
        return {int(match[1]): match[2] for match in found if match}

    def rows(self) -> Iterator[Row]:
        """Of all parts, in order."""
        for number, mark in sorted(self.finished().items()):
            yield from self.rows_of(number, mark)

    def rows_of(self, number: int, mark: str) -> Iterator[Row]:
        for line in self._folder.read(_name(number, mark)).splitlines():
            yield json.loads(line)

    def count(self) -> int:
        """Rows of all parts that are done."""
        return sum(self._folder.read(_name(*part)).count(b"\n") for part in self.finished().items())

    @property
    def scratch(self) -> str:
        """A place for what is being written: whatever stays of it goes with the parts."""
        return f"{self.name}/whole.tmp"

    def finish(self, number: int, mark: str, rows: Sequence[Row]) -> None:
        self._folder.write(_name(number, mark), b"".join(map(_line, rows)))
        if self._folder.local is not None:
            self._folder.delete(_open_name(number))

    def open_rows(self, number: int) -> list[tuple[str, Row]]:
        """(digest of the record, row) of what is done of a part that is not complete."""
        if self._folder.local is None:
            return []
        path = self._folder.local / _open_name(number)
        whole = 0
        found: list[tuple[str, Row]] = []
        try:
            with open(path, "rb") as handle:
                for line in handle:
                    try:
                        mark, row = json.loads(line)
                    except (ValueError, TypeError):  # what a kill or a power cut left of it
                        break
                    if not line.endswith(b"\n"):
                        break
                    found.append((mark, row))
                    whole += len(line)
            os.truncate(path, whole)
        except FileNotFoundError:  # there is none, or its part was finished at this very moment
            return []
        return found

    @contextmanager
    def journal(self, number: int) -> Iterator[Journal | None]:
        """Takes rows of a part as they finish; None where there is no disk to write them to."""
        if self._folder.local is None:
            yield None
            return
        with open(self._folder.local / _open_name(number), "ab") as handle:
            yield Journal(handle)


class Journal:
    """Rows in the order in which they finish, each handed to the system at once."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle

    def add(self, mark: str, row: Row) -> None:
        self._handle.write(_line([mark, row]))
        self._handle.flush()


def _is_own(name: str) -> bool:
    known = _PART.fullmatch(name) or _OPEN.fullmatch(name)
    return bool(known) or name == _MANIFEST or name.endswith(".tmp")


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _name(number: int, mark: str) -> str:
    return f"part-{number:05}-{mark}.jsonl"


def _open_name(number: int) -> str:
    return f"open-{number:05}.jsonl"
