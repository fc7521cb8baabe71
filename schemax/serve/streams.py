"""Streams answers while they are made, and cancels work when the client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from fastapi import Request
from fastapi.responses import StreamingResponse

from schemax.serve.errors import LINES, ApiError
from schemax.serve.json_text import json_line, json_text

T = TypeVar("T")

DEADLINE = "schemax.deadline"
"""The key, in a request's scope, of its deadline by the event loop's clock."""


async def event_stream(
    request: Request, events: AsyncGenerator[Mapping[str, Any]], *, end: str | None = None
) -> StreamingResponse:
    """Streams server-sent events, named by their `type` if they have one. end: the last event.

    An error before the first event is raised, so that it gives the status; a later one is an event.
    """

    def event(data: Mapping[str, Any]) -> str:
        name = f"event: {data['type']}\n" if "type" in data else ""
        return f"{name}data: {json_text(data)}\n\n"

    last = "" if end is None else f"data: {end}\n\n"
    return await _stream(request, events, event, last, "text/event-stream")


async def line_stream(
    request: Request, rows: AsyncGenerator[Mapping[str, Any]]
) -> StreamingResponse:
    """Streams newline-delimited JSON; an error on the way is the last line."""
    return await _stream(request, rows, json_line, "", LINES)


async def channel(
    work: Callable[[Callable[[T], None]], Coroutine[Any, Any, None]],
) -> AsyncGenerator[T]:
    """Yields the items that `work` puts. Raises work's error behind the last item.

    Work runs in a task of its own, so that its time limit holds whichever task takes the items.
    """
    made = asyncio.Queue[tuple[T] | None]()
    task = asyncio.create_task(work(lambda item: made.put_nowait((item,))))
    task.add_done_callback(lambda _: made.put_nowait(None))
    try:
        while (found := await made.get()) is not None:
            yield found[0]
        task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


async def _pumped(items: AsyncGenerator[T], deadline: float, ahead: int = 64) -> AsyncGenerator[T]:
    """Yields items, made up to `ahead` in advance; the deadline holds even if none is taken."""
    room = asyncio.Semaphore(ahead)

    async def work(put: Callable[[T], None]) -> None:
        async with asyncio.timeout_at(deadline), aclosing(items):
            async for item in items:
                await room.acquire()
                put(item)

    async with aclosing(channel(work)) as found:
        async for item in found:
            room.release()
            yield item


async def _stream(
    request: Request,
    items: AsyncGenerator[Mapping[str, Any]],
    shown: Callable[[Mapping[str, Any]], str],
    last: str,
    media_type: str,
) -> StreamingResponse:
    items = _pumped(items, request.scope[DEADLINE])
    first = await while_connected(request, anext(items, None))

    async def body() -> AsyncGenerator[str]:
        async with aclosing(items):
            try:
                if first is not None:
                    yield shown(first)
                async for item in items:
                    yield shown(item)
            except Exception as error:  # the status has been sent
                yield shown(ApiError.of(error).body)
        yield last

    return StreamingResponse(body(), media_type=media_type)


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Awaits work. If the client leaves, cancels the work and raises ApiError (499)."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ApiError(499, "the client has left")
        return task.result()
    finally:
        task.cancel()
        watch.cancel()
