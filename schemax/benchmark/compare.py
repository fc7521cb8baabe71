"""A whole comparison: loads the model, makes the work, runs everything, reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from schemax.benchmark import report as reports
from schemax.benchmark.engines.base import BenchmarkError
from schemax.benchmark.engines.registry import (
    EngineOptions,
    build_engines,
    build_sweep,
    check_engine_names,
)
from schemax.benchmark.generated import VALUE_LENGTHS, Sizes, generate_work
from schemax.benchmark.listings import annotated_work, read_rows, value_lengths
from schemax.benchmark.measure import Rules, measure_engines
from schemax.benchmark.random_models import random_model, shape_config
from schemax.benchmark.servers import ask_server
from schemax.benchmark.workload import Workload
from schemax.evaluation.examples import Example
from schemax.resources import resource_dir
from schemax.runtime.loading import load
from schemax.runtime.loading.load import pick_device

# The paper's grid: documents per prompt and prompts per batch.
GRID_DOCUMENTS, GRID_BATCHES = (1, 2, 4, 6, 8), (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared, and on what.

    model: a folder or Hub id; shape: a name in `random_models.SHAPES` instead, with random weights.
    tokenizer: a folder, for annotated data on random weights; None takes the model's own, and for a
        shape the embedded model's.
    dtype: "auto" takes bfloat16 for shapes, and for models what `load` takes.
    data: annotated products. With `sizes`, listings are generated, and only the lengths of their
        values come from the products.
    sizes: of generated listings; None reads `documents` of the products instead.
    draft: shape of the draft model; None takes an eighth of the model's layers.
    server: the address of a server that is measured as well, on `data`.
    price_per_hour: of the machine, in dollars.

    Raises ValueError for settings that contradict each other or name what does not exist.
    """

    engines: tuple[str, ...]
    rules: Rules
    model: str | None = None
    shape: str | None = None
    tokenizer: str | None = None
    device: str = "auto"
    dtype: str = "auto"
    threads: int | None = None
    data: Path | None = None
    sizes: Sizes | None = None
    documents: int = 64
    batch_size: int | Literal["auto"] = "auto"
    generate_batches: tuple[int, ...] = (1, 8, 32, 64)
    draft: str | None = None
    draft_acceptance: float = 0.8
    sweep: bool = False
    server: str | None = None
    concurrency: int = 32
    price_per_hour: float | None = None

    def __post_init__(self) -> None:
        check_engine_names(self.engines)
        if (self.model is None) == (self.shape is None):
            raise ValueError("give either a model or a shape, not both")
        for shape in (self.shape, self.draft):
            if shape is not None:
                shape_config(shape)
        if self.data is None and self.sizes is None:
            raise ValueError("no work is given; name data or sizes")
        if self.server is not None and self.data is None:
            raise ValueError("a server needs products; name them with --data")
        if not self.generate_batches or min(self.generate_batches) < 1:
            raise ValueError("generate_batches must be one or more numbers of 1 or more")


def compare_engines(
    comparison: Comparison, tell: Callable[[str], None] = lambda _: None
) -> reports.Report:
    """Runs a comparison, and tells of its progress.

    Raises BenchmarkError where an engine does not write the given answers, and ModelError,
    InputError for what cannot be loaded or read.
    """
    model, tokenizer = load_model(comparison)
    work, examples = _make_work(comparison, model, tokenizer)
    options = EngineOptions(
        model,
        None if comparison.draft is None else _random(comparison.draft, model.dtype, model.device),
        comparison.batch_size,
        comparison.generate_batches,
        comparison.draft_acceptance,
    )
    device, price = model.device, comparison.price_per_hour
    outcomes = measure_engines(
        build_engines(comparison.engines, options), work, comparison.rules, device, tell
    )
    grid = []
    if comparison.sweep:
        engines = build_sweep(options, GRID_DOCUMENTS, GRID_BATCHES)
        grid = measure_engines(engines, work, comparison.rules, device, tell)
    server = None
    if comparison.server is not None:
        server = asdict(
            ask_server(comparison.server, examples, tokenizer, concurrency=comparison.concurrency)
        )
    return reports.Report(
        model=reports.describe_model(model, comparison.shape or Path(str(comparison.model)).name),
        environment=reports.describe_environment(device),
        work=reports.describe_work(work),
        settings=_settings(comparison),
        engines=tuple(reports.engine_rows(outcomes, price)),
        skipped=reports.skipped([*outcomes, *grid]),
        sweep=tuple(reports.engine_rows(grid, price, outcomes)),
        server=server,
    )


def _settings(comparison: Comparison) -> dict[str, Any]:
    """What was asked for, apart from what the report says elsewhere."""
    names = (
        *("engines", "device", "dtype", "batch_size", "generate_batches", "draft"),
        *("draft_acceptance", "concurrency", "price_per_hour"),
    )
    return {**asdict(comparison.rules), **{name: getattr(comparison, name) for name in names}}


def load_model(comparison: Comparison) -> tuple[Any, Any]:
    """The model, and what `compile_schema` takes for a tokenizer; sets the threads asked for."""
    if comparison.threads is not None:
        torch.set_num_threads(comparison.threads)
    if comparison.shape is None:
        loaded = load(str(comparison.model), device=comparison.device, dtype=comparison.dtype)
        return loaded.model.eval(), comparison.tokenizer or loaded.tokenizer
    name = "bfloat16" if comparison.dtype == "auto" else comparison.dtype
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise BenchmarkError(f"unknown dtype {name!r}; use float32, bfloat16 or float16")
    model = _random(comparison.shape, dtype, pick_device(comparison.device))
    return model, comparison.tokenizer or str(resource_dir("embedded"))


def _random(shape: str, dtype: torch.dtype, device: torch.device) -> Any:
    return random_model(shape_config(shape), dtype, device)


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
