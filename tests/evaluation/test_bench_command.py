"""`schemax bench` and `python -m benchmarks compare`: what they write, refuse and ask a server."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from command_line import jsonl, refused
from typer.testing import CliRunner

from benchmarks.__main__ import app as developers
from benchmarks.page import BEGIN, END
from schemax.commands.cli import app
from schemax.compiler import as_codec
from schemax.evaluation.benchmark.compare import ABSENT
from schemax.evaluation.benchmark.report import Report
from schemax.evaluation.reliability import can_plot

ROWS = [
    {"id": "1", "category": "Tea", "text": "Tazo Zen 24 ct", "attributes": {"Brand": "Tazo"}},
    {"id": "2", "category": "Tea", "text": "Twinings 20", "attributes": {"Net content": "20"}},
    {"id": "3", "category": "Shoes", "text": "Crocs Clog", "attributes": {"Brand": "Crocs"}},
]


def bench(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["bench", *arguments])


def compare(*arguments: str) -> Any:
    return CliRunner().invoke(developers, ["compare", *arguments])


def show(*arguments: str) -> Any:
    return CliRunner().invoke(developers, ["show", *arguments])


@pytest.mark.slow
def test_command_line(tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", tmp_path / "bench.json"
    page.write_text(f"# Speed\n{BEGIN}\nnone yet\n{END}\nthe end\n")
    sizes = ("--documents", "3", "--document-tokens", "20", "--attributes", "2")
    names = "floor,isolated,generate,outlines"
    done = compare(
        *("--shape", "qwen3-tiny", "--dtype", "float32", "--device", "cpu", *sizes),
        *("--engines", names, "--repeats", "2", "--generate-batches", "1,3"),
        *("--price-per-hour", "3.6", "--json", str(results), "--page", str(page)),
    )
    assert done.exit_code == 0, done.output
    assert "outlines: skipped; " in done.stdout
    data = json.loads(results.read_text())
    assert data["schemax_bench"] == 1
    assert data["model"]["parameters"] == 336_256
    assert data["model"]["dtype"] == "float32"
    assert {"cpu", "threads", "torch", "transformers"} <= data["environment"].keys()
    assert data["work"]["tokens"]["documents"] == 60
    rows = {row["name"]: row for row in data["engines"]}
    assert list(rows) == ["floor", "isolated", "generate"]
    for row in rows.values():
        assert len(row["seconds"]) == 2
        assert row["slowest"] <= row["products_per_second"] <= row["fastest"]
        assert row["passes"] >= 1
    assert rows["floor"]["of_floor"] == rows["generate"]["times_generate"] == 1
    isolated = rows["isolated"]
    assert isolated["dollars_per_1000"] == pytest.approx(1 / isolated["products_per_second"])
    assert rows["generate"]["tried"].keys() == {"1", "3"}
    assert json.loads(json.dumps(Report.from_dict(data).to_dict())) == data
    with pytest.raises(ValueError, match=r"a broken report: engines\.0\.title: Field required"):
        Report.from_dict(data | {"engines": [{"name": "floor"}]})
    written = page.read_text()
    assert written.startswith("# Speed\n")
    assert written.endswith(f"{END}\nthe end\n")
    assert "none yet" not in written
    assert "| isolated |" in written
    drawn = ("--plot", str(tmp_path / "p.svg")) if can_plot() else ()
    again = show(str(results), "--page", str(page), *drawn)
    assert again.exit_code == 0, again.output
    assert page.read_text() == written
    assert (tmp_path / "p.svg").exists() == can_plot()


@pytest.mark.slow
def test_the_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.compare.GRID_DOCUMENTS", (1, 2))
    monkeypatch.setattr("benchmarks.compare.GRID_BATCHES", (2,))
    sizes = ("--documents", "3", "--document-tokens", "20", "--attributes", "2", "--repeats", "1")
    drawn = ("--plot", str(tmp_path / "grid.svg")) if can_plot() else ()
    done = compare(
        *("--shape", "qwen3-tiny", "--device", "cpu", *sizes, "--engines", "floor", "--sweep"),
        *("--quiet", "--json", str(tmp_path / "b.json"), *drawn),
    )
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    grid = json.loads((tmp_path / "b.json").read_text())["sweep"]
    assert [row["name"] for row in grid] == ["paper J=1 B=2", "paper J=2 B=2", "isolated J=1 B=2"]
    assert all(row["of_floor"] for row in grid)
    assert [row["documents_per_prompt"] for row in grid] == [1, 2, 1]
    # Two prompts of two documents hold all three listings at once.
    assert grid[1]["passes"] < grid[0]["passes"]
    if can_plot():
        assert "documents per prompt" in (tmp_path / "grid.svg").read_text()


class Fake(BaseHTTPRequestHandler):
    """Speaks the protocol, and finds every brand to be Tazo."""

    asked: list[Any] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self._say({"data": [{"id": "fake"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body))
        text = '  "Brand": "Tazo",\n  "Net content": null\n}'
        usage = {"prompt_tokens": 100, "completion_tokens": 9}
        self._say({"choices": [{"text": text, "finish_reason": "stop"}], "usage": usage})

    def _say(self, reply: Any) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(reply).encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[str]:
    Fake.asked.clear()
    with HTTPServer(("127.0.0.1", 0), Fake) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}/v1"
        made.shutdown()
        thread.join()


@pytest.mark.slow
def test_a_server_is_asked_for_the_same_products(server: str, folder: Path, tmp_path: Path) -> None:
    data = jsonl(tmp_path / "gold.jsonl", ROWS)
    done = bench(
        *("--model", str(folder), "--data", data, "--engines", "isolated", "--repeats", "1"),
        *("--against", server, "--concurrency", "2", "--json", str(tmp_path / "b.json")),
        *("--token-prices", "1,2"),
    )
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "b.json").read_text())["server"]
    assert found["products"] == 3
    assert found["model"] == "fake"
    assert found["tokens"] == 27
    assert found["agreement"] == pytest.approx(2 / 5)  # of five fields, both of the first tea
    assert "fake at http://" in done.stdout
    assert found["dollars_per_1000"] == pytest.approx(0.118)
    assert "$0.118 for 1,000 documents" in done.stdout
    path, body = Fake.asked[-1]
    assert path == "/v1/completions"
    assert body["stop"] == ["\n}"]
    codec = as_codec(str(folder))
    assert any("Tazo Zen 24 ct" in codec.text_of(body["prompt"]) for _, body in Fake.asked)


@pytest.mark.slow
def test_a_model_is_measured_on_its_documents(folder: Path, tmp_path: Path) -> None:
    data = jsonl(tmp_path / "gold.jsonl", ROWS)
    done = bench(
        *("--model", str(folder), "--data", data, "--engines", "floor,isolated,generate"),
        *("--documents", "2", "--repeats", "1", "--generate-batches", "1"),
        *("--price-per-hour", "3.6", "--json", str(tmp_path / "b.json")),
    )
    assert done.exit_code == 0, done.output
    assert ABSENT in done.stderr
    assert "2 listings" in done.stdout
    assert "$ per 1,000" in done.stdout
    report = json.loads((tmp_path / "b.json").read_text())
    assert report["model"]["name"] == folder.name
    assert report["work"]["source"] == "gold.jsonl"
    assert report["work"]["tokens"]["documents"] > 0
    assert [row["name"] for row in report["engines"]] == ["floor", "isolated", "generate"]
    assert all(row["passes"] for row in report["engines"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--engines", "vllm"), "unknown engine 'vllm'"),
        (("--engines", "continuous"), "python -m benchmarks"),
        (("--engines", "floor,floor"), "named twice"),
        (("--engines", ","), "--engines names no engine"),
        (("--generate-batches", "a"), "--generate-batches"),
        (("--generate-batches", "0"), "1 or more"),
        (("--token-prices", "1,2"), "requires --against"),
        (("--against", "http://x/v1", "--token-prices", "1"), "two prices"),
        ((), "nowhere.jsonl"),
        (("--model", "./nowhere"), "no model folder"),
    ],
)
def test_what_cannot_be_measured(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(bench("--data", "nowhere.jsonl", *arguments), said)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--shape", "gpt-7"), "unknown shape 'gpt-7'"),
        (("--shape", "qwen3-tiny", "--model", "x"), "not both"),
        (("--shape", "qwen3-tiny", "--dtype", "int8"), "dtype 'int8'"),
        (("--jitter", "2"), "jitter"),
        (("--against", "http://x/v1"), "--data"),
    ],
)
def test_what_cannot_be_compared(arguments: tuple[str, ...], said: str) -> None:
    refused(compare(*arguments), said)


def test_files_without_results_or_products(tmp_path: Path) -> None:
    results = tmp_path / "b.json"
    refused(show(str(results)), "b.json")
    results.write_text("{}")
    refused(show(str(results)), "not a report")
    data = tmp_path / "empty.jsonl"
    data.write_text("")
    refused(bench("--data", str(data)), "contains no documents")
    assert bench().exit_code == 2  # no --data
