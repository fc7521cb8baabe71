"""`GET /`: a page to try the server by hand; `POST /v1/trace`: what it shows, pass by pass."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from schemax.diagnosis.playback import asset
from schemax.diagnosis.tracing import Trace, trace
from schemax.report.page import page_of
from schemax.serve.errors import ApiError
from schemax.serve.service import Service
from schemax.serve.streams import while_connected

LONGEST = 20_000
"""Characters of a document of the playground."""


class TraceRequest(BaseModel):
    """A document and a schema: the name of a ready-made one, or a JSON Schema object."""

    declared: str | dict[str, Any] = Field(alias="schema")
    document: str = Field(min_length=1, max_length=LONGEST)


def playground_routes(service: Service) -> APIRouter:
    """The routes, for a service."""
    router = APIRouter(tags=["schemax"])
    page = _page(service.name)
    # A trace has the model for itself, beside the passes of all others: one at a time.
    alone = asyncio.Semaphore(1)

    @router.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def index() -> HTMLResponse:
        headers = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        return HTMLResponse(page, headers=headers)

    @router.post("/v1/trace")
    async def traced(body: TraceRequest, request: Request) -> dict[str, Any]:
        """What every pass wrote for a document, with the row and the seconds that it took."""
        schema = await service.schemas.of(body.declared, "schema")

        async def work() -> tuple[Trace, float]:
            with service.queue.place_for(1):
                async with asyncio.timeout(service.limits.seconds), alone:
                    began = time.perf_counter()
                    found = await asyncio.to_thread(
                        trace, service.extractor, body.document, schema.model
                    )
                    return found, time.perf_counter() - began

        try:
            found, seconds = await while_connected(request, work())
        except TimeoutError:
            raise ApiError(504, "the document took too long; send a shorter one") from None
        return found.to_dict() | {"seconds": round(seconds, 3)}

    return router


def _page(name: str) -> str:
    folder = Path(__file__).parent
    html, css, script = (
        (folder / f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js")
    )
    return page_of(
        html,
        asset("page.css") + css,
        "\n" + asset("trace.js") + script,
        title=f"schemax: {name}",
        data="{}",
        connect="'self'",
    )
