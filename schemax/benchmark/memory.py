"""How much memory a run needs beyond what was there before it."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass
class Peak:
    """bytes: the largest rise over the level before; None where it cannot be told."""

    bytes: int | None = None


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Peak]:
    """On CUDA what torch allocates, else resident memory as Linux counts it."""
    peak = Peak()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        yield peak
        peak.bytes = torch.cuda.max_memory_allocated(device) - before
        return
    started = _reset()
    yield peak
    highest = _resident("VmHWM")
    if started is not None and highest is not None:
        peak.bytes = max(0, highest - started)


def _reset() -> int | None:
    """Sets the high-water mark to what is resident now; None where there is no such thing."""
    gc.collect(1)  # what a run leaves behind is young; the rest would take longer than some runs
    # Freed pages that the allocator keeps would hide what is allocated next.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        _CLEAR.write_text("5")
    except OSError:
        return None
    return _resident("VmRSS")


def _resident(name: str) -> int | None:
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return None
    return next((int(x.split()[1]) * 1024 for x in lines if x.startswith(f"{name}:")), None)
