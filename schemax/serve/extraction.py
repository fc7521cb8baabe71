"""`POST /v1/extract`: documents in, typed rows out, with confidences and places."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from schemax.serve.completion import Sampling
from schemax.serve.service import Service
from schemax.serve.streams import LINES, line_stream, while_connected


class ExtractRequest(Sampling):
    """Documents and a schema.

    schema: the name of a ready-made one, or a JSON Schema object. documents: texts, or objects
    whose values are shown. text: the keys that are shown; id: the key of the id. details: whether
    rows have every field's raw text, confidence and span.
    """

    declared: str | dict[str, Any] = Field(alias="schema")
    documents: list[str | dict[str, Any]] = Field(min_length=1)
    text: str | list[str] | None = None
    id: str = "id"
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
            decoding=service.decoding(**sampling),
        )
        rows = _rows(items, body.details)
        if LINES in request.headers.get("accept", ""):
            return await line_stream(request, rows)
        found = await while_connected(request, _all_of(rows))
        return {"model": service.name, "rows": sorted(found, key=lambda row: row["index"])}

    return router


async def _rows(items: Any, details: bool) -> AsyncGenerator[dict[str, Any]]:
    async with aclosing(items):
        async for item in items:
            yield item.to_row(details=details)


async def _all_of(rows: AsyncIterator[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row async for row in rows]
