"""What the host does beside the model: its CPU time, and what passes between it and the device."""

from schemax.benchmark.host.passes import PassRow, measure_passes
from schemax.benchmark.host.pipeline import HostRow, measure_host
from schemax.benchmark.host.settings import Setting, settings
from schemax.benchmark.host.transfers import PassCount, TransferCounter

__all__ = [
    "HostRow",
    "PassCount",
    "PassRow",
    "Setting",
    "TransferCounter",
    "measure_host",
    "measure_passes",
    "settings",
]
