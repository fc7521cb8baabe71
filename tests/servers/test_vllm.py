"""vLLM with a pretrained model, against the same weights in this process: equal, token for token.

Marked `llm`. $SCHEMAX_VLLM is the Python of an environment with vLLM; without it, these tests skip.
How to make one on a machine without GPU: see CONTRIBUTING.md.
"""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from command_line import jsonl, rows
from test_llama_pretrained import ORDERS, SHOWN, SHOWN_ORDERS, TITLES, Order, Shoe, read
from typer.testing import CliRunner

from recipes.servers import Server, vllm_server
from schemax import DecodingConfig, Extractor, ServerError
from schemax.commands.cli import app

pytestmark = pytest.mark.llm

PYTHON = os.environ.get("SCHEMAX_VLLM")
TYPES = DecodingConfig(constrain="types")


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    if not PYTHON:
        pytest.skip("set SCHEMAX_VLLM to the Python of an environment with vLLM")
    with vllm_server(PYTHON, request.getfixturevalue("smollm2")) as made:
        yield made


@pytest.fixture(scope="module")
def here(smollm2: Path) -> Extractor:
    return Extractor.from_pretrained(smollm2, device="cpu", dtype="float32", decoding=TYPES)


@pytest.fixture(scope="module")
def there(server: Server, smollm2: Path) -> Extractor:
    extractor = Extractor.from_server(server.url, tokenizer=smollm2, decoding=TYPES)
    assert extractor.model.served.kind == "vllm"
    assert extractor.model.takes_ids
    return extractor


def fields(extractor: Extractor, texts: Any, schema: Any, **more: Any) -> list[Any]:
    items = read(extractor, texts, schema, **more)
    return [
        {name: (field.raw, field.value, field.finish_reason) for name, field in item.fields.items()}
        for item in items
    ]


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
def test_texts_are_those_of_this_process(here: Extractor, there: Extractor, format: str) -> None:
    shown: Any = {"format": format, "examples": SHOWN}
    assert fields(there, TITLES, Shoe, **shown) == fields(here, TITLES, Shoe, **shown)


@pytest.mark.parametrize(
    ("format", "shown"),
    [*((name, SHOWN_ORDERS) for name in ("json", "yaml", "xml")), ("json", ())],
)
def test_numbers_dates_choices_and_lists(
    here: Extractor, there: Extractor, format: str, shown: Any
) -> None:
    """Choices are scored against documents without content, in both places."""
    options: Any = {"format": format, "examples": shown}
    found, expected = (read(one, ORDERS, Order, **options) for one in (there, here))
    assert [item.value for item in found] == [item.value for item in expected]
    for item, other in zip(found, expected, strict=True):
        for name, field in item.fields.items():
            assert field.raw == other.fields[name].raw
            assert field.confidence == pytest.approx(other.fields[name].confidence, abs=0.02)


def test_chats_under_the_schema(server: Server) -> None:
    chat = Extractor.from_server(server.url, kind="openai")
    for item in read(chat, TITLES, Shoe, examples=SHOWN):
        assert item.value is not None
        assert item.value.brand.casefold() in TITLES[item.index].casefold()
        assert item.fields["brand"].confidence is not None


def test_one_document_that_is_too_long_stops_no_other(there: Extractor) -> None:
    long, short = read(there, [TITLES[0] * 300, TITLES[1]], Shoe, examples=SHOWN)
    assert "context" in long.errors[0].message or "tokens" in long.errors[0].message
    assert short.value.brand == "Skechers"


def test_an_unknown_model_is_named(server: Server, smollm2: Path) -> None:
    with pytest.raises(ServerError, match="nobody/nothing"):
        Extractor.from_server(server.url, model="nobody/nothing", tokenizer=smollm2)


def test_a_run_that_lost_its_server_goes_on(server: Server, smollm2: Path, tmp_path: Path) -> None:
    texts = [f"{text} {number}" for number in range(12) for text in TITLES]
    source = jsonl(tmp_path / "in.jsonl", [{"id": n, "t": text} for n, text in enumerate(texts)])
    out = tmp_path / "out.jsonl"
    command = ["extract", f"{__file__}:Shoe", source, "-o", out, "--tokenizer", smollm2]
    command += ["--concurrency", 1, "--server"]
    with vllm_server(str(PYTHON), smollm2) as lost:
        killer = threading.Thread(target=kill_once_it_has_read, args=(lost,))
        killer.start()
        stopped = CliRunner().invoke(app, [*map(str, command), lost.url])
        killer.join()
    assert stopped.exit_code == 2
    assert "run the same again to go on" in stopped.stderr
    done = CliRunner().invoke(app, [*map(str, command), server.url])
    assert done.exit_code == 0, done.output
    assert [row["id"] for row in rows(out.read_text("utf-8"))] == [*map(str, range(len(texts)))]


def kill_once_it_has_read(server: Server) -> None:
    figures = server.url.removesuffix("/v1") + "/metrics"
    while "request_success_total" not in (text := httpx.get(figures).text) or (
        sum(float(value) for value in re.findall(r"request_success_total\{.*\} (\S+)", text)) < 20
    ):
        time.sleep(0.05)
    os.killpg(server.process, signal.SIGKILL)
