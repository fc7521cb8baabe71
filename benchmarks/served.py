"""Times a document through the server, against `generate` with the same JSON token by token.

Both replay given tokens, so that random weights of a published shape suffice. The server, the app
of `schemax serve`, is asked over HTTP on this machine, and timed from the client's text to its
typed row. `generate` is timed from token ids to token ids.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from statistics import median
from typing import Any
from unittest.mock import patch

from schemax.attributes import Attribute
from schemax.compiler import CompiledSchema
from schemax.evaluation.benchmark.engines import BenchmarkError, EngineOptions
from schemax.evaluation.benchmark.generate import (
    Generate,
    Replay,
    behind,
    cache_arguments,
    copied_cache,
    prefix_cache,
)
from schemax.evaluation.benchmark.workload import Category, Listing, Workload
from schemax.extraction.declarations import load_schema
from schemax.extraction.extractor import Extractor
from schemax.formats import Writable
from schemax.tokens import Ids, PromptIds

_SCHEMA = "clothing"  # 16 fields


@dataclass(frozen=True, slots=True)
class ServedCost:
    """The seconds of every round. document, keys, values: their numbers of tokens."""

    fields: int
    document: int
    keys: int
    values: int
    served: tuple[float, ...]
    generated: tuple[float, ...]

    def lines(self) -> Iterator[str]:
        ratios = [theirs / ours for theirs, ours in zip(self.generated, self.served, strict=True)]
        yield (
            f"schema {_SCHEMA}, {self.fields} fields; {self.document} tokens of the document, "
            f"{self.keys} of keys, {self.values} of values"
        )
        yield f"  served: {median(self.served):.3f} s"
        tokens = self.keys + self.values
        yield f"generate: {median(self.generated):.3f} s, {tokens} tokens one by one"
        yield (
            f"   ratio: {median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f} "
            f"in {len(ratios)} rounds)"
        )


def measure_served(
    model: Any,
    tokenizer: Any,
    repeats: int,
    document_tokens: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> ServedCost:
    """Times requests and generations, by turns; both have read the instruction before.

    document_tokens: the approximate length of the document, which has all values at least.

    Raises BenchmarkError if either wrote anything else, InputError without the dependencies of
    `schemax serve`.
    """
    extractor = Extractor(model, tokenizer)
    schema = load_schema(_SCHEMA)
    compiled = extractor.compile(schema)
    values = [_value_of(attribute) for attribute in compiled.attributes]
    text = ", ".join(json.dumps(value).strip('"[]') for value in values)
    text += " and more" * ((document_tokens - len(compiled.codec.encode(text))) // 2)
    answers = tuple(answer_of(compiled, value) for value in values)
    (prompt,) = compiled.encode([text])
    work = _work(compiled, prompt, answers)
    engine = Generate(model, EngineOptions())
    engine.setup(work)
    served, generated = [], []
    with _replayed(answers), served_app(extractor) as port:
        for number in range(repeats + 1):
            tell(f"round {number} of {repeats}" if number else "warm-up")
            began = time.perf_counter()
            row = _asked(port, text)
            served.append(time.perf_counter() - began)
            _check(row, compiled, values, schema)
            generated.append(_generated(engine, work))
    engine.teardown()
    keys = sum(map(len, compiled.keys[0]))
    return ServedCost(
        fields=len(values),
        document=len(prompt.documents[0]),
        keys=keys,
        values=sum(map(len, answers)),
        served=tuple(served[1:]),
        generated=tuple(generated[1:]),
    )


def _value_of(attribute: Attribute) -> Writable:
    """Returns an example of the schema, or a value of the type."""
    if attribute.choices:
        return attribute.choices[0]
    plain: dict[str, Writable] = {"boolean": True, "integer": 2, "number": 2.5}
    return plain.get(attribute.kind) or next(iter(attribute.examples), "Classic")


def answer_of(compiled: CompiledSchema, value: Writable) -> Ids:
    """Returns a value's ids, up to the token that completes the value."""
    ids = compiled.codec.encode(compiled.format.escape(value) + compiled.format.delimiter)
    return tuple(ids[: compiled.stop.length(ids)])


def _work(compiled: CompiledSchema, prompt: PromptIds, answers: tuple[Ids, ...]) -> Workload:
    category = Category(
        compiled.instruction, compiled.opening, compiled.keys[0], tuple(map(len, answers))
    )
    vocab_size = len(compiled.codec.token_bytes)
    eos_id = compiled.stop.eos_ids[0] if compiled.stop.eos_ids else vocab_size - 1
    listing = Listing(0, prompt.documents[0], answers)
    return Workload((category,), (listing,), compiled.stop, eos_id, vocab_size, {})


@contextmanager
def _replayed(answers: tuple[Ids, ...]) -> Iterator[None]:
    """Makes all compiled schemas write the answers, for the context."""
    usual = CompiledSchema.encode

    def encode(compiled: CompiledSchema, texts: Sequence[str]) -> list[PromptIds]:
        return [replace(prompt, answers=(answers,)) for prompt in usual(compiled, texts)]

    with patch.object(CompiledSchema, "encode", encode):
        yield


@contextmanager
def served_app(extractor: Extractor) -> Iterator[int]:
    """Runs the app of `schemax serve` in a thread, yields its port; then closes the extractor."""
    import uvicorn

    from schemax.serve.app import create_app

    config = uvicorn.Config(create_app(extractor), port=0, log_level="warning")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        while not server.started:
            if not thread.is_alive():
                raise BenchmarkError("the server did not start")
            time.sleep(0.01)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


def _asked(port: int, text: str) -> dict[str, Any]:
    body = json.dumps({"schema": _SCHEMA, "documents": [text]})
    # A new connection per request, since the server closes idle ones.
    with closing(HTTPConnection("127.0.0.1", port, timeout=600)) as connection:
        connection.request("POST", "/v1/extract", body, {"Content-Type": "application/json"})
        answer = json.load(connection.getresponse())
    if "rows" not in answer:
        raise BenchmarkError(f"the server answered {answer}")
    row: dict[str, Any] = answer["rows"][0]
    return row


def _check(row: Any, compiled: CompiledSchema, values: Sequence[Writable], schema: Any) -> None:
    names = [attribute.name for attribute in compiled.attributes]
    expected = schema.model_validate(dict(zip(names, values, strict=True)), by_name=True)
    if row["attributes"] != expected.model_dump(mode="json"):
        raise BenchmarkError(f"the server gave {row['attributes']}, {row['errors']}")


def _generated(engine: Generate, work: Workload) -> float:
    (listing,) = work.listings
    instruction = work.categories[0].instruction
    rest = work.stem(listing)[len(instruction) :]
    cache = copied_cache(prefix_cache(engine.module, instruction), 1)
    inputs = behind(instruction, [rest], work.eos_id, engine.module.device)
    replay = Replay(inputs[0], [work.output(listing)], work.eos_id)
    began = time.perf_counter()
    (row,) = engine.generated(*inputs, replay, work, **cache_arguments(engine.module, cache))
    seconds = time.perf_counter() - began
    if row != work.output(listing):
        raise BenchmarkError("generate wrote something else")
    return seconds
