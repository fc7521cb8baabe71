"""Answers of the server: JSON, errors in the form of OpenAI's API, and streams.

Streams cancel their work when the client leaves.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, contextmanager, suppress
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException

from schemax.base.messages import clipped
from schemax.errors import SchemaxError

T = TypeVar("T")

LINES = "application/x-ndjson"

# Parts of pydantic's places that are no part of a request.
_KINDS = frozenset({"body", "str"})

logger = logging.getLogger(__name__)

DEADLINE = "schemax.deadline"
"""The key, in a request's scope, of its deadline by the event loop's clock."""


def json_text(value: Any) -> str:
    """JSON that UTF-8 can hold: lone surrogates are escaped.

    Raises ValueError or RecursionError for values that JSON cannot hold.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False)
    return text


def json_line(row: Mapping[str, Any]) -> str:
    """A line of newline-delimited JSON; see `json_text`."""
    return json_text(row) + "\n"


class JsonAnswer(JSONResponse):
    """JSON that may echo any text of a request; see `json_text`."""

    def render(self, content: Any) -> bytes:
        return json_text(content).encode()


class ApiError(Exception):
    """A refused request. param: the part of the request that is at fault."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.headers = status, param, code, headers

    @property
    def body(self) -> dict[str, Any]:
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(self.status, kind)
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self) -> Response:
        return JsonAnswer(self.body, self.status, self.headers)

    @classmethod
    def of(cls, error: BaseException) -> ApiError:
        """The answer to an error: its message for a client's fault, else only its type."""
        match error:
            case ApiError():
                return error
            case RequestValidationError():
                first = error.errors()[0]
                if first["type"] == "json_invalid":  # its place is no parameter
                    reason = first.get("ctx", {}).get("error", first["msg"])
                    return cls(400, clipped(f"the body is no JSON: {reason}"))
                # Among alternatives, the alternative that matched furthest.
                near = [item for item in error.errors() if item["loc"][:2] == first["loc"][:2]]
                first = max(near, key=lambda item: len(item["loc"]))
                place = _place(first["loc"])
                reason = str(first["msg"]).removeprefix("Value error, ")
                message = f"{place}: {reason}" if place else reason
                return cls(400, clipped(message), param=place or None)
            case HTTPException():
                return cls(error.status_code, str(error.detail), headers=error.headers)
            case TimeoutError():
                return cls(504, "the server's time limit for a request is over; send less at once")
            case SchemaxError():
                return cls(400, str(error))
        # The message may hold text of a document, which must not get into logs.
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else "unknown"
        logger.error("%s at %s", type(error).__name__, place)
        return cls(500, f"the server failed: {type(error).__name__}")


@contextmanager
def at_fault(param: str) -> Iterator[None]:
    """Turns SchemaxError into ApiError (400) for a parameter."""
    try:
        yield
    except SchemaxError as error:
        raise ApiError(400, str(error), param=param) from error


async def _answer(request: Request, error: Exception) -> Response:
    answer, path = ApiError.of(error), clipped(request.url.path)
    kind = request.headers.get("content-type", "")
    match error:
        case HTTPException(status_code=404):
            answer = ApiError(404, f"there is no {path}; /openapi.json lists what there is")
        case HTTPException(status_code=405):
            allowed = (error.headers or {}).get("Allow", "another method")
            reason = f"{path} takes {allowed}, not {request.method}"
            answer = ApiError(405, reason, headers=error.headers)
        case RequestValidationError() if request.method == "POST" and not _is_json(kind):
            reason = f"send application/json, not {clipped(kind) or 'nothing'!r}"
            answer = ApiError(415, reason, param="Content-Type")
    return answer.response()


def _place(parts: Sequence[str | int]) -> str:
    """A place in a request, as input[0].role, without pydantic's names of alternatives."""
    shown = [p for p in parts if p not in _KINDS and not (isinstance(p, str) and "[" in p)]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in shown)
    return path.removeprefix(".")


def _is_json(kind: str) -> bool:
    kind = kind.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json") or kind == LINES


def answer_errors(app: FastAPI) -> None:
    """Makes an app answer all errors in the form of OpenAI's API."""
    for kind in (ApiError, RequestValidationError, HTTPException, SchemaxError, TimeoutError):
        app.add_exception_handler(kind, _answer)


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
    """Yields the items that `work` puts. Raises the error of `work` after the last item.

    Work runs in a task of its own, so that its time limit holds whichever task takes the items.
    """
    queue = asyncio.Queue[tuple[T] | None]()
    task = asyncio.create_task(work(lambda item: queue.put_nowait((item,))))
    task.add_done_callback(lambda _: queue.put_nowait(None))
    try:
        while (entry := await queue.get()) is not None:
            yield entry[0]
        task.result()
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task


async def _read_ahead(
    items: AsyncGenerator[T], deadline: float, ahead: int = 64
) -> AsyncGenerator[T]:
    """Yields items, produced up to `ahead` in advance, until the deadline, read or not."""
    room = asyncio.Semaphore(ahead)

    async def work(put: Callable[[T], None]) -> None:
        async with asyncio.timeout_at(deadline), aclosing(items):
            async for item in items:
                await room.acquire()
                put(item)

    async with aclosing(channel(work)) as produced:
        async for item in produced:
            room.release()
            yield item


async def _stream(
    request: Request,
    items: AsyncGenerator[Mapping[str, Any]],
    encode: Callable[[Mapping[str, Any]], str],
    last: str,
    media_type: str,
) -> StreamingResponse:
    items = _read_ahead(items, request.scope[DEADLINE])
    first = await while_connected(request, anext(items, None))

    async def body() -> AsyncGenerator[str]:
        async with aclosing(items):
            try:
                if first is not None:
                    yield encode(first)
                async for item in items:
                    yield encode(item)
            except Exception as error:  # the status has been sent
                yield encode(ApiError.of(error).body)
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
