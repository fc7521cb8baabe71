"""`POST /v1/extract`: reads documents, answers typed rows with confidences and spans."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from itertools import chain
from typing import Any, Self, TypeVar

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from schemax.attributes import compile_attributes
from schemax.base.messages import clipped, did_you_mean
from schemax.extraction.readout import prompt_of
from schemax.io.rows import RowForm, check_kept
from schemax.reading.markup import Html
from schemax.results.slot_text import slots_to_json
from schemax.serve.answers import LINES, ApiError, at_fault, json_text, line_stream, while_connected
from schemax.serve.completion import Sampling
from schemax.serve.lines import Lines, Rows
from schemax.serve.request_schemas import ClientSchema
from schemax.serve.service import Service

ModelT = TypeVar("ModelT", bound=BaseModel)


class ExtractOptions(Sampling):
    """Options of reading documents.

    schema: the name of a ready-made schema, or a JSON Schema object. text: the keys of a document
    that the model is shown; id: the key of its id; html: whether HTML in texts is removed. details:
    whether rows have every field's raw text, confidence and span. keep: the keys of a document
    whose values are copied to its row, under "kept".
    """

    declared: str | dict[str, Any] = Field(alias="schema")
    text: str | list[str] | None = None
    id: str = "id"
    html: Html = "strip"
    details: bool = True
    keep: tuple[str, ...] = ()

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def _without_slips(self) -> Self:
        """Refuses a misspelt key. Other keys, which clients of OpenAI send, are ignored."""
        fields = type(self).model_fields.items()
        known = [field.alias or name for name, field in fields if name not in Sampling.model_fields]
        for key in self.model_extra or ():
            if meant := did_you_mean(key, known):
                raise ValueError(f"unknown key {clipped(repr(key))}{meant}")
        return self

    @property
    def form(self) -> RowForm:
        return RowForm(self.details, self.keep)

    def options(self, service: Service) -> dict[str, Any]:
        """The options of `Extractor.stream`. Raises ApiError."""
        decoding = service.decoding(**self.settings)
        return {"text": self.text, "id": self.id, "html": self.html, "decoding": decoding}


class ExtractRequest(ExtractOptions):
    """Documents and a schema. documents: texts, or objects whose values are shown.

    slots: whether rows have the decoded slots, for a client that reads values by its own class.
    """

    documents: list[str | dict[str, Any]] = Field(min_length=1)
    slots: bool = False


class ExtractResponse(BaseModel):
    """Rows in the order of the documents, as `schemax extract` writes them."""

    model: str
    reading: dict[str, Any] | None = None
    rows: list[dict[str, Any]]


_BODIES = {
    "application/json": {"schema": ExtractRequest.model_json_schema()},
    LINES: {
        "schema": {"type": "string"},
        "example": '{"schema": "shoes"}\n"Nike Pegasus 40"\n{"id": 7, "title": "Adidas Samba"}\n',
    },
}


def extraction_routes(service: Service) -> APIRouter:
    """Makes the route of a service."""
    router = APIRouter(tags=["schemax"])
    described = {"requestBody": {"required": True, "content": _BODIES}}

    @router.post("/v1/extract", response_model=ExtractResponse, openapi_extra=described)
    async def extract(request: Request) -> Any:
        """Answers rows in the order of the documents; with `Accept: application/x-ndjson` line by
        line, as they finish. A body of newline-delimited JSON is answered in lines while it
        arrives: its first line is the request without documents, every further line a document."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == LINES:
            lines = Lines(request, service.limits)
            try:
                return await _by_line(service, lines)
            except Exception:
                await lines.drain()
                raise
        if kind != "application/json":
            raise ApiError(
                415,
                f"send application/json or {LINES}, not {kind or 'nothing'!r}",
                param="Content-Type",
            )
        body = _parsed_body(ExtractRequest, await request.body())
        schema = await service.schemas.of(body.declared, "schema")
        records = (document for document in body.documents if isinstance(document, dict))
        with at_fault("keep"):
            keys = dict.fromkeys(chain.from_iterable(records))
            check_kept(body.keep, [*keys], "the request")
        items = service.stream(body.documents, schema, **body.options(service))
        rows = _slots(items, schema) if body.slots else _rows(items, body)
        if LINES in request.headers.get("accept", ""):
            return await line_stream(request, rows)
        data = await while_connected(request, _whole(rows, service.limits.answer_bytes))
        head: dict[str, Any] = {"model": service.name}
        if body.slots:
            compiled = await service.compiled(schema, body.options(service))
            # A client requires both to read slots.
            head["reading"] = {"format": compiled.format.name, "prompt": prompt_of(compiled)}
        answer = b'%b, "rows": [%b]}' % (json_text(head).removesuffix("}").encode(), data)
        return Response(answer, media_type="application/json")

    return router


async def _by_line(service: Service, lines: Lines) -> Response:
    first = await lines.take(1)
    if lines.failure is not None and not first:
        raise lines.failure
    request = _parsed_body(ExtractOptions, first[0][1] if first else b"")
    if (request.model_extra or {}).get("documents") is not None:
        raise ApiError(400, "the documents are the lines behind the first", param="documents")
    schema = await service.schemas.of(request.declared, "schema")
    options = request.options(service)
    with service.queue.place_for(1):  # refuses the client if there is no room
        return Rows(service, lines, schema, options, form=request.form).response()


def _parsed_body(model: type[ModelT], data: bytes) -> ModelT:
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise RequestValidationError(error.errors()) from None


async def _rows(items: Any, body: ExtractRequest) -> AsyncGenerator[dict[str, Any]]:
    async with aclosing(items):
        async for item in items:
            row = item.to_row(details=body.details)
            yield row | body.form.beside(body.documents[item.index])


async def _slots(items: Any, schema: ClientSchema) -> AsyncGenerator[dict[str, Any]]:
    attributes = compile_attributes(schema.model)
    labels = [attribute.labels for attribute in attributes]
    async with aclosing(items):
        async for item in items:
            row = {name: item.to_row()[name] for name in ("id", "index", "errors")}
            slots = slots_to_json(attributes, item.slots) if item.slots else []
            row |= {"labels": labels, "slots": slots, "steps": item.steps, "cause": item.cause}
            yield row


async def _whole(rows: AsyncGenerator[Mapping[str, Any]], most: int) -> bytes:
    """All rows in order. Raises ApiError (422) for more bytes than `most`."""
    parts: dict[int, bytes] = {}
    size = 0
    async with aclosing(rows):
        async for row in rows:
            parts[row["index"]] = data = json_text(row).encode()
            size += len(data)
            if size > most:
                raise ApiError(
                    422,
                    f"the answer has more than {most:,} bytes; ask for lines (Accept: {LINES}), "
                    'for fewer documents at once, or with "details": false',
                )
    return b", ".join(parts[index] for index in sorted(parts))
