"""Answers that are sent while passes run: their text is that of the finished answer."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import TITLES, Small, slow_but, tiny_model
from seams import calls_of
from serving import served
from transformers import PreTrainedTokenizerFast

from schemax import Extractor

httpx = pytest.importorskip("httpx")

TEXT = "Northfell Women's Tamarack Hiking Boot, Dark Olive, 8.5 M US"
STRING: dict[str, Any] = {"anyOf": [{"type": "string"}, {"type": "null"}]}
SHORT_AND_LONG = {
    "type": "object",
    "properties": {"brand": STRING, "size": {"type": ["number", "null"]}, "title": STRING},
    "required": ["brand", "size", "title"],
}


@pytest.fixture(scope="module")
def extractor(codec: Any, backend: Any) -> Extractor:
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    return Extractor(tiny_model("qwen3", codec.vocab_size), fast)


@pytest.fixture(scope="module")
def client(extractor: Extractor) -> Iterator[Any]:
    with served(extractor) as address, httpx.Client(base_url=address, timeout=60) as made:
        yield made


def chat(text: str, schema: Any, *, tool: bool = False, **more: Any) -> dict[str, Any]:
    asked: dict[str, Any] = {"messages": [{"role": "user", "content": text}], **more}
    if tool:
        function = {"name": "f", "parameters": schema}
        return asked | {"tools": [{"type": "function", "function": function}]}
    named = {"name": "s", "schema": schema}
    return asked | {"response_format": {"type": "json_schema", "json_schema": named}}


def events(answer: Any) -> Iterator[Any]:
    for line in answer.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def delta_of(event: Any, tool: bool = False) -> str:
    delta = event["choices"][0]["delta"]
    if tool:
        return "".join(call["function"]["arguments"] for call in delta.get("tool_calls") or ())
    return delta.get("content") or ""


class Gate:
    """Lets a model do so many passes, and no more before it is told."""

    def __init__(self, extractor: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room, self.passes = threading.Semaphore(0), 0
        usual = extractor.model.run_batch

        def run_batch(batch: Any, cache: Any) -> Any:
            assert self.room.acquire(timeout=60)
            self.passes += 1
            return usual(batch, cache)

        monkeypatch.setattr(extractor.model, "run_batch", run_batch)


@pytest.mark.parametrize("tool", [False, True], ids=["content", "arguments"])
def test_a_field_is_sent_while_passes_run(
    client: Any, extractor: Extractor, monkeypatch: pytest.MonkeyPatch, tool: bool
) -> None:
    """One pass is allowed at a time, so that a field that comes early cannot have waited."""
    gate, said, after = Gate(extractor, monkeypatch), "", []
    body = chat(TEXT, SHORT_AND_LONG, tool=tool, stream=True, temperature=1.5, seed=3)
    opened = threading.Event()

    def let() -> None:
        while not opened.wait(0.05):
            gate.room.release()

    threading.Thread(target=let, daemon=True).start()
    with client.stream("POST", "/v1/chat/completions", json=body) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for event in events(answer):
            if text := delta_of(event, tool):
                said += text
                after.append(gate.passes)
    opened.set()
    for _ in range(1000):
        gate.room.release()
    body["stream"] = False
    message = client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]
    whole = message["tool_calls"][0]["function"]["arguments"] if tool else message["content"]
    assert said == whole
    assert after[1] < after[-1]


LISTS = {
    "type": "object",
    "properties": {
        "made": {
            "type": "object",
            "properties": {"by": STRING, "in": {"type": ["integer", "null"]}},
            "required": ["by", "in"],
        },
        "colors": {"type": "array", "items": {"type": "string"}},
        "parts": {
            "type": "array",
            "maxItems": 3,
            "items": {"type": "object", "properties": {"name": STRING}, "required": ["name"]},
        },
        "seller": {"type": "string"},
    },
}
JUDGED = {
    **SHORT_AND_LONG,
    "if": {"properties": {"size": {"type": "number"}}},
    "then": {"properties": {"title": {"type": "null"}}},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "schema", slow_but([LISTS], [Small.model_json_schema(), SHORT_AND_LONG, LISTS, JUDGED])
)
def test_a_stream_is_the_finished_answer(client: Any, schema: Any) -> None:
    """Whatever a random model writes, refusals included."""
    kinds = set()
    for number, title in enumerate(TITLES[:2]):
        body = chat(title, schema, temperature=1.3, seed=number, logprobs=True)
        whole = client.post("/v1/chat/completions", json=body).json()
        (choice,) = whole["choices"]
        asked = {**body, "stream": True, "stream_options": {"include_usage": True}}
        with client.stream("POST", "/v1/chat/completions", json=asked) as answer:
            *chunks, last = events(answer)
        assert last["usage"] == whole["usage"]
        assert chunks[-1]["choices"][0]["finish_reason"] == choice["finish_reason"]
        said = "".join(map(delta_of, chunks))
        refusals = [chunk["choices"][0]["delta"].get("refusal") for chunk in chunks]
        refusal = "".join(filter(None, refusals)) or None
        assert refusal == choice["message"]["refusal"]
        kinds.add(refusal is None)
        if refusal is None:
            assert said == choice["message"]["content"]
            told = [chunk["choices"][0]["logprobs"] for chunk in chunks]
            tokens = [token for item in told if item for token in item["content"]]
            values = [t for t in tokens if t["logprob"] != 0]
            assert values == [t for t in choice["logprobs"]["content"] if t["logprob"] != 0]
        body = {"input": title, "temperature": 1.3, "seed": number, "stream": True}
        named = {"type": "json_schema", "name": "s", "schema": schema}
        with client.stream(
            "POST", "/v1/responses", json={**body, "text": {"format": named}}
        ) as answer:
            found = list(events(answer))
        assert [event["sequence_number"] for event in found] == list(range(len(found)))
        assert (found[0]["type"], found[-1]["type"]) == ("response.created", "response.completed")
        content = found[-1]["response"]["output"][0]["content"][0]
        assert content.get("refusal") == refusal
        if refusal is None:
            deltas = [e["delta"] for e in found if e["type"] == "response.output_text.delta"]
            assert "".join(deltas) == content["text"] == said
    assert True in kinds


def test_what_is_wrong_is_said_by_the_status(client: Any) -> None:
    for body in (chat(TEXT, {"type": "object"}, stream=True), chat("", LISTS, stream=True)):
        answer = client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 400
        assert answer.json()["error"]["message"]


def test_a_stream_that_is_left_leaves_the_batch(
    client: Any, extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(extractor, monkeypatch)
    body = chat(TEXT, SHORT_AND_LONG, stream=True)
    with pytest.raises(httpx.TimeoutException):
        client.post("/v1/chat/completions", json=body, timeout=0.5)

    async def left() -> None:
        async with asyncio.timeout(30):
            while calls_of(extractor):
                gate.room.release()
                await asyncio.sleep(0.1)

    asyncio.run(left())
    assert gate.passes <= 6
