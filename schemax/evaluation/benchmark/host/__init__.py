"""Measures the host's work around the model, in CPU time."""

from schemax.evaluation.benchmark.host.pipeline import HostRow, measure_host
from schemax.evaluation.benchmark.host.settings import Setting, settings

__all__ = [
    "HostRow",
    "Setting",
    "measure_host",
    "settings",
]
