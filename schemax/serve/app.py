"""The ASGI app: its routes, the service that they share, and the gate before them.

`GET /docs` shows /openapi.json as a page that loads nothing and runs no script.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import prometheus_client
from fastapi import Depends, FastAPI
from fastapi.responses import HTMLResponse, Response
from fastapi.security import HTTPBearer
from jinja2 import ChainableUndefined, Environment
from starlette.middleware.cors import CORSMiddleware

from schemax.attributes.ready_made import schema_names
from schemax.base.messages import clipped
from schemax.extraction.extractor import Extractor
from schemax.serve.answers import ApiError, JsonAnswer, answer_errors
from schemax.serve.chat import chat_routes
from schemax.serve.extraction import extraction_routes
from schemax.serve.gate import Gate
from schemax.serve.limits import ServerLimits
from schemax.serve.monitoring import RequestIds
from schemax.serve.playground import playground_routes
from schemax.serve.responses import responses_routes
from schemax.serve.service import Service


def create_app(
    extractor: Extractor,
    *,
    name: str = "schemax",
    api_key: str | None = None,
    limits: ServerLimits | None = None,
    hosts: Sequence[str] = ("*",),
    origins: Sequence[str] = (),
) -> FastAPI:
    """Creates an ASGI app that serves an extractor, and closes the extractor at shutdown.

    name: the model's, as clients see it. api_key: the key that clients must send; None for no key.
    hosts: host names that requests may name, against DNS rebinding by web pages.
    origins: origins of pages whose scripts may call the app, such as https://shop.example; "*" for
        any origin.
    """
    model = {"id": name, "object": "model", "created": 0, "owned_by": "schemax"}
    service = Service(extractor, name, limits or ServerLimits())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(extractor.close)

    app = FastAPI(
        title="schemax",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        default_response_class=JsonAnswer,
    )
    app.add_middleware(
        Gate, api_key=api_key, limits=service.limits, metrics=service.metrics, hosts=hosts
    )
    if origins:  # outside the gate: a browser's preflight request has no key
        app.add_middleware(
            CORSMiddleware,
            allow_origins=origins,
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["Retry-After", "X-Request-ID"],
        )
    app.add_middleware(RequestIds)
    answer_errors(app)
    # For /openapi.json alone; the gate checks the key.
    keyed = [] if api_key is None else [Depends(HTTPBearer(auto_error=False))]
    app.include_router(chat_routes(service), dependencies=keyed)
    app.include_router(responses_routes(service), dependencies=keyed)
    app.include_router(extraction_routes(service), dependencies=keyed)
    app.include_router(playground_routes(service), dependencies=keyed)

    @app.get("/v1/models", tags=["OpenAI"], dependencies=keyed)
    async def models() -> dict[str, Any]:
        """Lists the served model."""
        return {"object": "list", "data": [model]}

    @app.get("/v1/models/{id:path}", tags=["OpenAI"], dependencies=keyed)
    async def model_of(id: str) -> dict[str, Any]:
        """Describes the served model."""
        if id != name:
            raise ApiError(
                404,
                f"the model {clipped(repr(id))} is not served; {name!r} is",
                param="model",
                code="model_not_found",
            )
        return model

    @app.get("/v1/schemas", tags=["schemax"], dependencies=keyed)
    async def schemas() -> dict[str, Any]:
        """Lists the names of the ready-made schemas."""
        return {"schemas": schema_names()}

    @app.get("/docs", response_class=HTMLResponse, include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(reference_page(app.openapi()))

    @app.get("/health", tags=["schemax"])
    async def health() -> dict[str, str]:
        """Says that the server answers."""
        return {"status": "ok"}

    @app.get("/metrics", tags=["schemax"], response_class=Response, dependencies=keyed)
    async def metrics() -> Response:
        """Metrics for Prometheus."""
        text = prometheus_client.generate_latest(service.metrics.registry)
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    return app


def reference_page(openapi: Mapping[str, Any]) -> str:
    """The HTML of an OpenAPI document: every path, its description and the keys of its body."""
    text = Path(__file__).with_name("reference.jinja").read_text("utf-8")
    page = Environment(autoescape=True, undefined=ChainableUndefined).from_string(text)
    return page.render(openapi)
