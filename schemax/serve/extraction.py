"""`POST /v1/extract`: documents in, typed rows out, with confidences and places."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from schemax.reading.markup import Html
from schemax.serve.completion import Sampling
from schemax.serve.errors import ApiError
from schemax.serve.service import Service, while_connected

_LINES = "application/x-ndjson"


class ExtractRequest(Sampling):
    """Documents and a schema.

    schema: the name of a ready-made one, or a JSON Schema object. documents: texts, or objects
    whose values are shown. text: the keys that are shown; id: the key of the id; html: whether HTML
    in texts is left out. details: whether rows have every field's raw text, confidence and span.
    """

    declared: str | dict[str, Any] = Field(alias="schema")
    documents: list[str | dict[str, Any]] = Field(min_length=1)
    text: str | list[str] | None = None
    id: str = "id"
    html: Html = "strip"
    details: bool = True


class ExtractResponse(BaseModel):
    """Rows in the order of the documents, as `schemax extract` writes them."""

    model: str
    rows: list[dict[str, Any]]


def extraction_routes(service: Service) -> APIRouter:
    """The route, for a service."""
    router = APIRouter(tags=["schemax"])

    @router.post("/v1/extract", response_model=ExtractResponse)
    async def extract(body: ExtractRequest, request: Request) -> Any:
        """Rows in the order of the documents; with `Accept: application/x-ndjson` line by line, as
        they finish."""
        schema = await service.schema(body.declared, "schema")
        sampling = body.model_dump(include={"temperature", "top_p", "seed"})
        items = service.stream(
            body.documents,
            schema,
            text=body.text,
            id=body.id,
            html=body.html,
            decoding=service.decoding(**sampling),
        )
        rows = _rows(items, body.details)
        if _LINES in request.headers.get("accept", ""):
            # Before the status is sent, so that it says what is wrong with the request.
            first = await while_connected(request, anext(rows))
            return StreamingResponse(_lines(first, rows), media_type=_LINES)
        found = await while_connected(request, _all_of(rows))
        return {"model": service.name, "rows": sorted(found, key=lambda row: row["index"])}

    return router


async def _rows(items: Any, details: bool) -> AsyncGenerator[dict[str, Any]]:
    async with aclosing(items):
        async for item in items:
            yield item.to_row(details=details)


async def _all_of(rows: AsyncIterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row async for row in rows]


async def _lines(first: dict[str, Any], rows: AsyncIterator[dict[str, Any]]) -> AsyncIterator[str]:
    """What goes wrong on the way is the last line, since the status has been sent."""
    try:
        yield json.dumps(first, ensure_ascii=False) + "\n"
        async for row in rows:
            yield json.dumps(row, ensure_ascii=False) + "\n"
    except Exception as error:
        yield json.dumps(ApiError.of(error).body) + "\n"
