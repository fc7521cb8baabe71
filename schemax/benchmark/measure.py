"""Runs engines by turns, times them, and checks that each did the work."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from schemax.benchmark.engines.base import BenchmarkError, Engine, Unavailable
from schemax.benchmark.memory import peak_memory
from schemax.benchmark.workload import Workload, first_difference
from schemax.runtime.limits import is_out_of_memory


@dataclass(slots=True)
class EngineRun:
    """The figures of one engine, as it ran.

    documents: of each run; seconds: one per repeat; passes: forward passes of the model in one
        run, None where the engine does not go through the model's own `forward`.
    peak_bytes: the largest rise of memory during any run.
    tried: documents/s by batch size, where the engine left the choice to us.
    skipped: why it took no part.
    """

    engine: Engine
    documents: int
    seconds: list[float] = field(default_factory=list)
    passes: int | None = None
    peak_bytes: int | None = None
    tried: dict[int, float] = field(default_factory=dict)
    skipped: str | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """repeats: timed runs per engine, all engines in each round, in a new order every time.

    rival_documents: rivals run on so many documents, evenly spread; None for all.
    warm_up: documents that rivals read before anything is timed; ours read all.
    """

    repeats: int = 3
    rival_documents: int | None = None
    warm_up: int = 4
    seed: int = 0

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
    """One outcome per engine, in their order.

    Raises BenchmarkError where an engine writes anything but the given answers.
    """
    smaller = work if rules.rival_documents is None else work.part(rules.rival_documents)
    works = {engine: smaller if engine.kind == "rival" else work for engine in engines}
    outcomes = [EngineRun(engine, len(works[engine])) for engine in engines]
    for outcome in outcomes:
        _prepare(outcome, works[outcome.engine], rules, device)
        rates = ", ".join(f"{size}: {rate:,.2f}/s" for size, rate in outcome.tried.items())
        ready = f"ready; batch sizes tried: {rates}" if rates else "ready"
        tell(f"{outcome.engine.name}: {outcome.skipped or ready}")
    running = [outcome for outcome in outcomes if outcome.skipped is None]
    order = random.Random(rules.seed)
    for turn in range(rules.repeats):
        for outcome in order.sample(running, len(running)):
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
            _synchronize(device)
            started = time.perf_counter()
            emitted = engine.run(work)
            _synchronize(device)
            seconds = time.perf_counter() - started
        finally:
            hook.remove()
    if difference := first_difference(work.expected(engine.writes), emitted):
        raise BenchmarkError(f"{engine.name} did not write the given answers: {difference}")
    outcome.passes = len(passes) or None
    outcome.peak_bytes = max([outcome.peak_bytes or 0, *peak]) if peak else outcome.peak_bytes
    return seconds


def _prepare(outcome: EngineRun, work: Workload, rules: Rules, device: torch.device) -> None:
    """Sets up, warms up, and finds the best batch; a rival that fails here takes no part."""
    engine = outcome.engine
    try:
        engine.setup(work)
        engine.batch_size = engine.batch_sizes[0] if engine.batch_sizes else engine.batch_size
        # Rivals meet every size of batch below; ours may prepare themselves for the whole stream.
        timed(outcome, work if engine.kind == "ours" else work.part(rules.warm_up), device)
        _tune(outcome, work, device)
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


def _tune(outcome: EngineRun, work: Workload, device: torch.device) -> None:
    """Runs each batch size on one batch's worth of documents and keeps the fastest."""
    engine = outcome.engine
    useful = [size for size in engine.batch_sizes if size <= len(work)]
    for size in useful:
        engine.batch_size = size
        sample = work.part(max(size, 2))
        try:
            outcome.tried[size] = len(sample) / timed(outcome, sample, device)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            break
    if outcome.tried:
        engine.batch_size = max(outcome.tried, key=lambda size: outcome.tried[size])
    elif useful:
        raise Unavailable("out of memory even with the smallest batch")


def _synchronize(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)
