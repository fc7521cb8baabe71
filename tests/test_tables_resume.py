"""Runs that are stopped go on: nothing computed twice, lost or doubled, the order the input's."""

from __future__ import annotations

import errno
import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow
import pyarrow.parquet
import pytest
from command_line import DECLARATION, Run, jsonl, process, refused, rows
from fsspec.implementations.memory import MemoryFileSystem
from stand_in import StandIn
from typer.testing import CliRunner

from schemax.cli import app
from schemax.commands import options
from schemax.resources import resource_dir

SCHEMA = "shop.py:Small"


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs commands with the stand-in, in this process."""
    (tmp_path / "shop.py").write_text(DECLARATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(options, "load_extractor", lambda *_: StandIn())
    return lambda *args: CliRunner().invoke(app, list(args))


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets after how many rows the stand-in is interrupted, once."""

    def stop(after: int) -> None:
        class Interrupted(StandIn):
            left = after

            def _stream(self, *args: Any) -> Iterator[Any]:
                for item in super()._stream(*args):
                    yield item
                    Interrupted.left -= 1
                    if Interrupted.left == 0:
                        raise KeyboardInterrupt

        made = Interrupted()
        monkeypatch.setattr(options, "load_extractor", lambda *_: made)

    return stop


def records(count: int) -> list[dict[str, Any]]:
    return [{"id": f"r{n}", "t": f"Brand{n} true 4K {'long ' * (n % 7)}"} for n in range(count)]


def computed(folder: Path) -> Counter[str]:
    return Counter((folder / "computed").read_text("utf-8").splitlines())


@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.parquet", "out.jsonl.gz"])
def test_a_run_goes_on_and_ends_as_if_it_had_not_stopped(
    run: Run, stopping: Callable[[int], None], tmp_path: Path, name: str
) -> None:
    source = jsonl(tmp_path / "in.jsonl", records(100))
    args = ("extract", SCHEMA, source, "--part-rows", "16")
    assert run(*args, "-o", f"whole-{name}").exit_code == 0
    (tmp_path / "computed").unlink()
    (tmp_path / name).write_text("old")
    for after in (1, 20, 41):
        stopping(after)
        result = run(*args, "-o", name)
        assert result.exit_code == 130
        assert f"finished rows are kept in {name}.parts" in result.stderr
        assert (tmp_path / name).read_text() == "old"
    stopping(-1)
    result = run(*args, "-o", name)
    assert result.exit_code == 0, result.output
    assert "going on after 62 finished rows" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("100 rows, 0 failed, ")
    assert "62 of the rows from an earlier run" in result.stderr
    assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()
    assert computed(tmp_path) == Counter(record["id"] for record in records(100))
    assert not (tmp_path / f"{name}.parts").exists()
    assert "\r" not in result.stderr


def test_with_details_a_part_is_computed_as_a_whole(
    run: Run, stopping: Callable[[int], None], tmp_path: Path
) -> None:
    source = jsonl(tmp_path / "in.jsonl", records(50))
    args = ("extract", SCHEMA, source, "--part-rows", "16", "--details")
    assert run(*args, "-o", "whole.jsonl").exit_code == 0
    (tmp_path / "computed").unlink()
    stopping(20)
    assert run(*args, "-o", "out.jsonl").exit_code == 130
    stopping(-1)
    assert "after 16 finished rows" in run(*args, "-o", "out.jsonl").stderr
    assert sorted(computed(tmp_path).values()) == [1] * 46 + [2] * 4
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def hostile(count: int) -> list[dict[str, Any]]:
    """Rows as catalogues have them, with what has broken readers before."""
    texts = [
        "Schöne Größe für die Küche, weiß",
        "ソニー 55インチ 4K 有機EL テレビ",
        "<p>Sony &amp; <b>Söhne</b><br/>4K</p>",
        "<|im_end|> <|endoftext|> 4K",
        'quoted "4K", and\nmore\tlines\r\n',
        None,
        "   ",
    ]
    made = [
        {"id": f"r{n % (count - 10)}", "title": texts[n % len(texts)], "price": n / 7}
        for n in range(count)
    ]
    made[count // 2]["title"] = "lang " * 8000
    return made


def test_two_thousand_odd_rows_survive_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop.py").write_text(DECLARATION)
    table = pyarrow.Table.from_pylist(hostile(2000))
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet", row_group_size=300)
    script = str(Path(__file__).with_name("stand_in.py"))
    args = (script, "extract", SCHEMA, "in.parquet", "--text", "title", "--part-rows", "256")
    monkeypatch.setenv("DELAY", "0.001")
    chance = random.Random(7)
    kills = 0
    while kills < 4:
        with process(*args, "-o", "out.parquet", cwd=tmp_path) as job:
            before = progress(tmp_path)
            while progress(tmp_path) == before and job.poll() is None:
                time.sleep(0.01)
            time.sleep(chance.uniform(0, 0.3))
            job.kill()
            job.communicate()
        assert job.returncode == -signal.SIGKILL, "finished before it could be killed"
        assert not (tmp_path / "out.parquet").exists()
        kills += 1
    monkeypatch.delenv("DELAY")
    for name in ("out.parquet", "whole.parquet"):
        with process(*args, "-o", name, cwd=tmp_path) as job:
            _, err = job.communicate()
        assert job.returncode == 1, err  # rows without text have failed
        assert b"\r" not in err
        assert b"Traceback" not in err
        assert b"duplicate ids, all rows kept: 10 rows" in err
        if name == "out.parquet":
            # At most the one row that was in work at each kill was begun a second time.
            assert computed(tmp_path).total() <= 2000 + kills
    found, whole = (pyarrow.parquet.read_table(tmp_path / f"{n}.parquet") for n in ("out", "whole"))
    assert found.equals(whole)
    assert found["index"].to_pylist() == list(range(2000))
    assert found["id"].to_pylist() == [row["id"] for row in hostile(2000)]
    lost = [not (row["title"] or "").strip() for row in hostile(2000)]
    assert [error is not None for error in found["_error"].to_pylist()] == lost
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.parquet"]


def progress(folder: Path) -> list[tuple[str, int]]:
    """What is there of the parts, but for what a run that begins may clear away."""
    try:
        return [
            (path.name, path.stat().st_size) for path in sorted(folder.glob("out*.parts/*.jsonl"))
        ]
    except FileNotFoundError:  # renamed at this very moment
        return []


def test_the_embedded_model_goes_on_after_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (resource_dir("embedded") / "model.safetensors").is_file():
        pytest.skip("the embedded model is not here")
    titles = [f"Crocs Women's Flat {n} {'Navy ' * (n % 5)}{n % 9} M US" for n in range(40)]
    source = jsonl(tmp_path / "in.jsonl", titles)
    args = ("extract", "shoes", source, "--part-rows", "24", "--batch-size", "4", "-q")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCHEMAX_MODEL", raising=False)
    for parts in (0, 1):
        command = ("-m", "schemax", *args, "-o", "out.csv")
        with process(*command, cwd=tmp_path) as job:
            while not list(tmp_path.glob(f"out.csv.parts/open-0000{parts}.jsonl")):
                assert job.poll() is None, job.stderr and job.stderr.read()
                time.sleep(0.01)
            time.sleep(0.2)
            job.kill()
            job.communicate()
    for name in ("out.csv", "whole.csv"):
        result = CliRunner().invoke(app, [*args, "-o", name])
        assert result.exit_code == 0, result.output
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_a_full_disk_stops_a_run_that_goes_on_later(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(DECLARATION)
    jsonl(tmp_path / "in.jsonl", records(300))
    script = str(Path(__file__).with_name("stand_in.py"))
    args = (script, "extract", SCHEMA, "in.jsonl", "--part-rows", "128", "-o", "out.jsonl", "-q")

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, resource.RLIM_INFINITY))

    with process(*args, cwd=tmp_path, preexec_fn=small_disk) as job:
        _, err = job.communicate()
    assert job.returncode == 2
    assert b"File too large" in err
    assert b"finished rows are kept in out.jsonl.parts" in err
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

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path.removeprefix("fragile:/"))
        return stripped

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        kind = type(self)
        if mode == "wb":
            kind.writes -= 1
            if kind.writes == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        handle = super()._open(path, mode, **options)
        if mode == "rb" and path.endswith(".jsonl") and "part" not in path:
            kind.reads -= 1
            if kind.reads == 0:
                handle = Broken(handle.read())
        return handle


class Broken:
    """A file whose connection is lost in the middle."""

    def __init__(self, data: bytes) -> None:
        self._lines = data[: len(data) // 2].splitlines(keepends=True)

    def __iter__(self) -> Iterator[bytes]:
        yield from self._lines
        raise OSError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))

    def __enter__(self) -> Broken:
        return self

    def __exit__(self, *_: object) -> None:
        return None


@pytest.fixture
def fragile() -> Iterator[type[Fragile]]:
    fsspec.register_implementation("fragile", Fragile, clobber=True)
    Fragile.writes = Fragile.reads = -1
    yield Fragile
    Fragile.store.clear()


def test_a_store_that_is_full_or_lost_costs_no_part(
    run: Run, fragile: type[Fragile], tmp_path: Path
) -> None:
    text = Path(jsonl(tmp_path / "in.jsonl", records(100))).read_bytes()
    fsspec.filesystem("fragile").pipe_file("/b/in.jsonl", text)
    args = ("extract", SCHEMA, "fragile://b/in.jsonl", "--part-rows", "16", "-q")
    out = ("-o", "fragile://b/out.jsonl")
    fragile.writes = 4  # the manifest and two parts
    result = run(*args, *out)
    assert result.exit_code == 2
    assert "No space left" in result.stderr
    assert "kept in fragile://b/out.jsonl.parts" in result.stderr
    fragile.reads = 3  # opened to see that it is there, to digest it, to read it
    result = run(*args, *out)
    assert result.exit_code == 2
    assert "cannot read fragile://b/in.jsonl any further" in result.stderr
    fragile.writes = 5  # four parts, then the whole
    result = run(*args, *out)
    assert "No space left" in result.stderr
    (tmp_path / "computed").unlink()
    assert run(*args, *out).exit_code == 0
    assert not (tmp_path / "computed").exists()  # all was there, and only put together
    assert sorted(fsspec.filesystem("fragile").ls("/b", detail=False)) == [
        "/b/in.jsonl",
        "/b/out.jsonl",
    ]
    found = rows(fsspec.filesystem("fragile").cat_file("/b/out.jsonl").decode())
    assert [row["index"] for row in found] == list(range(100))


def test_a_torn_end_of_the_open_part_is_dropped(
    run: Run, stopping: Callable[[int], None], tmp_path: Path
) -> None:
    source = jsonl(tmp_path / "in.jsonl", records(40))
    stopping(10)
    assert run("extract", SCHEMA, source, "-o", "out.jsonl").exit_code == 130
    (journal,) = (tmp_path / "out.jsonl.parts").glob("open-*")
    journal.write_bytes(journal.read_bytes()[:-5] + bytes(100) + b"\n7\n")
    stopping(-1)
    result = run("extract", SCHEMA, source, "-o", "out.jsonl")
    assert result.exit_code == 0
    assert "after 9 finished rows" in result.stderr
    found = rows((tmp_path / "out.jsonl").read_text("utf-8"))
    assert [row["id"] for row in found] == [f"r{n}" for n in range(40)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("--format", "yaml"), "format was 'json', is 'yaml'"),
        (("--text", "t"), "text was None, is ['t']"),
        (("--limit", "30"), "limit was None, is 30"),
        (("--shard", "0/2"), "shard was '0/1', is '0/2'"),
        (("--details",), "details was False, is True"),
        (("--decoding", "isolated:k_max=9"), "decoding k_max was None, is 9"),
        (("--template", "standard"), "template changed"),
        (("--id", "t"), "id was 'id', is 't'"),
        (("--part-rows", "8"), "part rows was 2048, is 8"),
    ],
)
def test_another_configuration_is_refused(
    run: Run,
    stopping: Callable[[int], None],
    tmp_path: Path,
    change: tuple[str, ...],
    said: str,
) -> None:
    source = jsonl(tmp_path / "in.jsonl", records(40))
    args = ("extract", SCHEMA, source, "-o", "out.jsonl")
    stopping(10)
    assert run(*args).exit_code == 130
    stopping(-1)
    refused(run(*args, *change), "out.jsonl.parts", said, "--overwrite")
    assert run(*args, *change, "--overwrite", "-q").exit_code == 0
    assert not (tmp_path / "out.jsonl.parts").exists()


def test_another_schema_model_or_input_is_refused(
    run: Run,
    stopping: Callable[[int], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = jsonl(tmp_path / "in.jsonl", records(40))
    args = ("extract", SCHEMA, source, "-o", "out.jsonl")
    stopping(10)
    assert run(*args).exit_code == 130
    stopping(-1)
    code = DECLARATION.replace('"Manufacturer"', '"Maker"')
    (tmp_path / "shop.py").write_text(code)
    refused(run(*args), "schema changed")
    (tmp_path / "shop.py").write_text(DECLARATION)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    monkeypatch.setenv("SCHEMAX_MODEL", str(tmp_path / "model"))
    refused(run(*args), "model changed")
    monkeypatch.delenv("SCHEMAX_MODEL")
    jsonl(tmp_path / "in.jsonl", records(41))
    refused(run(*args), f"input {source} changed")
    other = jsonl(tmp_path / "other.jsonl", records(40))
    refused(run(*args[:2], other, *args[3:]), f"input {source} is gone")
    jsonl(tmp_path / "in.jsonl", records(40))
    os.utime(source, (0, 0))  # a copy is the same input
    assert run(*args).exit_code == 0


def test_a_change_in_the_middle_of_a_large_file_is_seen(
    run: Run, stopping: Callable[[int], None], tmp_path: Path
) -> None:
    made = [{"id": str(n), "t": f"Brand{n} " + "x" * 100_000} for n in range(60)]
    source = jsonl(tmp_path / "in.jsonl", made)
    args = ("extract", SCHEMA, source, "-o", "out.jsonl", "--part-rows", "15", "-q")
    stopping(38)
    assert run(*args).exit_code == 130
    stopping(-1)
    whole = Path(source).read_bytes()
    (journal,) = (tmp_path / "out.jsonl.parts").glob("open-*")
    _, row = rows(journal.read_text())[0]
    for index in (20, row["index"]):  # of a finished part, and of the open one
        text = f"Brand{index} ".encode()
        Path(source).write_bytes(whole.replace(text, text.upper()))
        refused_run = run(*args)
        assert refused_run.exit_code == 2
        assert "differs between rows" in refused_run.stderr
    Path(source).write_bytes(whole)
    assert run(*args).exit_code == 0


def test_a_second_run_is_kept_out(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = jsonl(tmp_path / "in.jsonl", records(40))
    args = ("extract", SCHEMA, source, "-o", "out.jsonl")
    script = str(Path(__file__).with_name("stand_in.py"))
    monkeypatch.setenv("DELAY", "0.5")
    with process(script, *args, cwd=tmp_path) as job:
        while not list(tmp_path.glob("out.jsonl.parts/open-*")):
            assert job.poll() is None
            time.sleep(0.02)
        result = run(*args)
        job.kill()
        job.communicate()
    assert result.exit_code == 2
    assert "another run is writing" in result.stderr
    assert run(*args).exit_code == 0


def test_a_link_stays_a_link(run: Run, stopping: Callable[[int], None], tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", records(40))
    (tmp_path / "far").mkdir()
    (tmp_path / "out.csv").symlink_to(tmp_path / "far" / "real.csv")
    stopping(10)
    assert run("extract", SCHEMA, source, "-o", "out.csv").exit_code == 130
    assert (tmp_path / "far" / "real.csv.parts").is_dir()
    stopping(-1)
    assert run("extract", SCHEMA, source, "-o", "out.csv").exit_code == 0
    assert (tmp_path / "out.csv").is_symlink()
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["real.csv"]


def test_shards_together_are_the_whole(run: Run, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", records(50))
    assert run("extract", SCHEMA, source, "-o", "whole.jsonl").exit_code == 0
    for n in range(3):
        out = f"shard{n}.jsonl"
        assert run("extract", SCHEMA, source, "-o", out, "--shard", f"{n}/3").exit_code == 0
    found = [row for n in range(3) for row in rows((tmp_path / f"shard{n}.jsonl").read_text())]
    found.sort(key=lambda row: row["index"])
    assert found == rows((tmp_path / "whole.jsonl").read_text())
    refused(run("extract", SCHEMA, source, "--shard", "3/3"), "--shard")


def test_what_a_run_says_in_the_end(run: Run, tmp_path: Path) -> None:
    texts = ["LG true 8K", "LG maybe 4K", "LG true 9K", "", "Sony false 4K"]
    source = jsonl(
        tmp_path / "in.jsonl", [{"id": "ab"[n % 2], "t": text} for n, text in enumerate(texts)]
    )
    result = run("extract", SCHEMA, source, "-o", "out.jsonl", "--max-errors", "1")
    assert result.exit_code == 0
    *_, ids, most, other, last = result.stderr.splitlines()
    assert ids == (
        "note: duplicate ids, all rows kept: 3 rows with an id that an earlier row has: a, b"
    )
    assert most.startswith("field errors: 2 times resolution: ")
    assert other.startswith("field errors: 1 times smart: ")
    assert last.startswith("5 rows, 1 failed, 3 field errors, ")
    assert last.endswith("3.0 passes per product, 24 tokens")


def test_a_dry_run_tells_what_it_would_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (resource_dir("embedded") / "model.safetensors").is_file():
        pytest.skip("the embedded model is not here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCHEMAX_MODEL", raising=False)
    texts = ["Crocs Navy", "Crocs Red, 4 M US", "", "shoe " * 40_000]
    source = jsonl(tmp_path / "in.jsonl", [{"id": n // 2, "t": x} for n, x in enumerate(texts)])
    args = ["extract", "shoes", source, "-o", "out.jsonl", "--dry-run", "--price-per-hour", "2.5"]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    said = dict(line.split(": ", 1) for line in result.stdout.splitlines())
    assert said["rows"] == "4"
    assert "2 rows with an id" in said["duplicates"]
    assert said["fit the context"] == "2 of 3; cannot be read: 1"
    assert said["expected"].endswith(" hours")
    assert float(said["expected cost"]) >= 0
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize("mode", ["error", "truncate", "chunk"])
def test_documents_that_are_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    if not (resource_dir("embedded") / "model.safetensors").is_file():
        pytest.skip("the embedded model is not here")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCHEMAX_MODEL", raising=False)
    filling = "and so on and so forth " * 370
    long = f"Crocs Women's Jayna Ballet Flat, {filling} Navy, 4 M US"
    made = [
        {"id": "a", "title": "Crocs Flat, Navy", "more": long},
        {"id": "b", "title": "Crocs Flat, Navy"},
        {"id": "c", "title": long},
        {"id": "d", "title": ""},
    ]
    source = jsonl(tmp_path / "in.jsonl", made)
    args = ["extract", "shoes", source, "-o", "out.jsonl", "--details", "--on-too-long", mode]
    result = CliRunner().invoke(app, args)
    found = rows((tmp_path / "out.jsonl").read_text())
    assert [row["id"] for row in found] == ["a", "b", "c", "d"]
    a, b, c, d = found
    assert (b["errors"], d["attributes"]) == ([], None)
    for row, text in ((a, made[0]), (c, made[2])):
        assert (row["attributes"] is None) is (mode == "error"), result.output
        if mode == "truncate":
            assert "too long for the model: cut to" in row["errors"][-1]["message"]
        for field in (row["fields"] or {}).values():
            if field["span"]:
                place = field["span"]
                assert 0 <= place["start"] < place["end"] <= len(text[place["field"]])
