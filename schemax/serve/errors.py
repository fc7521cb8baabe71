"""What a client is told that went wrong, in the form of OpenAI's errors."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from schemax.errors import SchemaxError
from schemax.messages import clipped

logger = logging.getLogger(__name__)


class ApiError(Exception):
    """A request that is refused. param: the part of the request that is at fault."""

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

    @classmethod
    def of(cls, error: BaseException) -> ApiError:
        """What a client may know of an error: all of its own, and of others that there was one."""
        match error:
            case ApiError():
                return error
            case RequestValidationError():
                first = error.errors()[0]
                place = ".".join(str(part) for part in first["loc"] if part != "body")
                message = f"{place}: {first['msg']}" if place else str(first["msg"])
                return cls(400, clipped(message), param=place or None)
            case HTTPException():
                return cls(error.status_code, str(error.detail), headers=error.headers)
            case TimeoutError():
                return cls(504, "the server's time limit for a request is over; send less at once")
            case SchemaxError():
                return cls(400, str(error))
        # Its message may hold text of a document, which no log does.
        frame = error.__traceback__
        while frame is not None and frame.tb_next is not None:
            frame = frame.tb_next
        place = f"{frame.tb_frame.f_code.co_filename}:{frame.tb_lineno}" if frame else "unknown"
        logger.error("%s at %s", type(error).__name__, place)
        return cls(500, f"the server failed: {type(error).__name__}")


async def _answer(_: Request, error: Exception) -> JSONResponse:
    found = ApiError.of(error)
    return JSONResponse(found.body, found.status, found.headers)


def install(app: FastAPI) -> None:
    """Has an app answer all errors in this form."""
    for kind in (ApiError, RequestValidationError, HTTPException, SchemaxError, TimeoutError):
        app.add_exception_handler(kind, _answer)
