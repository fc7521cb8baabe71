"""Bodies of newline-delimited JSON: a row for every line, in bounded memory, whoever reads when."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

import pytest
from conftest import TITLES, Small, tiny_model
from seams import calls_of
from serving import served
from transformers import PreTrainedTokenizerFast

from schemax import Extractor
from schemax.serve.limits import ServerLimits
from schemax.serve.lines import Spool, SpoolError

httpx = pytest.importorskip("httpx")

LINES = {"content-type": "application/x-ndjson"}
HEAD = {"schema": Small.model_json_schema(), "details": False}
LIMITS = ServerLimits(
    body_bytes=20_000, stream_bytes=200_000, answer_bytes=5_000, queue=70, seconds=20
)


@pytest.fixture(scope="module")
def extractor(codec: Any, backend: Any) -> Extractor:
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    return Extractor(tiny_model("qwen3", codec.vocab_size), fast)


@pytest.fixture(scope="module")
def url(extractor: Extractor) -> Iterator[str]:
    with served(extractor, limits=LIMITS) as address:
        yield address


def body(*documents: Any, head: Any = HEAD) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in (head, *documents))


def post(url: str, content: Any, **options: Any) -> Any:
    return httpx.post(f"{url}/v1/extract", content=content, headers=LINES, timeout=60, **options)


def rows_of(answer: Any) -> list[Any]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/x-ndjson"
    found = [json.loads(line) for line in answer.text.splitlines()]
    return sorted(found, key=lambda row: row["index"])


@pytest.mark.slow
def test_rows_are_those_of_one_call(url: str, extractor: Extractor) -> None:
    """More documents than may be under way, and more rows than may wait in memory."""
    documents = [f"{title} {n}" for n in range(20) for title in TITLES[:5]]
    documents += [{"title": "LG OLED", "id": 7}, ""]
    expected = sorted(extractor.stream(documents, Small), key=lambda item: item.index)
    assert rows_of(post(url, body(*documents))) == [item.to_row() for item in expected]


def test_a_line_that_cannot_be_read_costs_its_own_row(url: str) -> None:
    content = (
        body("LG") + b'\n{"id": 3, "title": \n\xff\xfe\n[1]\n  \n' + b"[" * 9_000 + b'\n"Sony"'
    )
    first, broken, bytes_, kind, deep, last = rows_of(post(url, content))
    assert first["attributes"] is not None
    assert last["attributes"] is not None
    assert "line 4 is no JSON" in broken["errors"][0]["message"]
    assert "line 5 is no JSON" in bytes_["errors"][0]["message"]
    assert "text or a mapping" in kind["errors"][0]["message"]
    assert "line 8" in deep["errors"][0]["message"]


def test_keys_of_documents_are_kept_beside_their_rows(url: str) -> None:
    documents = [{"sku": {"a": [1]}, "title": "LG", "x": 1}, "Sony", {"title": "LG"}, [1]]
    head = {**HEAD, "keep": ["sku", "x"], "id": "sku", "text": "title"}
    nothing = {"sku": None, "x": None}
    kept = [{"sku": {"a": [1]}, "x": 1}, nothing, nothing, nothing]
    rows = rows_of(post(url, body(*documents, head=head)))
    assert [row["kept"] for row in rows] == kept
    assert "kept" not in rows_of(post(url, body("LG")))[0]
    whole = {**head, "documents": documents[:3]}
    for accepted in ("application/json", "application/x-ndjson"):
        answer = httpx.post(f"{url}/v1/extract", json=whole, headers={"Accept": accepted})
        found = answer.json()["rows"] if accepted == "application/json" else rows_of(answer)
        assert [row["kept"] for row in found] == kept[:3]
    refused = httpx.post(f"{url}/v1/extract", json={**whole, "keep": ["skus"]})
    assert refused.status_code in (400, 422)
    assert "keep names 'skus', perhaps 'sku', but the request has" in refused.text


def test_an_id_that_a_window_lacks_is_not_refused(url: str) -> None:
    head = {**HEAD, "id": "skus"}
    rows = rows_of(post(url, body({"sku": 1, "title": "LG"}, {"title": "LG"}, head=head)))
    assert all(row["id"] is None and row["attributes"] for row in rows)


@pytest.mark.parametrize(
    ("status", "content", "reason"),
    [
        (400, b"", "JSON"),
        (400, b'{"schema": "shoes"', "JSON"),
        (400, b'"LG"\n', "object"),
        (400, body(head={**HEAD, "documents": ["LG"]}), "documents"),
        (400, body("LG", head={"schema": "nothing"}), "unknown schema"),
        (400, body("LG", head={**HEAD, "temperature": -1}), "temperature"),
        (413, body("LG", head={**HEAD, "id": "x" * 30_000}), "line 1"),
        (413, body(*["LG" * 1000] * 200), "200,000 bytes"),
    ],
)
def test_bodies_that_are_refused(url: str, status: int, content: bytes, reason: str) -> None:
    answer = post(url, content)
    assert answer.status_code == status
    assert reason in answer.json()["error"]["message"]


def test_what_goes_wrong_on_the_way_is_the_last_line(url: str) -> None:
    *rows, last = map(json.loads, post(url, body("LG", "x" * 30_000)).text.splitlines())
    assert "line 3 has more than 20,000 bytes" in last["error"]["message"]
    assert all("attributes" in row for row in rows)

    def endless() -> Iterator[bytes]:
        yield body("LG")
        for _ in range(100):
            yield b"\n" * 5_000

    assert "200,000 bytes" in post(url, endless()).text.splitlines()[-1]


def test_rows_come_while_lines_are_sent(url: str, extractor: Extractor) -> None:
    """A client that sends a line and waits for its row, and in the end just leaves."""
    place = urlsplit(url)
    with closing(socket.create_connection((place.hostname, place.port), timeout=30)) as ours:
        head = f"POST /v1/extract HTTP/1.1\r\nHost: {place.hostname}\r\n"
        head += "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
        ours.sendall(head.encode())

        def send(data: bytes) -> None:
            ours.sendall(b"%x\r\n%b\r\n" % (len(data), data))

        send(body())
        found = b""
        for number in range(3):
            send(json.dumps(f"LG {number}").encode() + b"\n")
            while found.count(b'"errors"') <= number:
                found += ours.recv(65_536)
        send(b'"LG"\n' * 200)
    for _ in range(600):
        if not calls_of(extractor):
            break
        asyncio.run(asyncio.sleep(0.05))
    assert not calls_of(extractor)
    assert rows_of(post(url, body("LG")))


def test_a_spool_gives_back_what_was_put_and_is_bounded() -> None:
    async def run() -> None:
        spool, data = Spool(1_000, 0.05), [bytes([n]) * 300 for n in range(9)]
        for part in data[:4]:
            await spool.put(part)
        with pytest.raises(SpoolError, match="1,000 bytes"):
            await spool.put(data[4])
        taken = await spool.take()
        assert taken == b"".join(data[:4])
        await spool.put(b"last")
        await spool.end()
        assert [await spool.take(), await spool.take()] == [b"last", b""]
        spool.close()

    asyncio.run(run())


def test_an_answer_is_bounded(url: str) -> None:
    asked = {**HEAD, "documents": [f"LG {n}" for n in range(40)], "details": True}
    answer = httpx.post(f"{url}/v1/extract", json=asked, timeout=60)
    assert answer.status_code == 422
    assert "more than 5,000 bytes" in answer.json()["error"]["message"]
    answer = httpx.post(f"{url}/v1/extract", content=b"{}", headers={"content-type": "text/plain"})
    assert answer.status_code == 415


def test_a_surrogate_costs_no_other_row(url: str) -> None:
    """In ids, texts and what is kept; nothing but an escape can say it in JSON."""
    bad = [
        {"id": "\ud800", "title": "LG"},
        {"id": 1, "title": "\ud800"},
        {"id": 2, "title": "LG", "kept": "a\udfff"},
        {"id": 3, "title": "LG", "kept": {"\ud800": 1}},
        {"id": 4, "title": "LG", "kept": float("nan")},
        {"id": 5, "title": "LG", "kept": nested(600)},
        {"id": "\ud800", "title": [[]]},
    ]
    documents = [one for each in bad for one in ({"id": "good", "title": "LG"}, each)]
    head = {**HEAD, "keep": ["kept"]}
    rows = rows_of(post(url, body(*documents, head=head)))
    assert [row["index"] for row in rows] == list(range(len(documents)))
    assert all(row["id"] == "good" and row["attributes"] for row in rows[::2])
    assert rows[1]["id"] == "\ud800"
    assert rows[5]["kept"] == {"kept": "a\udfff"}
    alone = httpx.post(
        f"{url}/v1/extract",
        content=json.dumps({**head, "documents": bad[:3]}),
        headers={"content-type": "application/json"},
        timeout=60,
    )
    assert (alone.status_code, "is no JSON" in alone.text) == (400, True)


def nested(levels: int) -> Any:
    node: Any = 1
    for _ in range(levels):
        node = [node]
    return node
