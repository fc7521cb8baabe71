"""Checkpoints: the finished rows of an unfinished run, in _OUT.parts, from which it is resumed.

    manifest.json              the settings that rows depend on; written first
    part-00000-DIGEST.jsonl    rows of the first N records, in the order in which they finished;
                               DIGEST is the digest of these records
    open-00001.jsonl           rows of a part that is not complete

A line is [digest of the line's rest, digest of the record, row]. Names of files alone tell the
state, so no two files have to agree: a part that is complete and on the disk is renamed from open
to part. An open part may end in half a line, which is dropped. Open parts are kept on local disks
only, and only if rows do not depend on each other; otherwise a part is written when it is complete.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, BinaryIO
from uuid import uuid4

from schemax.errors import InputError
from schemax.io.fingerprint import differences
from schemax.io.records import Record
from schemax.io.rows import Row
from schemax.io.storage import Folder, is_remote, sidecar

REMEDY = "start anew with --overwrite (overwrite=True)"

_MANIFEST = "manifest.json"
_PART = re.compile(r"part-(\d{5,})-([0-9a-f]{16})\.jsonl")
_OPEN = re.compile(r"open-(\d{5,})\.jsonl")
# Names of files that runs write into the folder, including temporary ones.
_OWN = re.compile(
    rf"({_MANIFEST}|{_PART.pattern})(\.tmp)?|{_OPEN.pattern}|(whole|record|keys)\.tmp"
)


def digest(record: Record) -> tuple[str, int]:
    """The digest and the length of a record, independent of the kind of its file."""
    said = str(record) if isinstance(record, InputError) else record
    text = json.dumps(said, sort_keys=True, default=str)
    return _digest(text.encode()), len(text)


def digest_of_all(digests: Iterable[str]) -> str:
    """The digest of several records in order. digests: of each record."""
    return _digest("".join(digests).encode())


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


def to_line(record_digest: str, row: Mapping[str, Any]) -> bytes:
    """The line of a row in a part."""
    text = json.dumps([record_digest, row], separators=(",", ":"), allow_nan=False)
    return _with_digest(text[1:].encode() + b"\n")


def _with_digest(rest: bytes) -> bytes:
    return f'["{_digest(rest)}",'.encode() + rest


def _read_line(line: bytes) -> tuple[str, Row]:
    """(the record's digest, the row). Raises ValueError for a line that is not from `to_line`."""
    if line != _with_digest(line[len(_with_digest(b"")) :]):
        raise ValueError("the line is not whole")
    _, record, row = json.loads(line)
    return record, row


class Checkpoint:
    """The finished rows beside an output `name`."""

    def __init__(self, name: str) -> None:
        if not is_remote(name) and os.path.islink(name):
            name = os.path.realpath(name)  # where the output can be put in place by renaming it
        self.name = sidecar(name, ".parts")
        self.folder = Folder(self.name)
        self.filling: set[OpenPart] = set()  # parts that are not complete

    def can_go_on(self, now: Mapping[str, Any]) -> bool:
        """True if there is an unfinished run to resume.

        Raises InputError, naming the differences, for a run with other settings or another input;
        and for a manifest that no run has written.
        """
        before = self.manifest() if self.has_rows() else None
        if before is not None and (found := differences(before, now)):
            raise InputError(
                f"{self.name} holds an unfinished run with other settings or another input: "
                f"{'; '.join(found)}; restore these, or {REMEDY}"
            )
        return before is not None

    @contextmanager
    def opened(self, manifest: Mapping[str, Any], *, overwrite: bool = False) -> Iterator[bool]:
        """Makes the folder if there is none, locks it, and yields whether to resume a run.

        Removes the folder again if an error ends the run before a row is finished. Raises
        InputError, also for a folder with files that no run has written.
        """
        with self.folder.locked():
            self.manifest()
            for name in self.folder.names():
                if not self._is_own(name):
                    raise self._not_ours(name)
            # Checked again under the lock, since another run may have come between.
            goes_on = not overwrite and self.can_go_on(manifest)
            if not goes_on:
                self._clear()
                named = {**manifest, "run": uuid4().hex}
                self.folder.write(_MANIFEST, json.dumps(named, indent=1).encode())
            try:
                yield goes_on
            except BaseException:
                with suppress(Exception):  # the first error is the one to raise
                    if not self.has_rows():
                        self.remove()
                raise

    def has_rows(self) -> bool:
        """True if a run has finished any row, so that it can be resumed."""
        names, path = self.folder.names(), self.folder.path
        for name in filter(_OPEN.fullmatch, names if path else ()):
            with suppress(FileNotFoundError):  # it became a part at this very moment
                if path is not None and (path / name).stat().st_size:
                    return True
        return any(map(_PART.fullmatch, names))

    def remove(self) -> None:
        """Removes all files that runs have written, and the folder if it is then empty."""
        self._clear()
        self.folder.remove()

    def _clear(self) -> None:
        """Deletes all files, the manifest first: without it no run is resumed after a kill."""
        own = list(filter(self._is_own, self.folder.names()))
        self.folder.delete([name for name in own if name == _MANIFEST])
        self.folder.delete([name for name in own if name != _MANIFEST])

    def _is_own(self, name: str) -> bool:
        return bool(_OWN.fullmatch(name)) and self.folder.is_file(name)

    def manifest(self) -> dict[str, Any] | None:
        """The manifest, if there is one. Raises InputError for one that no run has written."""
        try:
            found = json.loads(self.folder.read(_MANIFEST))
        except FileNotFoundError:
            return None
        except ValueError:
            found = None
        if not isinstance(found, dict) or "part rows" not in found:
            raise self._not_ours(_MANIFEST)
        return found

    def _not_ours(self, name: str) -> InputError:
        return InputError(
            f"cannot write {self.name}: {name} in it was not written by a run; move it elsewhere"
        )

    def scratch(self, what: str) -> str:
        """The path of a temporary file (whole, record or keys), which is removed with the parts."""
        return f"{self.name}/{what}.tmp"

    def finished(self) -> dict[int, str]:
        """The digests of complete parts, by number."""
        found = map(_PART.fullmatch, self.folder.names())
        return {int(match[1]): match[2] for match in found if match}

    def finished_rows(self) -> int:
        """The number of kept rows in complete and open parts. Raises as `rows` does."""
        there = self.finished()
        complete = sum(len(self.rows(*part)) for part in there.items())
        opened = {int(match[1]) for match in map(_OPEN.fullmatch, self.folder.names()) if match}
        return complete + sum(len(self.open_rows(number)) for number in opened - there.keys())

    def rows(self, number: int, part_digest: str) -> list[Row]:
        """The rows of a complete part, in the order of the input.

        Raises InputError if the rows do not belong to the records of the digest.
        """
        try:
            lines = map(_read_line, self._lines(number, part_digest))
            found = sorted(lines, key=lambda line: line[1]["index"])
        except ValueError:
            found = []
        if digest_of_all(record for record, _ in found) != part_digest:
            raise InputError(
                f"{self.name}/{_name(number, part_digest)} is damaged: a row is missing or broken; "
                "delete that file, and its rows are computed again"
            )
        return [row for _, row in found]

    def rows_with(self, mark: bytes, number: int, part_digest: str) -> Iterator[Row]:
        """Yields the rows of a complete part whose lines contain the mark, in any order."""
        return (_read_line(line)[1] for line in self._lines(number, part_digest) if mark in line)

    def _lines(self, number: int, part_digest: str) -> list[bytes]:
        return self.folder.read(_name(number, part_digest)).splitlines(keepends=True)

    def open_rows(self, number: int) -> dict[int, str]:
        """The digests of the records whose rows an open part holds, by index of the row."""
        if self.folder.path is None:
            return {}
        path = self.folder.path / _open_name(number)
        whole = 0
        found: dict[int, str] = {}
        try:
            with open(path, "rb") as handle:
                for line in handle:
                    try:
                        record, row = _read_line(line)
                    except ValueError:  # a line cut by a kill or a power cut
                        break
                    found[row["index"]] = record
                    whole += len(line)
            os.truncate(path, whole)
        except FileNotFoundError:  # there is none, or it became a part at this very moment
            return {}
        return found

    def open_part(
        self, number: int, part_digest: str, missing: int, *, row_by_row: bool
    ) -> OpenPart:
        """A part to add rows to. row_by_row: whether to keep each row at once, on a local disk."""
        path = self.folder.path if row_by_row else None
        handle = None if path is None else open(path / _open_name(number), "ab")  # noqa: SIM115
        opened = OpenPart(self, number, part_digest, missing, handle)
        self.filling.add(opened)
        return opened

    def close_parts(self) -> None:
        """Leaves parts that are not complete open, for the next run."""
        while self.filling:
            self.filling.pop().close()

    def write_part(self, number: int, part_digest: str, lines: Iterable[bytes]) -> None:
        """Completes a part at once with these lines and the lines of the open part."""
        if self.finished().get(number) == part_digest:
            return
        before = self.folder.read(_open_name(number)) if self.open_rows(number) else b""
        self.folder.write(_name(number, part_digest), before + b"".join(lines))
        if _open_name(number) in self.folder.names():
            self.folder.delete([_open_name(number)])

    def complete(self, number: int, part_digest: str) -> None:
        """Renames an open part, whose rows are all on the disk, to a complete one."""
        self.folder.rename(_open_name(number), _name(number, part_digest))


@dataclass(slots=True, eq=False)
class OpenPart:
    """A part that collects rows as they finish: in a file, each written at once, or in memory.

    missing: the number of rows still to come; after the last one the part is complete.
    """

    checkpoint: Checkpoint
    number: int
    digest: str
    missing: int
    handle: BinaryIO | None
    lines: list[bytes] = field(default_factory=list)

    def add(self, *lines: bytes) -> None:
        """Adds lines of `to_line`; completes the part once it has all of its rows."""
        if self.handle is None:
            self.lines += lines
        else:
            self.handle.writelines(lines)
            self.handle.flush()
        self.missing -= len(lines)
        if not self.missing:
            self.complete()

    def complete(self) -> None:
        """Completes the part, once all of its rows are on the disk."""
        self.checkpoint.filling.discard(self)
        if self.handle is None:
            self.checkpoint.write_part(self.number, self.digest, self.lines)
            return
        with self.handle:
            os.fsync(self.handle.fileno())
        self.checkpoint.complete(self.number, self.digest)

    def close(self) -> None:
        if self.handle is not None:
            with suppress(OSError):  # a full disk has been reported by `add`
                self.handle.close()


def _name(number: int, part_digest: str) -> str:
    return f"part-{number:05}-{part_digest}.jsonl"


def _open_name(number: int) -> str:
    return f"open-{number:05}.jsonl"
