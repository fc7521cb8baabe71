"""A load test of `schemax serve`: clients send requests at a steady rate, for minutes.

The times at which requests are due are drawn beforehand, so that a slow server does not get fewer
requests: latency counts from the time at which a request is due.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import quantiles
from typing import Any

import httpx2 as httpx

_SCHEMA = "shoes"
_WORDS = (
    *("Nike", "Adidas", "Puma", "Asics", "running", "walking", "shoe", "boot", "mesh", "leather"),
    *("black", "white", "red", "blue", "women's", "men's", "size", "8", "9.5", "10"),
)
_MEMORY = re.compile(r"^process_resident_memory_bytes (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Load:
    """A load. clients: each with at most one pending request. rate: requests per second, in all."""

    url: str
    clients: int = 256
    rate: float = 20.0
    seconds: float = 600.0
    seed: int = 0


@dataclass(slots=True)
class LoadResult:
    """The result of a load test. seconds: latencies of answered requests, from when they were due.

    lost: the reasons of requests without an answer, or with another request's.
    deferred: the number of answers 429 and 503, after which a client retries.
    memory: resident bytes of the server at regular intervals; empty if not reported.
    """

    seconds: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    deferred: int = 0
    memory: list[float] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        lost = f": {', '.join(sorted(set(self.lost)))}" if self.lost else ""
        yield (
            f"{len(self.seconds):,} requests answered, {len(self.lost):,} lost{lost}; "
            f"{self.deferred:,} asked again"
        )
        if len(self.seconds) > 1:
            cuts = quantiles(self.seconds, n=100, method="inclusive")
            parts = (f"p{n} {cuts[n - 1]:.2f} s" for n in (50, 95, 99))
            yield f"{', '.join(parts)}, longest {max(self.seconds):.2f} s"
        if self.memory:
            yield f"MiB: {', '.join(f'{size / 2**20:.0f}' for size in self.memory)}"


def measure_load(load: Load, tell: Callable[[str], None] = lambda _: None) -> LoadResult:
    """Runs a load test with requests of one document, with the ready-made schema `shoes`.

    Raises OSError if no server answers.
    """
    return asyncio.run(_measure(load, tell))


async def _measure(load: Load, tell: Callable[[str], None]) -> LoadResult:
    result, rng = LoadResult(), random.Random(load.seed)
    count = max(1, round(load.rate * load.seconds))
    due = iter(sorted(rng.uniform(0, load.seconds) for _ in range(count)))
    limits = httpx.Limits(max_connections=load.clients + 1, max_keepalive_connections=load.clients)
    async with httpx.AsyncClient(base_url=load.url, limits=limits, timeout=600) as client:
        try:
            await client.get("/health")
        except httpx.HTTPError as error:
            raise OSError(f"{load.url} does not answer: {error}") from error
        began = time.monotonic()
        watching = asyncio.create_task(_watch(client, load, result, tell))

        async def one(name: int) -> None:
            for number, at in enumerate(due):
                await asyncio.sleep(max(0.0, began + at - time.monotonic()))
                text = " ".join(rng.choices(_WORDS, k=12))
                reason = await _ask(client, f"{name}-{number}", text, result)
                if reason is None:
                    result.seconds.append(time.monotonic() - began - at)
                else:
                    result.lost.append(reason)

        await asyncio.gather(*(one(name) for name in range(load.clients)))
        watching.cancel()
    return result


async def _ask(client: Any, name: str, text: str, result: LoadResult) -> str | None:
    """Sends a request until it is answered; returns None, or the reason why it is lost."""
    body = json.dumps({"schema": _SCHEMA, "documents": [{"id": name, "title": text}]})
    headers = {"Content-Type": "application/json"}
    while True:
        try:
            answer = await client.post("/v1/extract", content=body, headers=headers)
        except httpx.HTTPError as error:
            return type(error).__name__
        if answer.status_code in (429, 503):
            result.deferred += 1
            await asyncio.sleep(float(answer.headers.get("Retry-After", 1)))
            continue
        if answer.status_code != 200:
            return f"status {answer.status_code}"
        is_own = [row["id"] for row in answer.json()["rows"]] == [name]
        return None if is_own else "another's answer"


async def _watch(client: Any, load: Load, result: LoadResult, tell: Callable[[str], None]) -> None:
    """Records the server's memory at every tenth of the run, and reports progress."""
    for tenth in range(11):
        metrics = await client.get("/metrics")
        if found := _MEMORY.search(metrics.text):
            result.memory.append(float(found[1]))
        tell(f"{tenth} of 10 parts, {len(result.seconds):,} requests answered")
        await asyncio.sleep(load.seconds / 10)
