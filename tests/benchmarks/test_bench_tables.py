"""`python -m benchmarks tables`: what runs over tables cost beside the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import tables as table_costs
from benchmarks.__main__ import app
from benchmarks.tables import run_apart, run_without_model, write_rows
from schemax.io.readers import read_file


@pytest.mark.parametrize("format", [".parquet", ".jsonl", ".csv"])
def test_a_run_without_a_model_is_a_whole_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(table_costs, "BATCH", 20)
    write_rows(tmp_path / f"in{format}", 50)
    made = list(read_file(f"in{format}"))
    assert len({str(record) for record in made}) == 50
    seconds, _ = run_without_model(str(tmp_path), format, 50)
    assert seconds > 0
    found = [row for row in read_file(f"out{format}") if isinstance(row, dict)]
    assert [row["id"] for row in found] == [f"row-{n}" for n in range(50)]
    attributes = found[0].get("attributes", found[0])
    assert attributes["brand"] == "Northfell"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"_out{format}.keys",
        f"_out{format}.run.json",
        f"in{format}",
        f"out{format}",
    ]


@pytest.mark.release
def test_memory_does_not_grow_with_rows() -> None:
    """18,000 rows more would be 25 MiB and more, if something kept them."""
    peaks = [run_apart(".jsonl", rows)[1] for rows in (2_000, 20_000)]
    if peaks[0] is None or peaks[1] is None:
        pytest.skip("resident memory cannot be told here")
    assert peaks[1] < peaks[0] + 12 * (1 << 20)


@pytest.mark.slow
def test_the_command(monkeypatch: pytest.MonkeyPatch, saved_model: Path) -> None:
    monkeypatch.setattr(table_costs, "FORMATS", (".csv",))
    monkeypatch.setattr(table_costs, "FEW", 10)
    args = ["tables", "20", "--documents", "2", "--model", str(saved_model)]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    model, few, many = result.stdout.splitlines()
    assert model.endswith("ms per row (2 rows)")
    assert few.startswith("csv to csv, 10 rows: ")
    assert many.startswith("csv to csv, 20 rows: ")
    assert "csv to csv: 20 rows" in result.stderr
