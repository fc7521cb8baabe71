"""Measures the host's work around the model, in CPU time."""

from benchmarks.host.pipeline import HostRow, measure_host
from benchmarks.host.settings import Setting, settings

__all__ = [
    "HostRow",
    "Setting",
    "measure_host",
    "settings",
]
