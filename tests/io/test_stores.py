"""Object stores that refuse: one line, exit status 2, and finished rows are kept."""

from __future__ import annotations

import errno
import gzip
import io
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import fsspec
import pytest
from command_line import (
    SCHEMA,
    Run,
    jsonl,
    process,
    records,
    rows,
    set_part_rows,
    stand_in_runner,
)
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.spec import AbstractBufferedFile

from schemax.errors import InputError
from schemax.io.storage import reading


class NoCredentials(Exception):
    """As the packages of stores have them: no OSError."""


class Guarded(MemoryFileSystem):
    """A store that refuses the n-th thing it is asked for, with an error of its own."""

    protocol = "guarded"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    refused = 0
    error: Exception = NoCredentials("Unable to locate credentials")

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path.removeprefix("guarded:/"))
        return stripped

    def asked(self) -> None:
        kind = type(self)
        kind.refused -= 1
        if kind.refused == 0:
            raise kind.error

    def ls(self, path: str, detail: bool = True, **options: Any) -> Any:
        self.asked()
        return super().ls(path, detail, **options)

    def isfile(self, path: str) -> bool:
        self.asked()
        return bool(super().isfile(path))

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.asked()
        super().makedirs(path, exist_ok)

    def cat_file(self, path: str, *args: Any, **options: Any) -> Any:
        self.asked()
        return super().cat_file(path, *args, **options)

    def mv(self, *args: Any, **options: Any) -> Any:
        self.asked()
        return super().mv(*args, **options)

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        self.asked()
        handle = super()._open(path, mode, **options)
        return Buffered(self, path, handle.getvalue()) if mode == "rb" else handle


class Buffered(AbstractBufferedFile):
    """What stores open for reading: without lines of bounded length."""

    def __init__(self, system: Guarded, path: str, data: bytes) -> None:
        super().__init__(system, path, size=len(data), block_size=1000)
        self._data = data

    def _fetch_range(self, start: int, end: int) -> bytes:
        self.fs.asked()
        return self._data[start:end]


@pytest.fixture
def guarded() -> Iterator[type[Guarded]]:
    fsspec.register_implementation("guarded", Guarded, clobber=True)
    Guarded.refused, Guarded.error = 0, NoCredentials("Unable to locate credentials")
    yield Guarded
    Guarded.store.clear()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    set_part_rows(16, monkeypatch)
    return stand_in_runner(tmp_path, monkeypatch)


@pytest.mark.release
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NoCredentials("Unable to locate credentials"), "NoCredentials: Unable to locate credent"),
        (OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)), "Connection refused"),
    ],
)
def test_whatever_a_store_refuses_is_one_line(
    run: Run, guarded: type[Guarded], tmp_path: Path, error: Exception, said: str
) -> None:
    """Each thing that a store is asked for in turn, from the first look to the last file."""
    text = Path(jsonl(tmp_path / "in.jsonl", records(40))).read_bytes()
    args = ("extract", SCHEMA, "guarded://b/in.jsonl", "-q", "-o", "guarded://b/out.jsonl")
    store = fsspec.filesystem("guarded")
    for number in count(1):
        guarded.store.clear()
        guarded.refused = 0
        store.pipe_file("/b/in.jsonl", text)
        guarded.refused, guarded.error = number, error
        result = run(*args)
        if guarded.refused > 0:
            break
        guarded.refused = 0
        if result.exit_code == 0:  # it was of no consequence, such as the end of a cache
            continue
        assert result.exit_code == 2, (number, result.output, result.exception)
        assert "Traceback" not in result.stderr
        first, *notes = result.stderr.splitlines()
        assert said in first, number
        assert first.startswith("error: cannot "), number
        assert "guarded://b/" in first, number
        assert all("finished rows are kept in" in note for note in notes)
        result = run(*args)
        assert result.exit_code == 0, (number, result.output)
        assert len(rows(store.cat_file("/b/out.jsonl").decode())) == 40
    assert number > 20


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv", "in.jsonl.gz"])
def test_lines_of_a_store_are_read(
    run: Run, guarded: type[Guarded], tmp_path: Path, name: str
) -> None:
    text = b"t,id\n" + b"LG true 4K,x\n" * 300
    if "jsonl" in name:
        text = b'{"t": "LG true 4K", "id": "x"}\n' * 300
    data = gzip.compress(text) if name.endswith(".gz") else text
    fsspec.filesystem("guarded").pipe_file(f"/b/{name}", data)
    result = run("extract", SCHEMA, f"guarded://b/{name}", "-q", "-o", "out.jsonl")
    assert result.exit_code == 0, result.output
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 300


def test_a_store_without_its_package_is_named() -> None:
    with pytest.raises(InputError, match=r"cannot reach nowhere://a/b: .*nowhere"):
        reading("nowhere://a/b")


@pytest.mark.slow
def test_the_status_of_a_fault_is_not_that_of_failed_rows(tmp_path: Path) -> None:
    """Status 1 says that all rows are written, which a traceback does not."""
    (tmp_path / "broken.py").write_text(
        "import sys\n"
        "from schemax.commands import cli, demo\n"
        "def fails(): raise LookupError('a fault')\n"
        "demo.demo = fails\n"
        "sys.argv = ['schemax', 'demo']\n"
        "cli.main()\n"
    )
    with process("broken.py", cwd=tmp_path) as job:
        _, err = job.communicate()
    assert job.returncode == 3
    assert b"LookupError: a fault" in err
    assert b"a fault of schemax itself" in err.splitlines()[-1]


def test_a_handle_of_a_store_is_a_file(guarded: type[Guarded]) -> None:
    fsspec.filesystem("guarded").pipe_file("/b/x", bytes(range(256)) * 400)
    with reading("guarded://b/x") as handle:
        assert handle.seek(0, io.SEEK_END) == 102_400
        handle.seek(255)
        assert handle.read(2) == b"\xff\x00"
        guarded.refused = 1
        with pytest.raises(InputError, match="cannot reach guarded://b/x: NoCredentials"):
            handle.read(1_000_000)
    assert handle.closed
