"""`schemax bench --tables`: what runs over tables cost beside the model."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from schemax.cli import app
from schemax.commands import table_costs
from schemax.commands.table_costs import measure_tables, run_without_model, write_rows
from schemax.io.readers import read_file


@pytest.mark.parametrize("format", [".parquet", ".jsonl", ".csv"])
def test_a_run_without_a_model_is_a_whole_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(table_costs, "_BATCH", 20)
    write_rows(tmp_path / f"in{format}", 50)
    made = list(read_file(f"in{format}"))
    assert len({str(record) for record in made}) == 50
    cost = run_without_model(str(tmp_path), format, 50)
    assert (cost.format, cost.rows) == (format, 50)
    assert cost.seconds > 0
    found = [row for row in read_file(f"out{format}") if isinstance(row, dict)]
    assert [row["id"] for row in found] == [f"row-{n}" for n in range(50)]
    attributes = found[0].get("attributes", found[0])
    assert attributes["brand"] == "Northfell"
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"in{format}", f"out{format}"]


@pytest.mark.slow
def test_memory_does_not_grow_with_rows(monkeypatch: pytest.MonkeyPatch, saved_model: Path) -> None:
    """18,000 rows more would be 25 MiB and more, if something kept them."""
    monkeypatch.setattr(table_costs, "_FORMATS", (".jsonl",))
    monkeypatch.setattr(table_costs, "_FEW", 2_000)
    told: list[str] = []
    costs = measure_tables(20_000, documents=2, model=str(saved_model), tell=told.append)
    few, many = costs.runs
    assert (few.rows, many.rows, len(told)) == (2_000, 20_000, 3)
    assert costs.model > 0
    if few.peak is None or many.peak is None:
        pytest.skip("resident memory cannot be told here")
    assert many.peak < few.peak + 12 * (1 << 20)


def test_the_command(monkeypatch: pytest.MonkeyPatch, saved_model: Path) -> None:
    monkeypatch.setattr(table_costs, "_FORMATS", (".csv",))
    args = ["bench", "--tables", "20", "--documents", "2", "--model", str(saved_model), "-q"]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    model, run = result.stdout.splitlines()
    assert model.endswith("ms per row (2 rows)")
    assert run.startswith("csv to csv, 20 rows: ")


@pytest.mark.parametrize(
    "given",
    [
        {"--shape": "qwen3-tiny"},
        {"--repeats": "3"},  # as it is without saying so
        {"--json": "a.json", "--from": "b.json"},
        {"--sweep": None, "--against": "http://localhost"},
    ],
)
def test_options_that_would_mean_nothing_are_refused(given: dict[str, str | None]) -> None:
    words = [word for pair in given.items() for word in pair if word is not None]
    result = CliRunner().invoke(app, ["bench", "--tables", "20", "--threads", "1", *words])
    assert result.exit_code == 2
    said = result.stderr.strip().splitlines()[-1]
    assert said.startswith("error: --tables does not go with ")
    assert all(name in said for name in given)
    assert "--threads" not in said
