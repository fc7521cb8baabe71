"""Interrupts: Ctrl-C while the command line is still being imported, and SIGTERM during a run."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def leave_at_once() -> None:
    """Has Ctrl-C end this process as it ends any other, status 130, if it is the command line.

    Nothing is under way yet that could be lost. Who has another idea of the signal keeps it.
    """
    if _is_command_line() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_again() -> None:
    """Makes Ctrl-C a KeyboardInterrupt from now on, which leaves files whole."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Terminated(KeyboardInterrupt):
    """SIGTERM has asked the process to end, which it does as after an interrupt."""


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM becomes `Terminated`, which cleans up behind it."""
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


def _is_command_line() -> bool:
    is_module = sys.orig_argv[1:3] == ["-m", "schemax"]
    return is_module or Path(sys.argv[0] if sys.argv else "").stem == "schemax"


leave_at_once()
