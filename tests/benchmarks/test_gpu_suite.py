"""`python -m benchmarks gpu`: what one card does, in one command."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from command_line import refused
from typer.testing import CliRunner

from benchmarks import gpu as gpu_suite
from benchmarks.__main__ import app
from benchmarks.compare import build_grid
from benchmarks.generated import Sizes, generate_work
from schemax.evaluation.benchmark import measure
from schemax.evaluation.benchmark.measure import NO_TIME, Rules, measure_engines
from schemax.evaluation.benchmark.workload import Workload


def test_an_unknown_shape_is_refused_before_anything_is_measured(tmp_path: Path) -> None:
    command = ["gpu", str(tmp_path / "card"), "--shape", "qwen3-1b"]
    refused(CliRunner().invoke(app, command), "unknown shape 'qwen3-1b'")
    assert not any(tmp_path.iterdir())


def test_minutes_bound_the_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[gpu_suite.Suite] = []

    def run_suite(suite: gpu_suite.Suite, _: Any) -> Path:
        asked.append(suite)
        return suite.out

    monkeypatch.setattr("benchmarks.__main__.run_suite", run_suite)
    for more in ([], ["--minutes", "7"]):
        assert CliRunner().invoke(app, ["gpu", str(tmp_path), *more]).exit_code == 0
    assert [suite.seconds for suite in asked] == [25 * 60, 7 * 60]


class Slow:
    """An engine that takes so many seconds a document, by a clock of its own."""

    kind, writes, note, title, batch_sizes, batch_size = "rival", "values", "", "", (1, 2), None

    def __init__(self, name: str, pace: float, clock: SimpleNamespace) -> None:
        self.name, self.pace, self.clock = name, pace, clock
        self.module: Any = SimpleNamespace(base_model=torch.nn.Identity())

    def setup(self, work: Any) -> None: ...
    def reset(self, work: Any) -> None: ...
    def teardown(self) -> None: ...

    def run(self, work: Workload) -> Any:
        self.clock.now += self.pace * len(work)
        return work.expected(self.writes)


def test_measurements_end_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """No run is begun that would not fit, by the engine's own pace; what is cut is said."""
    clock = SimpleNamespace(now=0.0)
    told = SimpleNamespace(monotonic=lambda: clock.now, perf_counter=lambda: clock.now)
    monkeypatch.setattr(measure, "time", told)
    work = generate_work(Sizes(20, document_tokens=20, attributes=2), 420)
    engines: Any = [Slow("fast", 0.1, clock), Slow("slow", 5, clock), Slow("late", 1, clock)]
    rules = Rules(repeats=5, seconds=60)
    fast, slow, late = measure_engines(engines, work, rules, torch.device("cpu"))
    assert clock.now <= 60
    assert len(fast.seconds) == 5
    assert not fast.skipped
    assert slow.skipped == late.skipped == NO_TIME


@pytest.mark.release
def test_one_command_tells_all_of_a_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortened, on a CPU: what is measured is kept, and the next run goes on."""
    out = tmp_path / "card"
    command = ["gpu", str(out), "--shape", "qwen3-tiny", "--device", "cpu", "-q"]
    command += ["--documents", "2", "--repeats", "1", "--price-per-hour", "3"]
    monkeypatch.setattr(gpu_suite, "TOKENS", (250,))
    monkeypatch.setattr(gpu_suite, "ATTRIBUTES", (16,))
    monkeypatch.setattr(gpu_suite, "build_grid", lambda model: build_grid(model)[:2])
    assert CliRunner().invoke(app, [*command, "--minutes", "0"]).exit_code == 0
    assert [path.name for path in sorted(out.iterdir())] == ["card.json", "index.md"]
    assert "agreement: no time was left" in (out / "index.md").read_text("utf-8")
    command += ["--minutes", "600"]
    assert CliRunner().invoke(app, command).exit_code == 0
    page = (out / "index.md").read_text("utf-8")
    assert page.count("| float32 | 100.00% | yes |") == 8
    for part in ("rivals", "250x16", "grid"):
        assert f"## qwen3-tiny-{part}" in page
    assert "no time was left" not in page
    speed = next(line for line in page.splitlines() if line.startswith("| qwen3-tiny-250x16 | iso"))
    assert all(float(cell.replace(",", "")) > 0 for cell in speed.split("|")[3:5])
    monkeypatch.setattr(gpu_suite, "compare_engines", None)  # nothing is measured again
    assert CliRunner().invoke(app, command).exit_code == 0
    assert (out / "index.md").read_text("utf-8") == page
