"""What serving costs: the documents of many clients beside the same documents in one call."""

from __future__ import annotations

import ctypes
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from serving import served

from schemax import Extractor, load_schema
from schemax.resources import resource_dir

pytest.importorskip("httpx")
pytestmark = pytest.mark.slow

# In a process of its own: clients are not what is measured.
CLIENTS = """
import asyncio, json, sys, time
import httpx

address, clients, documents = sys.argv[1], int(sys.argv[2]), json.load(sys.stdin)

async def main():
    waiting = iter(enumerate(documents))
    rows, seconds = {}, []
    limits = httpx.Limits(max_connections=clients)
    async with httpx.AsyncClient(base_url=address, timeout=300, limits=limits) as client:
        async def one():
            for number, text in waiting:
                body = {"schema": "shoes", "documents": [text], "details": False}
                began = time.perf_counter()
                answer = await client.post("/v1/extract", json=body)
                seconds.append(time.perf_counter() - began)
                rows[number] = answer.json()["rows"][0]["attributes"]
        began = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(clients)))
        whole = time.perf_counter() - began
    json.dump({"seconds": seconds, "whole": whole, "rows": rows}, sys.stdout)

asyncio.run(main())
"""


def by_clients(address: str, clients: int, documents: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-c", CLIENTS, address, str(clients)]
    done = subprocess.run(
        command, input=json.dumps(documents), capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def resident() -> float:
    """MiB of this process, without what the allocator keeps for later."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def test_what_serving_costs(capsys: pytest.CaptureFixture[str]) -> None:
    """64 clients at once beside one call, in time of this process's CPU, which others that share
    the machine do not change; one client beside calls of one document; memory."""
    colors = ("black", "white", "red")
    documents = [f"Nike Pegasus {n}, {colors[n % 3]}, size {n % 9}" for n in range(160)]
    schema = load_schema("shoes")
    extractor = Extractor.from_pretrained(resource_dir("embedded"))
    expected = [value.model_dump(mode="json") for value in extractor.extract(documents, schema)]
    throughputs, clocks, ratios, memory = [], [], [], []
    with served(extractor) as address:
        for _ in range(5):
            began, clock = time.process_time(), time.perf_counter()
            extractor.extract(documents, schema)
            between, clock = time.process_time(), time.perf_counter() - clock
            found = by_clients(address, 64, documents)
            throughputs.append((between - began) / (time.process_time() - between))
            clocks.append(clock / found["whole"])
            assert [found["rows"][str(n)] for n in range(len(documents))] == expected
            alone = []
            for text in documents[:12]:
                began = time.perf_counter()
                extractor.extract([text], schema)
                alone.append(time.perf_counter() - began)
            served_alone = by_clients(address, 1, documents[:12])["seconds"]
            ratios.append(statistics.median(served_alone) / statistics.median(alone))
            memory.append(resident())
    with capsys.disabled():
        print(
            f"\n64 clients: {statistics.median(throughputs):.2f} of one call's documents per CPU "
            f"second, {statistics.median(clocks):.2f} by the clock; "
            f"one document: {statistics.median(ratios):.2f} of its time; "
            f"memory: {', '.join(f'{size:.0f}' for size in memory)} MiB"
        )
    assert statistics.median(throughputs) > 0.6  # on a machine that does other work
    assert statistics.median(ratios) < 1.5
    assert memory[-1] - memory[1] < 60
