"""The processors that this process may use, and how torch's threads share them.

torch takes a thread for every processor of the machine, whatever a container allows, and each one
spins while it waits for the others. Beside busy neighbours, all of them then wait for whichever
thread is not running: passes take many times as long as on one thread. Threads that sleep at once
lose time on a machine of their own, since waking takes longer than a small model's operations.
"""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")

# Of GNU's, LLVM's and Intel's OpenMP: whoever sets one of them knows what they want.
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")


# Rounds of a loop, about ten microseconds, before a thread of GNU's OpenMP sleeps; the others, of
# LLVM and Intel, sleep at once.
_SPINS = "1000"


def usable_processors() -> int:
    """Counts the processors that this process may run on, no more than its container's share."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = _quota()
    return count if quota is None else max(1, min(count, ceil(quota)))


def share_processors() -> None:
    """Makes waiting threads spin briefly and then sleep, and torch use no more threads than
    processors.

    Call it before torch is imported; it keeps settings of the environment.
    """
    if not any(name in os.environ for name in WAITING):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ["GOMP_SPINCOUNT"] = _SPINS
    if _quota() is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(usable_processors()))


def _quota() -> float | None:
    """The number of processors that the container may use; None without a bound."""
    try:
        allowed, period = QUOTA.read_text("ascii").split()
        return None if allowed == "max" else int(allowed) / int(period)
    except (OSError, ValueError):
        return None
