"""Speed beside other ways to do the same work: in one process, on one model, token for token."""

from schemax.benchmark.engines.base import BenchmarkError, Engine, EngineOptions, Unavailable
from schemax.benchmark.engines.registry import ENGINES, build_engines
from schemax.benchmark.generated import Sizes, generate_work
from schemax.benchmark.measure import Rules, measure_engines
from schemax.benchmark.report import Report
from schemax.benchmark.workload import Workload

__all__ = [
    "ENGINES",
    "BenchmarkError",
    "Engine",
    "EngineOptions",
    "Report",
    "Rules",
    "Sizes",
    "Unavailable",
    "Workload",
    "build_engines",
    "generate_work",
    "measure_engines",
]
