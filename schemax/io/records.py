"""JSON Lines: records in, rows out."""

from __future__ import annotations

import codecs
import json
import os
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from schemax.errors import InputError

Record: TypeAlias = "Mapping[str, Any] | str | InputError"

STANDARD = "-"
"""The name that stands for stdin and stdout."""

_NAMES = {list: "an array", bool: "true or false", type(None): "null"}


def read_records(lines: Iterable[bytes]) -> Iterator[Record]:
    """The records of a JSON Lines file: one object or string per line; blank lines are skipped.

    In place of a line that holds no record comes an InputError that names the line. Extracting
    from it gives a failed row, so that order and count hold and the other lines are done.
    """
    for number, line in enumerate(lines, 1):
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        if line.strip():
            yield _record(line, number)


def _record(line: bytes, number: int) -> Record:
    try:
        value = json.loads(line.decode().rstrip("\r\n"))
    except UnicodeDecodeError as error:
        return InputError(f"line {number}: not valid UTF-8 at byte {error.start + 1}")
    except json.JSONDecodeError as error:
        return InputError(f"line {number}: broken JSON: {error.msg} at column {error.colno}")
    except (ValueError, RecursionError) as error:  # numbers too long, brackets too deep
        return InputError(f"line {number}: JSON that cannot be read: {error}")
    if isinstance(value, (dict, str)):
        return value
    found = _NAMES.get(type(value), "a number")
    return InputError(f"line {number}: a record must be an object or a string, not {found}")


@contextmanager
def open_source(name: str) -> Iterator[BinaryIO]:
    """The lines of a file, or of stdin for "-". Raises InputError."""
    if name == STANDARD:
        yield sys.stdin.buffer
        return
    try:
        handle = open(name, "rb")  # noqa: SIM115  # reading errors are not opening errors
    except OSError as error:
        raise InputError(f"cannot read {name}: {error.strerror}") from error
    with handle:
        yield handle


def count_records(name: str, limit: int | None = None) -> int | None:
    """How many records a file holds, at most `limit`; None for what can be read only once."""
    if not Path(name).is_file():
        return None
    with open(name, "rb") as handle:
        return sum(1 for _ in islice((line for line in handle if line.strip()), limit))


class RowWriter:
    """Writes rows as JSON Lines, each of them right away if `flush`; `rows` counts them."""

    def __init__(self, handle: BinaryIO, *, flush: bool = True) -> None:
        self.rows = 0
        self._handle = handle
        self._flush = flush

    def write(self, row: Mapping[str, Any]) -> None:
        try:
            line = json.dumps(row, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:  # a lone surrogate, which JSON can hold only escaped
            line = json.dumps(row, allow_nan=False).encode()
        self._handle.write(line + b"\n")
        if self._flush:
            self._handle.flush()
        self.rows += 1


@contextmanager
def open_sink(name: str | None) -> Iterator[RowWriter]:
    """A writer to a file, or to stdout for None and "-". Raises InputError.

    A file gets its name only when all rows are written, so that it is never half a result and
    may be the file that is being read. If an error ends the run, the rows written so far stay in
    a file beside it, which a note on the error names.
    """
    if name is None or name == STANDARD:
        # The handle is taken now: a progress bar puts itself in place of sys.stdout.
        yield RowWriter(sys.stdout.buffer)
        return
    path = Path(name).resolve()
    regular = path.is_file() or not path.exists()
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial") if regular else path
    try:
        handle = open(partial, "wb")  # noqa: SIM115  # only opening it may fail like this
    except OSError as error:
        raise InputError(f"cannot write {name}: {error.strerror}") from error
    with handle:
        writer = RowWriter(handle)
        try:
            yield writer
        except BaseException as error:
            handle.close()
            if regular:
                _keep(partial, writer.rows, error)
            raise
    if regular:
        if path.exists():
            shutil.copymode(path, partial)
        os.replace(partial, path)


def _keep(partial: Path, rows: int, error: BaseException) -> None:
    if rows:
        error.add_note(f"rows written so far: {rows:,}, in {partial}")
    else:
        partial.unlink()
