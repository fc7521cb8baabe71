"""Runs that are stopped go on: nothing computed twice, lost or doubled, the order the input's."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import (
    DECLARATION,
    SCHEMA,
    Run,
    computed,
    jsonl,
    process,
    records,
    refused,
    rows,
    set_part_rows,
    stand_in_runner,
)
from conftest import slow_but
from stand_in import StandIn
from typer.testing import CliRunner

from schemax.base.resources import resource_dir
from schemax.commands import options
from schemax.commands.cli import app
from schemax.io.estimate import dollars


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return stand_in_runner(tmp_path, monkeypatch)


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
        monkeypatch.setattr(options, "load_extractor", lambda *_, **__: made)

    return stop


@pytest.mark.slow
@pytest.mark.parametrize("name", ["out.jsonl", "out.csv", "out.parquet", "out.jsonl.gz"])
def test_a_run_goes_on_and_ends_as_if_it_had_not_stopped(
    run: Run,
    stopping: Callable[[int], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    set_part_rows(16, monkeypatch)
    source = jsonl(tmp_path / "in.jsonl", records(100))
    args = ("extract", SCHEMA, source)
    assert run(*args, "-o", f"whole-{name}").exit_code == 0
    (tmp_path / "computed").unlink()
    (tmp_path / name).write_text("old")
    for after in (1, 20, 41):
        stopping(after)
        result = run(*args, "-o", name)
        assert result.exit_code == 130
        assert f"finished rows are kept in _{name}.parts" in result.stderr
        assert (tmp_path / name).read_text() == "old"
    stopping(-1)
    result = run(*args, "-o", name)
    assert result.exit_code == 0, result.output
    assert f"62 finished rows are in _{name}.parts" in result.stderr
    assert result.stderr.splitlines()[-1].startswith("100 rows, 0 failed, ")
    assert "62 of the rows from an earlier run" in result.stderr
    assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()
    assert computed(tmp_path) == Counter(record["id"] for record in records(100))
    assert not (tmp_path / f"_{name}.parts").exists()
    assert "\r" not in result.stderr


@pytest.mark.parametrize(("setting", "kept"), [(("--details",), 20), (("--decoding", "paper"), 16)])
def test_rows_that_depend_on_each_other_are_kept_in_whole_parts(
    run: Run,
    stopping: Callable[[int], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    setting: tuple[str, ...],
    kept: int,
) -> None:
    set_part_rows(16, monkeypatch)
    source = jsonl(tmp_path / "in.jsonl", records(50))
    args = ("extract", SCHEMA, source, *setting)
    assert run(*args, "-o", "whole.jsonl").exit_code == 0
    (tmp_path / "computed").unlink()
    stopping(20)
    assert run(*args, "-o", "out.jsonl").exit_code == 130
    stopping(-1)
    assert f"{kept} finished rows are in" in run(*args, "-o", "out.jsonl").stderr
    assert computed(tmp_path).total() == 50 + 20 - kept
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_a_row_that_a_kill_has_cut_is_computed_again(
    run: Run, stopping: Callable[[int], None], tmp_path: Path
) -> None:
    source = jsonl(tmp_path / "in.jsonl", records(40))
    stopping(10)
    assert run("extract", SCHEMA, source, "-o", "out.jsonl").exit_code == 130
    (journal,) = (tmp_path / "_out.jsonl.parts").glob("part-*")
    journal.write_bytes(journal.read_bytes()[:-5] + bytes(100) + b"\n7\n")
    stopping(-1)
    result = run("extract", SCHEMA, source, "-o", "out.jsonl")
    assert result.exit_code == 0
    assert "9 finished rows are in" in result.stderr
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
    refused(run(*args, *change), "_out.jsonl.parts", said, "--overwrite")
    assert run(*args, *change, "--overwrite", "-q").exit_code == 0
    assert not (tmp_path / "_out.jsonl.parts").exists()


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
    refused(run(*args), "schema changed (description of brand was 'Manufacturer', is 'Maker')")
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


@pytest.mark.slow
def test_a_change_in_the_middle_of_a_large_file_is_seen(
    run: Run,
    stopping: Callable[[int], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_part_rows(15, monkeypatch)
    made = [{"id": str(n), "t": f"Brand{n} " + "x" * 100_000} for n in range(100)]
    source = jsonl(tmp_path / "in.jsonl", made)
    args = ("extract", SCHEMA, source, "-o", "out.jsonl", "-q")
    stopping(70)
    assert run(*args).exit_code == 130
    stopping(-1)
    whole = Path(source).read_bytes()
    for number in (1, 4):  # a part that is complete, and the last one
        part = tmp_path / "_out.jsonl.parts" / f"part-0000{number}.jsonl"
        kept = [row["index"] for _, row in rows(part.read_text())]
        index = next(index for index in kept if 15 <= index < 85)  # far from the file's edges
        text = f"Brand{index} ".encode()
        Path(source).write_bytes(whole.replace(text, text.upper()))
        refused_run = run(*args)
        assert refused_run.exit_code == 2
        assert f"row {index} differs" in refused_run.stderr
    Path(source).write_bytes(whole)
    assert run(*args).exit_code == 0


@pytest.mark.slow
def test_a_second_run_is_kept_out(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = jsonl(tmp_path / "in.jsonl", records(40))
    args = ("extract", SCHEMA, source, "-o", "out.jsonl")
    script = str(Path(__file__).parents[1] / "stand_in.py")
    monkeypatch.setenv("DELAY", "5")
    with process(script, *args, cwd=tmp_path) as job:
        while not list(tmp_path.glob("_out.jsonl.parts/manifest.json")):
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
    assert (tmp_path / "far" / "_real.csv.parts").is_dir()
    stopping(-1)
    assert run("extract", SCHEMA, source, "-o", "out.csv").exit_code == 0
    assert (tmp_path / "out.csv").is_symlink()
    assert [path.name for path in (tmp_path / "far").iterdir()] == ["real.csv"]


@pytest.mark.slow
def test_shards_together_are_the_whole(run: Run, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", records(50))
    assert run("extract", SCHEMA, source, "-o", "whole.jsonl").exit_code == 0
    for n in range(3):
        out = f"shard{n}.jsonl"
        assert run("extract", SCHEMA, source, "-o", out, "--shard", f"{n}/3").exit_code == 0
    found = [row for n in range(3) for row in rows((tmp_path / f"shard{n}.jsonl").read_text())]
    found.sort(key=lambda row: row["index"])
    assert found == rows((tmp_path / "whole.jsonl").read_text())
    refused(run("extract", SCHEMA, source, "--shard", "3/3"), "shard must be one of")


def test_what_a_run_says_in_the_end(run: Run, tmp_path: Path) -> None:
    texts = ["LG true 8K", "LG maybe 4K", "LG true 9K", "", "Sony false 4K"]
    source = jsonl(
        tmp_path / "in.jsonl", [{"id": "ab"[n % 2], "t": text} for n, text in enumerate(texts)]
    )
    result = run("extract", SCHEMA, source, "-o", "out.jsonl", "--max-errors", "1")
    assert result.exit_code == 0
    *_, ids, failed, most, other, last = result.stderr.splitlines()
    assert failed == "failed: 1 time the text is empty"
    assert ids == (
        "note: duplicate ids, all rows kept: 3 rows with an id that an earlier row has: a, b"
    )
    assert most.startswith("field errors: 2 times resolution: ")
    assert other.startswith("field errors: 1 time smart: ")
    assert last.startswith("5 rows, 1 failed, 3 field errors, ")
    assert last.endswith("3.0 passes per document, 24 tokens")


@pytest.mark.slow
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
    args += ["--rows", "1000000"]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    said = dict(line.split(": ", 1) for line in result.stdout.splitlines())
    assert (said["rows"], said["estimated for"]) == ("4", "1,000,000 rows like these")
    assert "2 rows with an id" in said["duplicates"]
    assert said["fit the context"] == "2 of 3; cannot be read: 1"
    assert said["repeats"] == "0 rows with the text of an earlier row, computed once"
    low, high = said["expected"].removesuffix(" hours").split(" to ")
    assert 0 < float(low) < float(high)
    assert re.fullmatch(r"\$\d+\.\d\d to \$\d+\.\d\d", said["expected cost"])
    assert not list(tmp_path.glob("*out*"))


@pytest.mark.parametrize(
    ("cost", "shown"), [(0.00126, "$0.0013"), (0.5, "$0.5000"), (1234.5, "$1,234.50")]
)
def test_a_small_cost_keeps_its_digits(cost: float, shown: str) -> None:
    assert dollars(cost) == shown


@pytest.mark.parametrize("mode", slow_but({"error"}, ["error", "truncate", "chunk"]))
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
