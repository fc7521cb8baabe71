"""What serving costs: the documents of many clients beside the same documents in one call."""

from __future__ import annotations

import ctypes
import json
import os
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
from schemax.base.resources import resource_dir

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


def measured() -> dict[str, Any]:
    """Rounds of 80 documents: one call's processor time over that of 64 clients, the same by the
    clock, one client's seconds over those of calls of one document, and MiB after each round."""
    colors = ("black", "white", "red")
    documents = [f"Nike Pegasus {n}, {colors[n % 3]}, size {n % 9}" for n in range(80)]
    schema = load_schema("shoes")
    extractor = Extractor.from_pretrained(resource_dir("embedded"))
    expected = [value.model_dump(mode="json") for value in extractor.extract(documents, schema)]
    throughputs, clocks, ratios, memory, equal = [], [], [], [], []
    with served(extractor) as address:
        for _ in range(4):
            began, clock = time.process_time(), time.perf_counter()
            extractor.extract(documents, schema)
            between, clock = time.process_time(), time.perf_counter() - clock
            found = by_clients(address, 64, documents)
            throughputs.append((between - began) / (time.process_time() - between))
            clocks.append(clock / found["whole"])
            equal.append([found["rows"][str(n)] for n in range(len(documents))] == expected)
            alone = []
            for text in documents[:12]:
                began = time.perf_counter()
                extractor.extract([text], schema)
                alone.append(time.perf_counter() - began)
            served_alone = by_clients(address, 1, documents[:12])["seconds"]
            ratios.append(statistics.median(served_alone) / statistics.median(alone))
            memory.append(resident())
    return {
        "throughput": statistics.median(throughputs),
        "clock": statistics.median(clocks),
        "ratio": statistics.median(ratios),
        "memory": memory,
        "equal": equal,
    }


@pytest.mark.release
def test_what_serving_costs(capsys: pytest.CaptureFixture[str]) -> None:
    """64 clients at once beside one call, in processor time of the serving process, which others
    that share the machine do not change; one client beside calls of one document; memory. All in a
    process of its own: the memory of one that ran other tests grows by what those left behind."""
    done = subprocess.run(
        [sys.executable, __file__],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    with capsys.disabled():
        print(
            f"\n64 clients: {found['throughput']:.2f} of one call's documents per CPU second, "
            f"{found['clock']:.2f} by the clock; one document: {found['ratio']:.2f} of its time; "
            f"memory: {', '.join(f'{size:.0f}' for size in found['memory'])} MiB"
        )
    assert all(found["equal"])
    assert found["throughput"] > 0.6  # on a machine that does other work
    assert found["ratio"] < 1.5
    assert found["memory"][-1] - found["memory"][1] < 60


if __name__ == "__main__":
    print(json.dumps(measured()))
