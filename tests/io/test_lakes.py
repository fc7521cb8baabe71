"""Tables of Delta Lake and Iceberg: rows are added in one commit, each once."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
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

from schemax.errors import InputError
from schemax.io.readers import InputFiles

MOMENTS = ("commit", "committed", "removal")
KINDS = {"delta": "out.delta", "iceberg": "iceberg://shop/night.televisions"}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    set_part_rows(8, monkeypatch)
    return stand_in_runner(tmp_path, monkeypatch)


@pytest.fixture(params=KINDS)
def name(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[request.param])
    if request.param == "iceberg":
        pytest.importorskip("sqlalchemy")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__TYPE", "sql")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__URI", f"sqlite:///{tmp_path}/catalogue.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__SHOP__WAREHOUSE", f"file://{tmp_path}/warehouse")
    (tmp_path / "warehouse").mkdir()
    if request.param == "iceberg":  # which reads its settings once in a process
        from pyiceberg.utils.config import Config

        monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    return KINDS[request.param]


def made(count: int = 20, start: int = 0) -> list[dict[str, Any]]:
    there = range(start, start + count)
    return [{"id": f"r{n}", "t": f"Brand{n} true 4K", "n": n} for n in there]


def extract(name: str, *more: str) -> tuple[str, ...]:
    return ("extract", SCHEMA, "in.jsonl", "--text", "t", "--keep", "n", "-o", name, *more)


def read(name: str) -> pyarrow.Table:
    """By the package of the table's kind; no rows where there is no table."""
    if name.endswith(".delta"):
        from deltalake import DeltaTable

        if not DeltaTable.is_deltatable(name):
            return pyarrow.table({"index": [], "id": []})
        return pyarrow.table(DeltaTable(name).to_pyarrow_table())
    from pyiceberg.catalog import load_catalog

    with load_catalog("shop") as catalog:
        if not catalog.table_exists("night.televisions"):
            return pyarrow.table({"index": [], "id": []})
        return catalog.load_table("night.televisions").scan().to_arrow()


@pytest.mark.slow
def test_runs_add_their_rows(run: Run, tmp_path: Path, name: str) -> None:
    jsonl(tmp_path / "in.jsonl", made())
    result = run(*extract(name, "--details"))
    assert result.exit_code == 0, result.stderr
    first = read(name).sort_by("index")
    assert first["id"].to_pylist() == [f"r{n}" for n in range(20)]
    assert first["brand"].to_pylist() == [f"Brand{n}" for n in range(20)]
    assert set(first["resolution"].to_pylist()) == {"4K"}
    assert set(first["smart"].to_pylist()) == {True}
    assert first["n"].to_pylist() == list(range(20))
    assert first["brand__span"][3].as_py()["end"] == 6
    (left,) = tmp_path.glob("_*")
    assert left.name.endswith(".run.json")
    jsonl(tmp_path / "in.jsonl", made(5, 20))
    assert run(*extract(name, "--details")).exit_code == 0
    assert sorted(read(name)["id"].to_pylist()) == sorted(f"r{n}" for n in range(25))


def test_a_complete_run_is_skipped(run: Run, tmp_path: Path, name: str) -> None:
    jsonl(tmp_path / "in.jsonl", made())
    run(*extract(name))
    result = run(*extract(name, "--if-complete", "skip"))
    assert "nothing is computed" in result.stderr
    assert len(read(name)) == 20
    assert set(computed(tmp_path).values()) == {1}
    result = run(*extract(name, "--if-complete", "error"))
    assert result.exit_code == 2


def test_what_cannot_be_added_is_refused_before_rows_are_computed(
    run: Run, tmp_path: Path, name: str
) -> None:
    jsonl(tmp_path / "in.jsonl", made())
    run(*extract(name))
    for more, said in (
        (("--details",), "its columns are others: the table lacks "),
        (("--keep", "t"), "its columns are others: the table lacks t, this run lacks n; name"),
        (("--reuse", name), "--reuse takes rows for a file"),
    ):
        result = run(*extract(name, *more))
        assert (result.exit_code, said in result.stderr) == (2, True), result.stderr
    result = run("extract", "--retry-failed", name)
    assert (result.exit_code, "--retry-failed, --reuse" in result.stderr) == (2, True)
    assert set(computed(tmp_path).values()) == {1}
    assert len(read(name)) == 20


def test_without_the_package_the_extra_is_named(
    run: Run, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra, module = ("delta", "deltalake") if "delta" in name else ("iceberg", "pyiceberg.catalog")
    monkeypatch.setitem(sys.modules, module, None)
    jsonl(tmp_path / "in.jsonl", made(2))
    result = run(*extract(name))
    assert result.exit_code == 2
    assert f".[{extra}]" in result.stderr


@pytest.mark.slow
def test_a_new_delta_table_is_divided_and_a_whole_one_read(run: Run, tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    jsonl(tmp_path / "in.jsonl", made(6))
    assert run(*extract("parts.delta", "--partition-by", "n")).exit_code == 0
    assert deltalake.DeltaTable("parts.delta").metadata().partition_columns == ["n"]
    other = run(*extract("parts.delta", "--partition-by", "brand"))
    refused(other, "parts.delta: it is divided by n, not by brand; leave --partition-by out")
    run(*extract("whole.delta"))
    again = ("extract", SCHEMA, "whole.delta", "--text", "brand,resolution", "-o", "again.jsonl")
    result = run(*again)
    assert result.exit_code == 0, result.stderr
    assert len((tmp_path / "again.jsonl").read_text().splitlines()) == 6
    result = run(
        "extract", SCHEMA, "parts.delta", "--text", "brand", "--keep", "n", "-o", "n.jsonl"
    )
    assert result.exit_code == 0, result.stderr
    kept = [row["kept"]["n"] for row in rows((tmp_path / "n.jsonl").read_text())]
    assert sorted(kept) == list(range(6))


def log(folder: Path, fields: list[Any], *actions: Any, **protocol: Any) -> str:
    """A Delta table of one version, as another writer makes it."""
    metadata = {
        "id": "7c6b",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["day"],
        "configuration": {
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": "9",
        },
        "createdTime": 0,
    }
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5, **protocol}
    lines = [{"protocol": protocol}, {"metaData": metadata}, *({"add": each} for each in actions)]
    (folder / "_delta_log").mkdir(parents=True)
    text = "\n".join(map(json.dumps, lines))
    (folder / "_delta_log" / f"{0:020}.json").write_text(text)
    return str(folder)


def mapped(number: int, name: str, kind: Any) -> dict[str, Any]:
    names = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"col-{number}"}
    return {"name": name, "type": kind, "nullable": True, "metadata": names}


def test_columns_have_the_names_that_the_table_declares(tmp_path: Path) -> None:
    """Also in structs, of partitions and where a file is older than a column."""
    pytest.importorskip("deltalake")
    folder = tmp_path / "mapped.delta"
    box = {"type": "struct", "fields": [mapped(3, "width", "long"), mapped(4, "made", "timestamp")]}
    boxes = {"type": "array", "containsNull": True, "elementType": box}
    fields = [mapped(1, "id", "long"), mapped(2, "boxes", boxes)]
    fields += [mapped(5, "day", "date"), mapped(6, "new", "string")]
    far = datetime(9999, 12, 31)
    inner = pyarrow.struct([("col-3", pyarrow.int32()), ("col-4", pyarrow.timestamp("us"))])
    values = pyarrow.array([[{"col-3": 5, "col-4": far}], None], pyarrow.list_(inner))
    folder.mkdir()
    pyarrow.parquet.write_table(
        pyarrow.table({"col-1": [1, 2], "col-2": values}),
        folder / "a.parquet",
        use_deprecated_int96_timestamps=True,
    )
    size = (folder / "a.parquet").stat().st_size
    add = {"path": "a.parquet", "size": size, "modificationTime": 1, "dataChange": True}
    name = log(folder, fields, {**add, "partitionValues": {"col-5": "2024-05-06"}})
    source = InputFiles.of([name], columns=("id", "boxes", "day", "new"), required=[("new",)])
    boxed = [{"width": 5, "made": "9999-12-31T00:00:00+00:00"}]
    assert [record for _, record in source.rows()] == [
        {"id": 1, "boxes": boxed, "day": "2024-05-06", "new": None},
        {"id": 2, "boxes": None, "day": "2024-05-06", "new": None},
    ]


def test_a_table_without_rows_and_one_with_a_bad_log(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("deltalake")
    log(tmp_path / "empty.delta", [mapped(1, "t", "string"), mapped(5, "day", "date")])
    result = run("extract", SCHEMA, "empty.delta", "--text", "t", "-o", "out.jsonl")
    assert (result.exit_code, (tmp_path / "out.jsonl").read_text()) == (0, ""), result.stderr
    log(
        tmp_path / "bad.delta", [mapped(1, "t", "string")], minReaderVersion=5, readerFeatures=["v"]
    )
    refused(run("extract", SCHEMA, "bad.delta", "-o", "out.jsonl"), "cannot use bad.delta: ")


def test_a_version_stays_what_it_is(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    name = str(tmp_path / "grows.delta")
    deltalake.write_deltalake(name, pyarrow.table({"n": [1]}))
    source = InputFiles.of([name])
    deltalake.write_deltalake(name, pyarrow.table({"n": [2]}), mode="append")
    assert [record for _, record in source.rows()] == [{"n": 1}]
    assert source.files == (f"{name}@v0",)
    with pytest.raises(InputError, match="the latest version is 1"):
        InputFiles.of([f"{name}@v2"])
    assert InputFiles.of([name]).files == (f"{name}@v1",)


@pytest.mark.slow
@pytest.mark.parametrize("moment", slow_but({"commit"}, MOMENTS))
def test_a_killed_run_adds_each_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, moment: str
) -> None:
    """kill -9 right before the commit, behind it, and while parts are removed."""
    set_part_rows(8, monkeypatch)
    (tmp_path / "shop.py").write_text(DECLARATION)
    monkeypatch.chdir(tmp_path)
    spawns = multiprocessing.get_context("spawn")

    def job(moment: str | None = None) -> Any:
        started = spawns.Process(target=killed_at, args=(moment, (*extract(name), "-q")))
        started.start()
        started.join()
        return started.exitcode

    jsonl(tmp_path / "in.jsonl", made())
    assert job(moment) == -signal.SIGKILL
    assert len(read(name)) == (0 if moment == "commit" else 20)
    assert job() == 0
    assert sorted(read(name)["index"].to_pylist()) == list(range(20))
    assert set(computed(tmp_path).values()) == {1}
    assert not list(tmp_path.glob("_*.parts"))


def killed_at(moment: str | None, args: tuple[str, ...]) -> None:
    """A run in this process that is killed in front of or behind one of its steps."""
    from schemax.io import checkpoint, lake

    def kill(*_: Any, **__: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def behind(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepped(*args: Any, **options: Any) -> None:
            step(*args, **options)
            kill()

        return stepped

    for kind in (lake.DeltaTable, lake.IcebergTable):
        if moment == "commit":
            kind.append = kill  # type: ignore[method-assign]
        elif moment == "committed":
            kind.append = behind(kind.append)  # type: ignore[method-assign]
    if moment == "removal":
        checkpoint.Checkpoint.remove = kill  # type: ignore[method-assign]
    stand_in.run(args, 0.0)
