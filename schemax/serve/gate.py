"""The gate before all routes: checks host, key, size and time of requests, and counts them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemax.base.messages import clipped, some_of
from schemax.serve.errors import LINES, ApiError
from schemax.serve.limits import Limits
from schemax.serve.metrics import Metrics
from schemax.serve.streams import DEADLINE

# Paths that require no key: browsers and probes send none, and no path reveals documents.
_OPEN = frozenset({"/", "/health", "/docs", "/openapi.json"})
_CLOSE = {"Connection": "close"}


class Gate:
    """Refuses requests to other hosts than `hosts` (400), without the key (401), and with larger
    bodies (413), announced or not, before they are in memory. Counts all requests.

    Only the client is told of a failure: no traceback, which may hold text of a document, is
    logged. A request's time begins here: for its body (408), then until its answer begins (504).
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        api_key: str | None,
        limits: Limits,
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
        is_by_line, is_whole = _is_by_line(scope), False
        most = self._limits.stream_bytes if is_by_line else self._limits.body_bytes
        deadline = asyncio.get_running_loop().time() + self._limits.seconds
        scope[DEADLINE] = deadline

        async def counted() -> Message:
            nonlocal read, is_whole
            message = await receive()
            is_whole = not message.get("more_body", False)
            read += len(message.get("body", b""))
            if read > most:
                raise HTTPException(413, _too_large(most), headers=_CLOSE)
            return message

        async def told(message: Message) -> None:
            nonlocal status
            if "status" in message:
                status = message["status"]
                if not limit.expired():
                    limit.reschedule(None)  # sending has a limit of its own
            await send(message)

        try:
            self._check(scope, most)
            # In bodies of lines every line has a limit of its own.
            async with asyncio.timeout_at(None if is_by_line else deadline) as limit:
                await self._app(scope, counted, told)
        except ClientDisconnect:
            status = 499
        except Exception as error:
            found = ApiError.of(error)
            if isinstance(error, TimeoutError) and not is_whole:
                found = self._unfinished()
            if not status:
                status = found.status
                await found.response()(scope, receive, send)
        route = scope.get("route")
        path = getattr(route, "path", "other")
        self._metrics.requests.labels(path, status).inc()
        self._metrics.seconds.labels(path).observe(time.perf_counter() - began)

    def _check(self, scope: Scope, most: int) -> None:
        headers: dict[bytes, Any] = dict(scope["headers"])
        host = _name(headers.get(b"host", b"").decode("latin-1").lower())
        if self._hosts is not None and host not in self._hosts:
            raise ApiError(
                400,
                f"this server is not called {clipped(repr(host))}; it answers to "
                f"{some_of(sorted(self._hosts))}",
                param="Host",
                headers=_CLOSE,
            )
        given = headers.get(b"authorization", b"")
        is_open = self._key is None or scope["path"] in _OPEN
        if not is_open and not secrets.compare_digest(given, self._key or b""):
            raise ApiError(
                401,
                "the key is missing or wrong; send it as Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer", **_CLOSE},
            )
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > most:
            raise ApiError(413, _too_large(most), headers=_CLOSE)

    def _unfinished(self) -> ApiError:
        return ApiError(
            408,
            f"the body was not complete within {self._limits.seconds:g} seconds; send less at once",
            headers=_CLOSE,
        )


def _is_by_line(scope: Scope) -> bool:
    """True if a body is read line by line."""
    kind = dict(scope["headers"]).get(b"content-type", b"")
    is_of_lines: bool = kind.lower().startswith(LINES.encode())
    return scope["path"] == "/v1/extract" and is_of_lines


def _name(host: str) -> str:
    """A host without its port; an IPv6 address is in brackets."""
    name, bracket, _ = host.partition("]")
    return name + bracket if bracket else host.partition(":")[0]


def _too_large(most: int) -> str:
    return f"the body has more than {most:,} bytes; send less at once"
