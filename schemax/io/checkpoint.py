"""Checkpoints: the finished rows of an unfinished run, in _OUT.parts, from which it is resumed.

    manifest.json                the settings that rows depend on; written first
    part-00003.jsonl             finished rows of part 3, in the order in which they finished
    part-00003-1f0a93bc.jsonl    the same in a store, whose files cannot grow

A part is a range of the run's records. A line is [digest of the record, row]. A kill may cut the
last line of a file: a cut line is no JSON, and its row is computed again.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import blake2b
from io import BytesIO
from typing import Any, BinaryIO, TypeAlias
from uuid import uuid4

from schemax.errors import InputError
from schemax.io.fingerprint import differences
from schemax.io.records import Record
from schemax.io.rows import Row
from schemax.io.storage import Folder, is_remote, sidecar

PART_ROWS = 2048
"""The records of a part, and so the most rows of a part that a kill loses in a store."""

REMEDY = "start anew with --overwrite (overwrite=True)"

Files: TypeAlias = Mapping[int, Sequence[tuple[str, int]]]
"""The names and sizes of files with rows, by part, as of one moment."""

_MANIFEST = "manifest.json"
_PART = re.compile(r"part-(\d{5,})(-[0-9a-f]{8})?\.jsonl")
# Names of files that runs write into the folder, including temporary ones.
_OWN = re.compile(rf"({_MANIFEST}|{_PART.pattern})(\.tmp)?|(whole|record|keys)\.tmp")
_MOST_OPEN = 16  # parts that are written at the same time


def digest(record: Record) -> tuple[str, int]:
    """The digest and the length of a record, independent of the kind of its file."""
    content = str(record) if isinstance(record, InputError) else record
    text = json.dumps(content, sort_keys=True, default=str)
    return blake2b(text.encode(), digest_size=8).hexdigest(), len(text)


def to_line(record_digest: str, row: Mapping[str, Any]) -> bytes:
    """The line of a row in a part."""
    text = json.dumps([record_digest, row], separators=(",", ":"), allow_nan=False)
    return text.encode() + b"\n"


class Checkpoint:
    """The finished rows beside an output `name`."""

    def __init__(self, name: str) -> None:
        if not is_remote(name) and os.path.islink(name):
            name = os.path.realpath(name)  # where the output can be put in place by renaming it
        self.name = sidecar(name, ".parts")
        self.folder = Folder(self.name)
        self.part_rows = PART_ROWS
        self._handles: dict[int, BinaryIO] = {}
        self._written: Counter[int] = Counter()  # lines by open part

    def can_go_on(self, now: Mapping[str, Any]) -> bool:
        """True if there is an unfinished run to resume.

        Raises InputError, naming the differences, for a run with other settings or another input;
        and for a manifest that no run has written.
        """
        before = self.manifest() if self.has_rows() else None
        if before is not None and (changes := differences(before, now)):
            raise InputError(
                f"{self.name} holds an unfinished run with other settings or another input: "
                f"{'; '.join(changes)}; restore these, or {REMEDY}"
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
            for name in self.folder.sizes():
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
        return any(size for files in self.files().values() for _, size in files)

    def remove(self) -> None:
        """Removes all files that runs have written, and the folder if it is then empty."""
        self._clear()
        self.folder.remove()

    def _clear(self) -> None:
        """Deletes all files, the manifest first: without it no run is resumed after a kill."""
        own = list(filter(self._is_own, self.folder.sizes()))
        self.folder.delete([name for name in own if name == _MANIFEST])
        self.folder.delete([name for name in own if name != _MANIFEST])

    def _is_own(self, name: str) -> bool:
        return bool(_OWN.fullmatch(name)) and self.folder.is_file(name)

    def manifest(self) -> dict[str, Any] | None:
        """The manifest, if there is one. Raises InputError for one that no run has written."""
        try:
            manifest = json.loads(self.folder.read(_MANIFEST))
        except FileNotFoundError:
            return None
        except ValueError:
            manifest = None
        if not isinstance(manifest, dict) or "part rows" not in manifest:
            raise self._not_ours(_MANIFEST)
        return manifest

    def _not_ours(self, name: str) -> InputError:
        return InputError(
            f"cannot write {self.name}: {name} in it was not written by a run; move it elsewhere"
        )

    def scratch(self, name: str) -> str:
        """The path of a temporary file (whole, record or keys), which is removed with the parts."""
        return f"{self.name}/{name}.tmp"

    def files(self) -> dict[int, list[tuple[str, int]]]:
        """The current files with rows, by part in ascending order."""
        files: dict[int, list[tuple[str, int]]] = {}
        for name, size in self.folder.sizes().items():
            if match := _PART.fullmatch(name):
                files.setdefault(int(match[1]), []).append((name, size))
        return dict(sorted(files.items()))

    def rows(self, number: int, files: Files, *, mark: bytes = b"") -> dict[int, tuple[str, Row]]:
        """The rows of a part by index, in ascending order, each behind its record's digest.

        mark: bytes without which a line is left out.
        """
        rows: dict[int, tuple[str, Row]] = {}
        lines = (
            line
            for name, size in files.get(number, ())
            for line in self.folder.read(name)[:size].splitlines()
            if mark in line
        )
        for line in lines:
            with suppress(ValueError):  # a cut line
                match json.loads(line):
                    case [str(record_digest), {"index": int(index)} as row]:
                        rows[index] = record_digest, row
        return dict(sorted(rows.items()))

    def count(self) -> int:
        """The number of finished rows."""
        files = self.files()
        return sum(len(self.rows(number, files)) for number in files)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Has all rows of `add` in their files when the context ends, also after an error."""
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the first error is the one to raise
                self._close(*self._handles)
            raise
        self._close(*self._handles)

    def add(self, number: int, lines: Sequence[bytes]) -> None:
        """Adds lines of `to_line` to a part.

        On a local disk the lines are in the file at once; in a store, once the part is full or
        many others are begun.
        """
        if number not in self._handles:
            if len(self._handles) >= _MOST_OPEN:
                self._close(next(iter(self._handles)))
            self._handles[number] = self._opened(number)
        self._handles[number].writelines(lines)
        self._handles[number].flush()
        self._written[number] += len(lines)
        if self._written[number] >= self.part_rows:
            self._close(number)

    def _opened(self, number: int) -> BinaryIO:
        if self.folder.path is None:
            return BytesIO()
        handle = open(self.folder.path / f"part-{number:05}.jsonl", "ab")  # noqa: SIM115
        if handle.tell():
            handle.write(b"\n")  # ends a line that a kill has cut
        return handle

    def _close(self, *numbers: int) -> None:
        for number in numbers:
            del self._written[number]
            with self._handles.pop(number) as handle:
                if isinstance(handle, BytesIO) and (data := handle.getvalue()):
                    self.folder.write(f"part-{number:05}-{uuid4().hex[:8]}.jsonl", data)
