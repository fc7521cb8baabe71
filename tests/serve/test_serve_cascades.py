"""A served cascade: the answers of one call, and each model with a prompt of its own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from conftest import TITLES, Small, tiny_model
from serving import served
from transformers import PreTrainedTokenizerFast

from schemax import Extractor

httpx = pytest.importorskip("httpx")

SCHEMA = Small.model_json_schema()
OWN = "Own {{ documents[0].text }}\n"


@pytest.fixture(scope="module")
def models(codec: Any, backend: Any) -> list[Extractor]:
    """The first has a prompt of its own, the second has none."""
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    first, second = (
        Extractor(tiny_model(family, codec.vocab_size), fast) for family in ("qwen3", "llama")
    )
    first.defaults = replace(first.defaults, template=OWN, is_trained=True)
    return [first, second]


@pytest.fixture(scope="module")
def alone(models: list[Extractor]) -> list[dict[str, Any]]:
    """The rows of the second model alone."""
    items = sorted(models[1].stream(TITLES, Small), key=lambda item: item.index)
    return [item.to_row() for item in items]


@pytest.fixture(scope="module")
def client(models: list[Extractor], alone: Any) -> Iterator[Any]:
    """Of a server that asks the second model for all fields."""
    cascade = Extractor.cascade(models, confidence=1.0)
    with (
        served(cascade, name="both") as address,
        httpx.Client(base_url=address, timeout=60) as client,
    ):
        yield client


def test_rows_are_the_second_models_and_say_so(client: Any, alone: list[Any]) -> None:
    rows = client.post("/v1/extract", json={"schema": SCHEMA, "documents": TITLES}).json()["rows"]
    assert [row["attributes"] for row in rows] == [row["attributes"] for row in alone]
    answering = {field["model"] for row in rows for field in row["fields"].values()}
    assert answering == {"LlamaForCausalLM"}


def test_each_model_of_a_chat_has_its_own_prompt(client: Any, alone: list[Any]) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}}
    for title, row in zip(TITLES, alone, strict=True):
        body = {"messages": [{"role": "user", "content": title}], "response_format": wanted}
        done = client.post("/v1/chat/completions", json=body).json()
        content = done["choices"][0]["message"]["content"]
        stated = {name: value for name, value in row["attributes"].items() if value is not None}
        assert {n: value for n, value in json.loads(content).items() if value is not None} == stated
        lines = client.post("/v1/chat/completions", json={**body, "stream": True}).text.split("\n")
        chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]
        assert "".join(delta.get("content") or "" for delta in deltas) == content


def test_the_playground_shows_no_passes(client: Any, alone: list[Any]) -> None:
    trace = client.post("/v1/trace", json={"schema": SCHEMA, "document": TITLES[0]}).json()
    assert trace["passes"] == []
    assert trace["row"]["attributes"] == alone[0]["attributes"]
