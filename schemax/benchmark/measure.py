"""Runs engines by turns, takes their time and memory, and checks that each did the work."""

from __future__ import annotations

import ctypes
import gc
import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import torch

from schemax.benchmark.engines.base import BenchmarkError, Engine, Unavailable
from schemax.benchmark.workload import Workload, first_difference
from schemax.runtime.limits import is_out_of_memory

NO_TIME = "no time was left"


@dataclass(slots=True)
class EngineRun:
    """The figures of one engine, as it ran.

    documents: of each run; seconds: one per repeat; passes: forward passes of the model in one
        run, None where the engine does not go through the model's own `forward`.
    peak_bytes: the largest rise of memory during any run.
    tried: documents/s by batch size, where the engine left the choice to us.
    skipped: why it took no part. pace: seconds per document of the latest run.
    """

    engine: Engine
    documents: int
    seconds: list[float] = field(default_factory=list)
    passes: int | None = None
    peak_bytes: int | None = None
    tried: dict[int, float] = field(default_factory=dict)
    skipped: str | None = None
    pace: float = 0.0


class Clock:
    """The seconds that measurements may still take together; None: all the time."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.monotonic() + seconds

    def allows(self, outcome: EngineRun, documents: int) -> bool:
        """True if a run over so many documents fits, as far as the engine's pace is known."""
        return self._end is None or time.monotonic() + documents * outcome.pace < self._end


@dataclass(frozen=True, slots=True)
class Rules:
    """repeats: timed runs per engine, all engines in each round, in a new order every time.

    rival_documents: rivals run on so many documents, evenly spread; None for all.
    warm_up: documents that rivals read before anything is timed; ours read all.
    seconds: for all of it; a run is begun where it fits, by the pace of the engine's latest one.
    """

    repeats: int = 3
    rival_documents: int | None = None
    warm_up: int = 4
    seed: int = 0
    seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("repeats", "warm_up", "rival_documents"):
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
    """Measures engines, in their order; those for which no time was left are skipped.

    Raises BenchmarkError where an engine writes anything but the given answers.
    """
    clock = Clock(rules.seconds)
    smaller = work if rules.rival_documents is None else work.part(rules.rival_documents)
    works = {engine: smaller if engine.kind == "rival" else work for engine in engines}
    outcomes = [EngineRun(engine, len(works[engine])) for engine in engines]
    for outcome in outcomes:
        _prepare(outcome, works[outcome.engine], rules, device, clock)
        rates = ", ".join(f"{size}: {rate:,.2f}/s" for size, rate in outcome.tried.items())
        ready = f"ready; batch sizes tried: {rates}" if rates else "ready"
        tell(f"{outcome.engine.name}: {outcome.skipped or ready}")
    running = [outcome for outcome in outcomes if outcome.skipped is None]
    order = random.Random(rules.seed)
    for turn in range(rules.repeats):
        for outcome in order.sample(running, len(running)):
            if not clock.allows(outcome, outcome.documents):
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
    """Seconds of one checked run; counts its passes and its memory as well.

    Raises BenchmarkError for other answers than the given ones.
    """
    engine = outcome.engine
    passes: list[int] = []
    with peak_memory(device) as peak:
        engine.reset(work)
        # Of the engine's own replica of the model.
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


def _prepare(
    outcome: EngineRun, work: Workload, rules: Rules, device: torch.device, clock: Clock
) -> None:
    """Sets up, warms up, and finds the best batch; a rival that fails here takes no part."""
    engine = outcome.engine
    try:
        if not clock.allows(outcome, 1):
            raise Unavailable(NO_TIME)
        engine.setup(work)
        engine.batch_size = engine.batch_sizes[0] if engine.batch_sizes else engine.batch_size
        # Rivals meet every size of batch below; ours may prepare themselves for the whole stream.
        timed(outcome, work if engine.kind == "ours" else work.part(rules.warm_up), device)
        _tune(outcome, work, device, clock)
    except Unavailable as reason:
        outcome.skipped = str(reason)
    except BenchmarkError:
        raise
    except Exception as error:  # other people's code, in an environment it may not be made for
        if engine.kind != "rival":
            raise
        said = (str(error).strip().splitlines() or [""])[0]
        outcome.skipped = f"does not run here: {type(error).__name__}: {said}"
    if outcome.skipped is not None:
        engine.teardown()


def _tune(outcome: EngineRun, work: Workload, device: torch.device, clock: Clock) -> None:
    """Runs each batch size on one batch's worth of documents, as time allows; keeps the fastest."""
    engine = outcome.engine
    useful = [size for size in engine.batch_sizes if size <= len(work)]
    for size in useful:
        engine.batch_size = size
        sample = work.part(max(size, 2))
        if not clock.allows(outcome, len(sample)):
            break
        try:
            outcome.tried[size] = len(sample) / timed(outcome, sample, device)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            break
    if outcome.tried:
        engine.batch_size = max(outcome.tried, key=lambda size: outcome.tried[size])
    elif useful and not clock.allows(outcome, 1):
        raise Unavailable(NO_TIME)
    elif useful:
        raise Unavailable("out of memory even with the smallest batch")


def synchronize(device: torch.device) -> None:
    """Waits for what an accelerator still computes."""
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@contextmanager
def peak_memory(device: torch.device) -> Iterator[list[int]]:
    """The largest rise over the level before, in bytes: once the context is left, the only item of
    a list, which stays empty where the rise cannot be told.

    On CUDA what torch allocates, else resident memory as Linux counts it.
    """
    peak: list[int] = []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield peak
        peak.append(torch.cuda.max_memory_allocated(device) - before)
        return
    gc.collect(1)  # what a run leaves behind is young; the rest would take longer than some runs
    # Freed pages that the allocator keeps would hide what is allocated next.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    started = None
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark is what is resident now
        started = resident("VmRSS")
    yield peak
    highest = resident("VmHWM")
    if started is not None and highest is not None:
        peak.append(max(0, highest - started))


def resident(name: str) -> int | None:
    """Bytes of this process: VmRSS now, VmHWM at most so far; None where Linux does not count."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None
