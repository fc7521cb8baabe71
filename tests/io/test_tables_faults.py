"""What fails around a run: disks, stores, readers and memory. Finished rows are kept."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import random
import resource
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
import torch
from command_line import (
    DECLARATION,
    SCHEMA,
    STAND_IN,
    Run,
    computed,
    jsonl,
    process,
    records,
    rows,
    runner,
    set_part_rows,
    stand_in_runner,
)
from conftest import slow_but
from fsspec.implementations.memory import MemoryFileSystem
from transformers import Qwen3ForCausalLM


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return stand_in_runner(tmp_path, monkeypatch)


@pytest.mark.slow
def test_a_full_disk_stops_a_run_that_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_part_rows(128, monkeypatch)
    (tmp_path / "shop.py").write_text(DECLARATION)
    jsonl(tmp_path / "in.jsonl", records(300))
    args = (STAND_IN, "extract", SCHEMA, "in.jsonl", "-o", "out.jsonl", "-q")

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, resource.RLIM_INFINITY))

    with process(*args, cwd=tmp_path, preexec_fn=small_disk) as job:
        _, err = job.communicate()
    assert job.returncode == 2
    assert b"cannot write out.jsonl: File too large" in err
    assert b"finished rows are kept in _out.jsonl.parts" in err
    assert b"Traceback" not in err
    assert not (tmp_path / "out.jsonl").exists()
    with process(*args, cwd=tmp_path) as job:
        _, err = job.communicate()
    assert (job.returncode, err) == (0, b"")
    assert computed(tmp_path).total() <= 301
    found = rows((tmp_path / "out.jsonl").read_text("utf-8"))
    assert [row["index"] for row in found] == list(range(300))


class Fragile(MemoryFileSystem):
    """A store that refuses to write, or to read on, when it is told to."""

    protocol = "fragile"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012
    writes = reads = -1
    refused = ""  # in the names of files that cannot be written

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path.removeprefix("fragile:/"))
        return stripped

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        kind = type(self)
        if mode == "wb":
            kind.writes -= 1
            if kind.writes == 0 or (kind.refused and kind.refused in path):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        handle = super()._open(path, mode, **options)
        if mode == "rb" and path.endswith(".jsonl") and "part" not in path:
            kind.reads -= 1
            if kind.reads == 0:
                handle = Broken(handle.read())
        return handle


class Broken(io.RawIOBase):
    """A file whose connection is lost in the middle."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data[: len(data) // 2])

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not (found := self._data.readinto(buffer)):
            raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        return found


@pytest.fixture
def fragile() -> Iterator[type[Fragile]]:
    fsspec.register_implementation("fragile", Fragile, clobber=True)
    Fragile.writes = Fragile.reads = -1
    yield Fragile
    Fragile.store.clear()


def test_a_store_that_is_full_or_lost_costs_no_part(
    run: Run, fragile: type[Fragile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_part_rows(16, monkeypatch)
    text = Path(jsonl(tmp_path / "in.jsonl", records(100))).read_bytes()
    fsspec.filesystem("fragile").pipe_file("/b/in.jsonl", text)
    args = ("extract", SCHEMA, "fragile://b/in.jsonl", "-q")
    out = ("-o", "fragile://b/out.jsonl")
    fragile.writes = 4  # the manifest and two parts
    result = run(*args, *out)
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    assert "kept in fragile://b/_out.jsonl.parts" in result.stderr
    fragile.reads = 3  # opened to see that it is there, to digest it, to read it
    result = run(*args, *out)
    assert result.exit_code == 2
    assert "cannot read fragile://b/in.jsonl any further" in result.stderr
    kept = fsspec.filesystem("fragile").glob("/b/_out.jsonl.parts/part-*")
    assert len(kept) >= 3  # all that could be read, and what was done before
    assert computed(tmp_path).total() <= 100
    fragile.refused = "whole"
    result = run(*args, *out)
    fragile.refused = ""
    assert "No space left" in result.stderr
    (tmp_path / "computed").unlink()
    assert run(*args, *out).exit_code == 0
    assert not (tmp_path / "computed").exists()  # all was there, and only put together
    assert sorted(fsspec.filesystem("fragile").ls("/b", detail=False)) == [
        "/b/_out.jsonl.keys",
        "/b/_out.jsonl.run.json",
        "/b/in.jsonl",
        "/b/out.jsonl",
    ]
    found = rows(fsspec.filesystem("fragile").cat_file("/b/out.jsonl").decode())
    assert [row["index"] for row in found] == list(range(100))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of a megabyte, where one may be mounted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        done = False
    if not done:
        pytest.skip("no disk can be mounted here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but({"out.jsonl"}, ["out.parquet", "out.jsonl"]))
def test_a_disk_without_room_costs_no_row(
    run: Run, tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Room is made bit by bit, so that it runs out in the manifest, in parts and in the whole."""
    set_part_rows(128, monkeypatch)
    source = jsonl(tmp_path / "in.jsonl", records(1000))
    out = small_disk / name
    args = ("extract", SCHEMA, source, "-q", "-o")
    assert run(*args, name).exit_code == 0
    (tmp_path / "computed").unlink()
    ballast = small_disk / "ballast"
    full = 0
    for left in (0, 10_000, 50_000, 100_000, 150_000, 1 << 20):
        with open(ballast, "wb") as handle:
            handle.write(bytes(max(0, (1 << 20) - left - used(small_disk))))
        result = run(*args, str(out))
        if result.exit_code == 0:
            break
        full += 1
        assert result.exit_code == 2, result.output
        assert "No space left" in result.stderr
        assert "Traceback" not in result.stderr
        assert not out.exists()
    assert result.exit_code == 0
    assert full >= 3
    assert out.read_bytes() == (tmp_path / name).read_bytes()
    assert computed(tmp_path).total() <= 1000 + full  # a row that could not be kept is lost
    assert sorted(path.name for path in small_disk.iterdir()) == [
        f"_{name}.keys",
        f"_{name}.run.json",
        "ballast",
        name,
    ]


def used(disk: Path) -> int:
    """Bytes of a disk that are taken, but for the ballast."""
    found = os.statvfs(disk)
    ballast = disk / "ballast"
    room = ballast.stat().st_blocks * 512 if ballast.exists() else 0
    return (found.f_blocks - found.f_bfree) * found.f_frsize - room


@pytest.mark.release
def test_a_reader_that_breaks_in_mid_file_loses_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read before is finished; with the file mended, only the rest is computed."""
    set_part_rows(32, monkeypatch)
    chance = random.Random(3)
    packed = [
        gzip.compress(
            json.dumps({"id": f"r{n}", "t": f"LG true {chance.randbytes(9000).hex()}"}).encode()
            + b"\n"
        )
        for n in range(300)
    ]
    source = tmp_path / "in.jsonl.gz"
    # In the middle of so large a file, what is damaged is met only when it is read.
    source.write_bytes(b"".join([*packed[:170], b"??", packed[170][2:], *packed[171:]]))
    args = ("extract", SCHEMA, source.name, "-o", "out.jsonl")
    result = run(*args)
    assert result.exit_code == 2
    assert "cannot read in.jsonl.gz any further: Not a gzipped file" in result.stderr
    assert "kept in _out.jsonl.parts" in result.stderr
    assert computed(tmp_path) == Counter(f"r{n}" for n in range(160))
    source.write_bytes(b"".join(packed))
    assert "160 finished rows are in" in run(*args).stderr
    assert computed(tmp_path) == Counter(f"r{n}" for n in range(300))


class Memory:
    """Lets a model's forward pass run out of memory.

    passes: those that do, counted from 0; tokens: more of them in a pass do not fit.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.passes: range | tuple[int, ...] = ()
        self.tokens = 1 << 30
        self.ran = self.failed = 0
        usual = Qwen3ForCausalLM.forward

        def forward(model: Any, *args: Any, **kwargs: Any) -> Any:
            number, self.ran = self.ran, self.ran + 1
            if number in self.passes or kwargs["input_ids"].numel() > self.tokens:
                self.failed += 1
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB")
            return usual(model, *args, **kwargs)

        monkeypatch.setattr(Qwen3ForCausalLM, "forward", forward)

    def reset(self) -> None:
        self.ran = self.failed = 0


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Memory:
    return Memory(monkeypatch)


@pytest.fixture
def real(tmp_path: Path, saved_model: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs commands with a tiny random model, through the real engine."""
    return runner(tmp_path, saved_model, monkeypatch)


@pytest.mark.slow
def test_memory_that_runs_out_in_mid_wave_changes_no_row(
    real: Run, memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_part_rows(40, monkeypatch)
    source = jsonl(tmp_path / "in.jsonl", records(60))
    args = ("extract", SCHEMA, source, "--examples", "none", "-o")
    assert real(*args, "whole.jsonl").exit_code == 0
    undisturbed, start = memory.ran, 4  # those in front look the model over as it is loaded
    for passes in (range(start + 5, start + 7), (start, undisturbed - 2)):
        memory.reset()
        memory.passes = passes
        result = real(*args, "out.jsonl")
        assert result.exit_code == 0, result.output
        assert "Traceback" not in result.stderr
        assert memory.failed == len(passes)
        # Each time half as many documents are in flight, so passes are more, but not without end.
        assert memory.ran < 3 * undisturbed * 2 ** len(passes)
        assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


@pytest.mark.slow
def test_what_never_fits_is_a_failed_row_and_the_others_are_done(
    real: Run, memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_part_rows(40, monkeypatch)
    made = records(60)
    source = jsonl(tmp_path / "in.jsonl", made)
    args = ("extract", SCHEMA, source, "--examples", "none")
    assert real(*args, "-o", "whole.jsonl").exit_code == 0
    whole = rows((tmp_path / "whole.jsonl").read_text())
    for number in (7, 50):
        made[number]["t"] = f"Sony {'wide ' * 500}"
    jsonl(tmp_path / "in.jsonl", made)
    memory.tokens = 600  # more than the instruction takes, and less than a full pass
    result = real(*args, "-o", "out.jsonl", "--max-errors", "2")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("there is not enough memory for a document of this length") == 2
    found = rows((tmp_path / "out.jsonl").read_text())
    assert [row["index"] for row in found if row["attributes"] is None] == [7, 50]
    assert [row for row in found if row["index"] not in (7, 50)] == [
        row for row in whole if row["index"] not in (7, 50)
    ]
    memory.tokens = 0  # for no document at all, once the model is loaded
    memory.reset()
    result = real("extract", SCHEMA, source, "-o", "none.jsonl", "--limit", "20", "-q")
    assert result.exit_code == 1
    found = rows((tmp_path / "none.jsonl").read_text())
    assert {row["errors"][0]["message"].partition(";")[0] for row in found} == {
        "there is not enough memory for a document of this length"
    }
