"""What routes share: an extractor, its limits, its figures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import Request

from schemax.config import DecodingConfig
from schemax.extractor import Extractor
from schemax.results import Extraction
from schemax.serve.errors import ApiError
from schemax.serve.limits import Limits, Queue
from schemax.serve.metrics import Metrics
from schemax.serve.output import written
from schemax.serve.schemas import ClientSchema, Schemas

T = TypeVar("T")


class Service:
    """name: of the model, as clients see it."""

    def __init__(self, extractor: Extractor, name: str, limits: Limits) -> None:
        self.extractor, self.name, self.limits = extractor, name, limits
        self.queue = Queue(limits.queue)
        self.schemas = Schemas(limits)
        self.metrics = Metrics(lambda: self.queue.documents)

    def decoding(self, **changes: Any) -> DecodingConfig:
        """The extractor's settings with those of a request. Raises ApiError (400)."""
        given = {name: value for name, value in changes.items() if value is not None}
        try:
            return replace(self.extractor.decoding, **given)
        except ValueError as error:
            raise ApiError(400, str(error), param=str(error).partition(" ")[0]) from None

    async def schema(self, document: Any, param: str) -> ClientSchema:
        """See `Schemas.of`. In a thread, since a large one takes its time."""
        return await asyncio.to_thread(self.schemas.of, document, param)

    async def stream(
        self, documents: Sequence[Any], schema: ClientSchema, **options: Any
    ) -> AsyncGenerator[Extraction[Any]]:
        """Extractions as they finish. Raises TimeoutError, and ApiError for too many documents."""
        if len(documents) > self.limits.documents:
            raise ApiError(
                422,
                f"{len(documents):,} documents are too many for a request; at most "
                f"{self.limits.documents:,} are read",
                param="documents",
            )
        with self.queue.place_for(len(documents)):
            async with (
                asyncio.timeout(self.limits.seconds),
                aclosing(self.extractor.astream(documents, schema.model, **options)) as items,
            ):
                async for item in items:
                    self.metrics.documents.labels("read" if item.ok else "failed").inc()
                    self.metrics.written.inc(written(item.slots))
                    yield item


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What work returns; it is cancelled where the client leaves, and ApiError (499) is raised."""

    async def gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(gone())
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ApiError(499, "the client has left")
        return task.result()
    finally:
        task.cancel()
        watch.cancel()
