"""Runs engines in turn, measures time and memory, and checks that each did the work."""

from __future__ import annotations

import ctypes
import gc
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

from schemax.evaluation.benchmark.engines import BenchmarkError, Engine, Unavailable
from schemax.evaluation.benchmark.workload import Workload, first_difference
from schemax.runtime.slots.memory import is_out_of_memory

NO_TIME = "no time was left"
_WARM_UP = 4
"""Documents that rivals read before anything is timed; our engines read all."""


@dataclass(slots=True)
class EngineRun:
    """The measurements of an engine.

    documents: the number of documents of each run.
    seconds: of each repeat.
    passes: forward passes of a run, None if the engine does not call the model's own `forward`.
    peak_bytes: the largest rise of memory during any run.
    tried: documents/s by batch size, if the engine leaves the choice to its user.
    skipped: why it took no part.
    pace: seconds per document of the latest run, 0 before it.
    """

    engine: Engine
    documents: int
    seconds: list[float] = field(default_factory=list)
    passes: int | None = None
    peak_bytes: int | None = None
    tried: dict[int, float] = field(default_factory=dict)
    skipped: str | None = None
    pace: float = 0.0

    def fits(self, documents: int, end: float) -> bool:
        """Returns True if a run over so many documents ends in time, by the engine's pace."""
        return time.monotonic() + documents * self.pace < end


@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of a measurement.

    repeats: timed runs per engine, all engines in each round, in a new order every time.
    rival_documents: the documents, evenly spread, that rivals run on; None for all.
    seconds: the time for all runs; a run begins only if it fits by the pace of the engine's latest.
    """

    repeats: int = 3
    rival_documents: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("repeats", "rival_documents"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")


def measure_engines(
    engines: Sequence[Engine],
    work: Workload,
    rules: Rules,
    device: torch.device,
    tell: Callable[[str], None] = lambda _: None,
) -> list[EngineRun]:
    """Measures engines, in their order; skips engines for which no time is left.

    Raises BenchmarkError if an engine writes other answers than the expected answers.
    """
    end = time.monotonic() + (math.inf if rules.seconds is None else rules.seconds)
    smaller = work if rules.rival_documents is None else work.part(rules.rival_documents)
    works = {engine: smaller if engine.kind == "rival" else work for engine in engines}
    outcomes = [EngineRun(engine, len(works[engine])) for engine in engines]
    for outcome in outcomes:
        _prepare(outcome, works[outcome.engine], device, end)
        rates = ", ".join(f"{size}: {rate:,.2f}/s" for size, rate in outcome.tried.items())
        ready = f"ready; batch sizes tried: {rates}" if rates else "ready"
        tell(f"{outcome.engine.name}: {outcome.skipped or ready}")
    running = [outcome for outcome in outcomes if outcome.skipped is None]
    order = random.Random(0)
    for turn in range(rules.repeats):
        for outcome in order.sample(running, len(running)):
            if not outcome.fits(outcome.documents, end):
                outcome.skipped = None if outcome.seconds else NO_TIME
                continue
            seconds = timed(outcome, works[outcome.engine], device)
            outcome.seconds.append(seconds)
            rate = outcome.documents / seconds
            tell(f"round {turn + 1} of {rules.repeats}: {outcome.engine.name} {rate:,.2f}/s")
    for engine in engines:
        engine.teardown()
    return outcomes


def timed(outcome: EngineRun, work: Workload, device: torch.device) -> float:
    """Runs an engine, checks its output, notes passes and memory; returns the seconds.

    Raises BenchmarkError if the engine writes other answers than the expected answers.
    """
    engine = outcome.engine
    passes: list[int] = []
    with peak_memory(device) as peak:
        engine.reset(work)
        # On the engine's own replica of the model.
        hook = engine.module.base_model.register_forward_pre_hook(lambda *_: passes.append(1))
        try:
            synchronize(device)
            started = time.perf_counter()
            emitted = engine.run(work)
            synchronize(device)
            seconds = time.perf_counter() - started
        finally:
            hook.remove()
    if difference := first_difference(work.expected(engine.writes), emitted):
        raise BenchmarkError(f"{engine.name} did not write the given answers: {difference}")
    outcome.passes, outcome.pace = len(passes) or None, seconds / len(work)
    outcome.peak_bytes = max([outcome.peak_bytes or 0, *peak]) if peak else outcome.peak_bytes
    return seconds


def _prepare(outcome: EngineRun, work: Workload, device: torch.device, end: float) -> None:
    """Sets up, warms up, and finds the best batch; skips a rival that fails here."""
    engine = outcome.engine
    try:
        if not outcome.fits(1, end):
            raise Unavailable(NO_TIME)
        engine.setup(work)
        engine.batch_size = engine.batch_sizes[0] if engine.batch_sizes else engine.batch_size
        # Rivals run every batch size later; our engines may prepare for the whole stream.
        timed(outcome, work if engine.kind == "ours" else work.part(_WARM_UP), device)
        _tune(outcome, work, device, end)
    except Unavailable as reason:
        outcome.skipped = str(reason)
    except BenchmarkError:
        raise
    except Exception as error:  # rivals may raise anything
        if engine.kind != "rival":
            raise
        message = (str(error).strip().splitlines() or [""])[0]
        outcome.skipped = f"does not run here: {type(error).__name__}: {message}"
    if outcome.skipped is not None:
        engine.teardown()


def _tune(outcome: EngineRun, work: Workload, device: torch.device, end: float) -> None:
    """Runs each batch size on one batch's worth of documents, as time allows; keeps the fastest."""
    engine = outcome.engine
    useful = [size for size in engine.batch_sizes if size <= len(work)]
    for size in useful:
        engine.batch_size = size
        sample = work.part(max(size, 2))
        if not outcome.fits(len(sample), end):
            break
        try:
            outcome.tried[size] = len(sample) / timed(outcome, sample, device)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            break
    if outcome.tried:
        engine.batch_size = max(outcome.tried, key=lambda size: outcome.tried[size])
    elif useful and not outcome.fits(1, end):
        raise Unavailable(NO_TIME)
    elif useful:
        raise Unavailable("out of memory even with the smallest batch")


def synchronize(device: torch.device) -> None:
    """Waits until an accelerator has finished its work."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@contextmanager
def peak_memory(device: torch.device) -> Iterator[list[int]]:
    """Measures the largest rise of memory in its context, in bytes.

    Yields a list that holds the rise after the context; it stays empty if the rise is unknown.
    On CUDA, memory that torch allocates counts; elsewhere, resident memory as Linux counts it.
    """
    peak: list[int] = []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield peak
        peak.append(torch.cuda.max_memory_allocated(device) - before)
        return
    gc.collect(1)  # garbage of runs is young; collecting all would take longer than some runs
    # Freed pages that the allocator keeps would hide new allocations.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    started = None
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
        started = resident("VmRSS")
    yield peak
    highest = resident("VmHWM")
    if started is not None and highest is not None:
        peak.append(max(0, highest - started))


def resident(name: str) -> int | None:
    """Returns resident bytes of this process: VmRSS now, VmHWM the peak; None outside Linux."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None
