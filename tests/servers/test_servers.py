"""Servers as engines: the tokens of this process, whatever a server can keep to, and through all
that goes wrong on the way."""

from __future__ import annotations

import asyncio
import json
import logging
import pickle
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import jsonschema
import pytest
from completions_server import CompletionsServer, served
from conftest import TITLES, slow_but, tiny_model
from decoding import follow_branches
from pydantic import BaseModel
from seams import headers_of, replaced

from schemax import (
    AttrSchema,
    DecodingConfig,
    Extraction,
    Extractor,
    ModelError,
    ServerError,
    attr,
    extract_files,
    load_schema,
)
from schemax.base.resources import resource_dir
from schemax.compiler import TextCodec, as_codec
from schemax.servers import client as client_module
from schemax.servers import dialects
from schemax.servers.client import Client
from schemax.servers.completions import Vocabulary

FOLDER = str(resource_dir("embedded"))
TEAS = [
    "Tazo Organic Chai Black Tea Bags, 20 Count (Pack of 6)",
    "Twinings English Breakfast decaf 50 ct 3.53 oz",
]


class Port(BaseModel):
    kind: Literal["HDMI", "USB"] | None = attr(k_max=4)
    number: int | None = attr(k_max=3, strict=True)


class Small(AttrSchema):
    """Every way to keep a grammar."""

    brand: str | None = attr("Manufacturer", k_max=6)
    smart: bool | None = attr(k_max=4)
    resolution: Literal["720p", "4K"] | None = attr(k_max=5)
    year: int | None = attr(strict=True, k_max=4)
    size: float | None = attr(k_max=5)
    colors: list[str] = attr(default_factory=list, k_max=6)


class Lists(AttrSchema):
    """Slots that call for others."""

    ports: list[Port] = attr(min_length=1, max_length=2)


class Waved(AttrSchema):
    """A field that looks at another, and lists whose items do."""

    size: float | None = attr(after="brand", k_max=4)
    brand: str | None = attr(k_max=4)
    ports: list[Port] = attr(after="size", min_length=1, max_length=2)


class Word(AttrSchema):
    brand: str | None = attr(k_max=4)


class Copied(AttrSchema):
    brand: str | None = attr(extractive=True)


@pytest.fixture(scope="module")
def small(codec: TextCodec) -> Any:
    return tiny_model("qwen3", codec.vocab_size)


@pytest.fixture(scope="module")
def here(small: Any, codec: TextCodec) -> Extractor:
    """The same weights in this process."""
    types = DecodingConfig(constrain="types")  # as servers decode
    return Extractor(small, codec, eos_ids=codec.eos_ids, decoding=types)


@pytest.fixture
def server(small: Any, codec: TextCodec) -> Iterator[CompletionsServer]:
    with served(small, codec) as made:
        yield made


@pytest.fixture(scope="module")
def embedded() -> Extractor:
    return Extractor.from_pretrained(FOLDER, device="cpu")


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, "seconds until a first retry", 0.01)
    for name in ("SCHEMAX_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def read(extractor: Extractor, texts: Sequence[Any], schema: Any, **more: Any) -> list[Any]:
    return sorted(extractor.stream(texts, schema, **more), key=lambda item: item.index)


def written(items: Sequence[Extraction[Any]]) -> list[Any]:
    """What was decoded, token for token as far as texts and counts tell."""
    return [
        (
            item.value,
            item.errors,
            [(f.raw, f.tokens, f.finish_reason) for f in item.fields.values()],
        )
        for item in items
    ]


@pytest.mark.slow
@pytest.mark.parametrize("format", slow_but({"json"}, ["json", "yaml", "xml"]))
def test_a_server_writes_what_this_process_writes(
    server: CompletionsServer, here: Extractor, codec: TextCodec, format: str
) -> None:
    there = Extractor.from_server(server.url, tokenizer=codec)
    found = read(there, TITLES[1:2], Small, format=format)
    assert written(found) == written(read(here, TITLES[1:2], Small, format=format))


@pytest.mark.release
def test_slots_that_call_for_others(
    server: CompletionsServer, here: Extractor, codec: TextCodec
) -> None:
    there = Extractor.from_server(server.url, tokenizer=codec)
    found = read(there, TITLES[:2], Lists)
    assert all(len(item.fields) > 2 for item in found)
    assert written(found) == written(read(here, TITLES[:2], Lists))
    assert written(read(there, TITLES[:2], Waved)) == written(read(here, TITLES[:2], Waved))


@pytest.mark.slow
@pytest.mark.parametrize(
    "decoding",
    [
        DecodingConfig(documents="stacked", documents_per_prompt=2, constrain="nothing"),
        DecodingConfig(layout="autoregressive", max_retries=0, k_max=4),
        pytest.param(
            DecodingConfig(max_retries=0, k_max=2, constrain="types", contextual_calibration=False),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_other_decodings(
    server: CompletionsServer, here: Extractor, codec: TextCodec, decoding: DecodingConfig
) -> None:
    there = Extractor.from_server(server.url, tokenizer=codec, decoding=decoding)
    found = read(there, TITLES[:3], Small)
    assert written(found) == written(read(here, TITLES[:3], Small, decoding=decoding))


@pytest.mark.slow
def test_confidences_where_the_server_tells_all(
    server: CompletionsServer, here: Extractor, codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_of_it = replace(dialects.DIALECTS["vllm"], most_top=codec.vocab_size)
    monkeypatch.setattr(dialects, "DIALECTS", MappingProxyType({"vllm": all_of_it}))
    there = Extractor.from_server(server.url, tokenizer=codec)
    follow_branches(monkeypatch, 1.0)
    ours = read(here, TITLES[:1], Small)
    for item, right in zip(read(there, TITLES[:1], Small), ours, strict=True):
        for name, field in item.fields.items():
            expected = right.fields[name]
            assert field.confidence == pytest.approx(expected.confidence, rel=1e-3)
            assert field.legal_probability == pytest.approx(expected.legal_probability, rel=1e-3)
            assert field.null_probability == pytest.approx(expected.null_probability, abs=1e-5)
            assert field.alternatives == pytest.approx(expected.alternatives, abs=1e-4)


@pytest.mark.slow
def test_requests_of_a_document_share_what_the_cache_keeps(
    server: CompletionsServer, codec: TextCodec
) -> None:
    asked: Any = {"concurrency": 3, "probabilities": False}  # so choices are sent as a grammar
    there = Extractor.from_server(server.url, tokenizer=codec, **asked)
    compiled = there.compile(Small)
    server.asked.clear()
    read(there, TITLES[:1], Small)
    (prompt,) = compiled.encode(TITLES[:1])
    head = [*prompt.instruction, *prompt.documents[0], *prompt.opening]
    assert all(body["prompt"][: len(head)] == head for body in server.asked)
    assert {tuple(body["prompt"][len(head) :]) for body in server.asked} >= set(prompt.keys[0])
    assert server.asked[0]["max_tokens"] == 2 * prompt.k_max[0]  # its retry among them
    assert server.asked[0]["stop"] == ["\n"]
    assert 1 < server.most_in_flight <= 3
    grammars = [body["structured_outputs"] for body in server.asked if "structured_outputs" in body]
    assert any('"4K' in found["grammar"] for found in grammars)


@pytest.mark.release
def test_a_server_of_slots_is_asked_for_one_document_after_another(
    server: CompletionsServer, here: Extractor, codec: TextCodec
) -> None:
    server.slots = 2
    there = Extractor.from_server(server.url, tokenizer=codec)
    assert (there.model.served.kind, there.model.served.slots) == ("llama.cpp", 2)
    found = read(there, TITLES[:4], Word)
    assert written(found) == written(read(here, TITLES[:4], Word))
    assert server.most_in_flight <= 2
    server.slots, server.most_in_flight = 1, 0
    server.asked.clear()
    there = Extractor.from_server(server.url, tokenizer=codec)
    compiled = there.compile(Small)
    read(there, TITLES[:2], Small)
    assert server.most_in_flight == 1
    prompts = compiled.encode(TITLES[:2])
    heads = [[*one.instruction, *one.documents[0], *one.opening] for one in prompts]
    asked = [
        next(n for n, head in enumerate(heads) if body["prompt"][: len(head)] == head)
        for body in server.asked
        if len(body["prompt"]) > 1  # the one that learns how it is asked
    ]
    assert sorted(document for document, _ in groupby(asked)) == [0, 1]


@pytest.mark.slow
def test_probabilities_are_not_asked_for_where_they_cost_most(small: Any, codec: TextCodec) -> None:
    with served(small, codec, "text") as server:
        there = Extractor.from_server(server.url, tokenizer=codec)
        assert there.model.served.kind == "llama-cpp-python"
        (item,) = read(there, TITLES[1:2], Word)
        assert item.fields["brand"].confidence is None
        assert not any("logprobs" in body for body in server.asked)
        there = Extractor.from_server(server.url, tokenizer=codec, probabilities=True)
        read(there, TITLES[1:2], Word)
        assert server.asked[-1]["logprobs"] == 20


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is asked by chat")
def test_a_gguf_file_without_a_tokenizer_is_asked_by_chat(small: Any, codec: TextCodec) -> None:
    with served(small, codec, "text") as server:
        there = Extractor.from_server(server.url)
        shown = [(TITLES[1], {"brand": "LG"}), (TITLES[3], {"brand": "Sony"})]
        read(there, [TITLES[4]], Word, examples=shown)
        messages = server.asked[-1]["messages"]
        roles = ["user", "assistant", "user", "assistant", "user"]
        assert [one["role"] for one in messages] == roles
        assert json.loads(messages[1]["content"]) == {"brand": "LG"}
        assert TITLES[4] in messages[-1]["content"]
        assert "logprobs" not in server.asked[-1]


@pytest.mark.release
def test_a_server_of_texts(embedded: Extractor) -> None:
    codec = as_codec(FOLDER)
    with served(embedded.model.model, codec, "text") as server:
        there = Extractor.from_server(server.url, tokenizer=FOLDER, probabilities=True)
        # Texts whose last token no line break is merged with.
        texts = [TEAS[1], "Numi Organic Gunpowder Green, loose leaf 16 oz bag"]
        tea = load_schema("tea")
        found = read(there, [*texts, "Yogi <|endoftext|> Ginger"], tea)
        assert there.model.served.kind == "llama-cpp-python"
        plain = "isolated:constrain=types"  # as servers decode
        right = [item.value for item in read(embedded, texts, tea, decoding=plain)]
        assert [item.value for item in found[:2]] == right
        # Its tokenizer would read a document's text as the control token.
        assert all("<|endoftext|>" not in body["prompt"] for body in server.asked)
        assert any("< |endoftext|>" in body["prompt"] for body in server.asked)


@pytest.mark.slow
def test_a_chat_server(embedded: Extractor) -> None:
    with served(embedded.model.model, as_codec(FOLDER), "chat") as server:
        there = Extractor.from_server(server.url)
        server.refused = {"max_tokens"}
        # The embedded model, which stands behind the server, copies demonstrations.
        found = read(there, TEAS, load_schema("tea"), examples=())
        assert len(server.asked) == 2
        assert "max_completion_tokens" in server.asked[0]
        first = found[0]
        assert first.value.brand == "Tazo"
        assert first.fields["brand"].span == (0, 4, "text")
        assert 0 < first.fields["brand"].confidence < 1
        assert first.value.country is None

        with pytest.raises(ModelError, match="leave `decoding` out"):
            there.extract(TEAS, Word, decoding="isolated")
        with pytest.raises(ServerError, match="without a tokenizer it is asked by chat"):
            Extractor.from_server(server.url, tokenizer=FOLDER)


class Size(BaseModel):
    name: str
    value: float | None = attr(default=None)


class Line(BaseModel):
    port: Port
    colors: list[str]
    sizes: list[Size]


class Order(AttrSchema):
    lines: list[Line] = attr("What is ordered", default_factory=list, max_length=4)
    total: float | None = None


LINES: list[dict[str, Any]] = [
    {
        "port": {"kind": "HDMI", "number": 2},
        "colors": ["red", "deep ] blue"],
        "sizes": [{"name": 'a "b" }', "value": 2.5}, {"name": "c", "value": None}],
    },
    {"port": {"kind": None, "number": None}, "colors": [], "sizes": []},
]


def test_lists_of_nested_models_by_chat(embedded: Extractor) -> None:
    """An answer is told beforehand; that it fits the schema sent, others check."""
    with served(embedded.model.model, as_codec(FOLDER), "chat") as server:
        answers = {
            "whole": {"lines": LINES, "total": 3},
            "faulty": {"lines": [LINES[0], {**LINES[1], "colors": 7}], "total": None},
            "empty": {"lines": [], "total": 1},
            "wrong": {"lines": "red"},
            "cut": {"total": 3, "lines": LINES},
        }

        def chat(body: dict[str, Any]) -> dict[str, Any]:
            prompt = body["messages"][0]["content"]
            answer = next(answer for name, answer in answers.items() if f"text {name}" in prompt)
            if answer is answers["whole"]:
                jsonschema.validate(answer, body["response_format"]["json_schema"]["schema"])
                assert "lines > port > kind" in prompt
            message = {"content": json.dumps(answer)}
            if answer is answers["cut"]:  # within its second line
                message["content"] = message["content"][:-30]
                return {"choices": [{"message": message, "finish_reason": "length"}]}
            return {"choices": [{"message": message}]}

        server.chat = chat  # type: ignore[method-assign]
        there = Extractor.from_server(server.url, concurrency=1)
        whole, faulty, empty, wrong, cut = read(there, [f"text {name}" for name in answers], Order)
    assert whole.value == Order.model_validate({"lines": LINES, "total": 3})
    assert whole.fields["lines.0.sizes.0.name"].value == 'a "b" }'
    assert [line.port.kind for line in faulty.value.lines] == ["HDMI", None]
    assert (empty.value.lines, empty.value.total) == ([], 1)
    assert wrong.value is not None
    assert [error.field for error in wrong.errors] == ["lines"]
    assert cut.value == Order(total=3)
    assert [(e.field, "ran out" in e.message) for e in cut.errors] == [("lines", True)]


def test_an_answer_that_is_too_large_costs_its_row(
    server: CompletionsServer, here: Extractor, codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MOST_BYTES", 20_000)
    there = Extractor.from_server(server.url, tokenizer=codec, concurrency=1)
    server.faults.append("large")
    found = read(there, TITLES[:2], Word)
    (lost,) = [item for item in found if item.value is None]
    assert "more than 20,000 bytes" in lost.errors[0].message
    (kept,) = [item for item in found if item.value is not None]
    assert written([kept]) == written(read(here, [TITLES[kept.index]], Word))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [429, 500, 503, "cut", "html"])
def test_what_passes_is_asked_again(
    server: CompletionsServer, here: Extractor, codec: TextCodec, fault: Any
) -> None:
    there = Extractor.from_server(server.url, tokenizer=codec)
    server.faults.extend([fault, fault])
    assert written(read(there, TITLES[:2], Word)) == written(read(here, TITLES[:2], Word))
    assert not server.faults


@pytest.mark.slow
def test_a_server_that_hangs(server: CompletionsServer, codec: TextCodec, here: Extractor) -> None:
    there = Extractor.from_server(server.url, tokenizer=codec, timeout=0.5)
    server.faults.append("hang")
    assert written(read(there, TITLES[:1], Word)) == written(read(here, TITLES[:1], Word))


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "said"), [(400, "400: told to"), ("empty", "without a compl")])
def test_a_refused_document_stops_no_other(
    server: CompletionsServer, here: Extractor, codec: TextCodec, fault: Any, said: str
) -> None:
    there = Extractor.from_server(server.url, tokenizer=codec, concurrency=1)
    server.faults.append(fault)
    found = read(there, TITLES[:3], Word)
    (lost,) = [item for item in found if item.value is None]
    assert said in lost.errors[0].message
    assert not lost.is_gone
    right = read(here, TITLES[:3], Word)
    del found[lost.index], right[lost.index]
    assert written(found) == written(right)


def test_a_server_that_always_fails_at_a_document(
    server: CompletionsServer, codec: TextCodec
) -> None:
    there = Extractor.from_server(server.url, tokenizer=codec, concurrency=1)
    server.faults.extend([500] * 3)
    (lost,) = [item for item in read(there, TITLES[:2], Word) if item.value is None]
    assert not lost.is_gone  # it answers others


@pytest.mark.slow
def test_a_server_that_goes_away_fails_rows_and_not_the_run(
    server: CompletionsServer, codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "TRIES", 3)
    there = Extractor.from_server(server.url, tokenizer=codec, concurrency=1)
    found = []
    for item in there.stream(iter(TITLES), Word):
        found.append(item)
        if len(found) == 2:
            server.stop()
    assert len(found) == len(TITLES)
    lost = [item for item in found if item.value is None]
    assert lost
    assert all(item.is_gone and "does not answer" in item.errors[0].message for item in lost)


@pytest.mark.slow
def test_files_go_on_where_the_server_went_away(
    server: CompletionsServer,
    here: Extractor,
    codec: TextCodec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client_module, "TRIES", 3)
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps({"id": n, "t": t}) + "\n" for n, t in enumerate(TITLES)))
    key = "sk-never-to-be-seen"

    def connected() -> Extractor:
        return Extractor.from_server(server.url, tokenizer=codec, concurrency=1, api_key=key)

    done = []

    def stop(item: Any) -> None:
        done.append(item.index)
        if len(done) == 2:
            server.stop()

    first = connected()
    with pytest.raises(ServerError, match="does not answer") as error:
        extract_files(Word, source, output, extractor=first, on_extraction=stop)
    assert "run the same again" in error.value.__notes__[0]
    assert not output.exists()
    kept = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert key.encode() not in kept
    assert server.url.encode() not in kept  # it may stand elsewhere by then
    server.start()
    server.asked.clear()
    extract_files(Word, source, output, extractor=connected())
    asked = {codec.decode_bytes(body["prompt"]).decode() for body in server.asked}
    finished = [title for n, title in enumerate(TITLES) if n in done]
    assert not any(f"\n{title}\n" in prompt for title in finished for prompt in asked)
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    right = here.extract([{"t": title} for title in TITLES], Word, on_error="null")
    assert [row["attributes"]["brand"] for row in rows] == [item.brand for item in right]


@pytest.mark.parametrize("host", ["127.0.0.1:9", "nowhere.invalid"])
def test_no_server(codec: TextCodec, host: str) -> None:
    """Said in seconds, where an answer that is slow to come is waited for over a minute."""
    started = time.monotonic()
    with pytest.raises(ServerError, match=r"does not answer \(.*is this its address\?") as error:
        Extractor.from_server(f"http://{host}/v1", tokenizer=codec)
    assert time.monotonic() - started < 45
    assert error.value.is_gone


def test_a_server_that_has_answered_is_waited_for(
    server: CompletionsServer, codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As often as before, though its connections are refused for a while."""
    replaced(monkeypatch, "seconds until a first retry", 0.01)
    there = Extractor.from_server(server.url, tokenizer=codec)
    server.stop()
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 5:
            server.start()

    monkeypatch.setattr(client_module.asyncio, "sleep", sleep)
    assert there.model.client.call("/models")["data"]
    assert len(pauses) == 5


@pytest.mark.parametrize(
    ("url", "more", "said"),
    [
        ("localhost:8000/v1", {}, "is not the address"),
        ("http://", {}, "is not the address"),
        ("http://me:secret@localhost/v1", {}, "must not hold a key"),
        ("http://localhost/v1", {"concurrency": 0}, "at least 1"),
    ],
)
def test_addresses_that_are_none(url: str, more: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        Extractor.from_server(url, **more)
    assert "secret" not in str(error.value)


def test_settings_that_no_server_takes(server: CompletionsServer, codec: TextCodec) -> None:
    with pytest.raises(ValueError, match="unknown kind of server 'tgi'"):
        Extractor.from_server(server.url, tokenizer=codec, kind="tgi")
    with pytest.raises(ModelError, match="give the folder or Hub id"):
        Extractor.from_server(server.url)
    untold = Extractor.from_server(server.url, tokenizer=codec, probabilities=False)
    with pytest.raises(ModelError, match="leave `contextual_calibration` out"):
        untold.extract(TITLES, Word, decoding="isolated:contextual_calibration=true")
    there = Extractor.from_server(server.url, tokenizer=codec)
    with pytest.raises(ModelError, match="leave `constrain` out"):
        there.extract(TITLES, Word, decoding="isolated:constrain=document")
    with pytest.raises(ModelError, match="gapped"):
        there.extract(TITLES, Word, decoding="paper")
    with pytest.warns(UserWarning, match="`extractive` of brand has no effect there"):
        there.compile(Copied)


def test_a_model_that_was_trained_to_copy_may_be_served(embedded: Extractor) -> None:
    assert embedded.defaults.decoding.constrain == "document"
    with served(embedded.model.model, as_codec(FOLDER)) as server:
        there = Extractor.from_server(server.url, tokenizer=FOLDER)
        own = embedded.defaults.decoding
        assert there.defaults.decoding == replace(own, constrain="types")
        assert there.compile(Word).decoding.constrain == "types"


def test_keys_go_to_the_server_alone(
    server: CompletionsServer,
    codec: TextCodec,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-openai")
    Extractor.from_server(server.url, tokenizer=codec)  # on this machine
    assert server.headers[-1]["authorization"] == "Bearer sk-of-openai"
    sent = headers_of(Client("http://example.com/v1"))
    assert "authorization" not in sent  # in plain text, to another machine
    monkeypatch.setenv("SCHEMAX_API_KEY", "sk-of-schemax")
    there = Extractor.from_server(server.url, tokenizer=FOLDER)
    assert server.headers[-1]["authorization"] == "Bearer sk-of-schemax"
    assert b"sk-of" not in pickle.dumps(there)
    server.faults.append(401)
    (failed,) = read(there, TITLES[:1], Word)
    shown = caplog.text + repr(failed) + repr(vars(there))
    assert "401" in shown
    assert "sk-of" not in shown


def test_a_context_that_the_server_states(
    server: CompletionsServer, here: Extractor, codec: TextCodec
) -> None:
    (prompt,) = here.compile(Word).encode(TITLES[:1])
    parts = (prompt.instruction, *prompt.documents, prompt.opening)
    server.context = sum(map(len, parts)) + 100
    there = Extractor.from_server(server.url, tokenizer=codec)
    first, second = read(there, [TITLES[0], "long " * 400], Word)
    assert first.value == here.extract(TITLES[:1], Word)[0]
    assert "the model's context has " in second.errors[0].message


@pytest.mark.slow
def test_threads_share_a_server(
    server: CompletionsServer, here: Extractor, codec: TextCodec
) -> None:
    there = Extractor.from_server(server.url, tokenizer=codec, concurrency=4)
    found: dict[int, Any] = {}

    short = DecodingConfig(k_max=2, max_retries=0, constrain="types")
    decodings = (None, DecodingConfig(layout="autoregressive", max_retries=0, k_max=4), short, None)

    def row(extractor: Extractor, place: int) -> list[Any]:
        texts = TITLES[place : place + 1]
        return written(read(extractor, texts, Word, decoding=decodings[place]))

    def work(place: int) -> None:
        found[place] = row(there, place)

    threads = [threading.Thread(target=work, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(4)] == [row(here, place) for place in range(4)]
    assert server.most_in_flight <= 4


def test_tasks_share_a_server(server: CompletionsServer, here: Extractor, codec: TextCodec) -> None:
    there = Extractor.from_server(server.url, tokenizer=codec, concurrency=4)

    async def both() -> list[list[Any]]:
        calls = (there.aextract([title], Word, on_error="null") for title in TITLES[:2])
        return list(await asyncio.gather(*calls))

    assert asyncio.run(both()) == [here.extract([title], Word) for title in TITLES[:2]]


@pytest.mark.slow
def test_a_closed_stream_lets_go(server: CompletionsServer, codec: TextCodec) -> None:
    there = Extractor.from_server(server.url, tokenizer=codec, concurrency=2)
    stream: Any = there.stream((TITLES * 100), Word)
    next(stream)
    stream.close()
    asked = len(server.asked)
    assert asked < 100
    assert read(there, TITLES[:1], Word)[0].value is not None


@pytest.mark.parametrize(
    "choice",
    [
        None,
        {},
        {"text": 5, "logprobs": {"tokens": ["a"], "token_logprobs": ["b"]}},
        {"text": "a", "logprobs": {"tokens": ["a"], "token_logprobs": [float("nan")]}},
        {"text": "a", "logprobs": {"tokens": ["a", "b"], "token_logprobs": [-1.0]}},
        {"text": "a", "logprobs": {"content": [{"token": "a", "bytes": [999]}]}},
        {"text": "a", "logprobs": {"content": ["a"]}},
    ],
)
def test_answers_that_are_none(codec: TextCodec, choice: Any) -> None:
    with pytest.raises(ServerError, match="without a completion"):
        Vocabulary(codec).answer({"choices": [choice]})


def test_answers_in_every_dialect(codec: TextCodec) -> None:
    """Tokens by id, by bytes and by text; what cannot be told is read off the text."""
    (token,) = codec.encode("a")
    told: list[Any] = [
        {"tokens": [f"token_id:{token}"], "token_logprobs": [-1], "top_logprobs": [{"b": 9e9}]},
        {"tokens": ["bytes:\\x61"], "token_logprobs": [-1], "top_logprobs": [{"b": -0.0}]},
        {
            "content": [
                {
                    "id": token,
                    "token": "?",
                    "logprob": -1,
                    "top_logprobs": [{"token": "b", "logprob": 0, "bytes": [98]}],
                }
            ]
        },
        {"tokens": ["a"], "token_logprobs": [-1], "top_logprobs": [{"b": 0, "\ufffd": -2}]},
    ]
    (other,) = codec.encode("b")
    beside = {"tokens": ["\ufffd"], "token_logprobs": [-1]}
    choice = {"text": "a", "logprobs": beside, "token_ids": [token]}
    (step,) = Vocabulary(codec).answer({"choices": [choice]}).steps
    assert (step.token, step.logprob) == (token, -1)
    for logprobs in told:
        answer = Vocabulary(codec).answer({"choices": [{"text": "a", "logprobs": logprobs}]})
        assert [step.token for step in answer.steps] == [token]
        assert answer.steps[0].logprob == -1
        assert answer.steps[0].top == {token: -1.0, other: 0.0}
    unknown = {"tokens": ["\ufffd", "token_id:99999"], "token_logprobs": [-1, -1]}
    for logprobs in (None, unknown):
        reply = {"text": "ab", "finish_reason": "length", "logprobs": logprobs}
        answer = Vocabulary(codec).answer({"choices": [reply]})
        assert codec.decode_bytes(step.token for step in answer.steps) == b"ab"
        assert not answer.ended
        assert all(step.logprob is None for step in answer.steps)


def test_without_probabilities(
    server: CompletionsServer, here: Extractor, codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = server.complete
    monkeypatch.setattr(server, "complete", lambda body: complete({**body, "logprobs": None}))
    there = Extractor.from_server(
        server.url, tokenizer=codec, decoding="isolated:constrain=nothing"
    )
    found = read(there, ["x"], Word)
    assert found[0].fields["brand"].confidence is None
    assert found[0].fields["brand"].raw is not None


def test_closing(server: CompletionsServer, codec: TextCodec) -> None:
    with Extractor.from_server(server.url, tokenizer=codec) as there:
        assert there.extract(TITLES[:1], Word, on_error="null")
    assert not there.model.client.close.alive
    with pytest.raises(ModelError):
        there.extract(TITLES[:1], Word)
