"""Log records with the ids of requests, as lines or as JSON; metrics for Prometheus."""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LogFormat = Literal["text", "json"]

# A client's id must not break a line, nor look like another field of it.
_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_HEADER = b"x-request-id"


# The id of the request that is answered, and when it began.
_request: ContextVar[tuple[str, float] | None] = ContextVar("request", default=None)


class RequestIds:
    """Gives every answer the `X-Request-ID` of its request, or a new one if the request has none
    that is safe to log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        id = dict(scope["headers"]).get(_HEADER, b"")
        if not _ID.fullmatch(id):
            id = uuid.uuid4().hex.encode()
        _request.set((id.decode(), time.perf_counter()))

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", []), (_HEADER, id)]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_with_id)


def add_request_id(record: logging.LogRecord) -> bool:
    """Gives a record its `request_id`, behind a space; "" outside of requests."""
    request = _request.get()
    record.request_id = f" {request[0]}" if request else ""
    return True


class JsonFormatter(logging.Formatter):
    """Writes a JSON object per line.

    It writes only the type of an exception, since the message may hold text of a document. A
    request's `seconds` end when its answer begins.
    """

    def format(self, record: logging.LogRecord) -> str:
        time_text = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry: dict[str, Any] = {
            "time": time_text,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info and record.exc_info[0]:
            entry["error"] = record.exc_info[0].__name__
        if (request := _request.get()) is not None:
            entry["request_id"], began = request
            if record.name == "uvicorn.access" and isinstance(record.args, tuple):
                client, method, path, _, status = record.args
                entry |= {"client": client, "method": method, "path": path, "status": status}
                entry["seconds"] = round(time.perf_counter() - began, 4)
        return json.dumps(entry)


def log_settings(form: LogFormat) -> dict[str, Any]:
    """uvicorn's settings of logging, with request ids, for records of uvicorn and of schemax."""
    from uvicorn.config import LOGGING_CONFIG

    config = deepcopy(LOGGING_CONFIG)
    config["filters"] = {"request_id": {"()": lambda: add_request_id}}
    config["loggers"]["schemax"] = {"handlers": ["default"], "level": "INFO", "propagate": False}
    for handler in config["handlers"].values():
        handler["filters"] = ["request_id"]
        if form == "json":
            handler["stream"] = "ext://sys.stdout"
    for formatter in config["formatters"].values():
        if form == "json":
            formatter.clear()
            formatter["()"] = JsonFormatter
        else:
            formatter["fmt"] += "%(request_id)s"
    return config


# Up to the time limit of a request; the library's own buckets end at 10.
_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Metrics:
    """The metrics of an app, apart from the metrics of other apps in the process.

    in_flight: returns the number of documents under way.
    """

    def __init__(self, in_flight: Callable[[], float]) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # memory, processor time, open files
        self.requests = Counter(
            "schemax_requests", "Requests.", ["path", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "schemax_request_seconds",
            "Seconds of a request.",
            ["path"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.documents = Counter(
            "schemax_documents", "Documents that were read.", ["result"], registry=self.registry
        )
        self.written = Counter(
            "schemax_tokens_written", "Tokens of values.", registry=self.registry
        )
        under_way = Gauge(
            "schemax_documents_in_flight", "Documents under way.", registry=self.registry
        )
        under_way.set_function(in_flight)
