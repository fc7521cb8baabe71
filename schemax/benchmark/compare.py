"""A whole comparison: loads the model, makes the work, runs everything, reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from schemax.benchmark import report as reports
from schemax.benchmark.engine import BenchmarkError
from schemax.benchmark.generated import VALUE_LENGTHS, Sizes, generate_work
from schemax.benchmark.listings import annotated_work, read_rows, value_lengths
from schemax.benchmark.measure import Rules, measure
from schemax.benchmark.servers import ask_server
from schemax.benchmark.shapes import random_model, shape_config
from schemax.benchmark.suite import Field, build, build_sweep, check_names
from schemax.benchmark.work import Work
from schemax.evaluation.examples import Example
from schemax.resources import resource_dir
from schemax.runtime.loading import load
from schemax.runtime.loading.load import pick_device

# The paper's grid: documents per prompt and prompts per batch.
GRID_DOCUMENTS, GRID_BATCHES = (1, 2, 4, 6, 8), (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be compared, and on what.

    model: folder or Hub id; shape: a name of `shapes.SHAPES` instead, with random weights.
    tokenizer: a folder, for annotated data on random weights; None takes the model's own, for a
        shape the embedded model's.
    dtype: "auto" takes bfloat16 for shapes, and for models what `load` takes.
    data: annotated products; with `sizes`, listings are generated and take the lengths of their
        values from there.
    sizes: of generated listings; None reads `data`, `documents` of it.
    draft: shape of a draft model; None takes one with an eighth of the layers.
    server: an address whose products/s are measured beside, on `data`.
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
        check_names(self.engines)
        if (self.model is None) == (self.shape is None):
            raise ValueError("a comparison has one model: name a model or a shape, not both")
        for shape in (self.shape, self.draft):
            if shape is not None:
                shape_config(shape)
        if self.data is None and self.sizes is None:
            raise ValueError("there is no work: name data or sizes")
        if self.server is not None and self.data is None:
            raise ValueError("a server is asked for products: name them with --data")
        if not self.generate_batches or min(self.generate_batches) < 1:
            raise ValueError("batch sizes are numbers of 1 or more")


def compare(request: Request, tell: Callable[[str], None] = lambda _: None) -> reports.Report:
    """Runs a comparison, and tells how it goes on.

    Raises BenchmarkError where an engine does not write the given answers, and ModelError,
    InputError for what cannot be loaded or read.
    """
    model, tokenizer = load_model(request)
    work, examples = _make_work(request, model, tokenizer)
    field = Field(
        model,
        None if request.draft is None else _random(request.draft, model.dtype, model.device),
        request.batch_size,
        request.generate_batches,
        request.draft_acceptance,
    )
    device, price = model.device, request.price_per_hour
    outcomes = measure(build(request.engines, field), work, request.rules, device, tell)
    grid = []
    if request.sweep:
        engines = build_sweep(field, GRID_DOCUMENTS, GRID_BATCHES)
        grid = measure(engines, work, request.rules, device, tell)
    server = None
    if request.server is not None:
        server = asdict(
            ask_server(request.server, examples, tokenizer, concurrency=request.concurrency)
        )
    return reports.Report(
        model=reports.describe_model(model, request.shape or Path(str(request.model)).name),
        environment=reports.describe_environment(device),
        work=reports.describe_work(work),
        settings=_settings(request),
        engines=tuple(reports.make_rows(outcomes, price)),
        skipped=reports.skipped([*outcomes, *grid]),
        sweep=tuple(reports.make_rows(grid, price, outcomes)),
        server=server,
    )


def _settings(request: Request) -> dict[str, Any]:
    """What was asked for, apart from what the report says elsewhere."""
    names = (
        *("engines", "device", "dtype", "batch_size", "generate_batches", "draft"),
        *("draft_acceptance", "concurrency", "price_per_hour"),
    )
    return {**asdict(request.rules), **{name: getattr(request, name) for name in names}}


def load_model(request: Request) -> tuple[Any, Any]:
    """The model, and what `compile_schema` takes for a tokenizer; sets the threads asked for."""
    if request.threads is not None:
        torch.set_num_threads(request.threads)
    if request.shape is None:
        loaded = load(str(request.model), device=request.device, dtype=request.dtype)
        return loaded.model.eval(), request.tokenizer or loaded.tokenizer
    name = "bfloat16" if request.dtype == "auto" else request.dtype
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise BenchmarkError(f"dtype {name!r} is none; use float32, bfloat16 or float16")
    model = _random(request.shape, dtype, pick_device(request.device))
    return model, request.tokenizer or str(resource_dir("embedded"))


def _random(shape: str, dtype: torch.dtype, device: torch.device) -> Any:
    return random_model(shape_config(shape), dtype, device)


def _make_work(request: Request, model: Any, tokenizer: Any) -> tuple[Work, Sequence[Example]]:
    """The listings, and the annotated products if there are any."""
    vocab_size = model.get_output_embeddings().weight.shape[0]
    examples: Sequence[Example] = []
    lengths = VALUE_LENGTHS
    if request.data is not None:
        examples = read_rows(request.data, request.documents)
        work = annotated_work(examples, tokenizer, vocab_size, source=request.data.name)
        if request.sizes is None:
            return work, examples
        lengths = value_lengths(work)
    assert request.sizes is not None
    return generate_work(request.sizes, vocab_size, lengths), examples
