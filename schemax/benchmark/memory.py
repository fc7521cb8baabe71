"""How much memory a run needs beyond what was there before it."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch


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
