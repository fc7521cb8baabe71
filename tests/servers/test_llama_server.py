"""llama-cpp-python's own server as the engine: the tokens of transformers for the same weights.

`pytest -m slow` runs them where gguf is installed, and llama_cpp with its `server` requirements is,
or stands in another environment: $SCHEMAX_LLAMA_SERVER is then the command that starts its server,
such as `/path/to/python -m llama_cpp.server`.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import pytest
from command_line import jsonl, rows
from typer.testing import CliRunner

from benchmarks.rivals.llama_model import write_gguf
from recipes.servers import NATIVE
from schemax import AttrSchema, Extractor, attr, extract_files
from schemax.base.resources import resource_dir
from schemax.commands.cli import app
from schemax.compiler import as_codec
from schemax.errors import ServerError
from schemax.servers import client as client_module
from schemax.servers.client import Client

PROGRAM = os.environ.get("SCHEMAX_LLAMA_SERVER", "")
SERVER = ("llama_cpp", "fastapi", "uvicorn", "starlette_context", "pydantic_settings")
NEEDED = ("gguf", *(() if PROGRAM else SERVER))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        any(find_spec(name) is None for name in NEEDED) or NATIVE in PROGRAM,
        reason="llama-cpp-python with its server, or gguf, is not installed",
    ),
]
FOLDER = str(resource_dir("embedded"))
# The server reads texts: whose tokens are the same in one piece, which is checked.
TEXTS = [
    "Twinings English Breakfast decaf 50 ct 3.53 oz",
    "Numi Organic Gunpowder Green Tea, loose leaf 16 oz bag",
    "Tazo Zen Green Tea Bags 20 Count",
]


class Tea(AttrSchema, category="tea"):
    """A tea."""

    brand: str | None = attr("maker of the tea", examples=["Twinings"])
    item_form: Literal["Tea Bags", "Loose Leaf", "Capsules"] | None = attr("form it is sold in")
    net_content: str | None = attr("count, weight or volume", examples=["20 Count"])
    count: int | None = attr("number of bags", strict=True)
    organic: bool | None = attr("whether it is organic")


def add_tokens(writer: Any) -> None:
    """The embedded model's tokenizer, whose pattern is that of Qwen2."""
    spec = json.loads((Path(FOLDER) / "tokenizer.json").read_text("utf-8"))
    tokens = sorted(spec["model"]["vocab"], key=spec["model"]["vocab"].get)
    special = {token["id"] for token in spec["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if number in special else 1 for number in range(len(tokens))])
    writer.add_token_merges([" ".join(pair) for pair in spec["model"]["merges"]])
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(False)


@pytest.fixture(scope="module")
def here() -> Extractor:
    return Extractor.from_pretrained(FOLDER, device="cpu", dtype="float32")


class LlamaServer:
    """Its process, which may be killed and started again at the same port."""

    def __init__(self, model: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        program = shlex.split(PROGRAM) or [sys.executable, "-m", "llama_cpp.server"]
        self.command = [*program, "--model", str(model)]
        self.command += ["--host", "127.0.0.1", "--port", str(self.port), "--n_ctx", "2048"]
        # Probabilities need the logits of all places; the cache is float32 as the weights are.
        self.command += ["--logits_all", "true", "--type_k", "0", "--type_v", "0"]
        self.command += ["--n_threads", "1", "--model_alias", "tea", "--flash_attn", "false"]
        self.log = model.with_name("log")
        self.url = f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        for _ in range(240):
            if self.process.poll() is not None:
                pytest.fail(self.log.read_text("utf-8", "replace")[-3000:])
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.25)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)


@pytest.fixture(scope="module")
def llama(here: Extractor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaServer]:
    model = tmp_path_factory.mktemp("gguf") / "tea.gguf"
    write_gguf(here.model.model, model, add_tokens)
    server = LlamaServer(model)
    server.start()
    yield server
    server.kill()


@pytest.fixture
def url(llama: LlamaServer) -> str:
    return llama.url


def test_it_writes_the_tokens_of_transformers(here: Extractor, url: str) -> None:
    there = Extractor.from_server(url, tokenizer=FOLDER, template=here.template, probabilities=True)
    assert there.model.served.kind == "llama-cpp-python"
    codec = as_codec(FOLDER)
    compiled = here.compile(Tea)
    for prompt in compiled.encode(TEXTS):
        head = [*prompt.instruction, *prompt.documents[0], *prompt.opening]
        for key in prompt.keys[0]:
            assert codec.encode_markup(codec.text_of([*head, *key])) == [*head, *key]
    found = sorted(there.stream(TEXTS, Tea), key=lambda item: item.index)
    plain = "isolated:constrain=types:contextual_calibration=false"  # as servers decode
    right = sorted(here.stream(TEXTS, Tea, decoding=plain), key=lambda item: item.index)
    for item, other in zip(found, right, strict=True):
        assert item.value == other.value
        for name, field in item.fields.items():
            expected = other.fields[name]
            assert field.raw == expected.raw
            if field.confidence is not None:
                assert field.confidence == pytest.approx(expected.confidence, abs=0.02)
        assert all(field.confidence is not None for field in item.fields.values())
    assert [item.value.brand for item in found] == ["Twinings", "Numi", "Tazo"]


def test_the_command_line(url: str, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", [{"id": n, "t": text} for n, text in enumerate(TEXTS)])
    command = ["extract", "tea", source, "--server", url, "--tokenizer", FOLDER]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    brands = [row["attributes"]["brand"] for row in rows(done.stdout)]
    assert brands == ["Twinings", "Numi", "Tazo"]


def test_its_chats(url: str) -> None:
    there = Extractor.from_server(url, kind="openai")
    found = there.extract(TEXTS, Tea, on_error="null")
    assert all(item is not None for item in found)


def test_it_says_what_it_does_not_take(url: str) -> None:
    with pytest.raises(ServerError) as error:
        Client(url).call("/completions", {"prompt": [1, 2]})
    assert error.value.status in (400, 422, 500)


def test_it_is_killed_and_started_again(
    here: Extractor, llama: LlamaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "TRIES", 2)
    texts = [f"{text} {n}" for n in range(3) for text in TEXTS]
    source = jsonl(tmp_path / "in.jsonl", [{"id": n, "t": text} for n, text in enumerate(texts)])
    done: list[int] = []

    def kill(item: Any) -> None:
        done.append(item.index)
        if len(done) == 3:
            llama.kill()

    def run(**more: Any) -> Any:
        there = Extractor.from_server(
            llama.url, tokenizer=FOLDER, template=here.template, concurrency=2
        )
        return extract_files(Tea, source, tmp_path / "out.jsonl", extractor=there, **more)

    with pytest.raises(ServerError, match="does not answer"):
        run(on_extraction=kill)
    llama.start()
    again: list[int] = []
    run(on_extraction=lambda item: again.append(item.index))
    assert sorted(done + again) == list(range(len(texts)))
    found = rows((tmp_path / "out.jsonl").read_text())
    assert [row["attributes"]["brand"] for row in found] == ["Twinings", "Numi", "Tazo"] * 3
