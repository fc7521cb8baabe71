"""What a benchmark asks of every engine, so that none is treated differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

from schemax.benchmark.workload import Ids, Workload, Writes
from schemax.errors import SchemaxError

EngineKind = Literal["ours", "rival", "bound"]

Emitted = Sequence[tuple[Ids, ...]]
"""Per document, in order, the runs of tokens that were written; empty for bounds."""


class BenchmarkError(SchemaxError):
    """A comparison that would not be fair, or cannot be made: an engine wrote something else."""


class Unavailable(Exception):
    """Why an engine cannot take part here; the others go on without it."""


class Engine(Protocol):
    """One way to do the work. Engines share weights, never hooks, caches or settings.

    name: unique, as it is asked for; title: what it is, in a few words.
    kind: "bound" for forward passes that extract nothing.
    writes: what it emits per document; see `Workload.expected`.
    batch_sizes: documents in flight to choose from, where the engine leaves the choice to its
        user; the benchmark tries all and keeps the fastest in `batch_size`.
    note: what a reader of its figures should know.
    module: the model between `setup` and `teardown`, for counting its forward passes.
    """

    name: str
    title: str
    kind: EngineKind
    writes: Writes
    batch_sizes: tuple[int, ...]
    batch_size: int | None
    note: str
    module: Any

    def setup(self, work: Workload) -> None:
        """Builds what outlives a run. Raises Unavailable."""

    def reset(self, work: Workload) -> None:
        """Before every run, untimed: starts what a service would have running, empty."""

    def run(self, work: Workload) -> Emitted:
        """Does all of the work, from token ids to token ids."""

    def teardown(self) -> None:
        """Lets go of what `setup` built."""
