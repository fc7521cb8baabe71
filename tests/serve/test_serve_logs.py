"""Who may call from a page, the name that is served, request ids, and what logs tell of them."""

from __future__ import annotations

import json
import logging
import logging.config
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Small, tiny_model
from serving import served
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from schemax import Extractor
from schemax.commands import cli
from schemax.serve.monitoring import log_settings

httpx = pytest.importorskip("httpx")

SHOP = "https://shop.example"


@pytest.fixture(scope="module")
def extractor(codec: Any, backend: Any) -> Extractor:
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    return Extractor(tiny_model("qwen3", codec.vocab_size), fast)


@pytest.fixture(scope="module")
def url(extractor: Extractor) -> Iterator[str]:
    with served(extractor, name="tiny", api_key="key", origins=[SHOP]) as address:
        yield address


def leave(url: str, origin: str, path: str = "/v1/extract") -> Any:
    """What a browser asks before it lets a page's script call."""
    headers = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization, content-type, x-stainless-lang",
    }
    return httpx.options(f"{url}{path}", headers=headers)


def test_pages_of_an_origin_may_call_and_others_may_not(url: str) -> None:
    granted = leave(url, SHOP)
    assert granted.status_code == 200
    assert granted.headers["Access-Control-Allow-Origin"] == SHOP
    assert "x-stainless-lang" in granted.headers["Access-Control-Allow-Headers"]
    assert "Access-Control-Allow-Origin" not in leave(url, "https://evil.example").headers
    # A page reads the refusal as well, else its script is told nothing but a network error.
    refused = httpx.get(f"{url}/v1/models", headers={"Origin": SHOP})
    assert refused.status_code == 401
    assert refused.headers["Access-Control-Allow-Origin"] == SHOP
    assert "X-Request-ID" in refused.headers["Access-Control-Expose-Headers"]
    assert "Access-Control-Allow-Credentials" not in refused.headers


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/nowhere"])
def test_answers_have_the_id_of_their_request(url: str, path: str) -> None:
    sent = httpx.get(f"{url}{path}", headers={"X-Request-ID": "shop-7"})
    assert sent.headers.get_list("X-Request-ID") == ["shop-7"]
    made = [httpx.get(f"{url}{path}").headers["X-Request-ID"] for _ in range(2)]
    assert len(set(made)) == 2


@pytest.mark.parametrize("id", ["", "a b", 'a","status":500', "a\x1b[31m", "x" * 129])
def test_an_id_that_no_log_holds_is_replaced(url: str, id: str) -> None:
    answer = httpx.get(f"{url}/health", headers={"X-Request-ID": id})
    assert answer.headers["X-Request-ID"] != id
    assert len(answer.headers["X-Request-ID"]) == 32


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    names = ("uvicorn", "uvicorn.access", "uvicorn.error", "schemax")
    loggers = [logging.getLogger(name) for name in names]
    before = [(one.handlers[:], one.level, one.propagate) for one in loggers]
    yield
    for one, (handlers, level, propagate) in zip(loggers, before, strict=True):
        one.handlers[:], one.propagate = handlers, propagate
        one.setLevel(level)


@pytest.mark.usefixtures("logging_as_before")
@pytest.mark.parametrize("form", ["text", "json"])
def test_lines_of_a_request_have_its_id(
    form: Any, codec: Any, backend: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    extractor = Extractor(tiny_model("qwen3", codec.vocab_size), fast)

    def failing(*_: Any) -> Any:
        raise RuntimeError("at the word Rosebud")

    extractor.model.run_batch = failing  # type: ignore[method-assign]
    with served(extractor) as address:
        logging.config.dictConfig(log_settings(form))
        body = {"schema": Small.model_json_schema(), "documents": ["Rosebud"]}
        headers = {"X-Request-ID": "shop-7"}
        assert (
            httpx.post(f"{address}/v1/extract?a=b", json=body, headers=headers).status_code == 500
        )
    out, err = capsys.readouterr()
    assert "Rosebud" not in out + err
    if form == "text":
        (access,) = [line for line in out.splitlines() if "/v1/extract" in line]
        assert access.endswith(" shop-7")
        (failure,) = [line for line in err.splitlines() if "RuntimeError" in line]
        assert failure.endswith(" shop-7")
        return
    lines = [json.loads(line) for line in out.splitlines()]
    assert not err
    (access,) = [line for line in lines if line["logger"] == "uvicorn.access"]
    assert access["request_id"] == "shop-7"
    assert (access["method"], access["path"]) == ("POST", "/v1/extract?a=b")
    assert access["status"] == 500
    assert 0 < access["seconds"] < 600
    (failure,) = [line for line in lines if line["level"] == "error"]
    assert failure["request_id"] == "shop-7"
    assert "RuntimeError" in failure["message"]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("https://shop.example/", "without a slash at the end"),
        ("shop.example", "an origin is scheme, host and port"),
        ("*", "lets every page of the web call"),
    ],
)
def test_origins_that_cannot_be_meant_are_refused(
    given: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHEMAX_API_KEY", raising=False)
    monkeypatch.setattr("schemax.commands.options.load_extractor", None)  # not reached
    result = CliRunner().invoke(cli.app, ["serve", "--port", "0", "--cors", given])
    assert result.exit_code == 2
    assert reason in result.stderr


def command_that_serves(*options: str) -> list[str]:
    return [sys.executable, "-m", "schemax", "serve", "--port", "0", *options]


@pytest.mark.release
def test_the_command_takes_all_of_these() -> None:
    options = ("--served-model-name", "shop", "--log-format", "json", "--cors", SHOP)
    process = subprocess.Popen(
        command_that_serves(*options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        said = next(line for line in process.stderr if "serving" in line)
        assert said.startswith("serving shop on ")
        address = said.split()[3].rstrip(";")
        for line in process.stdout:
            if "startup complete" in json.loads(line)["message"]:
                break
        (model,) = httpx.get(f"{address}/v1/models").json()["data"]
        assert model["id"] == "shop"
        assert leave(address, SHOP).status_code == 200
        process.terminate()
        out, _ = process.communicate(timeout=60)
        paths = [json.loads(line).get("path") for line in out.splitlines()]
        assert "/v1/models" in paths
    finally:
        process.kill()
        process.wait()


@pytest.mark.release
def test_open_telemetry_traces_requests(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.instrumentation.fastapi")
    # What the script `opentelemetry-instrument` runs.
    code = "from opentelemetry.instrumentation.auto_instrumentation import run; run()"
    command = [sys.executable, "-c", code, *command_that_serves()]
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "console"}
    environment |= {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    told = tmp_path / "stdout"
    with told.open("w") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert process.stderr is not None
        try:
            said = next(line for line in process.stderr if "serving" in line)
            address = said.partition(" on ")[2].partition(";")[0]
            next(line for line in process.stderr if "startup complete" in line)
            body = {"schema": "shoes", "documents": ["Nike Pegasus 40, Rosebud"]}
            assert httpx.post(f"{address}/v1/extract", json=body, timeout=60).status_code == 200
            process.terminate()
            process.communicate(timeout=60)
        finally:
            process.kill()
            process.wait()
    traced = told.read_text()
    assert '"name": "POST /v1/extract"' in traced
    assert "Rosebud" not in traced
