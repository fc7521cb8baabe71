"""python -m recipes.server_costs MODEL.gguf FOLDER LABELS: what the ways to ask a server cost.

It starts the server, asks it for the same documents in each way, and prints a table: requests, the
server's processor time and the client's for a document, and how many fields are those of the same
weights in this process, or are annotated so. docs/servers.md shows such tables.
"""

from __future__ import annotations

import argparse
import json
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from recipes.servers import Server, llama_server, vllm_server
from schemax import DecodingConfig, Extractor
from schemax.attributes import compile_attributes
from schemax.base.process import use_threads
from schemax.evaluation.examples import Example, accepted, read_examples, shown_record
from schemax.evaluation.labelled_schemas import annotated_schemas
from schemax.evaluation.scores import labelled_texts
from schemax.extraction.stated import titles_of

Rows = list[dict[str, str | None]]


@dataclass(frozen=True, slots=True)
class Work:
    """The work: products, their schemas by category, and demonstrations by category."""

    products: Sequence[Example]
    schemas: Mapping[str, Any]
    examples: Mapping[str, Any] | None
    format: str

    def rows(self, extractor: Extractor) -> Rows:
        """Returns the values that an extractor reads of every product, as texts by attribute."""
        records = [shown_record(product) for product in self.products]
        values: list[dict[str, Any]] = [{} for _ in records]
        asked: Any = {"category": "category", "format": self.format, "examples": self.examples}
        for item in extractor.stream(records, self.schemas, **asked):
            values[item.index] = {name: field.value for name, field in item.fields.items()}
        return labelled_texts(self.products, values, self.schemas)


def read_work(labels: Path, limit: int, demonstrations: Path | None, shots: int, form: str) -> Work:
    products = read_examples(labels)
    schemas = annotated_schemas(products)
    products = products[:limit]
    used = {product.category for product in products}
    shown: dict[str, Any] = {category: [] for category in used}
    for example in read_examples(demonstrations) if demonstrations and shots else []:
        if example.category in used and len(shown[example.category]) < shots:
            titles = titles_of(compile_attributes(schemas[example.category]))
            stated = {name: example.attributes.get(title) for name, title in titles.items()}
            values = {name: accepted(label)[0] for name, label in stated.items()}
            shown[example.category].append((shown_record(example), values))
    some = {name: schema for name, schema in schemas.items() if name in used}
    return Work(products, some, shown if demonstrations and shots else None, form)


def plain_rows(server: Server, work: Work) -> Rows:
    """Asks for a chat completion under a JSON Schema for every product, without schemax."""
    found: Rows = []
    for product in work.products:
        names = [*titles_of(compile_attributes(work.schemas[product.category])).values()]
        text = {"type": ["string", "null"]}
        schema = {
            "type": "object",
            "properties": dict.fromkeys(names, text),
            "required": names,
            "additionalProperties": False,
        }
        asked = f"Extract these attributes of the product as JSON: {', '.join(names)}."
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": f"{asked}\n\n{product.text}"}],
            "temperature": 0,
            "max_tokens": 512,
        }
        try:
            named = {"name": "output", "strict": True, "schema": schema}
            answer = _post(server, body | _format("json_schema", json_schema=named))
        except urllib.error.HTTPError:  # llama-cpp-python's name for the same
            answer = _post(server, body | _format("json_object", schema=schema))
        try:
            values = json.loads(answer["choices"][0]["message"]["content"])
        except ValueError:
            values = {}
        found.append({name: values.get(name) for name in names})
    return found


def _format(kind: str, **more: Any) -> dict[str, Any]:
    return {"response_format": {"type": kind, **more}}


def _post(server: Server, body: Mapping[str, Any]) -> Any:
    request = urllib.request.Request(
        f"{server.url}/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=600) as reply:
        return json.load(reply)


def counted(extractor: Extractor) -> Callable[[], int]:
    """Returns a function that counts requests to an extractor's server, from now on."""
    client, count = extractor.model.client, 0
    ask = client.ask

    async def asked(path: str, body: Any = None) -> Any:
        nonlocal count
        count += 1
        return await ask(path, body)

    client.ask = asked
    return lambda: count


def share_of_same(rows: Rows, others: Rows) -> str:
    pairs = [
        (row[name], other[name]) for row, other in zip(rows, others, strict=True) for name in row
    ]
    return f"{sum(one == other for one, other in pairs)} of {len(pairs)}"


def share_of_right(rows: Rows, work: Work) -> str:
    flags = [
        value in accepted(product.attributes.get(name))
        for product, row in zip(work.products, rows, strict=True)
        for name, value in row.items()
    ]
    return f"{sum(flags)} of {len(flags)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path, help="GGUF file that the server runs; vLLM's folder")
    parser.add_argument("folder", help="the same model for transformers: tokenizer, and weights")
    parser.add_argument("labels", type=Path, help="annotated products")
    parser.add_argument("--program", default="llama-server", help="command that starts the server")
    parser.add_argument("--vllm", help="the Python of an environment with vLLM, which runs instead")
    parser.add_argument("--threads", type=int, default=1, help="of server and of this process")
    parser.add_argument("--option", action="append", default=[], help="of that command")
    parser.add_argument("--limit", type=int, default=10, help="products that are read")
    parser.add_argument("--format", default="json")
    parser.add_argument("--demonstrations", type=Path, help="annotated products that are shown")
    parser.add_argument("--shots", type=int, default=4, help="of them, for each category")
    parser.add_argument("--ways", default="local,tokens,tokens+probabilities,chat,plain")
    parser.add_argument("--dtype", default="float32", help="of the weights in this process")
    options = parser.parse_args()
    use_threads(options.threads)
    work = read_work(
        options.labels, options.limit, options.demonstrations, options.shots, options.format
    )
    ways = options.ways.split(",")
    local: Rows | None = None
    count = len(work.products)
    print("| way | requests | server, CPU s | client, CPU s | seconds | as here | as annotated |")
    print("| --- | --- | --- | --- | --- | --- | --- |")

    def tell(way: str, rows: Rows, requests: float, spent: float, own: float, took: float) -> None:
        same = "" if local is None else share_of_same(rows, local)
        figures = f"{requests / count:.1f} | {spent / count:.2f} | {own / count:.2f}"
        right = share_of_right(rows, work)
        print(f"| {way} | {figures} | {took / count:.2f} | {same} | {right} |", flush=True)

    if "local" in ways:
        scored = None if options.vllm else False  # as servers decode
        plain = DecodingConfig(constrain="types", contextual_calibration=scored)
        loading = {"device": "cpu", "dtype": options.dtype, "decoding": plain}
        here = Extractor.from_pretrained(options.folder, **loading)
        _, own, took, local = clocked(lambda: work.rows(here))
        tell("this process", local, 0, 0.0, own, took)
    starting: Any = {"threads": options.threads, "options": options.option}
    with (
        vllm_server(options.vllm, options.model, **starting)
        if options.vllm
        else llama_server(options.program, options.model, **starting)
    ) as server:
        for way in ways:
            if way == "local":
                continue
            requests: Callable[[], int] = partial(int, count)
            read: Callable[[], Rows]
            if way == "plain":
                read = partial(plain_rows, server, work)
            else:
                name, _, more = way.partition("+")
                asked: dict[str, Any] = {"kind": "openai", "probabilities": bool(more)}
                if name == "tokens":
                    asked |= {"kind": "auto", "tokenizer": options.folder}
                there = Extractor.from_server(server.url, **asked)
                requests = counted(there)
                read = partial(work.rows, there)
            before = server.cpu_seconds()
            _, own, took, rows = clocked(read)
            tell(way, rows, requests(), server.cpu_seconds() - before, own, took)


def clocked(read: Callable[[], Rows]) -> tuple[None, float, float, Rows]:
    """Returns None, processor and wall-clock seconds of this process, and the rows."""
    own, started = time.process_time(), time.perf_counter()
    rows = read()
    return None, time.process_time() - own, time.perf_counter() - started, rows


if __name__ == "__main__":
    main()
