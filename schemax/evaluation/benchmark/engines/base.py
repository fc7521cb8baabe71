"""`Engine`: the interface of all engines of a benchmark."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from transformers import GenerationConfig

from schemax.errors import SchemaxError
from schemax.evaluation.benchmark.workload import Ids, Workload, Writes

EngineKind = Literal["ours", "rival", "bound"]

Emitted = Sequence[tuple[Ids, ...]]
"""Per document, in order, the runs of tokens that were written; empty for bounds."""


class BenchmarkError(SchemaxError):
    """A comparison fails, or would be unfair, such as when an engine writes other answers."""


class Unavailable(Exception):
    """An engine cannot take part, for the given reason; the others go on."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings that engines leave to their user.

    batch_size: documents in flight in our own engines.
    generate_batches: batch sizes to try for transformers' `generate`.

    Raises ValueError for batch sizes below 1.
    """

    batch_size: int | Literal["auto"] = "auto"
    generate_batches: tuple[int, ...] = (1, 8, 32, 64)

    def __post_init__(self) -> None:
        if not self.generate_batches or min(self.generate_batches) < 1:
            raise ValueError("generate_batches must be one or more numbers of 1 or more")


class Engine(ABC):
    """An engine: a way to do the work. Engines share weights, never hooks, caches or settings.

    name: unique, for options; title: a description in a few words.
    kind: "bound" for forward passes that extract nothing.
    writes: the form of its output per document; see `Workload.expected`.
    batch_sizes: documents in flight to choose from, if the engine leaves the choice to its user;
        the benchmark tries all and keeps the fastest in `batch_size`.
    documents_per_prompt: the most documents that share a prompt.
    note: a remark for readers of its figures.
    model: the comparison's; module: a replica of it between `setup` and `teardown`, whose forward
        passes are counted.
    """

    name: str
    title: str
    kind: EngineKind = "rival"
    writes: Writes = "output"
    batch_sizes: tuple[int, ...] = ()
    documents_per_prompt: int = 1
    note: str = ""

    def __init__(self, model: Any, options: EngineOptions) -> None:
        self.model, self.options = model, options
        self.batch_size: int | None = None
        self.module: Any = None

    def setup(self, work: Workload) -> None:
        """Builds all that lasts for several runs. Raises Unavailable."""
        self.module = replica(self.model)

    def reset(self, work: Workload) -> None:  # noqa: B027
        """Prepares a run, untimed: empties caches, starts what a service would have running.

        Raises Unavailable.
        """

    @abstractmethod
    def run(self, work: Workload) -> Emitted:
        """Does all of the work, from token ids to token ids."""

    def teardown(self) -> None:
        """Frees all that `setup` built."""
        self.module = None


def replica(model: Any) -> Any:
    """A separate model over the same weights, with hooks and settings of its own."""
    shared = {id(tensor): tensor for tensor in chain(model.parameters(), model.buffers())}
    twin = copy.deepcopy(model, shared)
    # Without the sampling settings that trained models bring along.
    twin.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    return twin
