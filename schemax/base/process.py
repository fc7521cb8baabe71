"""The process: interrupts, the processors, time and memory that it may use.

torch takes a thread for every processor of the machine, whatever a container allows, and each
thread spins while it waits for the others. Beside busy neighbours, all threads wait for one that is
not running: a pass takes many times as long as on one thread. Threads that sleep at once lose time
on an idle machine, since waking takes longer than a small model's operations.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from math import ceil
from pathlib import Path
from typing import Any


def leave_at_once() -> None:
    """Makes Ctrl-C end the process of the command line at once, with status 130.

    No work is lost, since none has begun. Other handlers of the signal are kept.
    """
    if _is_command_line() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_again() -> None:
    """Makes Ctrl-C a KeyboardInterrupt from now on, which leaves files whole."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Terminated(KeyboardInterrupt):
    """SIGTERM has asked the process to end; it ends as after an interrupt."""


@contextmanager
def terminable() -> Iterator[None]:
    """Turns SIGTERM into `Terminated`, so that contexts clean up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def at_most(seconds: float, late: Exception, *, lines: bool = False) -> Iterator[None]:
    """Raises `late` within Python code that takes more processor time than this.

    The interpreter checks the time at every 16th call of a Python function; with `lines`, lines
    count like calls. This requires no other thread, nor a signal, which only the main thread could
    take.
    """
    ends, events = time.thread_time() + seconds, count()

    def check(*_: Any) -> Any:
        if next(events) % 16 == 0 and time.thread_time() > ends:
            raise late
        return check if lines else None

    before = sys.gettrace()
    sys.settrace(check)
    try:
        yield
    finally:
        sys.settrace(before)


def _is_command_line() -> bool:
    is_module = sys.orig_argv[1:3] == ["-m", "schemax"]
    return is_module or Path(sys.argv[0] if sys.argv else "").stem == "schemax"


QUOTA = Path("/sys/fs/cgroup/cpu.max")

# Variables of GNU's, LLVM's and Intel's OpenMP; a user who sets one has chosen.
WAITING = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "KMP_LIBRARY")

# Rounds of a loop, about ten microseconds, before a thread of GNU's OpenMP sleeps; threads of LLVM
# and Intel sleep at once.
_SPINS = "1000"


def usable_processors() -> int:
    """Counts the processors that this process may run on, no more than its container's share."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    quota = _quota()
    return count if quota is None else max(1, min(count, ceil(quota)))


def share_processors() -> None:
    """Makes waiting threads sleep soon, and bounds torch's threads by the processors.

    Call it before torch is imported. Settings of the environment are kept.
    """
    if not any(name in os.environ for name in WAITING):
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        os.environ["GOMP_SPINCOUNT"] = _SPINS
    if _quota() is not None:
        os.environ.setdefault("OMP_NUM_THREADS", str(usable_processors()))


def use_threads(count: int) -> None:
    """Makes torch compute with this many threads; best called before torch is imported.

    `torch.set_num_threads` sets MKL's number, too. With more than one, MKL then begins threads for
    each product inside an operation that has its threads already, such as attention. So torch is
    told only where it has another number.
    """
    os.environ["OMP_NUM_THREADS"] = str(count)
    import torch

    if torch.get_num_threads() != count:
        torch.set_num_threads(count)


def _quota() -> float | None:
    """The number of processors that the container may use; None without a bound."""
    try:
        allowed, period = QUOTA.read_text("ascii").split()
        return None if allowed == "max" else int(allowed) / int(period)
    except (OSError, ValueError):
        return None


# New objects that start a collection: about as many as a few documents in flight hold. Most are
# gone once their document is done.
_MOST_NEW = 10_000


def give_back_memory() -> None:
    """Gives memory that was freed back to the system, which GNU's C library would keep."""
    _call("malloc_trim", 0)


def give_back_threads() -> None:
    """Ends the pool of threads that OpenMP keeps for the thread that calls.

    Each thread that has computed has such a pool. With two pools a process has more threads than
    processors, and then GNU's OpenMP lets none of them spin.
    """
    _call("omp_pause_resource_all", 1)  # softly: they come back when they are needed


def _call(name: str, argument: int) -> None:
    """Calls a function of a C library that this process has loaded, if there is one."""
    loaded = ctypes.CDLL(None) if os.name == "posix" else None
    if function := getattr(loaded, name, None):
        function(argument)


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Leaves all current objects out of garbage collections while the context lasts.

    New objects are collected less often. Collections that a program has switched off stay off.

    A model and its libraries are some hundred thousand objects. A full collection visits each
    object, and reading documents creates enough objects for many full collections.
    """
    usual = gc.get_threshold()
    gc.freeze()
    if usual[0]:
        gc.set_threshold(max(usual[0], _MOST_NEW), *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


leave_at_once()
