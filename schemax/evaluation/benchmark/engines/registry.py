"""Builds engines by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from schemax.evaluation.benchmark.engines.base import Engine, EngineOptions
from schemax.evaluation.benchmark.engines.bounds import Floor, Reading
from schemax.evaluation.benchmark.engines.generate import Generate
from schemax.evaluation.benchmark.engines.ours import OURS, SchemaxEngine

Rivals = Sequence[type[Engine]]

_BOUNDS: Rivals = (Floor, Reading)
RIVALS: Rivals = (Generate,)
"""The installed engines of others. A checkout has more, in `benchmarks.rivals`."""


def engine_names(rivals: Rivals = RIVALS) -> tuple[str, ...]:
    """The names that `build_engines` knows, in the order of the report."""
    return (*(x.name for x in _BOUNDS), *OURS, *(x.name for x in rivals))


def check_engine_names(names: Sequence[str], rivals: Rivals = RIVALS) -> None:
    """Raises ValueError for an unknown name, and for a repeated one."""
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
    others = {engine.name: engine for engine in (*_BOUNDS, *rivals)}
    return [
        SchemaxEngine(model, options, name, *OURS[name])
        if name in OURS
        else others[name](model, options)
        for name in names
    ]
