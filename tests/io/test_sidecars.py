"""What lies beside a table: left out by readers of folders, and found under older names too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow.dataset
import pyarrow.parquet
import pytest
from command_line import (
    SCHEMA,
    Run,
    computed,
    jsonl,
    records,
    refused,
    rows,
    set_part_rows,
    stand_in_runner,
)

from schemax.io.finished import read_run_record
from schemax.io.storage import sidecar


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    set_part_rows(8, monkeypatch)
    return stand_in_runner(tmp_path, monkeypatch)


def refuse(*_: Any, **__: Any) -> None:
    raise OSError(28, "No space left on device")


def test_a_folder_of_shards_is_one_table(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = jsonl(tmp_path / "in.jsonl", records(30))
    (tmp_path / "shards").mkdir()
    args = ("extract", SCHEMA, source, "-q", "-o")
    for shard in range(3):
        out = f"shards/p-{shard}.parquet"
        assert run(*args, out, "--shard", f"{shard}/3").exit_code == 0
    for place, hidden in (("shards/", "_"), ("shards/*.parquet", None)):
        read = polars.scan_parquet(place, hidden_file_prefix=hidden).collect()
        assert sorted(read["index"]) == list(range(30))
    with monkeypatch.context() as patched:
        patched.setattr("schemax.io.finished.RunRecord.write", refuse)
        run(*args, "shards/stopped.jsonl")
    assert (tmp_path / "shards/_stopped.jsonl.parts").is_dir()
    whole = pyarrow.parquet.read_table("shards/").sort_by("index")
    assert whole["index"].to_pylist() == list(range(30))
    assert pyarrow.dataset.dataset("shards/").count_rows() == 30
    assert sorted(pandas.read_parquet("shards/")["index"]) == list(range(30))


def test_a_run_that_began_under_the_older_name_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = jsonl(tmp_path / "in.jsonl", records(30))
    args = ("extract", SCHEMA, source, "-o", "out.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr("schemax.io.finished.RunRecord.write", refuse)
        run(*args)
    os.rename("_out.jsonl.parts", "out.jsonl.parts")
    refused(run(*args, "--limit", "7"), "out.jsonl.parts holds an unfinished run", "limit")
    result = run(*args)
    assert "30 finished rows are in out.jsonl.parts" in result.stderr
    assert set(computed(tmp_path).values()) == {1}
    assert len(rows((tmp_path / "out.jsonl").read_text())) == 30
    left = {path.name for path in tmp_path.glob("*out*")}
    assert left == {"out.jsonl", "_out.jsonl.run.json", "_out.jsonl.keys"}


def test_what_is_not_a_run_is_left_alone_under_the_older_name(run: Run, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", records(3))
    diary = tmp_path / "out.jsonl.parts" / "manifest.json"
    diary.parent.mkdir()
    diary.write_text('{"name": "an application"}')
    assert run("extract", SCHEMA, source, "-o", "out.jsonl").exit_code == 0
    assert diary.read_text() == '{"name": "an application"}'


def test_a_table_that_was_made_under_the_older_name_is_known(run: Run, tmp_path: Path) -> None:
    texts = [{"id": f"r{n}", "t": f"LG true 4K{' hard' * (n == 3)}"} for n in range(9)]
    source = jsonl(tmp_path / "in.jsonl", texts)
    assert run("extract", SCHEMA, source, "--text", "t", "-o", "out.csv").exit_code == 1
    os.rename("_out.csv.run.json", "out.csv.run.json")
    assert read_run_record("out.csv").summary.failed == 1
    assert run("report", "out.csv").exit_code == 0
    result = run("extract", "--retry-failed", "out.csv", "--format", "yaml")
    assert "9 rows, 0 failed" in result.stderr
    assert not (tmp_path / "out.csv.run.json").exists()
    assert read_run_record("out.csv").summary.failed == 0


@pytest.mark.parametrize(
    ("name", "beside"),
    [
        ("out.csv", "_out.csv.parts"),
        ("a/b.c/out", "a/b.c/_out.parts"),
        ("s3://bucket/k/out.csv", "s3://bucket/k/_out.csv.parts"),
        ("file:///tmp/out.csv", "file:///tmp/_out.csv.parts"),
    ],
)
def test_only_the_last_name_changes(name: str, beside: str) -> None:
    assert sidecar(name, ".parts") == beside


@pytest.mark.parametrize(
    ("place", "odd"),
    [
        (("settings", "limit"), "x"),
        (("settings", "limit"), -1),
        (("settings", "text"), 7),
        (("settings", "html"), None),
        (("settings", "shard"), "x"),
        (("settings",), {}),
        (("command",), None),
        (("command", "input"), [7]),
        (("command", "schema"), {}),
    ],
)
def test_a_damaged_record_is_refused_with_its_place(
    run: Run, tmp_path: Path, place: tuple[str, ...], odd: Any
) -> None:
    jsonl(tmp_path / "in.jsonl", [{"t": "LG true 4K"}])
    assert run("extract", SCHEMA, "in.jsonl", "-o", "out.jsonl", "-q").exit_code == 0
    path = tmp_path / "_out.jsonl.run.json"
    made = json.loads(path.read_text())
    part = made
    for name in place[:-1]:
        part = part[name]
    part[place[-1]] = odd
    path.write_text(json.dumps(made))
    for command in (("report", "out.jsonl"), ("extract", "--retry-failed", "out.jsonl")):
        refused(run(*command), "cannot read _out.jsonl.run.json: ", place[0])
