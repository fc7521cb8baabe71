"""Threads of a CPU, and whether there is room for them."""

from __future__ import annotations

import os

import torch

from schemax.diagnosis.report import Check
from schemax.processors import usable_processors


def thread_check() -> Check:
    """How many threads torch computes with, and what to do where others need the processors."""
    threads, usable = torch.get_num_threads(), usable_processors()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    found = f"{threads} on {usable} processors, load {load:.1f}"
    if threads > usable:
        found += f"; set OMP_NUM_THREADS={usable}, or passes take many times as long"
    elif threads > 1 and load + threads > usable + 1:
        free = max(1, min(threads - 1, usable - round(load)))
        found += f"; others are busy: OMP_NUM_THREADS={free} may be faster (docs/performance.md)"
    return Check("threads", found)
