"""Parquet files of other writers: old timestamps, intervals, and small files that unfold."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from command_line import SCHEMA, Run, jsonl, refused, rows, stand_in_runner

from schemax.errors import InputError
from schemax.io.readers import read_file


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return stand_in_runner(tmp_path, monkeypatch)


def records(path: Path, table: pyarrow.Table, **options: Any) -> list[Any]:
    """The records of a table that pyarrow has written."""
    pyarrow.parquet.write_table(table, path, **options)
    return list(read_file(str(path)))


@pytest.mark.parametrize(
    ("days", "text"),
    [
        (2_932_896, "9999-12-31T00:00:00"),
        (-719_162, "0001-01-01T00:00:00"),
        (-354_285, "1000-01-01T00:00:00"),
        (0, "1970-01-01T00:00:00"),
    ],
)
def test_old_timestamps_hold_every_year(tmp_path: Path, days: int, text: str) -> None:
    moment = pyarrow.array([days * 86_400_000_000], pyarrow.timestamp("us"))
    nested = pyarrow.ListArray.from_arrays([0, 1], moment)
    box = pyarrow.StructArray.from_arrays([moment], ["made"])
    table = pyarrow.table({"made": moment, "all": nested, "box": box})
    read = records(tmp_path / "in.parquet", table, use_deprecated_int96_timestamps=True)
    assert read == [{"made": text, "all": [text], "box": {"made": text}}]


def test_kept_old_timestamps_are_what_is_shown(run: Run, tmp_path: Path) -> None:
    far = pyarrow.array([253_402_214_400_000_000], pyarrow.timestamp("us"))
    table = pyarrow.table({"t": ["LG true 4K"], "made": far})
    pyarrow.parquet.write_table(
        table, tmp_path / "in.parquet", use_deprecated_int96_timestamps=True
    )
    result = run(
        "extract", SCHEMA, "in.parquet", "--text", "t", "--keep", "made", "-o", "o.parquet"
    )
    assert result.exit_code == 0, result.stderr
    kept = pyarrow.parquet.read_table(tmp_path / "o.parquet")["made"]
    assert (kept.type, str(kept[0])) == (pyarrow.timestamp("us"), "9999-12-31 00:00:00")


UNFOLDING = """
import sys, tracemalloc
import pyarrow
from schemax.io.readers import read_file
tracemalloc.start()
for name in sys.argv[1:]:
    rows = 0
    for record in read_file(name):
        rows += 1
    print(rows, str(record)[:60])
print(pyarrow.default_memory_pool().max_memory() + tracemalloc.get_traced_memory()[1] >> 20)
"""


@pytest.mark.slow
def test_a_small_file_that_unfolds_takes_little_memory(tmp_path: Path) -> None:
    """A value that 2,048 rows have, and a value of 160 MiB."""
    indices = pyarrow.array([0] * 2048, pyarrow.int32())
    often = pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(["x" * (1 << 20)]))
    columns = {"often": often, "long": pyarrow.array(["y" * (160 << 20)])}
    for name, column in columns.items():
        table = pyarrow.table({"t": column})
        place = tmp_path / f"{name}.parquet"
        pyarrow.parquet.write_table(table, place, compression="zstd", store_schema=False)
        assert place.stat().st_size < 1 << 14
    names = [str(tmp_path / f"{name}.parquet") for name in columns]
    command = [sys.executable, "-c", UNFOLDING, *names]
    done = subprocess.run(command, capture_output=True, text=True)
    assert not done.stderr
    of_often, of_long, peak = done.stdout.splitlines()
    assert of_often.startswith("2048 {'t': 'xxx")
    assert of_long.startswith("1 its row group unfolds to 167,77")
    assert int(peak) < 200


def list_of_zeros(items: int) -> pyarrow.Table:
    numbers = pyarrow.array(memoryview(bytes(items)))
    return pyarrow.table({"id": ["a"], "t": pyarrow.ListArray.from_arrays([0, items], numbers)})


def arrow_file(path: Path, table: pyarrow.Table, compression: str | None) -> Path:
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    new = pyarrow.ipc.new_stream if compression == "lz4" else pyarrow.ipc.new_file
    with new(path, table.schema, options=options) as writer:
        writer.write_table(table)
    return path


def test_a_parquet_list_that_unfolds_is_refused_with_its_column(tmp_path: Path) -> None:
    """Its items are runs of equal ones, which take no bytes in the file."""
    (error,) = records(tmp_path / "in.parquet", list_of_zeros(20_000_000))
    assert isinstance(error, InputError)
    assert re.match(r"its row group unfolds to 160,0\d\d,\d{3} bytes, in a file of", str(error))
    assert str(error).endswith("the column 't' is the largest")
    (record,) = records(tmp_path / "in.parquet", list_of_zeros(100_000))
    assert record == {"id": "a", "t": [0] * 100_000}


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_an_arrow_file_that_unfolds_is_refused(tmp_path: Path, compression: str, run: Run) -> None:
    arrow_file(tmp_path / "in.arrow", list_of_zeros(20_000_000), compression)
    result = run("extract", SCHEMA, "in.arrow", "--text", "t", "-o", "out.jsonl")
    refused(result, "cannot read in.arrow")
    refused(result, "a batch of")


@pytest.mark.parametrize("made", ["dictionary", "runs"])
def test_a_text_that_many_rows_have_is_read_row_by_row(tmp_path: Path, made: str) -> None:
    text = "x" * (4 << 20)
    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 500), pyarrow.array([text]))
    if made == "runs":
        runs = pyarrow.array([500], pyarrow.int32())
        column = pyarrow.RunEndEncodedArray.from_arrays(runs, pyarrow.array([text]))
    place = arrow_file(tmp_path / "in.arrow", pyarrow.table({"t": column}), None)
    tracemalloc.start()
    assert sum(record == {"t": text} for record in islice(read_file(str(place)), 20)) == 20
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40 << 20


def test_maps_of_all_rows_are_read(tmp_path: Path) -> None:
    kind = pyarrow.map_(pyarrow.string(), pyarrow.int8())
    column = pyarrow.array([[("a", 1)], None, [("b", 2), ("c", 3)]], kind)
    assert records(tmp_path / "in.parquet", pyarrow.table({"t": column})) == [
        {"t": [["a", 1]]},
        {"t": None},
        {"t": [["b", 2], ["c", 3]]},
    ]


def test_a_footer_with_more_rows_than_the_file_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"t": [f"LG {n}" for n in range(1000)]}), place)
    whole = place.read_bytes()
    footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    lies = whole[footer:].replace(b"\xd0\x0f", b"\x80\x7d")  # 1,000 and 8,000 as numbers of Thrift
    place.write_bytes(whole[:footer] + lies)
    rows = read_file(str(place))
    assert len(list(islice(rows, 1000))) == 1000
    with pytest.raises(InputError, match=r"in\.parquet any further: 7,000 of its rows are missing"):
        next(rows)


def test_intervals_are_read_or_refused_before_the_first_row(run: Run, tmp_path: Path) -> None:
    span = pyarrow.array([pyarrow.MonthDayNano([14, 3, 1_500_000_000])])
    table = pyarrow.table({"t": ["LG true 4K"], "span": span})
    with pyarrow.ipc.new_file(tmp_path / "in.arrow", table.schema) as writer:
        writer.write_table(table)
    first: Any = next(read_file(str(tmp_path / "in.arrow")))
    assert first["span"] == "P14M3DT1.5S"
    duckdb = pytest.importorskip("duckdb")
    duckdb.sql(f"COPY (SELECT 'LG true 4K' t, INTERVAL 1 month span) TO '{tmp_path}/in.parquet'")
    said = "the column 'span' holds intervals, which pyarrow cannot read"
    refused(run("extract", SCHEMA, "in.parquet", "-o", "out.jsonl"), said)
    result = run("extract", SCHEMA, "in.parquet", "--text", "t", "-o", "out.jsonl")
    assert result.exit_code == 0, result.stderr


def test_kept_texts_of_any_layout_are_texts(run: Run, tmp_path: Path) -> None:
    texts = pyarrow.array(["a", "b"])
    kinds = pyarrow.array([0, 1], pyarrow.int8())
    columns = {
        "runs": pyarrow.compute.run_end_encode(texts),
        "union": pyarrow.UnionArray.from_sparse(kinds, [texts, pyarrow.array([1, 2])]),
        "view": texts.cast(pyarrow.string_view()),
        "uuid": pyarrow.array([b"0123456789abcdef"] * 2, pyarrow.uuid()),
    }
    table = pyarrow.table({"t": ["LG true 4K", "LG true 4K"], **columns})
    with pyarrow.ipc.new_file(tmp_path / "in.arrow", table.schema) as writer:
        writer.write_table(table)
    keep = ",".join(columns)
    result = run("extract", SCHEMA, "in.arrow", "--text", "t", "--keep", keep, "-o", "out.parquet")
    assert result.exit_code == 0, result.stderr
    kept = pyarrow.parquet.read_table(tmp_path / "out.parquet").select([*columns])
    uuid = "30313233-3435-3637-3839-616263646566"
    assert list(map(list, map(dict.values, kept.to_pylist()))) == [
        ["a", "a", "a", uuid],
        ["b", "2", "b", uuid],
    ]


@pytest.mark.parametrize("depth", [490, 990])
def test_a_deeply_nested_row_costs_itself(run: Run, tmp_path: Path, depth: int) -> None:
    deep: Any = []
    for _ in range(depth):
        deep = [deep]
    made = [{"id": "a", "t": "LG true 4K", "v": deep}, {"id": "b", "t": "LG true 4K", "v": 1}]
    sys.setrecursionlimit(3000)
    jsonl(tmp_path / "in.jsonl", made)
    sys.setrecursionlimit(1000)
    result = run("extract", SCHEMA, "in.jsonl", "--text", "t", "--keep", "v", "-o", "out.jsonl")
    assert result.exit_code == 1, result.stderr
    first, second = rows((tmp_path / "out.jsonl").read_text())
    assert first["attributes"] is None
    assert second["attributes"]["brand"] == "LG"
