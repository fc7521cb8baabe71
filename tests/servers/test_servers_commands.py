"""The verbs that ask servers: extract, evaluate and train."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from command_line import jsonl, process, refused, rows
from completions_server import CompletionsServer, served
from seams import replaced
from typer.testing import CliRunner

from schemax import Extractor
from schemax.base.resources import resource_dir
from schemax.commands.cli import app
from schemax.compiler import as_codec
from schemax.servers import client as client_module

FOLDER = str(resource_dir("embedded"))
GOLD: list[dict[str, Any]] = [
    {
        "id": "t",
        "category": "Tea",
        "text": "Twinings Green Tea, 20 Count",
        "attributes": {"Brand": "Twinings", "Item form": None},
    },
    {
        "id": "s",
        "category": "Shoes",
        "text": "Crocs Unisex Clog, Navy",
        "attributes": {"Brand": "Crocs"},
    },
]


@pytest.fixture(scope="module")
def model() -> Any:
    return Extractor.from_pretrained(FOLDER, device="cpu").model.model


@pytest.fixture
def server(model: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[CompletionsServer]:
    replaced(monkeypatch, "seconds until a first retry", 0.01)
    with served(model, as_codec(FOLDER)) as made:
        yield made


@pytest.fixture
def chat(model: Any) -> Iterator[CompletionsServer]:
    with served(model, as_codec(FOLDER), "chat") as made:
        yield made


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)])


@pytest.mark.slow
def test_extract_through_a_server(server: CompletionsServer, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", [{"id": "t", "title": "Tazo Zen Green Tea, 20 Count"}])
    there = run(
        "extract", "tea", source, "--server", server.url, "--tokenizer", FOLDER, "--details"
    )
    assert there.exit_code == 0, there.output
    here = run("extract", "tea", source, "--model", FOLDER, "--device", "cpu", "--details")
    (found,), (right,) = rows(there.stdout), rows(here.stdout)
    assert found["attributes"] == right["attributes"]
    assert found["attributes"]["brand"] == "Tazo"
    raws = [{name: field["raw"] for name, field in row["fields"].items()} for row in (found, right)]
    assert raws[0] == raws[1]


@pytest.mark.slow
def test_a_run_that_lost_its_server_goes_on(
    server: CompletionsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "TRIES", 2)
    source = jsonl(tmp_path / "in.jsonl", [{"id": n, "t": f"Tazo Tea {n}"} for n in range(3)])
    command = ["extract", "tea", source, "-o", tmp_path / "out.jsonl", "-q"]
    command += ["--server", server.url, "--tokenizer", FOLDER, "--concurrency", 1]
    server.faults.extend([None] * 20 + [503] * 2)
    stopped = run(*command)
    assert stopped.exit_code == 2
    assert "answered 503: told to" in stopped.stderr
    assert "run the same again to go on" in stopped.stderr
    assert not (tmp_path / "out.jsonl").exists()
    done = run(*command)
    assert done.exit_code == 0, done.output
    found = rows((tmp_path / "out.jsonl").read_text())
    assert [row["id"] for row in found] == ["0", "1", "2"]
    right = rows(run("extract", "tea", source, "--model", FOLDER, "--device", "cpu").stdout)
    assert [row["attributes"] for row in found] == [row["attributes"] for row in right]


@pytest.mark.release
def test_evaluate_a_server_and_have_one_judge(
    server: CompletionsServer, chat: CompletionsServer, tmp_path: Path
) -> None:
    gold = jsonl(tmp_path / "gold.jsonl", GOLD)
    command = ["evaluate", gold, "--server", server.url, "--tokenizer", FOLDER]
    done = run(*command, "--judge", f"{chat.url}#tiny", "--json")
    assert done.exit_code == 0, done.output
    (report,) = json.loads(done.stdout)
    right = run("evaluate", gold, "--model", FOLDER, "--device", "cpu", "--json")
    assert report["counts"] == json.loads(right.stdout)[0]["counts"]
    assert report["judge"]["model"] == f"{chat.url}#tiny"
    assert sum(report["judge"]["verdicts"].values()) == 3
    assert all("verdict" in body["messages"][0]["content"] for body in chat.asked)
    shown = run("evaluate", gold, "--server", chat.url)
    assert "autoregressive" in shown.stdout
    assert chat.url in shown.stdout


@pytest.mark.release
def test_a_server_as_the_teacher(chat: CompletionsServer, tmp_path: Path) -> None:
    train = jsonl(tmp_path / "train.jsonl", GOLD)
    done = run(
        *("train", train, "--model", FOLDER, "--out", tmp_path / "out", "--device", "cpu"),
        *("--steps", 1, "--held-out", 0, "--labels", "teacher", "--teacher", chat.url),
    )
    assert done.exit_code == 0, done.output
    assert len(chat.asked) == len(GOLD)
    assert json.loads((tmp_path / "out" / "training.json").read_text())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tokenizer", FOLDER), "--tokenizer requires --server"),
        (("--server-kind", "vllm"), "--server-kind requires --server"),
        (("--server", "http://127.0.0.1:9/v1", "--device", "cpu"), "up to the server"),
        (("--server", "http://127.0.0.1:9/v1", "--ray"), "without it"),
        (("--server", "127.0.0.1:9/v1"), "is not the address of a server"),
        (("--server", "http://127.0.0.1:9/v1"), "does not answer"),
    ],
)
def test_what_no_server_is_asked(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "TRIES", 1)
    source = jsonl(tmp_path / "in.jsonl", [{"t": "x"}])
    refused(run("extract", "tea", source, *arguments), said)


def wait_for(port: int) -> None:
    """Until something listens there; a minute at most."""
    ends = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < ends
            time.sleep(0.2)


@pytest.mark.release
@pytest.mark.skipif(
    any(find_spec(name) is None for name in ("fastapi", "uvicorn", "prometheus_client")),
    reason="the extra serve is not installed",
)
def test_schemax_itself_is_the_server(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = process("-m", "schemax", "serve", FOLDER, "--port", str(port), cwd=tmp_path)
    try:
        source = jsonl(tmp_path / "in.jsonl", [{"id": row["id"], "t": row["text"]} for row in GOLD])
        command = ["extract", "tea", source, "--server", f"http://127.0.0.1:{port}/v1", "--details"]
        wait_for(port)
        done = run(*command)
        assert done.exit_code == 0, done.output
        tea, _ = rows(done.stdout)
        assert tea["attributes"]["brand"] == "Twinings"
        assert 0 < tea["fields"]["brand"]["confidence"] <= 1
    finally:
        server.terminate()
        server.communicate(timeout=30)
