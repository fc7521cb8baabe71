"""Measures a server that speaks OpenAI's protocol, on the same products."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from schemax.errors import ServerError
from schemax.evaluation.benchmark.engines.base import BenchmarkError
from schemax.evaluation.examples import Example, accepted
from schemax.evaluation.labelled_schemas import annotated_schemas
from schemax.evaluation.scores import extractions_of, labelled, values_of
from schemax.extraction.extractor import Extractor

ABSENT = (
    "vLLM: not measured here; start it with `vllm serve MODEL` and pass "
    "--against http://localhost:8000/v1"
)


def ask_server(
    address: str,
    examples: Sequence[Example],
    tokenizer: Any,
    *,
    concurrency: int = 32,
    token_prices: tuple[float, float] | None = None,
) -> dict[str, Any]:
    """Asks a server for the output of every product, as its other clients do.

    address: URL or URL#MODEL of the API, `/v1` included; by default the server's first model.
    tokenizer: its chat template renders the prompts. A server without completions is asked by chat,
        with the server's own template.
    token_prices: dollars for a million tokens, read and written.

    Returns the figures of the report. agreement: the share of attributes with the annotated value,
    null included; tokens_read, tokens: counted by the server, None if it does not count.

    Raises BenchmarkError if the server cannot be reached, or its answers cannot be read.
    """
    schemas = annotated_schemas(examples)
    try:
        extractor = _connected(address, tokenizer, concurrency)
        warm_up = extractions_of(extractor, examples[:1], schemas)
        usage = extractor.model.client.usage
        usage.clear()
        started = time.perf_counter()
        found = extractions_of(extractor, examples, schemas)
    except (ServerError, ValueError) as error:
        raise BenchmarkError(str(error)) from error
    seconds = time.perf_counter() - started
    for item in (*warm_up, *found):
        if not item.slots:
            raise BenchmarkError(item.errors[0].message)
    values = [values_of(item) for item in found]
    flags = [
        value in accepted(example.attributes.get(name))
        for example, predicted in zip(examples, labelled(examples, values, schemas), strict=True)
        for name, value in predicted.items()
    ]
    read, tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
    dollars = None
    if token_prices is not None and read is not None and tokens is not None:
        dollars = (read * token_prices[0] + tokens * token_prices[1]) / 1e3 / len(found)
    return {
        "url": extractor.model.client.url,
        "model": extractor.model.served.model,
        "products": len(examples),
        "concurrency": concurrency,
        "seconds": seconds,
        "products_per_second": len(examples) / seconds,
        "agreement": sum(flags) / max(1, len(flags)),
        "tokens_read": read,
        "tokens": tokens,
        "dollars_per_1000": dollars,
    }


def _connected(address: str, tokenizer: Any, concurrency: int) -> Extractor:
    url, _, model = address.partition("#")
    settings: Any = {"model": model or None, "concurrency": concurrency}
    try:
        return Extractor.from_server(
            url, tokenizer=tokenizer, decoding="autoregressive", **settings
        )
    except ServerError as error:
        if error.status not in (404, 405):
            raise
        return Extractor.from_server(url, kind="openai", **settings)
