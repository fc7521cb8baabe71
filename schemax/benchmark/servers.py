"""Any server that speaks OpenAI's completions protocol, on the same products."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from schemax.benchmark.engines.base import BenchmarkError
from schemax.compiler import CompiledSchema, compile_schema
from schemax.evaluation.examples import Example, accepted
from schemax.evaluation.schemas import annotated_schemas

ABSENT = (
    "vLLM: not measured here; start it with `vllm serve MODEL` and pass "
    "--against http://localhost:8000/v1"
)
_SECONDS = 600


def ask_server(
    url: str,
    examples: Sequence[Example],
    tokenizer: Any,
    *,
    concurrency: int = 32,
    model: str | None = None,
    format: str | None = None,
) -> dict[str, Any]:
    """Sends every product as one request, `concurrency` at a time, and reads the answers.

    url: of the API, `/v1` included. model: as the server names it; None takes its first.
    tokenizer: whose chat template the prompts are written in.

    Gives the figures of the report. agreement: the share of attributes whose value is the annotated
    one, null included; tokens: generated, by the server's own count, None where it gives none.

    Raises BenchmarkError where the server cannot be reached or answers otherwise.
    """
    base = url.rstrip("/")
    if not base.startswith(("http://", "https://")):
        raise BenchmarkError(
            f"{url!r} is not the address of a server; start it with http:// or https://"
        )
    served = model or str(_found(_read(f"{base}/models"), "data", "id"))
    compiled = {
        name: compile_schema(schema, tokenizer, format=format, decoding="autoregressive")
        for name, schema in annotated_schemas(examples).items()
    }
    bodies = [_body(compiled[e.category], e.text, served) for e in examples]
    ask = partial(_read, f"{base}/completions")
    ask(bodies[0])  # the first one warms up
    started = time.perf_counter()
    with ThreadPoolExecutor(concurrency) as pool:
        replies = list(pool.map(ask, bodies))
    seconds = time.perf_counter() - started
    flags = [
        flag
        for example, reply in zip(examples, replies, strict=True)
        for flag in _agreeing(
            compiled[example.category], example, str(_found(reply, "choices", "text"))
        )
    ]
    counts = [(reply.get("usage") or {}).get("completion_tokens") for reply in replies]
    known = [int(count) for count in counts if count is not None]
    return {
        "url": base,
        "model": served,
        "products": len(examples),
        "concurrency": concurrency,
        "seconds": seconds,
        "products_per_second": len(examples) / seconds,
        "agreement": sum(flags) / max(1, len(flags)),
        "tokens": sum(known) if len(known) == len(replies) else None,
    }


def _body(compiled: CompiledSchema, text: str, model: str) -> dict[str, Any]:
    """A request with the prompt as text, special tokens by name, so that any server can read it."""
    (prompt,) = compiled.encode([text])
    document = compiled.codec.decode_bytes(prompt.documents[0]).decode("utf-8", "replace")
    written = compiled.prompt
    parts = (written.chat_prefix, written.instruction, document, written.closing)
    body: dict[str, Any] = {
        "model": model,
        "prompt": "".join(parts) + written.chat_suffix + compiled.format.opening(),
        "max_tokens": prompt.k_max[0],
        "temperature": 0,
    }
    # Models that were never taught to stop would be charged for rambling.
    if end := compiled.format.closing(compiled.attributes[-1].labels).rstrip():
        body["stop"] = [end]
    return body


def _agreeing(compiled: CompiledSchema, example: Example, text: str) -> Iterator[bool]:
    found = compiled.format.parse(text, [attribute.labels for attribute in compiled.attributes])
    for attribute in compiled.attributes:
        value, raw = None, found.get(attribute.labels)
        with suppress(ValueError):
            value = None if raw is None else compiled.format.unescape(raw)
        yield value in accepted(example.attributes.get(attribute.label))


def _found(reply: dict[str, Any], items: str, key: str) -> Any:
    """That key of the first of the items of a reply."""
    try:
        return reply[items][0][key]
    except (KeyError, IndexError, TypeError) as error:
        raise BenchmarkError(
            f"the server replied without {items}: {json.dumps(reply)[:200]}"
        ) from error


def _read(url: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """What an address replies, asked for or sent a body."""
    headers = {"Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urlopen(Request(url, data, headers), timeout=_SECONDS) as response:
            reply = json.load(response)
    except HTTPError as error:
        said = error.read(200).decode("utf-8", "replace")
        raise BenchmarkError(f"{url} refused ({error.code}): {said}") from error
    except (OSError, ValueError) as error:
        raise BenchmarkError(f"{url} does not answer: {error}") from error
    if not isinstance(reply, dict):
        raise BenchmarkError(f"{url} answered with something other than a JSON object")
    return reply
