"""A spool: a file that holds bytes until a client reads them."""

from __future__ import annotations

import asyncio
from tempfile import TemporaryFile

from schemax.serve.errors import ApiError

_CHUNK = 65_536


class SpoolError(ApiError):
    """A client leaves too many bytes unread for too long."""


class Spool:
    """A queue of bytes in a file, since most clients read nothing before they have sent all.

    most: the approximate number of bytes that may wait at once. seconds: the time to wait for a
    client to read if there are more.
    """

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._file = TemporaryFile()  # noqa: SIM115  # see `close`
        self._read = self._written = 0
        self._is_ended = False
        self._changed = asyncio.Condition()

    async def put(self, data: bytes, *, late: bool = False) -> None:
        """Appends data. Raises SpoolError if the client reads nothing, unless `late`."""
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
        """Waits for bytes, and removes and returns the next; b"" at the end."""
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
