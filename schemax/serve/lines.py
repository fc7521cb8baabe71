"""Bodies of newline-delimited JSON: reads documents and answers rows, line by line."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, closing, suppress
from tempfile import TemporaryFile
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from schemax.io.rows import RowForm
from schemax.results import failed
from schemax.serve.answers import LINES, ApiError, json_line
from schemax.serve.limits import ServerLimits
from schemax.serve.request_schemas import ClientSchema
from schemax.serve.service import Service

# Documents of a window, which is one call of the extractor; windows under way.
_WINDOW, _WINDOWS = 64, 4
_DRAIN_SECONDS = 5.0

Line = tuple[int, bytes]
"""(its number, from 1 on; a line that is not blank)."""


class Lines:
    """The lines of a request's body, as they arrive."""

    def __init__(self, request: Request, limits: ServerLimits) -> None:
        self._request, self._limits = request, limits
        self._chunks = request.stream()
        self._whole: deque[Line] = deque()
        self._begun, self._number, self._is_ended = b"", 0, False
        self.failure: ApiError | None = None

    async def take(self, most: int) -> list[Line]:
        """Waits for a line, and returns all lines that have arrived, up to `most`; [] at the end.

        A line that is too long or too late ends the lines; see `failure`.
        """
        while not (self._whole or self._is_ended or self.failure):
            try:
                async with asyncio.timeout(self._limits.seconds):
                    chunk = await anext(self._chunks, None)
            except TimeoutError:
                self.failure = ApiError(
                    408, f"no line came within {self._limits.seconds:g} seconds; send without pause"
                )
                break
            except HTTPException as error:  # the body is too long
                self.failure = ApiError.of(error)
                break
            self._is_ended = chunk is None
            lines = (self._begun + (chunk or b"\n")).split(b"\n")
            longest, self._begun = self._limits.body_bytes, lines[-1]
            for number, line in enumerate(lines, self._number + 1):
                if len(line) > longest:
                    self.failure = ApiError(413, f"line {number} has more than {longest:,} bytes")
                    break
                if line.strip() and line is not self._begun:
                    self._whole.append((number, line))
            self._number += len(lines) - 1
        return [self._whole.popleft() for _ in range(min(most, len(self._whole)))]

    async def drain(self) -> None:
        """Reads on for seconds, since a client that is still sending would miss its refusal."""
        with suppress(TimeoutError, HTTPException, ClientDisconnect):
            async with asyncio.timeout(_DRAIN_SECONDS):
                async for _ in self._chunks:
                    pass

    async def until_left(self) -> None:
        """Waits, after the last line, until the client leaves; then raises ClientDisconnect."""
        while (await self._request.receive())["type"] != "http.disconnect":
            pass
        raise ClientDisconnect


class Rows:
    """The rows of documents that arrive as lines: one row for each, failed documents included.

    options: of `Extractor.stream`. form: of rows.
    """

    def __init__(
        self,
        service: Service,
        lines: Lines,
        schema: ClientSchema,
        options: Mapping[str, Any],
        *,
        form: RowForm,
    ) -> None:
        self._service, self._lines, self._schema = service, lines, schema
        self._options, self._form = options, form
        self._room = asyncio.Semaphore(_WINDOWS)
        self._window_size = min(_WINDOW, service.limits.documents)

    def response(self) -> StreamingResponse:
        return _Duplex(self._sent(), media_type=LINES)

    async def _sent(self) -> AsyncGenerator[bytes]:
        limits = self._service.limits
        with closing(Spool(limits.answer_bytes, limits.seconds)) as self._spool:
            task = asyncio.create_task(self._read())
            try:
                while data := await self._spool.take():
                    yield data
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _read(self) -> None:
        try:
            await self._read_all()
        except* ClientDisconnect:
            pass
        except* Exception as errors:  # the status has been sent, so the last line has the error
            error: BaseException = errors
            while isinstance(error, BaseExceptionGroup):
                error = error.exceptions[0]
            await self._spool.put(json_line(ApiError.of(error).body).encode(), late=True)
        finally:
            await self._spool.end()

    async def _read_all(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            async with asyncio.TaskGroup() as windows:
                index = 0
                while window := await self._lines.take(self._window_size):
                    await self._room.acquire()
                    windows.create_task(self._window(index, window))
                    index += len(window)
                leaving = tasks.create_task(self._lines.until_left())
            leaving.cancel()
        if self._lines.failure is not None:
            raise self._lines.failure

    async def _window(self, start: int, window: Sequence[Line]) -> None:
        documents: dict[int, Any] = {}
        failures: dict[int, str] = {}
        for index, (number, line) in enumerate(window, start):
            try:
                documents[index] = json.loads(line)
            except (ValueError, RecursionError) as error:
                failures[index] = f"line {number} is no JSON: {error}"
        try:
            await self._rows(documents)
        except SpoolError:
            raise
        except Exception as error:  # a failed call fails only its own documents
            failures |= dict.fromkeys(documents, str(ApiError.of(error)))
        finally:
            self._room.release()
        for index, message in failures.items():
            document = documents.get(index)
            id = document.get(self._options["id"]) if isinstance(document, dict) else None
            row = failed(index, None if id is None else str(id), message).to_row()
            await self._put(index, row, document)

    async def _put(self, index: int, row: Mapping[str, Any], document: Any) -> None:
        """Writes a row. A kept value that JSON cannot hold fails this row alone."""
        try:
            line = json_line({**row, "index": index} | self._form.beside(document))
        except (ValueError, RecursionError) as error:
            line = json_line(failed(index, None, f"the row cannot be written: {error}").to_row())
        await self._spool.put(line.encode())

    async def _rows(self, documents: dict[int, Any]) -> None:
        """Writes the rows of documents, and removes each document when its row is written."""
        if not documents:
            return
        places = list(documents)
        await self._service.queue.room_for(len(places))
        # A list would be refused if no document had a key; later lines may have it.
        window = deque(documents.values())
        items = self._service.stream(window, self._schema, **self._options)
        async with asyncio.timeout(self._service.limits.seconds), aclosing(items):
            async for item in items:
                index = places[item.index]
                row = item.to_row(details=bool(self._form.details))
                await self._put(index, row, documents[index])
                del documents[index]


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
            data = self._file.read(_CHUNK)
            self._read += len(data)
            if self._read == self._written:
                self._read = self._written = 0
                self._file.truncate(0)
                self._changed.notify_all()
            return data


class _Duplex(StreamingResponse):
    """A response that is sent while the body is still read, so it cannot watch for disconnects."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.stream_response(send)
