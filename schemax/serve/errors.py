"""Errors in the form of OpenAI's API."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from schemax.base.messages import clipped
from schemax.errors import SchemaxError
from schemax.serve.json_text import JsonAnswer

LINES = "application/x-ndjson"

_KINDS = frozenset({"body", "str"})

logger = logging.getLogger(__name__)


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
        """Returns the error to send: in full for a client's fault, only its type for any other."""
        match error:
            case ApiError():
                return error
            case RequestValidationError():
                first = error.errors()[0]
                if first["type"] == "json_invalid":  # its place is no parameter
                    reason = first.get("ctx", {}).get("error", first["msg"])
                    return cls(400, clipped(f"the body is no JSON: {reason}"))
                # Among alternatives, the one that matched furthest.
                near = [one for one in error.errors() if one["loc"][:2] == first["loc"][:2]]
                first = max(near, key=lambda one: len(one["loc"]))
                place = _place(first["loc"])
                message = f"{place}: {first['msg']}" if place else str(first["msg"])
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
    found, path = ApiError.of(error), clipped(request.url.path)
    kind = request.headers.get("content-type", "")
    match error:
        case HTTPException(status_code=404):
            found = ApiError(404, f"there is no {path}; /openapi.json lists what there is")
        case HTTPException(status_code=405):
            allowed = (error.headers or {}).get("Allow", "another method")
            said = f"{path} takes {allowed}, not {request.method}"
            found = ApiError(405, said, headers=error.headers)
        case RequestValidationError() if request.method == "POST" and not _is_json(kind):
            said = f"send application/json, not {clipped(kind) or 'nothing'!r}"
            found = ApiError(415, said, param="Content-Type")
    return found.response()


def _place(parts: Sequence[str | int]) -> str:
    """A place in a request, as input[0].role. Pydantic's names of alternatives are left out."""
    named = [p for p in parts if p not in _KINDS and not (isinstance(p, str) and "[" in p)]
    found = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in named)
    return found.removeprefix(".")


def _is_json(kind: str) -> bool:
    kind = kind.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json") or kind == LINES


def install(app: FastAPI) -> None:
    """Makes an app answer all errors in this form."""
    for kind in (ApiError, RequestValidationError, HTTPException, SchemaxError, TimeoutError):
        app.add_exception_handler(kind, _answer)
