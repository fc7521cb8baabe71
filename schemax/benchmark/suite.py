"""The engines by name, and what a comparison of them runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import torch

from schemax.benchmark.bounds import Floor, Reading
from schemax.benchmark.engine import Engine
from schemax.benchmark.engines_continuous import Continuous
from schemax.benchmark.engines_elsewhere import Elsewhere
from schemax.benchmark.engines_generate import Draft, Generate, Lookup
from schemax.benchmark.engines_grammar import Outlines
from schemax.benchmark.engines_llama import LlamaCpp
from schemax.benchmark.engines_ours import Slots, autoregressive, gapped, isolated, paper
from schemax.benchmark.engines_requests import PerAttribute, PerAttributeCached
from schemax.benchmark.shapes import draft_config, random_model


@dataclass(frozen=True, slots=True)
class Field:
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


_GRAMMAR = (
    "it runs the model itself and cannot be given answers; serve it and compare with --against"
)

_MAKERS: Mapping[str, Callable[[Field], Engine]] = MappingProxyType(
    {
        "floor": lambda f: Floor(f.model),
        "reading": lambda f: Reading(f.model),
        "isolated": lambda f: isolated(f.model, f.batch_size),
        "gapped": lambda f: gapped(f.model, f.batch_size),
        "paper-1": lambda f: paper(f.model, 1, f.batch_size),
        "paper-2": lambda f: paper(f.model, 2, f.batch_size),
        "paper-6": lambda f: paper(f.model, 6, f.batch_size),
        "autoregressive": lambda f: autoregressive(f.model, f.batch_size),
        "generate": lambda f: Generate(f.model, f.generate_batches),
        "lookup": lambda f: Lookup(f.model),
        "draft": lambda f: Draft(
            f.model, draft=_draft(f), acceptance=f.draft_acceptance
        ),
        "per-attribute": lambda f: PerAttribute(f.model),
        "per-attribute-cached": lambda f: PerAttributeCached(f.model),
        "continuous": lambda f: Continuous(f.model),
        "llama.cpp": lambda f: LlamaCpp(f.model),
        "outlines": lambda f: Outlines(f.model, f.generate_batches),
        "guidance": lambda _: Elsewhere("guidance", "guidance", ("guidance",), _GRAMMAR),
    }
)  # fmt: skip

ENGINES: tuple[str, ...] = tuple(_MAKERS)
"""Every name that `build` knows, in the order of the report."""


def check_names(names: Sequence[str]) -> None:
    """Raises ValueError for a name that is none, or is there twice."""
    for name in names:
        if name not in _MAKERS:
            raise ValueError(f"engines are {', '.join(ENGINES)}; there is no {name!r}")
        if list(names).count(name) > 1:
            raise ValueError(f"engine {name!r} is named twice")


def build(names: Sequence[str], field: Field) -> list[Engine]:
    """Engines by name. Raises ValueError for an unknown one."""
    check_names(names)
    return [_MAKERS[name](field) for name in names]


def build_sweep(
    field: Field, documents_per_prompt: Sequence[int], batch_sizes: Sequence[int]
) -> list[Slots]:
    """The paper's grid of documents per prompt and prompts per batch, for its setting and ours."""
    found = []
    for stacked in documents_per_prompt:
        for size in batch_sizes:
            engine = paper(field.model, stacked, size)
            engine.name, engine.batch_size = f"paper J={stacked} B={size}", size
            found.append(engine)
    for size in batch_sizes:
        engine = isolated(field.model, size)
        engine.name, engine.batch_size = f"isolated J=1 B={size}", size
        found.append(engine)
    return found


def _draft(field: Field) -> Any:
    if field.draft is not None:
        return field.draft
    weights = next(field.model.parameters())
    config = draft_config(field.model.config)
    return _random_like(field.model, config, weights.dtype, weights.device)


def _random_like(model: Any, config: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """A Qwen3 where the model is one, else whatever the model's class makes of the config."""
    if config.model_type == "qwen3":
        return random_model(config, dtype, device)
    return type(model)(config).to(device=device, dtype=dtype).eval()
