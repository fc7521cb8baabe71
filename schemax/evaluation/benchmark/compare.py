"""Runs a whole comparison: loads the model, makes the work, measures, reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from schemax.base.resources import resource_dir
from schemax.evaluation.benchmark import report as reports
from schemax.evaluation.benchmark.engines.base import BenchmarkError, EngineOptions
from schemax.evaluation.benchmark.engines.registry import (
    RIVALS,
    Rivals,
    build_engines,
    build_sweep,
    check_engine_names,
)
from schemax.evaluation.benchmark.generated import VALUE_LENGTHS, Sizes, generate_work
from schemax.evaluation.benchmark.listings import annotated_work, read_rows, value_lengths
from schemax.evaluation.benchmark.measure import Rules, measure_engines
from schemax.evaluation.benchmark.random_models import random_model, shape_config
from schemax.evaluation.benchmark.servers import ask_server
from schemax.evaluation.benchmark.workload import Workload
from schemax.evaluation.examples import Example
from schemax.runtime.models.loading import load
from schemax.runtime.models.loading.load import pick_device

# The paper's grid: documents per prompt and prompts per batch.
GRID_DOCUMENTS, GRID_BATCHES = (1, 2, 4, 6, 8), (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Comparison:
    """The settings of a comparison: model, engines and work.

    model: a folder or Hub id; shape: a name in `random_models.SHAPES` instead, with random weights.
    tokenizer: a folder, for annotated data on random weights; None takes the model's own, or for a
        shape the embedded model's.
    dtype: "auto" takes bfloat16 for shapes, and as `load` does for models.
    data: annotated products. With `sizes`, listings are generated, and only the lengths of their
        values come from the products.
    sizes: sizes of generated listings; None reads `documents` of the products.
    server: the address of a server that is measured as well, on `data`; token_prices: its dollars
        for a million tokens, read and written.
    price_per_hour: the machine's, in dollars.
    rivals: engines that `engines` may name beside ours.

    Raises ValueError for settings that contradict each other, and for unknown names.
    """

    engines: tuple[str, ...]
    rules: Rules
    options: EngineOptions
    model: str | None = None
    shape: str | None = None
    tokenizer: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None
    data: Path | None = None
    sizes: Sizes | None = None
    documents: int = 64
    sweep: bool = False
    server: str | None = None
    concurrency: int = 32
    token_prices: tuple[float, float] | None = None
    price_per_hour: float | None = None
    rivals: Rivals = RIVALS

    def __post_init__(self) -> None:
        check_engine_names(self.engines, self.rivals)
        if (self.model is None) == (self.shape is None):
            raise ValueError("give either a model or a shape, not both")
        if self.shape is not None:
            shape_config(self.shape)
        if self.data is None and self.sizes is None:
            raise ValueError("no work is given; name data or sizes")
        if self.server is not None and self.data is None:
            raise ValueError("a server needs documents; name them with --data")


def compare_engines(
    comparison: Comparison, tell: Callable[[str], None] = lambda _: None
) -> reports.Report:
    """Runs a comparison, and reports progress.

    Raises BenchmarkError if an engine does not write the given answers; ModelError or InputError
    if the model or the data cannot be read.
    """
    model, tokenizer = load_model(comparison)
    work, examples = _make_work(comparison, model, tokenizer)
    rules, price, server = comparison.rules, comparison.price_per_hour, None
    engines = build_engines(comparison.engines, model, comparison.options, comparison.rivals)
    outcomes = measure_engines(engines, work, rules, model.device, tell)
    grid = build_sweep(model, GRID_DOCUMENTS, GRID_BATCHES) if comparison.sweep else []
    swept = measure_engines(grid, work, rules, model.device, tell)
    if comparison.server is not None:
        server = ask_server(
            comparison.server,
            examples,
            tokenizer,
            concurrency=comparison.concurrency,
            token_prices=comparison.token_prices,
        )
    names = ("engines", "device", "dtype", "concurrency", "price_per_hour")
    asked = {name: getattr(comparison, name) for name in names}
    return reports.Report(
        model=reports.describe_model(model, comparison.shape or Path(str(comparison.model)).name),
        environment=reports.describe_environment(model.device),
        work=reports.describe_work(work),
        settings={**asdict(rules), **asdict(comparison.options), **asked},
        engines=reports.engine_rows(outcomes, price),
        skipped=tuple(
            {"name": outcome.engine.name, "reason": outcome.skipped}
            for outcome in (*outcomes, *swept)
            if outcome.skipped is not None
        ),
        sweep=reports.engine_rows(swept, price, outcomes),
        server=server,
    )


def load_model(comparison: Comparison) -> tuple[Any, Any]:
    """Loads (the model, a tokenizer for `compile_schema`), and sets the number of threads."""
    if comparison.threads is not None:
        torch.set_num_threads(comparison.threads)
    if comparison.shape is None:
        loaded = load(str(comparison.model), device=comparison.device, dtype=comparison.dtype)
        return loaded.model.eval(), comparison.tokenizer or loaded.tokenizer
    name = "bfloat16" if comparison.dtype == "auto" else comparison.dtype
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise BenchmarkError(f"unknown dtype {name!r}; use float32, bfloat16 or float16")
    model = random_model(shape_config(comparison.shape), dtype, pick_device(comparison.device))
    return model, comparison.tokenizer or str(resource_dir("embedded"))


def _make_work(
    comparison: Comparison, model: Any, tokenizer: Any
) -> tuple[Workload, Sequence[Example]]:
    """The listings, and the annotated products if there are any."""
    vocab_size = model.get_output_embeddings().weight.shape[0]
    examples: Sequence[Example] = []
    lengths = VALUE_LENGTHS
    if comparison.data is not None:
        examples = read_rows(comparison.data, comparison.documents)
        work = annotated_work(examples, tokenizer, vocab_size, source=comparison.data.name)
        if comparison.sizes is None:
            return work, examples
        lengths = value_lengths(work)
    assert comparison.sizes is not None
    return generate_work(comparison.sizes, vocab_size, lengths), examples
