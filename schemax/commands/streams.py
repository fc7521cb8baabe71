"""Standard streams that whoever started the process has closed."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


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
        sys.stdout = _Unread()


class _Unread(io.TextIOWrapper):
    """Text that nobody reads: the first write raises what a pipe does whose reader has left."""

    def __init__(self) -> None:
        super().__init__(_UnreadBytes(), encoding="utf-8", write_through=True)


class _UnreadBytes(io.BufferedIOBase):
    name = "<stdout>"

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return 1

    def write(self, data: Any) -> int:
        raise BrokenPipeError("stdout is closed")
