"""Lines, cells and parts have bounds: what is beyond costs its row, not the machine's memory."""

from __future__ import annotations

import gzip
import io
import json
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
from command_line import SCHEMA, Run, jsonl, rows, set_part_rows, stand_in_runner

from schemax.errors import InputError
from schemax.io import resumable
from schemax.io.checkpoint import Checkpoint
from schemax.io.readers import InputFiles, read_file
from schemax.io.records import LONGEST, bounded_lines
from schemax.io.resumable import ResumableRun
from schemax.io.rows import RowForm


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return stand_in_runner(tmp_path, monkeypatch)


def told(records: Iterator[Any]) -> list[str]:
    """Of every record its id, or why it has none."""
    return [str(one) if isinstance(one, InputError) else str(one["id"]) for one in records]


@pytest.fixture
def peak() -> Iterator[Any]:
    """How many MiB Python has taken at most."""
    tracemalloc.start()
    yield lambda: tracemalloc.get_traced_memory()[1] >> 20
    tracemalloc.stop()


def test_lines_are_bounded() -> None:
    lines = [b"a\n", b"b" * (LONGEST + 1) + b"\n", b"\n", b"c" * LONGEST + b"\n", b"d" * 5]
    found = list(bounded_lines(io.BytesIO(b"".join(lines))))
    assert found == [lines[0], None, *lines[2:]]
    for length, is_whole in ((0, True), (1, False), (LONGEST, False), (LONGEST + 2, False)):
        data = b"d" * (LONGEST + length)
        for end in (b"", b"\n"):
            found = list(bounded_lines(io.BytesIO(data + end + b"e")))
            expected = data + end if end else data + b"e"
            assert found[0] == (expected if is_whole and end else None)
            assert found[1:] == ([b"e"] if end else [])


@pytest.mark.slow
@pytest.mark.parametrize("place", ["{}/in.jsonl.gz", "{}/in.jsonl.zst", "memory://in.jsonl.gz"])
def test_a_long_line_in_a_small_file_costs_its_row(tmp_path: Path, place: str, peak: Any) -> None:
    text = b'{"id": 1}\n{"id": 2, "t": "%s"}\n\n{"id": 4}\n' % (b"x" * (100 << 20))
    packed = (
        pyarrow.compress(text, "zstd", asbytes=True)
        if place.endswith("zst")
        else gzip.compress(text, 1)
    )
    name = place.format(tmp_path)
    with fsspec.open(name, "wb") as handle:
        handle.write(packed)
    del text
    before = peak()
    tracemalloc.reset_peak()
    assert told(read_file(name)) == ["1", "line 2: longer than 16 MiB", "4"]
    assert before > 100
    assert peak() < 80
    fsspec.filesystem("memory").store.clear()


@pytest.mark.slow
def test_a_long_row_of_csv_costs_itself(tmp_path: Path, peak: Any) -> None:
    long = "y" * (40 << 20)
    parts = ["id,t\n1,a\n", f"2,{long}\n", "3,b\n", f'4,"{long}\n""\n{long}"\n', '5,"c\nd"\n6,e']
    (tmp_path / "in.csv.gz").write_bytes(gzip.compress("".join(parts).encode(), 1))
    del long, parts
    tracemalloc.reset_peak()
    assert told(read_file(str(tmp_path / "in.csv.gz"))) == [
        *("1", "line 3: longer than 16 MiB", "3", "line 7: longer than 16 MiB", "5", "6")
    ]
    assert peak() < 200


@pytest.mark.slow
def test_a_quote_that_stays_open_in_a_large_file_takes_no_memory(tmp_path: Path, peak: Any) -> None:
    lines = "".join(f"{n},{'z' * 1000}\n" for n in range(60_000))
    (tmp_path / "in.csv").write_text(f'id,t\n1,a\n2,"b\n{lines}')
    del lines
    tracemalloc.reset_peak()
    records = read_file(str(tmp_path / "in.csv"))
    assert next(records) == {"id": "1", "t": "a"}
    with pytest.raises(InputError, match="a quote in line 3 is not closed"):
        next(records)
    assert peak() < 120
    (tmp_path / "in.csv").write_text("x" * (LONGEST + 1))
    with pytest.raises(InputError, match="its header is in line 1: longer than 16 MiB"):
        next(read_file(str(tmp_path / "in.csv")))


@pytest.mark.parametrize("name", ["in.parquet", "in.arrow"])
def test_a_long_cell_costs_its_row(tmp_path: Path, name: str) -> None:
    table = pyarrow.table({"id": ["1", "2", "3"], "t": ["a", "x" * (LONGEST + 1), "b"]})
    if name == "in.parquet":
        pyarrow.parquet.write_table(table, tmp_path / name)
    else:
        pyarrow.feather.write_feather(table, str(tmp_path / name))
    found = told(read_file(str(tmp_path / name)))
    assert found == ["1", "column 't' holds a text longer than 16 MiB", "3"]


@pytest.mark.parametrize("name", ["in.parquet", "in.arrow"])
def test_large_cells_are_not_all_in_memory(tmp_path: Path, name: str, peak: Any) -> None:
    table = pyarrow.table({"id": range(100), "t": [str(n) * (1 << 20) for n in range(10)] * 10})
    if name == "in.parquet":
        pyarrow.parquet.write_table(table, tmp_path / name)
    else:
        pyarrow.feather.write_feather(table, str(tmp_path / name))
    tracemalloc.reset_peak()
    assert told(read_file(str(tmp_path / name))) == [str(n) for n in range(100)]
    assert peak() < 80


@pytest.mark.slow
def test_a_compressed_file_is_read_in_linear_time(tmp_path: Path) -> None:
    """In CPU time, the least of several, which other work on the machine does not change much."""
    taken = {}
    for size in (1, 8):
        place = tmp_path / f"{size}.jsonl.zst"
        place.write_bytes(
            pyarrow.compress(b'"LG true 4K"\n' * (20_000 * size), "zstd", asbytes=True)
        )
        times = []
        for _ in range(3):
            started = time.process_time()
            assert sum(1 for _ in read_file(str(place))) == 20_000 * size
            times.append(time.process_time() - started)
        taken[size] = min(times)
    assert taken[8] < 24 * taken[1]  # 64 times, were it quadratic


def test_parts_are_bounded_by_what_their_records_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resumable, "PART_LENGTH", 2000)
    set_part_rows(100, monkeypatch)
    made = [{"id": n, "t": "x" * (1500 if n in (3, 4) else 10)} for n in range(300)]
    source = InputFiles.of([jsonl(tmp_path / "in.jsonl", made)])
    run = ResumableRun(source, Checkpoint(str(tmp_path / "out.jsonl")), RowForm(), True)
    parts = list(run.batches({}))
    rows_of = [[row.index for row in part.pending] for part in parts]
    assert [index for part in rows_of for index in part] == list(range(300))
    assert rows_of[0] == [0, 1, 2, 3, 4]
    assert all(len({index // 100 for index in part}) == 1 for part in rows_of)
    lengths = [len(json.dumps(record)) for record in made]
    assert all(sum(lengths[index] for index in part[:-1]) < 2000 for part in rows_of)
    assert len(rows_of) < 12
    assert parts == list(run.batches({}))


def test_what_is_too_long_is_a_failed_row(run: Run, tmp_path: Path) -> None:
    text = json.dumps({"id": "b", "t": "x" * LONGEST})
    (tmp_path / "in.jsonl").write_text(f'{{"id": "a", "t": "LG true 4K"}}\n{text}\n"LG true 4K"\n')
    result = run("extract", SCHEMA, "in.jsonl", "-o", "out.jsonl")
    assert result.exit_code == 1
    assert "failed: record 1: line 2: longer than 16 MiB" in result.stderr
    found = rows((tmp_path / "out.jsonl").read_text())
    assert [row["attributes"] is None for row in found] == [False, True, False]
