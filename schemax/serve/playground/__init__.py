"""`GET /`: a page to try the server by hand. `POST /v1/trace`: the data of the page."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from pydantic import BaseModel, Field

from schemax.attributes import asked_fields
from schemax.evaluation.diagnosis.tracing import BODY, NUM_RIVALS, SCRIPT, STYLE, Tracer
from schemax.extraction.documents import RecordFields, read_documents
from schemax.extraction.readout import read_part
from schemax.report.pages import asset, page_of
from schemax.results import Extraction
from schemax.serve.answers import event_stream, while_connected
from schemax.serve.request_schemas import ClientSchema
from schemax.serve.service import Service
from schemax.tokens import SlotOutput

LONGEST = 20_000
"""The most characters of a document in the playground."""


class TraceRequest(BaseModel):
    """A document, and a schema: the name of a ready-made schema, or a JSON Schema object."""

    declared: str | dict[str, Any] = Field(alias="schema")
    document: str = Field(min_length=1, max_length=LONGEST)


def playground_routes(service: Service) -> APIRouter:
    """Makes the routes of a service."""
    router = APIRouter(tags=["schemax"])
    page = _page(service.name)

    @router.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def index() -> HTMLResponse:
        headers = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer"}
        return HTMLResponse(page, headers=headers)

    @router.post("/v1/trace", response_model=None)
    async def traced(body: TraceRequest, request: Request) -> Any:
        """Reads a document; answers the tokens of every pass, the row and the time taken. With
        `Accept: text/event-stream` it sends every pass when it is done."""
        schema = await service.schemas.of(body.declared, "schema")
        events = _events(service, body.document, schema)
        if "text/event-stream" in request.headers.get("accept", ""):
            return await event_stream(request, events)
        return await while_connected(request, _last(events))

    return router


async def _events(
    service: Service, document: str, schema: ClientSchema
) -> AsyncGenerator[dict[str, Any]]:
    """Yields a trace: the prompt, every pass with the fields that it completed, the whole trace.

    Requests share passes; only passes that wrote for this request count.
    """
    compiled = await service.compiled(schema, {})
    shown = RecordFields.of_options({})
    tracer = Tracer(document, compiled, shown)
    (read,) = read_documents([document], shown)
    names = list(asked_fields(schema.model))
    if compiled.decoding.layout == "autoregressive":
        names.clear()  # the output is one slot with all fields
    done: dict[int, SlotOutput] = {}
    began = time.perf_counter()
    yield {
        "type": "begin",
        "text": tracer.text,
        "field": next(iter(read.texts)),
        "fields": [item.name for item in compiled.attributes] if names else ["output"],
        "prompt_tokens": tracer.prompt_tokens,
    }
    async with aclosing(service.watch(document, schema, num_rivals=NUM_RIVALS)) as events:
        async for event in events:
            if isinstance(event, Extraction):
                seconds = round(time.perf_counter() - began, 3)
                yield {"type": "end", **tracer.trace(event).to_dict(), "seconds": seconds}
                continue
            tracer.take(event)
            done.update(event.done)
            fields: dict[str, Any] = {}
            for name in names.copy():
                part = read_part(name, read, done, compiled, service.extractor.defaults.calibration)
                if part is not None:
                    names.remove(name)
                    fields |= part.to_row(details=True)["fields"]
            if event.steps or event.others:
                yield {
                    "type": "pass",
                    "number": event.number,
                    "written": [asdict(token) for token in tracer.passes[event.number]],
                    "others": event.others,
                    "fields": fields,
                }


async def _last(events: AsyncGenerator[dict[str, Any]]) -> dict[str, Any]:
    async with aclosing(events):
        *_, last = [event async for event in events]
    del last["type"]
    return last


def _page(name: str) -> str:
    body, style, script = (asset(__file__, f"page.{kind}") for kind in ("html", "css", "js"))
    return page_of(
        f"schemax: {name}",
        body.replace("$trace", BODY),
        style=STYLE + style,
        script=SCRIPT + script,
        connect="'self'",
    )
