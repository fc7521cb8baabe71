"""schemax beside other engines of the same weights: vLLM, and llama.cpp's server.

All read the same titles behind the same instruction and demonstrations. The others write a whole
JSON output under its JSON schema, one request a document, as their users ask them. Instructions are
read before the clock starts. Quality is the protocol's F1, since no engine is given its answers.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.request import Request as Post
from urllib.request import urlopen

from recipes.server_costs import Work, read_work
from recipes.servers import llama_server, vllm_settings
from schemax import DecodingConfig, Extractor
from schemax.base.process import use_threads
from schemax.config import PRESETS
from schemax.evaluation.examples import shown_record
from schemax.evaluation.scores import labelled_texts, score_predictions
from schemax.runtime.slots.requests import new_request

# The most tokens of an output, for each of its fields.
_MOST_TOKENS = 25


@dataclass(frozen=True, slots=True)
class EngineCost:
    """What an engine took. f1: of the protocol. cpu: processor seconds."""

    engine: str
    in_flight: int
    documents: int
    seconds: float
    cpu: float
    f1: float

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Rivals:
    """The rivals that are there. vllm: the Python of an environment with it. llama: the command of
    llama.cpp's server, and gguf its file."""

    vllm: str | None = None
    llama: str | None = None
    gguf: Path | None = None


def measure_engines(
    folder: str,
    labels: Path,
    demonstrations: Path | None,
    *,
    documents: int,
    shots: int,
    in_flight: Sequence[int],
    few: int,
    threads: int,
    dtype: str,
    rivals: Rivals,
) -> Iterator[EngineCost]:
    """Yields what each engine takes for each number of documents in flight.

    few: so many documents are read where one is in flight.
    """
    use_threads(threads)
    work = read_work(labels, documents, demonstrations, shots, "json")
    extractor = Extractor.from_pretrained(folder, device="cpu", dtype=dtype)
    most = {number: few if number == 1 else len(work.products) for number in in_flight}
    for number in in_flight:
        yield read_by_schemax(extractor, work, number, most[number])
    prompts = prompts_of(extractor, work)
    del extractor
    if rivals.vllm is not None:
        for compact in (False, True):
            name = "vLLM, JSON without blanks" if compact else "vLLM"
            task = {
                "folder": str(Path(folder).resolve()),
                "prompts": prompts,
                "in_flight": list(in_flight),
                "documents": most,
                "compact": compact,
                "dtype": dtype,
            }
            for number, (texts, seconds, cpu) in zip(
                in_flight, _vllm(rivals.vllm, task, threads), strict=True
            ):
                f1 = f1_of(work, texts)
                yield EngineCost(name, number, len(texts), seconds, cpu, f1)
    if rivals.llama is not None and rivals.gguf is not None:
        for number in in_flight:
            yield _llama(rivals.llama, rivals.gguf, work, prompts, number, most[number], threads)


def read_by_schemax(extractor: Extractor, work: Work, in_flight: int, most: int) -> EngineCost:
    """What schemax takes for the first documents, with so many in flight."""
    records = [shown_record(product) for product in work.products][:most]
    size: Any = "auto" if in_flight >= len(records) else in_flight
    asked: Any = {
        "category": "category",
        "format": "json",
        "examples": work.examples,
        "decoding": DecodingConfig(batch_size=size),
    }
    first = {product.category: shown_record(product) for product in work.products}
    list(extractor.stream(list(first.values()), work.schemas, **asked))
    values: list[dict[str, Any]] = [{} for _ in records]
    cpu, began = time.process_time(), time.perf_counter()
    calls = [records] if in_flight > 1 else [[record] for record in records]
    for number, call in enumerate(calls):
        for item in extractor.stream(call, work.schemas, **asked):
            found = {name: field.value for name, field in item.fields.items()}
            values[number + item.index] = found
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    return EngineCost("schemax", in_flight, len(records), seconds, cpu, _f1(work, values))


def prompts_of(extractor: Extractor, work: Work) -> list[dict[str, Any]]:
    """The ids of every document's prompt for a whole output, and the output's JSON schema."""
    examples = work.examples or {}
    compiled = {
        category: extractor.compile(
            schema,
            decoding=PRESETS["autoregressive"],
            format="json",
            examples=[(record["text"], shown) for record, shown in examples.get(category, ())],
        )
        for category, schema in work.schemas.items()
    }
    found = []
    for product in work.products:
        own = compiled[product.category]
        prompt = own.assemble([tuple(own.codec.encode(product.text))])
        request = new_request(prompt, own.stop, own.decoding)
        ids = [*request.prefix, *request.stem.tolist(), *request.layout.keys[0]]
        names = [item.name for item in own.attributes]
        properties = {name: {"type": ["string", "null"]} for name in names}
        schema = {
            "type": "object",
            "properties": properties,
            "required": names,
            "additionalProperties": False,
        }
        found.append({"ids": ids, "schema": schema, "most": _MOST_TOKENS * len(names)})
    return found


def _vllm(python: str, task: Mapping[str, Any], threads: int) -> list[Any]:
    # In one process, whose processor time is measured.
    settings = {**vllm_settings(threads), "VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    with TemporaryDirectory() as place:
        asked, told = Path(place, "task.json"), Path(place, "results.json")
        asked.write_text(json.dumps(task), "utf-8")
        script = Path(__file__).with_name("vllm_offline.py")
        command = [python, str(script), str(asked), str(told)]
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | settings
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"vLLM failed: {done.stderr[-2000:]}")
        results: list[Any] = json.loads(told.read_text("utf-8"))
    return results


def _llama(
    program: str,
    gguf: Path,
    work: Work,
    prompts: Sequence[Mapping[str, Any]],
    in_flight: int,
    most: int,
    threads: int,
) -> EngineCost:
    slots = min(in_flight, 8)
    options = ["--parallel", str(slots)]
    with llama_server(
        program, gguf, context=4096 * slots, threads=threads, options=options
    ) as server:

        def ask(item: Mapping[str, Any], most: int | None = None) -> str:
            body = {
                "prompt": item["ids"],
                "n_predict": most or item["most"],
                "temperature": 0,
                "json_schema": item["schema"],
                "cache_prompt": True,
            }
            url = server.url.removesuffix("/v1") + "/completion"
            data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
            with urlopen(Post(url, data, kind), timeout=600) as reply:
                return str(json.load(reply)["content"])

        with ThreadPoolExecutor(slots) as pool:
            for item in {json.dumps(item["schema"]): item for item in prompts}.values():
                list(pool.map(lambda item: ask(item, 1), [item] * slots))
            cpu, began = server.cpu_seconds(), time.perf_counter()
            texts = list(pool.map(ask, prompts[:most]))
            seconds, cpu = time.perf_counter() - began, server.cpu_seconds() - cpu
    name = f"llama-server, {gguf.stem}"
    return EngineCost(name, in_flight, len(texts), seconds, cpu, f1_of(work, texts))


def f1_of(work: Work, texts: Sequence[str]) -> float:
    """The F1 of whole outputs; one that is no JSON object has no values."""
    return _f1(work, [_values(text) for text in texts])


def _f1(work: Work, values: Sequence[Mapping[str, Any]]) -> float:
    products = work.products[: len(values)]
    return score_predictions(products, labelled_texts(products, values, work.schemas)).protocol.f1


def _values(text: str) -> dict[str, Any]:
    try:
        values = json.loads(text)
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}
