"""SIGTERM, which ends a run as an interrupt does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Terminated(KeyboardInterrupt):
    """Somebody has asked the process to end."""


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
