"""Runs that are repeated every night: repeats, unchanged rows, finished tables."""

from __future__ import annotations

import multiprocessing
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import stand_in
from command_line import (
    DECLARATION,
    SCHEMA,
    Run,
    computed,
    jsonl,
    refused,
    rows,
    set_part_rows,
    stand_in_runner,
)
from conftest import slow_but
from seams import replaced

from schemax.io.finished import read_results, read_run_record

FORMATS = ["out.jsonl", "out.csv", "out.parquet", "out.arrow", "out.xlsx"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    set_part_rows(8, monkeypatch)
    return stand_in_runner(tmp_path, monkeypatch)


def made(count: int = 30) -> list[dict[str, Any]]:
    return [{"id": f"r{n}", "t": f"Brand{n} true 4K", "n": n} for n in range(count)]


def extract(source: str, *more: str, out: str = "out.jsonl") -> tuple[str, ...]:
    return ("extract", SCHEMA, source, "--text", "t", "--keep", "n", "-o", out, *more)


def whole(run: Run, folder: Path, source: str, name: str) -> list[dict[str, Any]]:
    """The rows of a run that begins with nothing."""
    assert run(*extract(source, out=f"whole-{name}")).exit_code in (0, 1)
    return found(f"whole-{name}")


def found(name: str) -> list[dict[str, Any]]:
    return list(read_results(name, read_run_record(name).table))


@pytest.mark.parametrize("name", slow_but({"out.jsonl", "out.parquet"}, FORMATS))
def test_rows_that_changed_are_computed_and_the_others_taken(
    run: Run, tmp_path: Path, name: str
) -> None:
    first = made()
    run(*extract(jsonl(tmp_path / "in.jsonl", first), out=name))
    second = [dict(row) for row in first if row["n"] not in (4, 5)]  # two are gone
    second[9]["t"] = "Changed false 720p"
    second[10]["n"] = 1000  # only kept: the model does not see this
    second.insert(0, {"id": "new", "t": "New true 4K", "n": 7})  # all indexes move
    source = jsonl(tmp_path / "in.jsonl", second)
    (tmp_path / "computed").unlink()
    result = run(*extract(source, "--reuse", name, out=name))
    assert result.exit_code == 0, result.stderr
    assert "27 rows reused, 1 new, 1 changed, 2 gone" in result.stderr
    assert set(computed(tmp_path)) == {"new", second[10]["id"]}
    taken = found(name)
    assert taken == whole(run, tmp_path, source, name)
    assert [row["id"] for row in taken] == [row["id"] for row in second]
    if name == "out.jsonl":
        assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()


def test_the_first_night_has_no_table_yet(run: Run, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", made(5))
    result = run(*extract(source, "--reuse", "out.jsonl"))
    assert result.exit_code == 0, result.stderr
    assert "0 rows reused, 5 new, 0 changed, 0 gone" in result.stderr
    refused(run(*extract(source, "--reuse", "typo.jsonl", out="o.jsonl")), "typo.jsonl")
    refused(run(*extract(source, "--reuse", "out.jsonl", out="o.csv")), "same format")


def test_other_settings_take_no_row(run: Run, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", made(5))
    run(*extract(source))
    result = run(*extract(source, "--reuse", "out.jsonl", "--format", "yaml"))
    assert "0 rows reused, 0 new, 5 changed, 0 gone" in result.stderr
    assert set(computed(tmp_path).values()) == {2}


def test_a_table_that_was_changed_by_hand_gives_no_rows(run: Run, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", made(5))
    run(*extract(source))
    table = tmp_path / "out.jsonl"
    table.write_text(table.read_text().replace("Brand1", "Other1"))
    result = run(*extract(source, "--reuse", "out.jsonl"))
    assert "0 rows reused, 0 new, 5 changed, 0 gone" in result.stderr
    assert "Other1" not in table.read_text()


def test_rows_of_a_retry_are_known_by_the_settings_that_made_them(run: Run, tmp_path: Path) -> None:
    texts = [{**row, "t": row["t"] + " hard" * (row["n"] == 2)} for row in made(6)]
    source = jsonl(tmp_path / "in.jsonl", texts)
    run(*extract(source))
    run("extract", "--retry-failed", "out.jsonl", "--format", "yaml")
    result = run(*extract(source, "--reuse", "out.jsonl", "--max-errors", "1"))
    assert "5 rows reused, 0 new, 1 changed, 0 gone" in result.stderr
    assert found("out.jsonl")[2]["attributes"] is None  # as a whole run in JSON has it


def test_repeats_far_apart_are_computed_once(run: Run, tmp_path: Path) -> None:
    texts = made(60)
    for place, of in ((20, 1), (45, 1), (59, 20), (30, 2), (31, 30)):
        texts[place]["t"] = texts[of]["t"]
    texts[3]["t"] = texts[40]["t"] = "hard true 4K"  # fails alike
    source = jsonl(tmp_path / "in.jsonl", texts)
    result = run(*extract(source))
    assert "6 of the rows repeat others and were not computed" in result.stderr
    assert "earlier run" not in result.stderr
    assert computed(tmp_path).total() == 54
    for row, text in zip(found("out.jsonl"), texts, strict=True):
        assert row["id"] == text["id"]
        assert row["kept"] == {"n": text["n"]}
        values, brand = row["attributes"], text["t"].split()[0]
        assert values is None if brand == "hard" else values["brand"] == brand
        assert [*row] == ["id", "index", "kept", "attributes", "errors"]
    assert read_run_record("out.jsonl").summary.repeats == 6


def test_repeats_are_known_by_all_that_the_model_sees(run: Run, tmp_path: Path) -> None:
    """One text under two keys, or of two categories, is no repeat."""
    source = jsonl(
        tmp_path / "in.jsonl",
        [
            {"id": "a", "t": "LG true 4K", "category": "x"},
            {"id": "b", "u": "LG true 4K", "category": "x"},
            {"id": "c", "t": "LG true 4K", "category": "y"},
            {"id": "d", "t": "LG true 4K", "category": "x"},
        ],
    )
    schemas = "x=shop.py:Small,y=shop.py:Small"
    result = run("extract", schemas, source, "--category", "category", "-o", "o.jsonl")
    assert result.exit_code == 0, result.stderr
    assert "1 of the rows repeat" in result.stderr
    assert set(computed(tmp_path)) == {"a", "b", "c"}
    assert [row["schema"] for row in found("o.jsonl")] == ["x", "x", "y", "x"]


@pytest.mark.slow
def test_a_complete_table_is_skipped_refused_or_replaced(run: Run, tmp_path: Path) -> None:
    texts = made(20)
    source = jsonl(tmp_path / "in.jsonl", texts)
    run(*extract(source))
    before = (tmp_path / "out.jsonl").stat().st_mtime_ns
    result = run(*extract(source, "--if-complete", "skip"))
    assert result.exit_code == 0, result.stderr
    assert "out.jsonl is complete and was made the same way: nothing is computed" in result.stderr
    assert "20 rows, 0 failed" in result.stderr
    refused(run(*extract(source, "--if-complete", "error")), "out.jsonl is complete", "20 rows")
    assert (tmp_path / "out.jsonl").stat().st_mtime_ns == before
    assert set(computed(tmp_path).values()) == {1}
    # As many bytes, and the same edges of a large file: the records tell.
    texts[10]["t"] = texts[10]["t"].replace("4K", "5K")
    jsonl(tmp_path / "in.jsonl", texts)
    result = run(*extract(source, "--if-complete", "skip"))
    assert "made otherwise" in result.stderr
    skipped = run(*extract(source, "--if-complete", "skip", "--reuse", "out.jsonl")).stderr
    assert "20 of the rows from an earlier run" in skipped
    assert "rows reused" not in skipped  # those of the run that made the table
    assert set(computed(tmp_path).values()) == {2}
    run(*extract(source, "--if-complete", "replace"))
    assert set(computed(tmp_path).values()) == {3}
    refused(run("extract", SCHEMA, source, "-q", "--if-complete", "skip"), "--if-complete")


def test_skip_reads_all_records(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where beginning, end and size of a file are as they were."""
    replaced(monkeypatch, "bytes of a file's edges", 64)
    texts = made(20)
    source = jsonl(tmp_path / "in.jsonl", texts)
    run(*extract(source))
    texts[10]["t"] = texts[10]["t"].replace("4K", "5K")
    jsonl(tmp_path / "in.jsonl", texts)
    run(*extract(source, "--if-complete", "skip"))
    assert set(computed(tmp_path).values()) == {2}


@pytest.mark.slow
def test_a_merged_table_is_skipped(run: Run, tmp_path: Path) -> None:
    texts = made(20)
    source = jsonl(tmp_path / "in.jsonl", texts)
    for number in range(3):
        run(*extract(source, "--shard", f"{number}/3", out=f"s{number}.jsonl"))
    assert run("merge", "s2.jsonl", "s0.jsonl", "s1.jsonl", "-o", "out.jsonl").exit_code == 0
    result = run(*extract(source, "--if-complete", "skip"))
    assert result.exit_code == 0, result.stderr
    assert "nothing is computed" in result.stderr
    assert set(computed(tmp_path).values()) == {1}
    texts[10]["t"] = texts[10]["t"].replace("4K", "5K")
    jsonl(tmp_path / "in.jsonl", texts)
    assert "nothing is computed" not in run(*extract(source, "--if-complete", "skip")).stderr


@pytest.mark.slow
@pytest.mark.parametrize("moment", slow_but({25}, [2, 25, 48]))
def test_a_kill_loses_no_row_that_was_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    """kill -9 after so many of 60 rows that had to be computed, of a table that is its own."""
    set_part_rows(16, monkeypatch)
    (tmp_path / "shop.py").write_text(DECLARATION)
    monkeypatch.chdir(tmp_path)
    forks = multiprocessing.get_context("fork")

    def job(*more: str, delay: float = 0.0, out: str = "out.jsonl") -> Any:
        started = forks.Process(
            target=stand_in.run, args=((*extract("in.jsonl", *more, out=out), "-q"), delay)
        )
        started.start()
        return started

    texts = made(300)
    jsonl(tmp_path / "in.jsonl", texts)
    job().join()
    before = (tmp_path / "out.jsonl").read_bytes()
    for row in texts[::6]:
        row["t"] = f"Changed{row['n']} true 4K"
    texts[290]["t"] = texts[6]["t"]  # a repeat of one that changed
    jsonl(tmp_path / "in.jsonl", texts)
    (tmp_path / "computed").unlink()
    killed = job("--reuse", "out.jsonl", delay=0.02)
    while not (tmp_path / "computed").exists() or computed(tmp_path).total() < moment:
        time.sleep(0.002)
    killed.kill()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert (tmp_path / "out.jsonl").read_bytes() == before
    job("--reuse", "out.jsonl").join()
    assert computed(tmp_path).total() <= 51  # the one in work at the kill was begun again
    record = read_run_record("out.jsonl").summary
    assert (record.reused, record.changed, record.repeats, record.gone) == (249, 51, 1, 0)
    job(out="whole.jsonl").join()
    assert (tmp_path / "out.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert [row["index"] for row in rows((tmp_path / "out.jsonl").read_text())] == [*range(300)]
    left = sorted(path.name for path in tmp_path.glob("_out*"))
    assert left == ["_out.jsonl.keys", "_out.jsonl.run.json"]


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but({"out.jsonl", "out.parquet"}, FORMATS))
def test_merged_shards_are_the_table_of_one_run(run: Run, tmp_path: Path, name: str) -> None:
    texts = made(30)
    texts[7]["t"] += " hard"
    source = jsonl(tmp_path / "in.jsonl", texts)
    whole_rows = whole(run, tmp_path, source, name)
    shards = [f"s{number}-{name}" for number in range(3)]
    for number, shard in enumerate(shards):
        run(*extract(source, "--shard", f"{number}/3", out=shard))
    pattern = f"s*-{name}"
    result = run("merge", pattern, "-o", name)
    assert result.exit_code == 0, result.stderr
    assert "30 rows, 1 failed" in result.stderr
    assert found(name) == whole_rows
    if name == "out.jsonl":
        assert (tmp_path / name).read_bytes() == (tmp_path / f"whole-{name}").read_bytes()
    record = read_run_record(name)
    assert (record.summary.rows, record.summary.computed) == (30, 30)
    # What one run has written can be retried and reused; so can this.
    texts[2]["t"] = "Changed true 4K"
    jsonl(tmp_path / "in.jsonl", texts)
    result = run(*extract(source, "--reuse", name, "--max-errors", "1", out=name))
    assert "28 rows reused, 0 new, 2 changed, 0 gone" in result.stderr
    # A page of all shards.
    result = run("report", pattern)
    assert result.exit_code == 0, result.stderr
    assert "wrote report.html" in result.stderr
    page = (tmp_path / "report.html").read_text()
    assert all(f"Brand{n}" in page for n in range(3, 30) if n != 7)


def test_merged_shards_may_be_retried(run: Run, tmp_path: Path) -> None:
    texts = [{**row, "t": row["t"] + " hard" * (row["n"] == 3)} for row in made(8)]
    source = jsonl(tmp_path / "in.jsonl", texts)
    for number in range(2):
        run(*extract(source, "--shard", f"{number}/2", out=f"s{number}.csv"))
    assert run("merge", "s0.csv", "s1.csv", "-o", "out.csv").exit_code == 0
    result = run("extract", "--retry-failed", "out.csv", "--format", "yaml")
    assert result.exit_code == 0, result.stderr
    assert found("out.csv")[3]["attributes"]["brand"] == "Brand3"


@pytest.mark.slow
def test_tables_that_do_not_belong_together_are_not_merged(run: Run, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", made(9))
    for number in range(3):
        run(*extract(source, "--shard", f"{number}/3", out=f"s{number}.csv"))
    run(*extract(source, "--shard", "2/3", "--format", "yaml", out="other.csv"))
    merge = ("merge", "-o", "out.csv")
    refused(run(*merge, "s0.csv", "s1.csv"), "missing: 2/3")
    refused(run(*merge, "s0.csv", "s1.csv", "other.csv"), "made differently", "format")
    run(*extract(source, "--shard", "2/3", out="again.csv"))
    refused(run(*merge, "s0.csv", "s1.csv", "s2.csv", "again.csv"), "4 tables are given of 3")
    refused(run("merge", "s0.csv", "s1.csv", "s2.csv", "-o", "out.jsonl"), "same format")
    refused(run("merge", "s0.csv", "s1.csv", "s2.csv", "-o", "s1.csv"), "is one of the tables")
    refused(run("report", "s0.csv", "other.csv"), "made differently")
    assert not (tmp_path / "out.csv").exists()
