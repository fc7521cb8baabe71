"""What every request passes before it reaches a route: its size, its key, its figures."""

from __future__ import annotations

import secrets
import time
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from schemax.serve.errors import ApiError
from schemax.serve.limits import Limits
from schemax.serve.metrics import Metrics

# They say nothing of anybody's documents, and a browser or a probe sends no key.
_OPEN = frozenset({"/", "/health", "/docs", "/openapi.json"})


class Gate:
    """Refuses requests without the key (401) and larger bodies (413), announced or not, before
    they are in memory; counts all others. What fails is told to the client alone: no traceback,
    which may hold text of a document, gets into a log."""

    def __init__(
        self, app: ASGIApp, *, api_key: str | None, limits: Limits, metrics: Metrics
    ) -> None:
        self._app, self._metrics, self._limits = app, metrics, limits
        self._key = None if api_key is None else f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, read, began = 0, 0, time.perf_counter()
        most = self._most(scope)

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > most:
                raise HTTPException(413, _too_large(most))
            return message

        async def told(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            self._check(scope, most)
            await self._app(scope, counted, told)
        except ClientDisconnect:
            status = 499
        except Exception as error:
            found = ApiError.of(error)
            if not status:
                response = JSONResponse(found.body, found.status, found.headers)
                await response(scope, receive, told)
        route = scope.get("route")
        path = getattr(route, "path", "other")
        self._metrics.requests.labels(path, status).inc()
        self._metrics.seconds.labels(path).observe(time.perf_counter() - began)

    def _most(self, scope: Scope) -> int:
        """Bytes of a body, which are those of its lines where it is read line by line."""
        kind = dict(scope["headers"]).get(b"content-type", b"")
        is_read_by_line = scope["path"] == "/v1/extract" and kind.lower().startswith(
            b"application/x-ndjson"
        )
        return self._limits.stream_bytes if is_read_by_line else self._limits.body_bytes

    def _check(self, scope: Scope, most: int) -> None:
        headers: dict[bytes, Any] = dict(scope["headers"])
        given = headers.get(b"authorization", b"")
        is_open = self._key is None or scope["path"] in _OPEN
        if not is_open and not secrets.compare_digest(given, self._key or b""):
            raise ApiError(
                401,
                "the key is missing or wrong; send it as Authorization: Bearer KEY",
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer", "Connection": "close"},
            )
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or int(length[:20]) > most:
            raise ApiError(413, _too_large(most), headers={"Connection": "close"})


def _too_large(most: int) -> str:
    return f"the body has more than {most:,} bytes; send less at once"
