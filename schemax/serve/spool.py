"""Bytes on their way to a client that may not read yet, as many as fit into a file."""

from __future__ import annotations

import asyncio
from tempfile import TemporaryFile

from schemax.serve.errors import ApiError

_CHUNK = 65_536


class SpoolError(ApiError):
    """A client lets too many bytes wait for too long."""


class Spool:
    """A queue of bytes, in a file: most clients read nothing before they have sent everything.

    most: bytes that wait at once, or nearly. seconds: that a client may read nothing for, then.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._file = TemporaryFile()  # noqa: SIM115  # see `close`
        self._read = self._written = 0
        self._is_ended = False
        self._changed = asyncio.Condition()

    async def put(self, data: bytes, *, late: bool = False) -> None:
        """Raises SpoolError, unless it is too late for that."""
        async with self._changed:
            try:
                async with asyncio.timeout(self._seconds):
                    await self._changed.wait_for(lambda: late or self._written <= self._most)
            except TimeoutError:
                raise SpoolError(
                    422,
                    f"more than {self._most:,} bytes of rows wait to be read; read them while "
                    "sending, or send less at once",
                ) from None
            self._file.seek(self._written)
            self._written += self._file.write(data)
            self._changed.notify_all()

    def close(self) -> None:
        self._file.close()

    async def end(self) -> None:
        async with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    async def take(self) -> bytes:
        """Takes what was put next, once there is something; b"" at the end."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._read < self._written or self._is_ended)
            self._file.seek(self._read)
            found = self._file.read(_CHUNK)
            self._read += len(found)
            if self._read == self._written:
                self._read = self._written = 0
                self._file.truncate(0)
                self._changed.notify_all()
            return found
