"""The server itself: what it gives, what it refuses, what it survives."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import jsonschema
import pytest
from conftest import TITLES, Small, tiny_model
from pydantic import BaseModel, Field
from seams import calls_of, prefixes_of, replaced
from serving import served
from transformers import PreTrainedTokenizerFast
from typer.testing import CliRunner

from schemax import Extractor, ModelError
from schemax.commands import cli
from schemax.serve.limits import ServerLimits

httpx = pytest.importorskip("httpx")

SCHEMA = Small.model_json_schema()
LIMITS = ServerLimits(
    body_bytes=200_000, documents=50, fields=40, schema_characters=20_000, queue=60
)


@pytest.fixture(scope="module")
def make(codec: Any, backend: Any) -> Any:
    def make() -> Extractor:
        fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
        return Extractor(tiny_model("qwen3", codec.vocab_size), fast)

    return make


@pytest.fixture(scope="module")
def extractor(make: Any) -> Extractor:
    found: Extractor = make()
    return found


@pytest.fixture(scope="module")
def url(extractor: Extractor) -> Iterator[str]:
    with served(extractor, api_key="key", limits=LIMITS) as address:
        yield address
    with pytest.raises(ModelError, match="is closed"):
        extractor.extract(TITLES, Small)


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    headers = {"Authorization": "Bearer key"}
    with httpx.Client(base_url=url, headers=headers, timeout=60) as made:
        yield made


def asked(text: str = "LG", schema: Any = SCHEMA, **more: Any) -> dict[str, Any]:
    wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    said = [{"role": "user", "content": text}]
    return {"messages": said, "response_format": wanted, **more}


def test_rows_are_those_of_one_call(client: Any, extractor: Extractor) -> None:
    documents = [*TITLES, "", {"title": "LG OLED", "id": 7}, {"title": [[]]}]
    body = {"schema": SCHEMA, "documents": documents, "details": False}
    answer = client.post("/v1/extract", json=body).json()
    expected = sorted(extractor.stream(documents, Small), key=lambda item: item.index)
    assert answer["rows"] == [item.to_row() for item in expected]
    lines = client.post("/v1/extract", json=body, headers={"Accept": "application/x-ndjson"})
    rows = [json.loads(line) for line in lines.text.splitlines()]
    assert sorted(rows, key=lambda row: row["index"]) == answer["rows"]


def test_chats_hold_texts_to_their_document(client: Any) -> None:
    """As the documents of other requests are held, of a model that schemax did not train."""
    schema = {"type": "object", "properties": {"brand": {"type": "string"}}, "required": ["brand"]}
    for title in TITLES[:3]:
        done = client.post("/v1/chat/completions", json=asked(title, schema)).json()
        assert json.loads(done["choices"][0]["message"]["content"])["brand"] in title
        read = client.post("/v1/extract", json={"schema": schema, "documents": [title]}).json()
        assert read["rows"][0]["attributes"]["brand"] in title


class Person(BaseModel):
    name: str = "?"
    born: Literal["1950", "2000"] | None = None


class Company(BaseModel):
    name: str = "?"
    form: Literal["AG", "Ltd"] | None = None


class Offer(BaseModel):
    seller: Person | Company | None = None
    specs: dict[str, float] = Field(default_factory=dict, max_length=2)
    code: int | str | None = None
    size: tuple[int, int] | None = None


@pytest.mark.slow
def test_unions_and_dicts_by_every_way(client: Any) -> None:
    schema = Offer.model_json_schema()
    read = client.post("/v1/extract", json={"schema": schema, "documents": TITLES[:3]})
    checked = jsonschema.Draft202012Validator(schema)
    rows = read.json()["rows"]
    for row, title in zip(rows, TITLES[:3], strict=True):
        done = client.post("/v1/chat/completions", json=asked(title, schema)).json()
        written = json.loads(done["choices"][0]["message"]["content"])
        for instance in (row["attributes"], written):
            checked.validate(instance)
            Offer.model_validate(instance)
        usage = done["usage"]
        assert usage["prompt_tokens"] > usage["prompt_tokens_details"]["cached_tokens"]
    assert {"seller.kind", "specs", "code", "size"} <= rows[0]["fields"].keys()


def test_details_have_confidences_and_places(client: Any) -> None:
    body = {"schema": "television", "documents": TITLES[:2]}
    rows = client.post("/v1/extract", json=body).json()["rows"]
    assert {"confidence", "span", "raw"} <= rows[0]["fields"]["brand"].keys()


def test_what_there_is(client: Any, url: str) -> None:
    assert client.get("/v1/models").json()["data"][0]["id"] == "schemax"
    assert "shoes" in client.get("/v1/schemas").json()["schemas"]
    assert httpx.get(f"{url}/health").json() == {"status": "ok"}
    docs = httpx.get(f"{url}/docs")
    assert docs.status_code == 200
    assert "POST /v1/chat/completions" in docs.text
    assert "max_completion_tokens" in docs.text
    assert not any(word in docs.text for word in ("http:", "https:", "<script", "<link"))
    paths = httpx.get(f"{url}/openapi.json").json()["paths"]
    assert {"/v1/chat/completions", "/v1/responses", "/v1/extract", "/metrics"} <= paths.keys()
    client.post("/v1/extract", json={"schema": SCHEMA, "documents": TITLES})
    figures = client.get("/metrics").text
    assert 'schemax_documents_total{result="read"}' in figures
    assert 'schemax_requests_total{path="/v1/extract",status="200"}' in figures


TOOL = {"type": "function", "name": "final_result", "parameters": SCHEMA, "strict": True}


def test_the_one_function_of_a_response_is_called(client: Any) -> None:
    body = {"input": TITLES[0], "tools": [TOOL], "tool_choice": "required"}
    done = client.post("/v1/responses", json=body).json()
    (call,) = done["output"]
    assert (call["type"], call["name"], call["status"]) == (
        "function_call",
        "final_result",
        "completed",
    )
    form = {"type": "json_schema", "name": "s", "schema": SCHEMA}
    plain = client.post("/v1/responses", json={"input": TITLES[0], "text": {"format": form}})
    assert call["arguments"] == plain.json()["output"][0]["content"][0]["text"]
    # The same as a stream.
    answer = client.post("/v1/responses", json={**body, "stream": True}).text
    events = [json.loads(line[6:]) for line in answer.splitlines() if line.startswith("data: {")]
    deltas = [e["delta"] for e in events if e["type"].endswith("arguments.delta")]
    assert "".join(deltas) == call["arguments"]
    kinds = [e["type"].removeprefix("response.") for e in events]
    assert kinds[:3] == ["created", "in_progress", "output_item.added"]
    ends = ["function_call_arguments.done", "output_item.done", "completed"]
    assert kinds[-3:] == ends
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    (streamed,) = events[-1]["response"]["output"]
    assert events[-2]["item"] == streamed
    assert {e["item_id"] for e in events if "arguments" in e["type"]} == {streamed["id"]}
    assert streamed["arguments"] == call["arguments"]
    # Neither several functions nor other tools are filled in.
    for tools in ([TOOL, TOOL], [{"type": "web_search"}]):
        refused = client.post("/v1/responses", json={**body, "tools": tools})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "tools"
    without = {**body, "tool_choice": "none", "text": {"format": form}}
    assert client.post("/v1/responses", json=without).json()["output"][0]["type"] == "message"


def test_a_model_is_told_by_its_name(client: Any, make: Any) -> None:
    (model,) = client.get("/v1/models").json()["data"]
    assert client.get("/v1/models/schemax").json() == model
    answer = client.get("/v1/models/gpt-5")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"
    with served(make(), name="org/small") as address:
        assert httpx.get(f"{address}/v1/models/org/small").json()["id"] == "org/small"


def test_what_requires_the_key_says_so(url: str, make: Any) -> None:
    document = httpx.get(f"{url}/openapi.json").json()
    schemes = document["components"]["securitySchemes"]
    assert schemes == {"HTTPBearer": {"type": "http", "scheme": "bearer"}}
    for path, verbs in document["paths"].items():
        for verb in verbs.values():
            assert ("security" in verb) == (path != "/health"), path
    with served(make()) as address:
        assert "security" not in httpx.get(f"{address}/openapi.json").text


@pytest.mark.parametrize("given", [None, "Bearer wrong", "key"])
@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/v1/extract", "/nowhere"])
def test_nothing_is_told_without_the_key(url: str, path: str, given: str | None) -> None:
    headers = {} if given is None else {"Authorization": given}
    answer = httpx.get(url + path, headers=headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"


def properties(count: int) -> dict[str, Any]:
    return {"type": "object", "properties": {f"f{n}": {"type": "string"} for n in range(count)}}


def deep(levels: int) -> dict[str, Any]:
    node: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        node = {"type": "object", "properties": {"a": node}}
    return node


TEMPLATED = {**properties(1), "template": "/etc/passwd"}
HIDDEN = {"$ref": "#/$defs/A", "$defs": {"A": TEMPLATED}}
BACK = {"type": "object", "properties": {"f": {"type": "string", "pattern": "(" * 9_000}}}
AWAY = {"type": "object", "properties": {"f": {"$ref": "http://127.0.0.1:1/x"}}}
NEVER = {"type": "object", "properties": {"f": {"type": "integer", "minimum": 5, "maximum": 3}}}
DICT = {"type": "object", "additionalProperties": {"type": "string"}}
ITSELF = {"type": "object", "properties": {"f": {"$ref": "#"}}}


@pytest.mark.parametrize(
    ("status", "schema", "reason"),
    [
        (400, {"type": "object"}, "no properties"),
        (400, {"type": "string"}, 'must have type "object"'),
        (400, TEMPLATED, "for the server to choose"),
        (400, HIDDEN, "for the server to choose"),
        (400, {**properties(1), "format": "xml"}, "for the server to choose"),
        (400, BACK, "f"),
        (400, AWAY, "points outside the document"),
        (400, ITSELF, "."),
        (400, NEVER, "no value satisfies"),
        (400, DICT, "make it a property of an object"),
        (400, deep(40), "levels deep"),
        (400, deep(200), "l"),  # in the words of whoever meets it first
        (422, properties(41), "41 fields"),
        (422, properties(2_000), "characters"),
    ],
    ids=str,
)
def test_schemas_that_are_refused(client: Any, status: int, schema: Any, reason: str) -> None:
    for answer in (
        client.post("/v1/chat/completions", json=asked(schema=schema)),
        client.post("/v1/extract", json={"schema": schema, "documents": ["LG"]}),
    ):
        error = answer.json()["error"]
        assert answer.status_code == status, error
        assert reason in error["message"]
        assert error["type"] == "invalid_request_error"
        if reason != "l":  # the parser of JSON knows no parameters
            assert error["param"].endswith("schema")


@pytest.mark.parametrize(
    ("status", "path", "body"),
    [
        (400, "/v1/extract", {"schema": SCHEMA, "documents": []}),
        (400, "/v1/extract", {"schema": SCHEMA}),
        (400, "/v1/extract", {"schema": "nothing", "documents": ["LG"]}),
        (400, "/v1/extract", {"schema": SCHEMA, "documents": ["LG"], "temperature": -1}),
        (422, "/v1/extract", {"schema": SCHEMA, "documents": ["LG"] * 51}),
        (413, "/v1/extract", {"schema": SCHEMA, "documents": ["LG" * 100_000]}),
        (400, "/v1/chat/completions", asked(temperature="hot")),
        (400, "/v1/chat/completions", asked("  ")),
        (400, "/v1/chat/completions", {**asked(), "messages": []}),
        (400, "/v1/chat/completions", asked(n=2)),
        (400, "/v1/responses", {"input": "LG"}),
        (400, "/v1/responses", {"input": "LG", "previous_response_id": "resp_1", "tools": [TOOL]}),
        (400, "/v1/extract", {"schema": SCHEMA, "documents": ["LG"], "detials": False}),
        (404, "/v1/completions", {}),
    ],
)
def test_requests_that_are_refused(client: Any, status: int, path: str, body: Any) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]


def test_a_choice_of_another_function_is_refused(client: Any) -> None:
    function = {"name": "tv", "parameters": SCHEMA}
    body = {"messages": [{"role": "user", "content": "LG"}]}
    body["tools"] = [{"type": "function", "function": function}]
    flat = {"input": "LG", "tools": [{"type": "function", **function}]}
    for choice, status in (("radio", 400), ("tv", 200)):
        named = {"tool_choice": {"type": "function", "function": {"name": choice}}}
        there = client.post("/v1/chat/completions", json=body | named)
        named = {"tool_choice": {"type": "function", "name": choice}}
        for answer in (there, client.post("/v1/responses", json=flat | named)):
            assert answer.status_code == status
            if status == 400:
                assert answer.json()["error"]["param"] == "tool_choice"


@pytest.mark.parametrize(
    "body", [b"", b"{", b"\xff\xfe", b"[" * 50_000, b'{"schema":' * 20_000, b"null", b"[1e999]"]
)
def test_bodies_that_are_no_requests(client: Any, body: bytes) -> None:
    answer = client.post("/v1/extract", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["message"]


def test_a_body_of_unknown_length_is_bounded(client: Any) -> None:
    def endless() -> Iterator[bytes]:
        yield b'{"schema": "shoes", "documents": ["'
        for _ in range(100):
            yield b"x" * 10_000

    headers = {"content-type": "application/json"}
    assert client.post("/v1/extract", content=endless(), headers=headers).status_code == 413


def test_a_full_queue_says_when_to_come_again(client: Any) -> None:
    """Those who are refused lose nothing but their turn."""
    body = {"schema": SCHEMA, "documents": [f"LG {n}" for n in range(50)], "details": False}
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: client.post("/v1/extract", json=body), range(8)))
    codes = {answer.status_code for answer in found}
    assert codes == {200, 429}
    for answer in found:
        if answer.status_code == 429:
            assert answer.headers["retry-after"] == "1"
        else:
            assert [row["index"] for row in answer.json()["rows"]] == list(range(50))
    assert client.post("/v1/extract", json=body).status_code == 200


def test_time_is_limited(make: Any) -> None:
    slow = ServerLimits(seconds=0.05)
    body = {"schema": SCHEMA, "documents": [f"LG {n}" for n in range(900)]}
    extractor = make()
    with served(extractor, limits=slow) as address:
        answer = httpx.post(f"{address}/v1/extract", json=body, timeout=60)
        assert answer.status_code == 504
        while calls_of(extractor):
            time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("accept", ["application/json", "application/x-ndjson"])
def test_clients_that_leave_leave_the_batch(
    client: Any, extractor: Extractor, monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    body = {"schema": SCHEMA, "documents": [f"{t} {n}" for n in range(7) for t in TITLES]}
    # The schema's first request measures the model's prior for its choices.
    assert client.post("/v1/extract", json=body | {"documents": TITLES[:1]}).status_code == 200
    passes = 0
    has_left = threading.Event()
    usual = extractor.model.run_batch

    def run_batch(batch: Any, cache: Any) -> Any:
        nonlocal passes
        passes += 1
        assert has_left.wait(60)
        return usual(batch, cache)

    monkeypatch.setattr(extractor.model, "run_batch", run_batch)
    with pytest.raises(httpx.TimeoutException):
        client.post("/v1/extract", json=body, headers={"accept": accept}, timeout=0.5)
    time.sleep(0.5)  # until the server has noticed
    has_left.set()
    for _ in range(600):
        if not calls_of(extractor):
            break
        time.sleep(0.05)
    assert passes <= 2  # the instruction, and what was under way
    assert client.post("/v1/chat/completions", json=asked()).status_code == 200


def test_no_text_of_a_document_is_logged(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    extractor = make()

    def failing(*_: Any) -> Any:
        raise RuntimeError("at the word Rosebud")

    extractor.model.run_batch = failing
    with served(extractor) as address:
        answer = httpx.post(f"{address}/v1/chat/completions", json=asked("Rosebud"))
    assert answer.status_code == 500
    assert "RuntimeError" in answer.json()["error"]["message"]
    said = [record.getMessage() for record in caplog.records if "httpx" not in record.name]
    assert any("RuntimeError" in line for line in said)
    assert not any("Rosebud" in line for line in [*said, caplog.text])


def test_names_that_lead_here_from_elsewhere_are_refused(make: Any) -> None:
    with served(make(), hosts=["localhost", "127.0.0.1"]) as address:
        assert httpx.get(f"{address}/health").status_code == 200
        evil = httpx.get(f"{address}/health", headers={"host": "evil.example"})
        assert evil.status_code == 400


# The command


@pytest.mark.release
@pytest.mark.parametrize("args", [["--host", "0.0.0.0"], ["--host", "example.com"]])
def test_a_key_is_required_beyond_this_machine(args: list[str]) -> None:
    command = [sys.executable, "-m", "schemax", "serve", *args]
    environment = {k: v for k, v in os.environ.items() if k != "SCHEMAX_API_KEY"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert "give --api-key" in done.stderr


def test_a_port_that_is_taken_is_told_before_a_model_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("schemax.commands.options.load_extractor", None)  # not reached
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(cli.app, ["serve", "--port", str(port)])
    assert result.exit_code == 2
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in result.stderr


@pytest.mark.release
def test_port_0_tells_which_one_was_free() -> None:
    command = [sys.executable, "-m", "schemax", "serve", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        said = next(line for line in process.stderr if "serving" in line)
        port = int(said.partition("127.0.0.1:")[2].partition(";")[0])
        assert port > 0
        for _ in range(600):
            try:
                assert httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200
                break
            except httpx.TransportError:
                time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0
    finally:
        process.kill()
        process.wait()


@pytest.mark.release
def test_sigterm_lets_requests_end(free_port: int) -> None:
    command = [sys.executable, "-m", "schemax", "serve", "--port", str(free_port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    address = f"http://127.0.0.1:{free_port}"
    try:
        for _ in range(600):
            try:
                assert httpx.get(f"{address}/health").status_code == 200
                break
            except httpx.TransportError:
                time.sleep(0.1)
        body = {"schema": "shoes", "documents": [f"Nike Pegasus {n}" for n in range(100)]}
        found: list[Any] = []

        def post() -> None:
            found.append(httpx.post(f"{address}/v1/extract", json=body, timeout=120))

        thread = threading.Thread(target=post)
        thread.start()
        while "schemax_documents_in_flight 100" not in httpx.get(f"{address}/metrics").text:
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        thread.join()
        assert len(found[0].json()["rows"]) == 100
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "Traceback" not in said
    finally:
        process.kill()


@pytest.fixture
def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


@pytest.mark.slow
def test_a_server_keeps_few_prefixes(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each schema of a stranger has one of its own."""
    replaced(monkeypatch, "bytes of served prefixes", 0)
    extractor = make()
    weights = sum(weight.nbytes for weight in extractor.model.model.parameters())
    with served(extractor) as address, httpx.Client(base_url=address, timeout=60) as client:
        for number in range(40):
            text = {"type": ["string", "null"], "description": f"{number} of {'many ' * 4}"}
            schema = {"type": "object", "properties": {f"brand_{number}": text}}
            found = client.post("/v1/extract", json={"schema": schema, "documents": ["LG"]})
            assert found.status_code == 200, found.text
        kept = prefixes_of(extractor.model)
    sizes = [sum(part.nbytes for both in prefix for part in both) for prefix in kept]
    # The last is kept, whatever it takes.
    assert sum(sizes[:-1]) <= weights // 2 < 40 * max(sizes)


def test_a_name_that_the_server_does_not_list_is_of_no_other_kind(url: str) -> None:
    """A server of schemax is asked for slots, whatever name it is given."""
    listed, other = (
        Extractor.from_server(f"{url}/v1", model=name, api_key="key") for name in (None, "Other")
    )
    assert type(listed.model) is type(other.model)
    assert listed.extract(["LG 4K"], Small) == other.extract(["LG 4K"], Small)
