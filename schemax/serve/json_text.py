"""Writes JSON that a server can send."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastapi.responses import JSONResponse


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
    """An answer that may echo any text of a request."""

    def render(self, content: Any) -> bytes:
        return json_text(content).encode()
