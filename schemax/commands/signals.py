"""SIGTERM, which ends a run as an interrupt does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from schemax.commands.console import say

_TERMINATED = 143


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM becomes an exception, which cleans up behind it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise SystemExit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except SystemExit as error:
        say("terminated")
        for note in getattr(error, "__notes__", ()):
            say(note)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
