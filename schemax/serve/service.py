"""The service that routes share: an extractor with limits, queue and metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from schemax.compiler import CompiledSchema
from schemax.config import BOUNDS, DecodingConfig
from schemax.errors import SchemaError, SchemaxError
from schemax.extraction.extractor import Extractor
from schemax.results import Extraction
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.outputs import Progress, Watcher
from schemax.serve.answers import ApiError, channel
from schemax.serve.gate import Queue
from schemax.serve.limits import ServerLimits
from schemax.serve.monitoring import Metrics
from schemax.serve.output import written
from schemax.serve.request_schemas import ClientSchema, Schemas


class Service:
    """An extractor that serves many clients. name: the model's, as clients see it."""

    def __init__(self, extractor: Extractor, name: str, limits: ServerLimits) -> None:
        self.extractor, self.name, self.limits = extractor, name, limits
        self.queue = Queue(limits.queue)
        self.schemas = Schemas(limits)
        self.metrics = Metrics(lambda: self.queue.documents)
        reader: Extractor | None = extractor
        while reader is not None:  # all models of a cascade
            if isinstance(reader.model, DecoderModel):
                reader.model.serve_strangers()
            reader = reader.further and reader.further.extractor

    def decoding(self, **changes: Any) -> DecodingConfig:
        """The extractor's settings with numbers of a request. Raises ApiError (400)."""
        changes = {name: value for name, value in changes.items() if value is not None}
        for name, value in changes.items():
            try:
                BOUNDS[name].check(name, value)
            except ValueError as error:
                raise ApiError(400, str(error), param=name) from None
        return replace(self.extractor.defaults.decoding, **changes)

    async def stream(
        self, documents: Sequence[Any], schema: ClientSchema, **options: Any
    ) -> AsyncGenerator[Extraction[Any]]:
        """Yields extractions as they finish. Raises ApiError for too many documents."""
        if len(documents) > self.limits.documents:
            raise ApiError(
                422,
                f"{len(documents):,} documents are too many for a request; at most "
                f"{self.limits.documents:,} are read",
                param="documents",
            )
        with self.queue.place_for(len(documents)):
            await self.compiled(schema, options)
            begin = partial(self.extractor.extractions, documents, schema.model, **options)
            extractions = await asyncio.to_thread(begin)
            async with aclosing(aiter(extractions)) as items:
                async for item in items:
                    self.metrics.documents.labels("read" if item.ok else "failed").inc()
                    self.metrics.written.inc(written(item.slots))
                    yield item

    async def compiled(
        self, schema: ClientSchema, options: Mapping[str, Any], param: str = "schema"
    ) -> CompiledSchema:
        """Compiles a schema for a template and a decoding, in a thread.

        param: the request's parameter of the schema. Raises ApiError (400) that names it.
        """
        settings = {name: options[name] for name in ("template", "decoding") if name in options}
        try:
            return await asyncio.to_thread(self.extractor.compile, schema.model, **settings)
        except SchemaxError as error:
            self.schemas.forget(schema)
            if isinstance(error, SchemaError):
                raise ApiError(400, str(error), param=param) from error
            raise

    async def watch(
        self, document: Any, schema: ClientSchema, *, num_rivals: int = 0, **options: Any
    ) -> AsyncGenerator[Progress | Extraction[Any]]:
        """Yields the progress of a document pass by pass, then its extraction; see `stream`."""
        loop = asyncio.get_running_loop()

        async def work(put: Callable[[Progress | Extraction[Any]], None]) -> None:
            def tell(progress: Progress) -> None:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(put, progress)

            watcher = Watcher(tell, num_rivals)
            stream = self.stream([document], schema, watcher=watcher, **options)
            async with aclosing(stream) as items:
                async for item in items:
                    put(item)

        async with aclosing(channel(work)) as events:
            async for event in events:
                yield event
