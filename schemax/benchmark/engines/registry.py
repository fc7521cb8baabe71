"""The engines by name, and what a comparison of them runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import torch

from schemax.benchmark.engines.base import Engine
from schemax.benchmark.engines.bounds import Floor, Reading
from schemax.benchmark.engines.continuous import Continuous
from schemax.benchmark.engines.generate import Draft, Generate, Lookup
from schemax.benchmark.engines.grammar import Outlines
from schemax.benchmark.engines.llama_cpp import LlamaCpp
from schemax.benchmark.engines.ours import SchemaxEngine, autoregressive, gapped, isolated, paper
from schemax.benchmark.engines.per_attribute import PerAttribute, PerAttributeCached
from schemax.benchmark.random_models import draft_config, random_model


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What engines are built from.

    model: the one model of the comparison; draft: None makes a random one when it is needed.
    batch_size: prompts in flight, of our own engines.
    generate_batches: batch sizes for transformers' `generate` to choose from.
    """

    model: Any
    draft: Any = None
    batch_size: int | Literal["auto"] = "auto"
    generate_batches: tuple[int, ...] = (1, 8, 32, 64)
    draft_acceptance: float = 0.8


_MAKERS: Mapping[str, Callable[[EngineOptions], Engine]] = MappingProxyType(
    {
        "floor": lambda o: Floor(o.model),
        "reading": lambda o: Reading(o.model),
        "isolated": lambda o: isolated(o.model, o.batch_size),
        "gapped": lambda o: gapped(o.model, o.batch_size),
        "paper-1": lambda o: paper(o.model, 1, o.batch_size),
        "paper-2": lambda o: paper(o.model, 2, o.batch_size),
        "paper-6": lambda o: paper(o.model, 6, o.batch_size),
        "autoregressive": lambda o: autoregressive(o.model, o.batch_size),
        "generate": lambda o: Generate(o.model, o.generate_batches),
        "lookup": lambda o: Lookup(o.model),
        "draft": lambda o: Draft(
            o.model, draft=_draft(o), acceptance=o.draft_acceptance
        ),
        "per-attribute": lambda o: PerAttribute(o.model),
        "per-attribute-cached": lambda o: PerAttributeCached(o.model),
        "continuous": lambda o: Continuous(o.model),
        "llama.cpp": lambda o: LlamaCpp(o.model),
        "outlines": lambda o: Outlines(o.model, o.generate_batches),
    }
)  # fmt: skip

ENGINES: tuple[str, ...] = tuple(_MAKERS)
"""Every name that `build_engines` knows, in the order of the report."""


def check_engine_names(names: Sequence[str]) -> None:
    """Raises ValueError for an unknown name, and for one that is there twice."""
    for name in names:
        if name not in _MAKERS:
            raise ValueError(f"unknown engine {name!r}; the engines are {', '.join(ENGINES)}")
        if list(names).count(name) > 1:
            raise ValueError(f"engine {name!r} is named twice")


def build_engines(names: Sequence[str], options: EngineOptions) -> list[Engine]:
    """Engines by name. Raises ValueError for an unknown one."""
    check_engine_names(names)
    return [_MAKERS[name](options) for name in names]


def build_sweep(
    options: EngineOptions, documents_per_prompt: Sequence[int], batch_sizes: Sequence[int]
) -> list[SchemaxEngine]:
    """The paper's grid of documents per prompt and prompts per batch, for its setting and ours."""
    found = []
    for stacked in documents_per_prompt:
        for size in batch_sizes:
            engine = paper(options.model, stacked, size)
            engine.name, engine.batch_size = f"paper J={stacked} B={size}", size
            found.append(engine)
    for size in batch_sizes:
        engine = isolated(options.model, size)
        engine.name, engine.batch_size = f"isolated J=1 B={size}", size
        found.append(engine)
    return found


def _draft(options: EngineOptions) -> Any:
    if options.draft is not None:
        return options.draft
    weights = next(options.model.parameters())
    config = draft_config(options.model.config)
    return _random_like(options.model, config, weights.dtype, weights.device)


def _random_like(model: Any, config: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """A Qwen3 where the model is one, else whatever the model's class makes of the config."""
    if config.model_type == "qwen3":
        return random_model(config, dtype, device)
    return type(model)(config).to(device=device, dtype=dtype).eval()
