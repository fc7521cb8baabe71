"""Runs a whole comparison: loads the model, reads the documents, measures, reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from schemax.evaluation.benchmark import report as reports
from schemax.evaluation.benchmark.engines.base import Engine, EngineOptions
from schemax.evaluation.benchmark.engines.registry import (
    RIVALS,
    Rivals,
    build_engines,
    check_engine_names,
)
from schemax.evaluation.benchmark.listings import annotated_work, read_rows
from schemax.evaluation.benchmark.measure import Rules, measure_engines
from schemax.evaluation.benchmark.servers import ask_server
from schemax.evaluation.benchmark.workload import Workload
from schemax.evaluation.examples import Example
from schemax.runtime.models.loading.load import load


@dataclass(frozen=True, slots=True)
class Subject:
    """A model and its work.

    name: the model's, for the report; tokenizer: for `compile_schema`.
    examples: the annotated documents of the work, if it has any.
    """

    name: str
    model: Any
    tokenizer: Any
    work: Workload
    examples: Sequence[Example] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """The settings of a comparison.

    server: the address of a server that is measured as well, on the annotated documents;
        token_prices: its dollars for a million tokens, read and written.
    price_per_hour: the machine's, in dollars.
    rivals: engines that `engines` may name beside ours.

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
    """Loads a model, and so many of the annotated documents of a file.

    place: a folder or Hub id. device, dtype: see `load`.
    Raises ModelError or InputError if the model or the data cannot be read.
    """
    examples = read_rows(data, documents)
    loaded = load(place, device=device, dtype=dtype)
    model = loaded.model.eval()
    work = annotated_work(examples, loaded.tokenizer, vocabulary_of(model), source=data.name)
    return Subject(Path(place).name, model, loaded.tokenizer, work, examples)


def vocabulary_of(model: Any) -> int:
    """The number of tokens that a model has logits for."""
    return int(model.get_output_embeddings().weight.shape[0])


def compare_engines(
    subject: Subject,
    comparison: Comparison,
    tell: Callable[[str], None] = lambda _: None,
    grid: Sequence[Engine] = (),
) -> reports.Report:
    """Runs a comparison, and reports progress.

    grid: engines of a second table.
    Raises BenchmarkError if an engine does not write the given answers, or the server fails.
    """
    model, work, rules = subject.model, subject.work, comparison.rules
    engines = build_engines(comparison.engines, model, comparison.options, comparison.rivals)
    outcomes = measure_engines(engines, work, rules, model.device, tell)
    swept = measure_engines(grid, work, rules, model.device, tell)
    server = None
    if comparison.server is not None:
        server = ask_server(
            comparison.server,
            subject.examples,
            subject.tokenizer,
            concurrency=comparison.concurrency,
            token_prices=comparison.token_prices,
        )
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
