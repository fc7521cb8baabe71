"""Speed beside other ways to do the same work: in one process, on one model, token for token."""

from schemax.benchmark.engine import BenchmarkError, Engine, Unavailable
from schemax.benchmark.generated import Sizes, generate_work
from schemax.benchmark.measure import Rules, measure
from schemax.benchmark.report import Report
from schemax.benchmark.suite import ENGINES, Field, build
from schemax.benchmark.work import Work

__all__ = [
    "ENGINES",
    "BenchmarkError",
    "Engine",
    "Field",
    "Report",
    "Rules",
    "Sizes",
    "Unavailable",
    "Work",
    "build",
    "generate_work",
    "measure",
]
