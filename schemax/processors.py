"""How many processors this process may use, and how torch's threads share them.

torch takes a thread for every processor of the machine, whatever a container allows, and each one
spins while it waits for the others. Beside busy neighbours, all of them then wait for whichever
thread is not running: passes take many times as long as on one thread.
"""

from __future__ import annotations

import os
from math import ceil
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")

# Of GNU's, LLVM's and Intel's OpenMP: whoever sets one of them knows what they want.
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")


def usable_processors() -> int:
    """Those that this process may run on, and no more than its container may keep busy."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = _quota()
    return count if quota is None else max(1, min(count, ceil(quota)))


def share_processors() -> None:
    """Has threads that wait sleep, and torch take no more of them than there are processors for.

    To be called before torch is imported; settings of the environment are left as they are.
    """
    if not any(name in os.environ for name in WAITING):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    if _quota() is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(usable_processors()))


def _quota() -> float | None:
    """Processors' worth of time that the container has; None without a bound, or outside of one."""
    try:
        allowed, period = QUOTA.read_text("ascii").split()
        return None if allowed == "max" else int(allowed) / int(period)
    except (OSError, ValueError):
        return None
