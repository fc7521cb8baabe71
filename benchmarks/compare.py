"""Models of random weights, generated listings and the paper's grid for comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

from benchmarks.generated import VALUE_LENGTHS, Sizes, generate_work, value_lengths
from benchmarks.random_models import random_model, shape_config
from schemax.base.resources import resource_dir
from schemax.evaluation.benchmark.compare import Subject, vocabulary_of
from schemax.evaluation.benchmark.engines import (
    OURS,
    BenchmarkError,
    Engine,
    EngineOptions,
    SchemaxEngine,
    paper,
)
from schemax.evaluation.benchmark.workload import annotated_work, read_rows
from schemax.runtime.models.loading.load import load, pick_device

# The paper's grid: documents per prompt and prompts per batch.
GRID_DOCUMENTS, GRID_BATCHES = (1, 2, 4, 6, 8), (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """A model, or a shape with random weights.

    model: a folder or Hub id; shape: a name in `random_models.SHAPES` instead.
    tokenizer: a folder; None takes the model's own, or for a shape the embedded model's.
    dtype: "auto" takes bfloat16 for shapes, and as `load` does for models.

    Raises ValueError for both a model and a shape, for neither, and for an unknown shape.
    """

    model: str | None = None
    shape: str | None = None
    tokenizer: str | None = None
    device: str = "auto"
    dtype: str = "auto"

    def __post_init__(self) -> None:
        if (self.model is None) == (self.shape is None):
            raise ValueError("give either a model or a shape, not both")
        if self.shape is not None:
            shape_config(self.shape)

    def load(self) -> tuple[Any, Any]:
        """Loads (the model, a tokenizer for `compile_schema`).

        Raises ModelError if the model cannot be read, BenchmarkError for an unknown dtype.
        """
        if self.shape is None:
            loaded = load(str(self.model), device=self.device, dtype=self.dtype)
            return loaded.model.eval(), self.tokenizer or loaded.tokenizer
        name = "bfloat16" if self.dtype == "auto" else self.dtype
        dtype = getattr(torch, name, None)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise BenchmarkError(f"unknown dtype {name!r}; use float32, bfloat16 or float16")
        model = random_model(shape_config(self.shape), dtype, pick_device(self.device))
        return model, self.tokenizer or str(resource_dir("embedded"))


def load_subject(
    choice: ModelChoice, sizes: Sizes | None, data: Path | None = None, documents: int = 64
) -> Subject:
    """Loads the model, and makes its work.

    sizes: sizes of generated listings, whose values have the lengths of those in `data` if it is
        given; None reads so many documents of `data`.

    Raises ModelError or InputError if the model or the data cannot be read.
    """
    model, tokenizer = choice.load()
    name, vocab_size = choice.shape or Path(str(choice.model)).name, vocabulary_of(model)
    if data is None:
        assert sizes is not None
        return Subject(name, model, tokenizer, generate_work(sizes, vocab_size, VALUE_LENGTHS))
    examples = read_rows(data, documents)
    work = annotated_work(examples, tokenizer, vocab_size, source=data.name)
    if sizes is not None:
        work = generate_work(sizes, vocab_size, value_lengths(work))
    return Subject(name, model, tokenizer, work, examples)


def build_grid(model: Any) -> list[Engine]:
    """Builds the paper's grid, documents per prompt by prompts per batch, for both settings."""
    settings = [(f"paper J={stacked}", paper(stacked)) for stacked in GRID_DOCUMENTS]
    engines: list[Engine] = []
    for (name, setting), size in product(
        [*settings, ("isolated J=1", OURS["isolated"])], GRID_BATCHES
    ):
        # `batch_size` counts documents, the paper's batches count prompts.
        options = EngineOptions(batch_size=size * setting[1].documents_per_prompt)
        engine = SchemaxEngine(model, options, f"{name} B={size}", *setting)
        engine.batch_size = size
        engines.append(engine)
    return engines
