"""`--partition-by`: a table as a folder of Parquet, one folder in it for each value."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pandas
import polars
import pyarrow.dataset
import pyarrow.parquet
import pytest
import stand_in
from command_line import (
    DECLARATION,
    SCHEMA,
    Run,
    computed,
    jsonl,
    set_part_rows,
    stand_in_runner,
)
from conftest import slow_but

from schemax.io import partitions
from schemax.io.finished import read_results, read_run_record
from schemax.io.readers import InputFiles

CATEGORIES = ["Shoes", "a/b=c", "🧪 Über", None, 'q"uo%te', "50%", "", "{x}[y]^:'#*?\\"]
LEFT = ["_out.keys", "_out.run.json", "out"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    set_part_rows(8, monkeypatch)
    return stand_in_runner(tmp_path, monkeypatch)


def made(count: int = 40) -> list[dict[str, Any]]:
    chosen = len(CATEGORIES)
    return [
        {"id": f"r{n}", "t": f"Brand{n} true 4K", "n": n, "category": CATEGORIES[n % chosen]}
        for n in range(count)
    ]


def extract(*more: str, out: str = "out", by: str = "category") -> tuple[str, ...]:
    first = ("extract", SCHEMA, "in.jsonl", "--text", "t", "--keep", "n")
    return (*first, "--partition-by", by, "-o", out, *more)


def files(folder: Path) -> dict[str, bytes]:
    there = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in there}


def found(name: str) -> list[dict[str, Any]]:
    return list(read_results(name, read_run_record(name).table))


def stopped(result: Any, *said: str) -> None:
    """Exit status 2 and these words; notes may stand before them."""
    assert result.exit_code == 2, result.output
    assert all(words in result.stderr.splitlines()[-1] for words in said), result.stderr


def expected(rows: list[dict[str, Any]]) -> list[tuple[int, str, str | None]]:
    return [(n, row["t"].split()[0], row["category"] or None) for n, row in enumerate(rows)]


def test_readers_find_all_rows_with_their_partitions(run: Run, tmp_path: Path) -> None:
    rows = made()
    jsonl(tmp_path / "in.jsonl", rows)
    result = run(*extract("--rows-per-file", "3"))
    assert result.exit_code == 0, result.stderr
    assert sorted(path.name for path in tmp_path.glob("*out*")) == LEFT
    names = files(tmp_path / "out")
    assert "category=Shoes/part-1.parquet" in names
    assert "category=a%2Fb%3Dc/part-0.parquet" in names
    assert "category=🧪 Über/part-0.parquet" in names
    assert f"category={partitions.NULL}/part-3.parquet" in names  # null and empty: ten rows
    sizes = [pyarrow.parquet.read_metadata(tmp_path / "out" / name).num_rows for name in names]
    assert sum(sizes) == 40
    assert max(sizes) == 3
    wanted = expected(rows)
    # As dictionaries, which it makes of them unless told otherwise, pandas takes no nulls.
    texts = pyarrow.dataset.partitioning(flavor="hive")
    arrow = pyarrow.dataset.dataset("out", partitioning="hive").to_table()
    many = {
        "pyarrow": arrow.to_pylist(),
        "pandas": pandas.read_parquet("out", partitioning=texts).astype(object).to_dict("records"),
        "polars": polars.scan_parquet("out", hive_partitioning=True).collect().to_dicts(),
        "schemax": [{**row["attributes"], **row["kept"], **row} for row in found("out")],
    }
    for reader, read in many.items():
        read.sort(key=lambda row: row["index"])
        told = [
            (r["index"], r["brand"], None if pandas.isna(r["category"]) else r["category"])
            for r in read
        ]
        assert told == wanted, reader
    assert [row["n"] for row in many["pyarrow"]] == list(range(40))


def test_duckdb_finds_all_rows(run: Run, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    rows = made()
    jsonl(tmp_path / "in.jsonl", rows)
    run(*extract())
    query = (
        'SELECT "index", brand, category FROM read_parquet(?, hive_partitioning=true) ORDER BY 1'
    )
    with duckdb.connect() as connection:
        there = connection.execute(query, ["out/**/*.parquet"]).fetchall()
    assert there == expected(rows)


def test_fields_of_several_types_divide_a_table(run: Run, tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl", [*made(10), {"id": "bad", "t": "very hard", "n": 3}])
    result = run(*extract("--max-errors", "1", by="smart,resolution,n"))
    assert result.exit_code == 0, result.stderr
    names = files(tmp_path / "out")
    assert "smart=true/resolution=4K/n=7/part-0.parquet" in names
    null = partitions.NULL
    assert f"smart={null}/resolution={null}/n=3/part-0.parquet" in names
    rows = found("out")
    assert [row["kept"]["n"] for row in rows] == [*range(10), 3]
    assert rows[7]["attributes"] == {"brand": "Brand7", "smart": True, "resolution": "4K"}
    assert rows[10]["attributes"] is None
    run(*extract("--reuse", "out", "--max-errors", "1", by="smart,resolution,n"))
    assert found("out") == rows
    assert read_run_record("out").summary.reused == 10


def test_unchanged_rows_are_taken_of_a_folder(run: Run, tmp_path: Path) -> None:
    rows = made()
    jsonl(tmp_path / "in.jsonl", rows)
    run(*extract())
    rows[5]["t"] = "Changed false 720p"
    rows[6]["category"] = "Moved"  # not shown to the model: the row moves, and is not computed
    del rows[8]
    jsonl(tmp_path / "in.jsonl", rows)
    (tmp_path / "computed").unlink()
    result = run(*extract("--reuse", "out"))
    assert result.exit_code == 0, result.stderr
    assert "38 rows reused, 0 new, 1 changed, 1 gone" in result.stderr
    assert set(computed(tmp_path)) == {"r5"}
    run(*extract(out="whole"))
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    assert found("out") == found("whole")


def test_a_complete_folder_is_skipped_refused_or_replaced(run: Run, tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl", made())
    run(*extract())
    result = run(*extract("--if-complete", "skip"))
    assert "nothing is computed" in result.stderr
    assert set(computed(tmp_path).values()) == {1}
    stopped(run(*extract("--if-complete", "error")), "out is complete")
    result = run(*extract("--if-complete", "skip", "--rows-per-file", "2"))
    assert "rows per file was 1000000, is 2" in result.stderr
    assert "category=Shoes/part-2.parquet" in files(tmp_path / "out")


def test_failed_rows_of_a_folder_are_done_again_and_reported(run: Run, tmp_path: Path) -> None:
    rows = made(12)
    rows[4]["t"] += " hard"
    jsonl(tmp_path / "in.jsonl", rows)
    assert run(*extract()).exit_code == 1
    result = run("extract", "--retry-failed", "out", "--format", "yaml")
    assert result.exit_code == 0, result.stderr
    assert [row["attributes"]["brand"] for row in found("out")] == [f"Brand{n}" for n in range(12)]
    result = run("report", "out")
    assert result.exit_code == 0, result.stderr
    assert "Brand11" in (tmp_path / "out.html").read_text()


@pytest.mark.slow
def test_what_is_no_table_of_a_run_stays(run: Run, tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl", made(4))
    (tmp_path / "out").mkdir()
    (tmp_path / "out/mine.txt").write_text("mine")
    stopped(run(*extract()), "holds files that no run with --partition-by has written")
    assert (tmp_path / "out/mine.txt").read_text() == "mine"
    stopped(run(*extract(out="in.jsonl")), "writes a folder")
    stopped(run(*extract(out="o.csv")), "a folder of Parquet")
    stopped(run(*extract(out="s3://shop/out")), "local folder")
    stopped(run(*extract(by="categry")), "--partition-by (partition_by=) names 'categry', perhaps")
    named = run("extract", SCHEMA, "in.jsonl", "-o", "out")
    stopped(named, "out: it is a folder; name a file, or partition the table")
    stopped(run(*extract(by="index")), "not id and index")
    stopped(run("extract", SCHEMA, "in.jsonl", "--rows-per-file", "3", "-o", "o"), "partition_by")
    stopped(run("extract", SCHEMA, "in.jsonl", "--partition-by", "category"), "-o")


def test_a_value_that_is_too_long_keeps_finished_rows(run: Run, tmp_path: Path) -> None:
    rows = made(4)
    rows[2]["category"] = "x" * 300
    jsonl(tmp_path / "in.jsonl", rows)
    result = run(*extract())
    assert result.exit_code == 2, result.stderr
    assert "has at most some 200 characters" in result.stderr
    assert not (tmp_path / "out").exists()
    result = run(*extract("--keep", "category,n", by="resolution"))
    assert "keep was" in result.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", slow_but({79, 100}, sorted({79, *range(1, 112, 9)})))
def test_a_kill_before_any_operation_on_files_leaves_a_whole_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """kill -9 at that operation of a run that replaces a table, which then goes on."""
    set_part_rows(4, monkeypatch)
    (tmp_path / "shop.py").write_text(DECLARATION)
    monkeypatch.chdir(tmp_path)
    forks = multiprocessing.get_context("fork")

    def job(kill: int | None = None, *more: str, out: str = "out") -> Any:
        started = forks.Process(target=killed_at, args=(kill, (*extract(*more, out=out), "-q")))
        started.start()
        started.join()
        return started.exitcode

    rows = made(9)
    jsonl(tmp_path / "in.jsonl", rows)
    assert job() == 0
    before = found("out")
    rows[3]["t"] = "Changed true 4K"
    jsonl(tmp_path / "in.jsonl", rows)
    killed = job(number, "--reuse", "out") == -signal.SIGKILL
    if killed and (tmp_path / "out").exists():  # else it is put back by the next run
        there = pyarrow.dataset.dataset("out", partitioning="hive").to_table()
        assert sorted(there["index"].to_pylist()) == list(range(9))
    assert job(None, "--reuse", "out") == 0
    assert job(None, out="whole") == 0
    assert found("out") == found("whole") != before
    assert files(tmp_path / "out") == files(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.glob("*out*")) == LEFT


def killed_at(number: int | None, args: tuple[str, ...]) -> None:
    done = 0

    def hook(event: str, values: tuple[Any, ...]) -> None:
        nonlocal done
        if event in ("open", "os.mkdir", "os.remove", "os.rename", "os.rmdir"):
            done += "out" in str(values[0]) or event in ("os.remove", "os.rmdir")
            if done == number:
                os.kill(os.getpid(), signal.SIGKILL)

    if number is not None:
        import sys

        sys.addaudithook(hook)
    stand_in.run(args, 0.0)


def test_a_folder_in_partitions_is_an_input(run: Run, tmp_path: Path) -> None:
    """Also as JSON Lines; a file's own column of the name stays."""
    made = {"category=a%20b": {"id": 1, "t": "LG"}, "category=x": {"id": 2, "category": "own"}}
    for folder, record in made.items():
        (tmp_path / "hive" / folder).mkdir(parents=True)
        jsonl(tmp_path / "hive" / folder / "part.jsonl", [record])
    for name in ("hive", "hive/*/*.jsonl"):
        source = InputFiles.of([str(tmp_path / name)])
        assert [record for _, record in source.rows()] == [
            {"category": "a b", "id": 1, "t": "LG"},
            {"category": "own", "id": 2},
        ]
        assert source.there == ("category", "id", "t")
