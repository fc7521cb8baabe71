"""Interrupts: Ctrl-C while the command line is still being imported, and SIGTERM during a run."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def leave_at_once() -> None:
    """Makes Ctrl-C end the process of the command line at once, with status 130.

    Nothing is under way yet that could be lost. Other handlers of the signal are kept.
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


def _is_command_line() -> bool:
    is_module = sys.orig_argv[1:3] == ["-m", "schemax"]
    return is_module or Path(sys.argv[0] if sys.argv else "").stem == "schemax"


leave_at_once()
