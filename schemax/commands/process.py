"""What whoever started the process did to it, and how they end it: closed streams, and SIGTERM."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


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


def make_up_for_closed_streams() -> None:
    """What is said to a closed stderr is lost; a closed stdout is one that nobody reads.

    A closed stdin stays None, which readers refuse. No file gets the number of a closed stream:
    libraries would write into it what they have to say.
    """
    while (handle := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(handle)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(_UnreadBytes(), encoding="utf-8", write_through=True)


class _UnreadBytes(io.BufferedIOBase):
    """Bytes that nobody reads: the first write raises what a pipe does whose reader has left."""

    name = "<stdout>"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def write(self, data: Any) -> int:
        raise BrokenPipeError("stdout is closed")
