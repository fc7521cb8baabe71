"""The failed rows of a finished table, done again; and what a table was made with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import (
    DECLARATION,
    SCHEMA,
    Run,
    computed,
    jsonl,
    refused,
    set_part_rows,
    stand_in_runner,
)
from conftest import slow_but

from schemax.io.finished import read_results, read_run_record

FORMATS = ["out.jsonl", "out.csv", "out.parquet", "out.arrow", "out.xlsx"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    set_part_rows(8, monkeypatch)
    return stand_in_runner(tmp_path, monkeypatch)


def made(tmp_path: Path) -> str:
    texts = [f"Brand{n} true 4K{' hard' * (n % 5 == 3)}" for n in range(30)]
    records: list[Any] = [{"id": f"r{n}", "t": text, "n": n} for n, text in enumerate(texts)]
    return jsonl(tmp_path / "in.jsonl", records)


def found(name: str) -> list[dict[str, Any]]:
    rows = list(read_results(name, read_run_record(name).table))
    assert [row["index"] for row in rows] == list(range(30))
    return rows


@pytest.mark.parametrize("name", slow_but({"out.csv", "out.parquet"}, FORMATS))
def test_failed_rows_are_done_again_with_other_settings(
    run: Run, tmp_path: Path, name: str
) -> None:
    source = made(tmp_path)
    args = ("extract", SCHEMA, source, "--text", "t", "--keep", "n", "--details", "-o")
    assert run(*args, name).exit_code == 1
    first = found(name)
    assert [row["index"] for row in first if row["attributes"] is None] == [3, 8, 13, 18, 23, 28]
    # The same again fails again.
    result = run("extract", "--retry-failed", name)
    assert "30 rows, 6 failed" in result.stderr
    assert found(name) == first
    result = run("extract", "--retry-failed", name, "--format", "yaml")
    assert result.exit_code == 0, result.stderr
    assert "30 rows, 0 failed" in result.stderr
    second = found(name)
    assert [row for row in second if row["index"] % 5 != 3] == [
        row for row in first if row["index"] % 5 != 3
    ]
    assert second[3]["attributes"]["brand"] == "Brand3"
    assert second[3]["kept"] == {"n": 3}
    assert set(computed(tmp_path).values()) == {1, 3}
    # Nothing is left to be done.
    assert "30 rows, 0 failed" in run("extract", "--retry-failed", name).stderr
    assert set(computed(tmp_path).values()) == {1, 3}
    assert not (tmp_path / f"_{name}.parts").exists()


def test_examples_are_taken_again(run: Run, tmp_path: Path) -> None:
    row = {"category": "television", "text": "LG OLED", "attributes": {"brand": "LG"}}
    examples = jsonl(tmp_path / "examples.jsonl", [row])
    args = ("extract", SCHEMA, made(tmp_path), "--text", "t", "--examples", examples, "-o")
    assert run(*args, "out.jsonl").exit_code == 1
    result = run("extract", "--retry-failed", "out.jsonl", "--format", "yaml")
    assert result.exit_code == 0, result.stderr


def test_a_retry_that_is_stopped_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("extract", SCHEMA, made(tmp_path), "--text", "t", "-o", "out.csv")
    before = (tmp_path / "out.csv").read_bytes()
    again = ("extract", "--retry-failed", "out.csv", "--format", "yaml")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("schemax.io.finished.RunRecord.write", full)
        result = run(*again)
        assert result.exit_code == 2
        assert "finished rows are kept in" in result.stderr
    assert (tmp_path / "out.csv").read_bytes() == before
    refused(run(*again, "--html", "keep"), "html was 'strip', is 'keep'")
    result = run(*again)
    assert result.exit_code == 0, result.stderr
    assert set(computed(tmp_path).values()) == {1, 2}
    assert all(row["attributes"] for row in found("out.csv"))


def test_rows_that_a_table_has_already_are_not_put_in_twice(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("extract", SCHEMA, made(tmp_path), "--text", "t", "-o", "out.csv")
    again = ("extract", "--retry-failed", "out.csv")

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:  # after the table, before the parts are removed
        patched.setattr("schemax.io.checkpoint.Checkpoint.remove", killed)
        run(*again, "--format", "yaml")
    assert (tmp_path / "_out.csv.parts").exists()
    result = run(*again)
    assert result.exit_code == 0, result.stderr
    assert all(row["attributes"] for row in found("out.csv"))


def test_what_cannot_be_done_again_is_refused(run: Run, tmp_path: Path) -> None:
    source = made(tmp_path)
    refused(run("extract", "--retry-failed", "out.csv"), "cannot read out.csv: No such file")
    refused(run("extract"), "SCHEMA is missing")
    refused(run("extract", SCHEMA), "INPUT is missing")
    run("extract", SCHEMA, source, "--text", "t", "-o", "out.csv")
    again = ("extract", "--retry-failed", "out.csv")
    refused(run(*again, "--limit", "7"), "limit was None, is 7; restore these")
    refused(run(*again, "--details"), "details was False, is True", "the columns changed")
    jsonl(tmp_path / "in.jsonl", [{"t": "x"}])
    refused(run(*again), "in.jsonl changed; restore these")
    (tmp_path / "_out.csv.run.json").write_text("{}")
    refused(run(*again), "it was not written by this version of schemax")
    (tmp_path / "_out.csv.run.json").write_text('{"version": 1, "summary": {"rows": "many"}}')
    refused(run(*again), "cannot read _out.csv.run.json: summary.")


def test_a_retry_keeps_what_the_run_has_cost(run: Run, tmp_path: Path) -> None:
    run("extract", SCHEMA, made(tmp_path), "--text", "t", "-o", "out.csv")
    first = read_run_record("out.csv").summary
    result = run("extract", "--retry-failed", "out.csv", "--format", "yaml")
    assert "is complete" not in result.stderr
    second = read_run_record("out.csv").summary
    assert (first.computed, second.computed) == (30, 36)
    assert second.seconds > first.seconds
    assert second.tokens >= first.tokens
    assert (second.rows, second.failed) == (30, 0)


def test_a_run_into_a_finished_table_says_so(run: Run, tmp_path: Path) -> None:
    args = ("extract", SCHEMA, made(tmp_path), "--text", "t", "-o", "out.csv")
    assert "is complete" not in run(*args).stderr
    said = [line for line in run(*args).stderr.splitlines() if "is complete" in line]
    assert len(said) == 1
    assert said[0].startswith("note: out.csv is complete (30 rows, 6 failed, finished 20")
    assert "computes all rows again" in said[0]
    assert "--retry-failed out.csv" in said[0]
    result = run(*args, "--limit", "7")
    assert "was made otherwise: limit was None, is 7; this run replaces it" in result.stderr
    assert "is complete" not in run(*args, "-q").stderr
    (tmp_path / "_out.csv.run.json").write_text("{}")
    assert "is complete" not in run(*args).stderr


@pytest.mark.slow
def test_a_schema_that_changed_says_what_changed(run: Run, tmp_path: Path) -> None:
    args = ("extract", SCHEMA, made(tmp_path), "--text", "t", "-o", "out.csv")
    run(*args)
    for old, new, said in (
        ("smart: bool", "clever: bool", "schema changed (smart is gone, clever is new)"),
        ("k_max=6", "k_max=9", "schema changed (k_max of brand was 6, is 9)"),
        ('"4K"]', '"8K"]', "schema changed (choices of resolution was ('720p', '4K'), is"),
        ("attr(k_max=3)", "attr(k_max=3, title='Clever')", "(labels of smart was ('smart',), is"),
    ):
        (tmp_path / "shop.py").write_text(DECLARATION.replace(old, new))
        assert said in run(*args).stderr
        (tmp_path / "shop.py").write_text(DECLARATION)
        run(*args, "-q")


def test_a_table_tells_how_it_was_made(run: Run, tmp_path: Path) -> None:
    run("extract", SCHEMA, made(tmp_path), "--text", "t", "-o", "out.parquet", "--max-errors", "9")
    record = read_run_record("out.parquet")
    assert (record.summary.rows, record.summary.failed) == (30, 6)
    assert record.summary.failure_kinds == (("too hard", 6),)
    assert record.settings["text"] == ["t"]
    assert record.command["schema"] == SCHEMA
    assert record.finished.endswith("+00:00")
    assert json.loads((tmp_path / "_out.parquet.run.json").read_text())["version"] == 1
