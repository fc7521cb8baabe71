"""Memory of a server that many clients ask with schemas of their own.

`python tests/serve/test_serve_memory.py 5000 500` runs as many requests with as many schemas, and
tells what the server's process takes on the way.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from serving import ALLOCATOR

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc"),
]

REQUESTS, SCHEMAS, CLIENTS, EACH, MOST = 700, 100, 8, 100, 64.0  # MiB
WARM = 5
"""Rounds of all schemas in which caches still fill."""
PORT = re.compile(r"http://127\.0\.0\.1:(\d+)")


def schema(number: int) -> dict[str, Any]:
    """With bounds, choices, a pattern and a list of its own, so that nothing of it is shared."""
    text = {"type": ["string", "null"]}
    properties = {
        f"brand_{number}": text,
        "color": {**text, "maxLength": 12 + number % 50},
        "kind": {"enum": [f"boot {number}", "shoe", None]},
        "code": {**text, "pattern": f"^[A-Z]{{{number % 9 + 1}}}-{number}$"},
        "parts": {"type": "array", "maxItems": 2, "items": {"enum": ["lace", f"sole {number}"]}},
    }
    return {"type": "object", "properties": properties, "required": list(properties)}


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """The address and the process of `schemax serve`."""
    environment = os.environ | ALLOCATOR
    command = [sys.executable, "-m", "schemax", "serve", "--port", "0"]
    with TemporaryDirectory() as folder:
        log = Path(folder, "log")
        with log.open("wb") as said:  # no pipe, which is full once nobody reads it
            process = subprocess.Popen(command, stdout=said, stderr=said, env=environment)
        try:
            while (found := PORT.search(log.read_text("utf-8"))) is None:
                assert process.poll() is None
                time.sleep(0.1)
            yield found[0], process.pid
        finally:
            process.kill()
            process.wait()


def resident(process: int) -> float:
    """MiB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


async def crowd(address: str, process: int, requests: int, schemas: int) -> list[float]:
    """Memory after each hundred requests, which take one schema after the other."""
    numbers, memory = iter(range(requests)), []
    done = 0

    async def one(client: Any) -> None:
        nonlocal done
        for number in numbers:
            body = {
                "schema": schema(number % schemas),
                "documents": [f"Nike Pegasus {number}, black"],
                "details": False,
            }
            answer = await client.post("/v1/extract", json=body)
            assert answer.status_code == 200, answer.text
            done += 1
            if done % EACH == 0:
                memory.append(resident(process))

    async with httpx.AsyncClient(base_url=address, timeout=300) as client:
        await asyncio.gather(*(one(client) for _ in range(CLIENTS)))
    return memory


@pytest.mark.release
def test_memory_stays_where_it_was_once_caches_are_full() -> None:
    with server() as (address, process):
        memory = asyncio.run(crowd(address, process, REQUESTS, SCHEMAS))
    assert max(memory) - memory[WARM - 1] < MOST, memory


if __name__ == "__main__":
    with server() as (address, process):
        sizes = asyncio.run(crowd(address, process, int(sys.argv[1]), int(sys.argv[2])))
    print("MiB:", ", ".join(f"{size:.0f}" for size in sizes))
