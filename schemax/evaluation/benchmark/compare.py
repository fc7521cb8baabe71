"""Runs a whole comparison: loads the model, builds the engines, measures them and a server."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from schemax.errors import ServerError
from schemax.evaluation.benchmark import report as reports
from schemax.evaluation.benchmark.engines import (
    OURS,
    BenchmarkError,
    Engine,
    EngineOptions,
    Floor,
    Reading,
    SchemaxEngine,
)
from schemax.evaluation.benchmark.generate import Generate
from schemax.evaluation.benchmark.measure import Rules, measure_engines
from schemax.evaluation.benchmark.workload import Workload, annotated_work, read_rows
from schemax.evaluation.examples import Example, accepted
from schemax.evaluation.labelled_schemas import annotated_schemas
from schemax.evaluation.scores import extractions_of, labelled_texts, values_of
from schemax.extraction.extractor import Extractor
from schemax.runtime.models.loading.load import load
from schemax.runtime.models.packed import num_rows

Rivals = Sequence[type[Engine]]

_BOUNDS: Rivals = (Floor, Reading)
RIVALS: Rivals = (Generate,)
"""The installed rivals. A checkout has more, in `benchmarks.rivals`."""


def engine_names(rivals: Rivals = RIVALS) -> tuple[str, ...]:
    """Returns the names that `build_engines` knows, in the order of the report."""
    return (*(x.name for x in _BOUNDS), *OURS, *(x.name for x in rivals))


def check_engine_names(names: Sequence[str], rivals: Rivals = RIVALS) -> None:
    """Raises ValueError for an unknown or repeated name."""
    known = engine_names(rivals)
    for name in names:
        if name not in known:
            more = " (a checkout has more: python -m benchmarks)" if rivals is RIVALS else ""
            raise ValueError(f"unknown engine {name!r}; the engines are {', '.join(known)}{more}")
        if list(names).count(name) > 1:
            raise ValueError(f"engine {name!r} is named twice")


def build_engines(
    names: Sequence[str], model: Any, options: EngineOptions, rivals: Rivals = RIVALS
) -> list[Engine]:
    """Builds engines by name. Raises ValueError for an unknown name."""
    check_engine_names(names, rivals)
    classes = {engine.name: engine for engine in (*_BOUNDS, *rivals)}
    return [
        SchemaxEngine(model, options, name, *OURS[name])
        if name in OURS
        else classes[name](model, options)
        for name in names
    ]


@dataclass(frozen=True, slots=True)
class Subject:
    """A model and its work.

    name: the model's, for the report.
    tokenizer: for `compile_schema`.
    examples: the annotated documents of the work, if it has any.
    """

    name: str
    model: Any
    tokenizer: Any
    work: Workload
    examples: Sequence[Example] = ()


@dataclass(frozen=True, slots=True)
class ComparisonSettings:
    """The settings of a comparison.

    server: a server to measure on the annotated documents: URL or URL#MODEL of its API, `/v1`
        included; by default its first model.
    token_prices: its dollars for a million tokens, read and written.
    price_per_hour: the machine's, in dollars.
    rivals: further engines that `engines` may name.

    Raises ValueError for unknown and repeated names.
    """

    engines: tuple[str, ...]
    rules: Rules
    options: EngineOptions
    server: str | None = None
    concurrency: int = 32
    token_prices: tuple[float, float] | None = None
    price_per_hour: float | None = None
    rivals: Rivals = RIVALS

    def __post_init__(self) -> None:
        check_engine_names(self.engines, self.rivals)


def load_subject(
    place: str, data: Path, documents: int, *, device: str = "auto", dtype: str = "auto"
) -> Subject:
    """Loads a model, and a number of annotated documents of a file.

    place: a folder or Hub id.
    device, dtype: see `load`.

    Raises ModelError or InputError if the model or the data cannot be read.
    """
    examples = read_rows(data, documents)
    loaded = load(place, device=device, dtype=dtype)
    model = loaded.model.eval()
    work = annotated_work(examples, loaded.tokenizer, vocabulary_of(model), source=data.name)
    return Subject(Path(place).name, model, loaded.tokenizer, work, examples)


def vocabulary_of(model: Any) -> int:
    """Returns the number of tokens that a model has logits for."""
    return num_rows(model.get_output_embeddings())


def compare_engines(
    subject: Subject,
    comparison: ComparisonSettings,
    tell: Callable[[str], None] = lambda _: None,
    grid: Sequence[Engine] = (),
) -> reports.Report:
    """Runs a comparison, and reports progress.

    grid: engines of a second table.
    Raises BenchmarkError if an engine does not write the expected answers, or the server fails.
    """
    model, work, rules = subject.model, subject.work, comparison.rules
    engines = build_engines(comparison.engines, model, comparison.options, comparison.rivals)
    outcomes = measure_engines(engines, work, rules, model.device, tell)
    swept = measure_engines(grid, work, rules, model.device, tell)
    server = None if comparison.server is None else ask_server(subject, comparison)
    names = ("engines", "concurrency", "price_per_hour")
    settings = {name: getattr(comparison, name) for name in names}
    price = comparison.price_per_hour
    return reports.Report(
        model=reports.describe_model(model, subject.name),
        environment=reports.describe_environment(model.device),
        work=reports.describe_work(work),
        settings={**asdict(rules), **asdict(comparison.options), **settings},
        engines=reports.engine_rows(outcomes, price),
        skipped=tuple(
            {"name": outcome.engine.name, "reason": outcome.skipped}
            for outcome in (*outcomes, *swept)
            if outcome.skipped is not None
        ),
        sweep=reports.engine_rows(swept, price, outcomes),
        server=server,
    )


ABSENT = (
    "vLLM: not measured here; start it with `vllm serve MODEL` and pass "
    "--against http://localhost:8000/v1"
)


def ask_server(subject: Subject, comparison: ComparisonSettings) -> dict[str, Any]:
    """Asks a server for the output of every product, as any client does.

    The tokenizer's chat template renders the prompts. A server without completions gets chats,
    which its own template renders.

    Returns the figures of the report. agreement: the share of attributes with the annotated value,
    null included; tokens_read, tokens: counted by the server, None if it does not count.

    Raises BenchmarkError if the server cannot be reached, or its answers cannot be read.
    """
    examples, token_prices = subject.examples, comparison.token_prices
    schemas = annotated_schemas(examples)
    try:
        extractor = _connected_extractor(comparison, subject.tokenizer)
        warm_up = extractions_of(extractor, examples[:1], schemas)
        usage = extractor.model.client.usage
        usage.clear()
        started = time.perf_counter()
        items = extractions_of(extractor, examples, schemas)
    except (ServerError, ValueError) as error:
        raise BenchmarkError(str(error)) from error
    seconds = time.perf_counter() - started
    for item in (*warm_up, *items):
        if not item.slots:
            raise BenchmarkError(item.errors[0].message)
    texts = labelled_texts(examples, list(map(values_of, items)), schemas)
    flags = [
        value in accepted(example.attributes.get(name))
        for example, predicted in zip(examples, texts, strict=True)
        for name, value in predicted.items()
    ]
    read, tokens = usage.get("prompt_tokens"), usage.get("completion_tokens")
    dollars = None
    if token_prices is not None and read is not None and tokens is not None:
        dollars = (read * token_prices[0] + tokens * token_prices[1]) / 1e3 / len(items)
    return {
        "url": extractor.model.client.url,
        "model": extractor.model.served.model,
        "products": len(examples),
        "concurrency": comparison.concurrency,
        "seconds": seconds,
        "products_per_second": len(examples) / seconds,
        "agreement": sum(flags) / max(1, len(flags)),
        "tokens_read": read,
        "tokens": tokens,
        "dollars_per_1000": dollars,
    }


def _connected_extractor(comparison: ComparisonSettings, tokenizer: Any) -> Extractor:
    url, _, model = (comparison.server or "").partition("#")
    settings: Any = {"model": model or None, "concurrency": comparison.concurrency}
    try:
        return Extractor.from_server(
            url, tokenizer=tokenizer, decoding="autoregressive", **settings
        )
    except ServerError as error:
        if error.status not in (404, 405):
            raise
        return Extractor.from_server(url, kind="openai", **settings)
