"""What holds requests to the limits: the gate before all routes, and the queue of documents."""

from __future__ import annotations

import asyncio
import ipaddress
import secrets
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemax.base.messages import clipped, counted, some_of
from schemax.serve.answers import DEADLINE, LINES, ApiError
from schemax.serve.limits import ServerLimits
from schemax.serve.monitoring import Metrics

# Paths that require no key: browsers and probes send none, and these paths reveal no documents.
_OPEN = frozenset({"/", "/health", "/docs", "/openapi.json"})
_CLOSE = {"Connection": "close"}
# Seconds between checks for room.
_PAUSE = 0.02
# Seconds for the rest of a refused body. A connection that is closed while its client still sends
# is reset, and the reset may discard the answer before the client has read it.
_LINGER = 2.0


class Queue:
    """The documents under way of all requests."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.documents = 0

    async def room_for(self, documents: int) -> None:
        """Waits until there is room for as many documents."""
        while not self._has_room(documents):
            await asyncio.sleep(_PAUSE)

    def _has_room(self, documents: int) -> bool:
        return not self.documents or self.documents + documents <= self._most

    @contextmanager
    def place_for(self, documents: int) -> Iterator[None]:
        """Holds room for documents in its context. Raises ApiError (429) if there is none."""
        if not self._has_room(documents):
            raise ApiError(
                429,
                f"under way: {counted(self.documents, 'document')}; "
                f"the server takes {self._most:,}; try again soon",
                headers={"Retry-After": "1"},
            )
        self.documents += documents
        try:
            yield
        finally:
            self.documents -= documents


class Gate:
    """The gate before all routes: checks host, key, size and time of requests, and counts them.

    Refuses requests to other names than `hosts` (400), without the key (401), and with larger
    bodies (413), announced or not, before they are in memory. A request's time begins here: for its
    body (408), then until its answer begins (504). The rest of a refused body is read and dropped
    for two seconds at most, so that its client gets the answer. No traceback is logged, since it
    may hold text of a document.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        api_key: str | None,
        limits: ServerLimits,
        metrics: Metrics,
        hosts: Collection[str],
    ) -> None:
        self._app, self._metrics, self._limits = app, metrics, limits
        self._key = None if api_key is None else f"Bearer {api_key}".encode()
        self._hosts = None if "*" in hosts else frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, read, began = 0, 0, time.perf_counter()
        is_by_line, is_whole, is_closing = _is_by_line(scope), False, False
        most = self._limits.stream_bytes if is_by_line else self._limits.body_bytes
        deadline = asyncio.get_running_loop().time() + self._limits.seconds
        scope[DEADLINE] = deadline

        async def receive_counting() -> Message:
            nonlocal read, is_whole
            message = await receive()
            is_whole = not message.get("more_body", False)
            read += len(message.get("body", b""))
            if read > most:
                raise HTTPException(413, _too_large(most), headers=_CLOSE)
            return message

        async def send_lingering(message: Message) -> None:
            nonlocal is_closing
            if "status" in message:
                is_closing = (b"connection", b"close") in message["headers"]
            elif is_closing and not is_whole and not message.get("more_body", False):
                await send({**message, "more_body": True})
                await _drop_body(receive)
                message = {"type": "http.response.body"}
            await send(message)

        async def send_noting_status(message: Message) -> None:
            nonlocal status
            if "status" in message:
                status = message["status"]
                if not limit.expired():
                    limit.reschedule(None)  # sending has a limit of its own
            await send_lingering(message)

        try:
            self._check(scope, most)
            # In bodies of lines every line has a limit of its own.
            async with asyncio.timeout_at(None if is_by_line else deadline) as limit:
                await self._app(scope, receive_counting, send_noting_status)
        except ClientDisconnect:
            status = 499
        except Exception as error:
            answer = ApiError.of(error)
            if isinstance(error, TimeoutError) and not is_whole:
                answer = ApiError(
                    408,
                    f"the body was not complete within {self._limits.seconds:g} seconds; send less "
                    "at once",
                    headers=_CLOSE,
                )
            if not status:
                status = answer.status
                await answer.response()(scope, receive, send_lingering)
        route = scope.get("route")
        path = getattr(route, "path", "other")
        self._metrics.requests.labels(path, status).inc()
        self._metrics.seconds.labels(path).observe(time.perf_counter() - began)

    def _check(self, scope: Scope, most: int) -> None:
        headers: dict[bytes, Any] = dict(scope["headers"])
        host = _name(headers.get(b"host", b"").decode("latin-1").lower())
        if self._hosts is not None and host not in self._hosts and not _is_address(host):
            raise ApiError(
                400,
                f"this server is not called {clipped(repr(host))}; it answers to "
                f"{some_of(sorted(self._hosts))}",
                param="Host",
                headers=_CLOSE,
            )
        key = headers.get(b"authorization", b"")
        is_open = self._key is None or scope["path"] in _OPEN
        if not is_open and not secrets.compare_digest(key, self._key or b""):
            raise ApiError(
                401,
                "the key is missing or wrong; send it as Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer", **_CLOSE},
            )
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > most:
            raise ApiError(413, _too_large(most), headers=_CLOSE)


async def _drop_body(receive: Receive) -> None:
    """Reads the rest of a body, for two seconds at most."""
    end = time.monotonic() + _LINGER
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER):
            while (await receive()).get("more_body", False) and time.monotonic() < end:
                pass


def _is_by_line(scope: Scope) -> bool:
    """True if a body is read line by line."""
    kind = dict(scope["headers"]).get(b"content-type", b"")
    is_of_lines: bool = kind.lower().startswith(LINES.encode())
    return scope["path"] == "/v1/extract" and is_of_lines


def _name(host: str) -> str:
    """A host without its port; an IPv6 address is in brackets."""
    name, bracket, _ = host.partition("]")
    return name + bracket if bracket else host.partition(":")[0]


def _is_address(host: str) -> bool:
    """True for an IP address: no other server's page can give its name to it (DNS rebinding)."""
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _too_large(most: int) -> str:
    return f"the body has more than {most:,} bytes; send less at once"
