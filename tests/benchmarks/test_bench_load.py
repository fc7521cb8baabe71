"""`python -m benchmarks load`: what it counts of a server that answers, and of none at all."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.load import Load, LoadResult, measure_load
from benchmarks.served import served_app
from schemax.extraction.extractor import Extractor

pytest.importorskip("uvicorn")


@pytest.mark.slow
def test_every_request_is_answered(saved_model: Path) -> None:
    extractor = Extractor.from_pretrained(saved_model, device="cpu")
    with served_app(extractor) as port:
        url = f"http://127.0.0.1:{port}"
        result = measure_load(Load(url, clients=4, rate=10, seconds=2))
        shown = CliRunner().invoke(app, ["load", url, "--minutes", "0.02", "--rate", "5", "-q"])
    assert len(result.seconds) == 20
    assert result.lost == []
    assert min(result.seconds) > 0
    assert all(size > 10 << 20 for size in result.memory)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("6 requests answered, 0 lost; ")


def test_losses_are_told() -> None:
    result = LoadResult(seconds=[0.5, 1.5], lost=["status 400", "status 400"], deferred=3)
    first, second = result.lines()
    assert first == "2 requests answered, 2 lost: status 400; 3 asked again"
    assert second.startswith("p50 1.00 s, ")


def test_no_server() -> None:
    shown = CliRunner().invoke(app, ["load", "http://127.0.0.1:9", "-q"])
    assert shown.exit_code == 2
    assert "http://127.0.0.1:9 does not answer" in shown.output
