"""What a server refuses is told in the form of OpenAI's errors, with the parameter at fault."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from conftest import Small, tiny_model
from serving import served
from transformers import PreTrainedTokenizerFast

from schemax import Extractor
from schemax.serve.limits import ServerLimits

httpx = pytest.importorskip("httpx")

SCHEMA = Small.model_json_schema()
SECONDS = 4.0
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def url(codec: Any, backend: Any) -> Iterator[str]:
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    extractor = Extractor(tiny_model("qwen3", codec.vocab_size), fast)
    limits = ServerLimits(seconds=SECONDS)
    with served(extractor, limits=limits, hosts=["localhost", "127.0.0.1", "[::1]"]) as address:
        yield address


def begun(url: str, path: str, sent: bytes, kind: str = "application/json") -> socket.socket:
    """A connection with a body that is announced as larger than what was sent."""
    place = urlsplit(url)
    connection = socket.create_connection((place.hostname, place.port), timeout=30)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {len(sent) + 1000}\r\n\r\n"
    )
    connection.sendall(head.encode() + sent)
    return connection


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_client_that_still_sends_gets_the_refusal(url: str, is_announced: bool) -> None:
    """A connection that is closed under a sending client is reset, and loses the answer."""
    place, size = urlsplit(url), 1_000_000
    length = f"Content-Length: {10 * size}" if is_announced else "Transfer-Encoding: chunked"
    head = "POST /v1/extract HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    piece = b"x" * size if is_announced else b"%x\r\n%s\r\n" % (size, b"x" * size)
    with socket.create_connection((place.hostname, place.port), timeout=30) as connection:
        connection.sendall(f"{head}{length}\r\n\r\n".encode())
        for _ in range(10):
            connection.sendall(piece)
            time.sleep(0.05)
        answer = b"".join(iter(lambda: connection.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"8,000,000 bytes" in answer


def test_a_misspelt_key_is_named(url: str) -> None:
    body = {"schema": SCHEMA, "documents": ["LG"], "detail": False}
    error = httpx.post(f"{url}/v1/extract", json=body).json()["error"]
    assert error["message"] == "unknown key 'detail', perhaps 'details'"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["/v1/extract", "/v1/chat/completions", "/v1/responses"])
def test_a_body_that_is_not_finished_is_timed_out(url: str, path: str) -> None:
    began = time.monotonic()
    said = b""
    with contextlib.closing(begun(url, path, b'{"schema": "' + b"x" * 500_000)) as connection:
        while data := connection.recv(65_536):  # until the server closes the connection
            said += data
    head, _, body = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in head.lower()
    assert f"not complete within {SECONDS:g} seconds" in json.loads(body)["error"]["message"]
    assert time.monotonic() - began >= SECONDS


@pytest.mark.slow
def test_bodies_that_trickle_have_no_more_time(url: str) -> None:
    """A byte now and then is no reason to wait."""
    with contextlib.closing(begun(url, "/v1/extract", b"{")) as connection:
        connection.settimeout(0.2)
        for _ in range(100):
            try:
                assert connection.recv(100).startswith(b"HTTP/1.1 408 ")
                break
            except TimeoutError:
                connection.sendall(b" ")
        else:
            pytest.fail("the server still waits")


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "param", "said"),
    [
        ("GET", "/health", {"headers": {"host": "evil.example:80"}}, 400, "Host", "evil.example"),
        ("GET", "/health", {"headers": {"host": ""}}, 400, "Host", "is not called"),
        ("GET", "/nothing", {"headers": {"host": "192.0.2.2:80"}}, 404, None, "/nothing"),
        ("GET", "/nothing", {"headers": {"host": "[2001:db8::1]"}}, 404, None, "/nothing"),
        ("GET", "/v1/nothing", {}, 404, None, "/v1/nothing"),
        ("GET", "/v1/extract", {}, 405, None, "takes POST, not GET"),
        ("POST", "/health", {}, 405, None, "takes GET, not POST"),
        ("POST", "/v1/chat/completions", {"content": b"{", "headers": JSON}, 400, None, "no JSON"),
        ("POST", "/v1/extract", {"content": b"{", "headers": JSON}, 400, None, "no JSON"),
        (
            "POST",
            "/v1/responses",
            {"content": b"{}", "headers": {"content-type": "text/plain"}},
            415,
            "Content-Type",
            "application/json, not 'text/plain'",
        ),
        (
            "POST",
            "/v1/chat/completions",
            {"content": b'{"model": "x"}'},
            415,
            "Content-Type",
            "application/json, not 'nothing'",
        ),
        (
            "POST",
            "/v1/extract",
            {"content": b"{}", "headers": {"content-type": "text/plain"}},
            415,
            "Content-Type",
            "not 'text/plain'",
        ),
        ("POST", "/v1/extract", {"json": {"schema": "shoes"}}, 400, "documents", "required"),
        (
            "POST",
            "/v1/extract",
            {"json": {"schema": "none", "documents": ["a"]}},
            400,
            "schema",
            "none",
        ),
        (
            "POST",
            "/v1/extract",
            {"json": {"schema": "shoes", "documents": [{"a": "b"}], "keep": ["sku"]}},
            400,
            "keep",
            "sku",
        ),
        (
            "POST",
            "/v1/extract",
            {"json": {"schema": "shoes", "documents": ["a"], "temperature": -1}},
            400,
            "temperature",
            "temperature",
        ),
        (
            "POST",
            "/v1/extract",
            {"json": {"schema": {"type": "string"}, "documents": ["a"]}},
            400,
            "schema",
            "",
        ),
        (
            "POST",
            "/v1/responses",
            {
                "json": {
                    "input": " ",
                    "text": {"format": {"type": "json_schema", "schema": SCHEMA}},
                }
            },
            400,
            "input",
            "input must end",
        ),
    ],
)
def test_refusals_have_one_form(
    url: str, method: str, path: str, options: Any, status: int, param: str | None, said: str
) -> None:
    answer = httpx.request(method, url + path, timeout=60, **options)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert error.keys() == {"message", "type", "param", "code"}
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert said in error["message"]


def test_names_of_this_machine_are_taken_with_their_ports(url: str) -> None:
    for host in ("localhost", "LOCALHOST:80", "127.0.0.1:1", "[::1]:8000", "[::1]"):
        assert httpx.get(f"{url}/health", headers={"host": host}).status_code == 200


def test_time_counts_from_the_arrival() -> None:
    """Of a stream too, whose answer begins before its work is done."""
    from schemax.serve.answers import DEADLINE
    from schemax.serve.gate import Gate
    from schemax.serve.monitoring import Metrics

    seen: list[float] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope[DEADLINE] - asyncio.get_running_loop().time())
        await asyncio.sleep(0.2)
        await receive()
        await asyncio.sleep(60)

    async def ask() -> list[Any]:
        sent: list[Any] = []
        metrics = Metrics(lambda: 0)
        gate = Gate(
            app, api_key=None, limits=ServerLimits(seconds=0.4), metrics=metrics, hosts=["*"]
        )

        async def receive() -> Any:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "headers": [], "path": "/v1/extract", "method": "POST"}
        async with asyncio.timeout(30):
            await gate(scope, receive, send)
        return sent

    assert asyncio.run(ask())[0]["status"] == 504
    assert 0.3 < seen[0] <= 0.4


BAD = "a\ud800"
SHOE: dict[str, Any] = {
    "title": "Shoe",
    "description": "A shoe",
    "$comment": "none",
    "type": "object",
    "required": ["brand", "color"],
    "$defs": {"Color": {"const": "red"}},
    "properties": {
        "brand": {
            "title": "Brand",
            "description": "Who made it",
            "type": ["string", "null"],
            "default": "Nike",
            "examples": ["Puma"],
            "pattern": "^[A-Z]",
        },
        "kind": {"enum": ["boot", "shoe"]},
        "color": {"$ref": "#/$defs/Color"},
        "weight": {"type": "number", "unit": "oz"},
        "extras": {"type": "array", "items": {"enum": ["a", 1]}, "default": ["a"]},
        "more": {"type": "object", "additionalProperties": {"type": "string", "format": "date"}},
    },
    "if": {"properties": {"kind": {"const": "boot"}}},
    "then": {"required": ["weight"]},
    "demonstrations": [{"document": "Nike", "values": {"brand": "Nike"}}],
}


def spoilt(node: Any) -> Iterator[Any]:
    """Copies of a document with a lone surrogate in one text, or name, each."""
    if isinstance(node, str):
        yield BAD
    elif isinstance(node, list):
        for number, item in enumerate(node):
            yield from ([*node[:number], bad, *node[number + 1 :]] for bad in spoilt(item))
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from ({**node, key: bad} for bad in spoilt(value))
            yield {**{k: v for k, v in node.items() if k != key}, key + BAD: value}


def test_half_a_surrogate_pair_in_a_schema_is_told_with_its_place(url: str) -> None:
    documents = list(spoilt(SHOE))
    assert len(documents) > 60
    with httpx.Client(base_url=url, timeout=60) as client:
        for document in documents:
            wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": document}}
            said = [{"role": "user", "content": "Nike"}]
            body = json.dumps({"messages": said, "response_format": wanted})
            answer = client.post("/v1/chat/completions", content=body, headers=JSON)
            assert answer.status_code == 400, document
            error = answer.json()["error"]
            assert error["param"] == "response_format.json_schema.schema"
            assert "#" in error["message"]
            assert "half a surrogate pair" in error["message"]


def test_half_a_surrogate_pair_in_a_body_is_told(url: str) -> None:
    body = json.dumps({"schema": BAD, "documents": ["Nike"]})
    answer = httpx.post(f"{url}/v1/extract", content=body, headers=JSON)
    assert answer.status_code == 400
    assert "no JSON" in answer.json()["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_half_a_surrogate_pair_that_is_echoed_is_an_escape(url: str, stream: bool) -> None:
    tool = {"name": BAD, "parameters": SCHEMA}
    chat = {
        "messages": [{"role": "user", "content": "Nike"}],
        "tools": [{"type": "function", "function": tool}],
    }
    said = {
        "input": "Nike",
        "instructions": BAD,
        "text": {"format": {"type": "json_schema", "name": BAD, "schema": SCHEMA}},
    }
    call = {"input": "Nike", "tools": [{"type": "function", **tool}]}
    for path, body in (("chat/completions", chat), ("responses", said), ("responses", call)):
        content = json.dumps(body | {"stream": stream})
        answer = httpx.post(f"{url}/v1/{path}", content=content, headers=JSON, timeout=60)
        assert answer.status_code == 200, answer.text
        assert stream or r"a\ud800" in answer.text


def test_half_a_surrogate_pair_in_a_document_is_told(url: str) -> None:
    form = {"format": {"type": "json_schema", "name": "s", "schema": SCHEMA}}
    content = json.dumps({"input": BAD, "text": form})
    answer = httpx.post(f"{url}/v1/responses", content=content, headers=JSON, timeout=60)
    assert answer.status_code == 400
    assert "half a surrogate pair" in answer.json()["error"]["message"]
