"""Measures the cost of the whole pipeline around a model that is nearly free.

The pipeline is `Extractor.stream`, from record to validated instance: reading, prompts, scheduling,
grammars, choices, texts, types, spans and instances.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.host.clock import ModelTime, model_clock
from benchmarks.host.settings import (
    Setting,
    host_codec,
    host_documents,
    host_extractor,
    host_schema,
    sizes_of,
)
from schemax.base.process import frozen_heap
from schemax.compiler import TextCodec

Tell = Callable[[str], None]
_WARM_UP = 16  # documents


@dataclass(frozen=True, slots=True)
class HostRow:
    """The time that a setting took, on one thread.

    seconds: by the clock; cpu_seconds: of the process; both without compiling the schema.
    tokens_per_slot: tokens written, the one that completes a value included.
    model: the part of cpu_seconds that an accelerator would take over.
    """

    setting: Setting
    seconds: float
    cpu_seconds: float
    tokens_per_slot: float
    model: ModelTime

    @property
    def documents_per_second(self) -> float:
        return self.setting.documents / self.seconds

    @property
    def documents_per_cpu_second(self) -> float:
        return self.setting.documents / self.cpu_seconds

    @property
    def model_share(self) -> float:
        """The model's share of the CPU time."""
        return self.model.seconds / self.cpu_seconds

    @property
    def host_documents_per_cpu_second(self) -> float:
        """Documents per CPU second outside the model: the most that one core can feed."""
        return self.setting.documents / max(1e-9, self.cpu_seconds - self.model.seconds)

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data for JSON."""
        names = ("documents_per_second", "documents_per_cpu_second", "model_share")
        figures = {name: getattr(self, name) for name in (*names, "host_documents_per_cpu_second")}
        return {**asdict(self), **figures}


def measure_host(
    chosen: Sequence[Setting], seed: int = 0, tell: Tell = lambda _: None
) -> Iterator[HostRow]:
    """Yields one row per setting, in order.

    seed: the seed of model and documents; no two documents are alike.
    """
    codec = host_codec()
    for setting in chosen:
        row = _measure(setting, codec, seed)
        tell(f"{setting.name}: {row.documents_per_cpu_second:,.0f} documents per CPU second")
        yield row


def _measure(setting: Setting, codec: TextCodec, seed: int) -> HostRow:
    extractor, schema = host_extractor(codec, setting, seed), host_schema(setting)
    texts = host_documents(codec, _WARM_UP + setting.documents, seed)
    with sizes_of(setting):
        for _ in extractor.stream(texts[:_WARM_UP], schema):
            pass
        stream = extractor.stream(texts[_WARM_UP:], schema)  # compiles the schema, untimed
        with frozen_heap(), model_clock(extractor.model.model) as spent:
            cpu, wall = time.process_time(), time.perf_counter()
            tokens = sum(slot.tokens for item in stream for slot in item.slots if slot is not None)
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    return HostRow(setting, wall, cpu, tokens / (setting.documents * setting.slots), spent)
