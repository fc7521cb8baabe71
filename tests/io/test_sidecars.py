"""What lies beside a table is left out by readers of folders."""

from __future__ import annotations

import json
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
    jsonl,
    records,
    refused,
    set_part_rows,
    stand_in_runner,
)

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
