"""Ctrl-C while the command line is still being imported: it ends, and shows no lines of ours."""

from __future__ import annotations

import signal
import sys
from pathlib import Path


def leave_at_once() -> None:
    """Has Ctrl-C end this process as it ends any other, status 130, if it is the command line.

    Nothing is under way yet that could be lost. Who has another idea of the signal keeps it.
    """
    if _is_command_line() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def raise_again() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt, which leaves files whole."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _is_command_line() -> bool:
    is_module = sys.orig_argv[1:3] == ["-m", "schemax"]
    return is_module or Path(sys.argv[0] if sys.argv else "").stem == "schemax"


leave_at_once()
