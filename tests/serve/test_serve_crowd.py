"""A crowd of clients of every kind at once: nothing is lost, nothing doubled, memory stays flat."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from serving import ALLOCATOR

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")
pytestmark = pytest.mark.slow

CLIENTS, REQUESTS = 100, 400
SCHEMA = {
    "type": "object",
    "properties": {
        "brand": {"type": ["string", "null"]},
        "color": {"type": ["string", "null"], "maxLength": 12},
    },
    "required": ["brand", "color"],
}
BRANDS, COLORS = ("Nike", "Adidas", "Puma", "Asics"), ("black", "white", "red", "blue")
TEXTS = [
    f"{brand} running shoe, {color}, {n}" for n in range(3) for brand in BRANDS for color in COLORS
]
HOSTILE: list[bytes] = [
    b"{" * 2_000,
    b"[" * 60_000,
    b'{"schema": {"type": "object"}, "documents": ["a"]}',
    b'{"schema": "../../etc/passwd", "documents": ["a"]}',
    b'{"schema": "shoes", "documents": []}',
    json.dumps({"schema": {**SCHEMA, "$ref": "http://127.0.0.1:1/x"}, "documents": ["a"]}).encode(),
    json.dumps({"schema": SCHEMA, "documents": ["a"], "temperature": -1}).encode(),
    b"\xff\xfe\x00" * 1_000,
]
LINES = "application/x-ndjson"


class Crowd:
    """Clients, each with a kind per request; `found` counts these."""

    def __init__(self, client: Any, expected: dict[str, Any], seed: int) -> None:
        self.client, self.expected = client, expected
        self.rng = random.Random(seed)
        self.found = Counter[str]()

    async def run(self, requests: int) -> None:
        numbers = iter(range(requests))

        async def one() -> None:
            for number in numbers:
                kind = self.rng.choice(["rows", "lines", "chat", "hostile", "hasty", "slow"])
                while not await getattr(self, kind)(number):
                    await asyncio.sleep(self.rng.uniform(0.05, 0.3))  # the queue is full
                self.found[kind] += 1

        await asyncio.gather(*(one() for _ in range(CLIENTS)))

    def documents(self, number: int) -> list[dict[str, str]]:
        picked = [(number + k) % len(TEXTS) for k in range(1 + number % 3)]
        return [{"id": f"{number}-{place}", "title": TEXTS[place]} for place in picked]

    def check(self, documents: list[dict[str, str]], rows: list[Any]) -> None:
        assert sorted(row["id"] for row in rows) == sorted(one["id"] for one in documents)
        for row in rows:
            assert row["attributes"] == self.expected[TEXTS[int(row["id"].partition("-")[2])]]

    async def rows(self, number: int) -> bool:
        documents = self.documents(number)
        body = {"schema": SCHEMA, "documents": documents, "details": False}
        answer = await self.client.post("/v1/extract", json=body)
        if answer.status_code == 429:
            return False
        self.check(documents, answer.json()["rows"])
        return True

    async def lines(self, number: int) -> bool:
        return await self._lines(number, 0)

    async def slow(self, number: int) -> bool:
        """Sends a line now and then, and reads as slowly."""
        return await self._lines(number, 0.1)

    async def _lines(self, number: int, pause: float) -> bool:
        documents = self.documents(number)

        async def content() -> AsyncIterator[bytes]:
            for line in ({"schema": SCHEMA, "details": False}, *documents):
                yield json.dumps(line).encode() + b"\n"
                await asyncio.sleep(pause)

        headers, rows = {"content-type": LINES}, []
        async with self.client.stream(
            "POST", "/v1/extract", content=content(), headers=headers
        ) as answer:
            if answer.status_code == 429:
                return False
            async for line in answer.aiter_lines():
                rows.append(json.loads(line))
                await asyncio.sleep(pause)
        self.check(documents, rows)
        return True

    async def chat(self, number: int) -> bool:
        text, said = TEXTS[number % len(TEXTS)], ""
        wanted = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
        messages = [{"role": "user", "content": text}]
        body = {"messages": messages, "response_format": wanted, "stream": True}
        async with self.client.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code == 429:
                return False
            async for line in answer.aiter_lines():
                if line.startswith("data: {"):
                    said += json.loads(line[6:])["choices"][0]["delta"].get("content", "")
        assert json.loads(said) == self.expected[text]
        return True

    async def hostile(self, number: int) -> bool:
        kind = LINES if number % 3 == 0 else "application/json"
        body = HOSTILE[number % len(HOSTILE)]
        answer = await self.client.post("/v1/extract", content=body, headers={"content-type": kind})
        assert 400 <= answer.status_code < 500
        assert answer.json()["error"]["message"]
        return answer.status_code != 429

    async def hasty(self, number: int) -> bool:
        """Leaves at any time."""
        asked = getattr(self, self.rng.choice(["rows", "lines", "chat"]))(number)
        try:
            async with asyncio.timeout(self.rng.uniform(0, 0.2)):
                await asked
        except (TimeoutError, httpx.TransportError):
            pass
        return True


def resident(process: int) -> float:
    """MiB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


# httpx loses the socket of a client that leaves while it connects.
@pytest.mark.release
@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_crowd(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [sys.executable, "-m", "schemax", "serve", "--port", str(port), "--max-queue", "150"]
    log = tmp_path / "log"
    environment = os.environ | ALLOCATOR
    with log.open("wb") as said:
        process = subprocess.Popen(command, stderr=said, stdout=said, env=environment)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(1200):
            try:
                assert httpx.get(f"{address}/health").status_code == 200
                break
            except httpx.TransportError:
                time.sleep(0.1)
        began = time.monotonic()
        found, memory = asyncio.run(crowds(address, process.pid))
        seconds = time.monotonic() - began
        assert sum(found.values()) == REQUESTS
        assert len(found) == 6
        for _ in range(100):
            figures = httpx.get(f"{address}/metrics").text
            if "schemax_documents_in_flight 0.0" in figures:
                break
            time.sleep(0.1)
        assert "schemax_documents_in_flight 0.0" in figures
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    logged = log.read_text("utf-8")
    assert "Traceback" not in logged
    assert "running shoe" not in logged
    with capsys.disabled():
        sizes = ", ".join(f"{size:.0f}" for size in memory)
        kinds = ", ".join(f"{count} {kind}" for kind, count in found.items())
        print(f"\n{CLIENTS} clients in {seconds:.0f} s: {kinds}; MiB: {sizes}")
    assert memory[-1] - memory[1] < 100  # allocators scatter some 40
    gc.collect()  # lost sockets are told of here, and not in other tests


async def crowds(address: str, process: int) -> tuple[Counter[str], list[float]]:
    """Four crowds, one after the other; memory before the first and after each."""
    limits, found = httpx.Limits(max_connections=CLIENTS), Counter[str]()
    async with httpx.AsyncClient(base_url=address, timeout=300, limits=limits) as client:
        body = {"schema": SCHEMA, "documents": TEXTS, "details": False}
        rows = (await client.post("/v1/extract", json=body)).json()["rows"]
        expected = {text: row["attributes"] for text, row in zip(TEXTS, rows, strict=True)}
        memory = [resident(process)]
        for seed in range(4):
            crowd = Crowd(client, expected, seed)
            await crowd.run(REQUESTS // 4)
            found += crowd.found
            # Documents of clients that left are still read, in memory that passes use.
            for _ in range(100):
                if "schemax_documents_in_flight 0.0" in (await client.get("/metrics")).text:
                    break
                await asyncio.sleep(0.1)
            memory.append(resident(process))
    return found, memory
