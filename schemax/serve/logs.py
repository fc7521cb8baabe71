"""Log records with the ids of requests, as lines or as JSON."""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from starlette.types import ASGIApp, Message, Receive, Scope, Send

LogFormat = Literal["text", "json"]

# Ids that clients send must not break a line, nor look like another field of it.
_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_HEADER = b"x-request-id"


@dataclass(frozen=True, slots=True)
class _Request:
    id: str
    began: float


_request: ContextVar[_Request | None] = ContextVar("request", default=None)


class RequestIds:
    """Gives every answer the `X-Request-ID` of its request, or a new one if the request has none
    that is safe to log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = dict(scope["headers"]).get(_HEADER, b"")
        value = given if _ID.fullmatch(given) else uuid.uuid4().hex.encode()
        _request.set(_Request(value.decode(), time.perf_counter()))

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", []), (_HEADER, value)]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, told)


class AddRequestId(logging.Filter):
    """Gives a record its `request_id`, behind a space; "" outside of requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        request = _request.get()
        record.request_id = f" {request.id}" if request else ""
        return True


class JsonFormatter(logging.Formatter):
    """Writes a JSON object per line.

    Of an exception it writes the type alone, since the message may hold text of a document. A
    request's `seconds` end when its answer begins.
    """

    def format(self, record: logging.LogRecord) -> str:
        made = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps({**made, **_of_request(record)})


def _of_request(record: logging.LogRecord) -> dict[str, Any]:
    made: dict[str, Any] = {}
    if record.exc_info and record.exc_info[0]:
        made["error"] = record.exc_info[0].__name__
    if (request := _request.get()) is None:
        return made
    made["request_id"] = request.id
    if record.name == "uvicorn.access" and isinstance(record.args, tuple):
        client, method, path, _, status = record.args
        seconds = round(time.perf_counter() - request.began, 4)
        made |= {"client": client, "method": method, "path": path, "status": status}
        made["seconds"] = seconds
    return made


def log_settings(form: LogFormat) -> dict[str, Any]:
    """uvicorn's settings of logging, with request ids, for records of uvicorn and of schemax."""
    from uvicorn.config import LOGGING_CONFIG

    made = deepcopy(LOGGING_CONFIG)
    made["filters"] = {"request_id": {"()": AddRequestId}}
    made["loggers"]["schemax"] = {"handlers": ["default"], "level": "INFO", "propagate": False}
    for handler in made["handlers"].values():
        handler["filters"] = ["request_id"]
        if form == "json":
            handler["stream"] = "ext://sys.stdout"
    for formatter in made["formatters"].values():
        if form == "json":
            formatter.clear()
            formatter["()"] = JsonFormatter
        else:
            formatter["fmt"] += "%(request_id)s"
    return made
