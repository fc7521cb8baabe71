"""Limits of clients' requests, and the queue of their documents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from schemax.base.messages import counted
from schemax.serve.errors import ApiError

# Seconds between checks for room.
_PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server.

    body_bytes: of a request, and of a line in a body of lines. stream_bytes: of a body of lines.
    answer_bytes: of an answer, and of lines that wait for the client to read them. documents: of a
    request that is no stream. fields: of a schema, with the fields of lists' items.
    schema_characters: of a JSON Schema document. cache_bytes: of kept declarations. queue:
    documents of all requests. seconds: of a request, and of silence in a stream.
    """

    body_bytes: int = 8_000_000
    stream_bytes: int = 1_000_000_000
    answer_bytes: int = 64_000_000
    documents: int = 1_000
    fields: int = 256
    schema_characters: int = 100_000
    cache_bytes: int = 32_000_000
    queue: int = 2_000
    seconds: float = 120.0


class Queue:
    """The documents under way of all requests."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.documents = 0

    async def room_for(self, documents: int) -> None:
        """Waits until there is room for as many documents."""
        while not self._has_room(documents):
            await asyncio.sleep(_PAUSE)

    def _has_room(self, documents: int) -> bool:
        return not self.documents or self.documents + documents <= self._most

    @contextmanager
    def place_for(self, documents: int) -> Iterator[None]:
        """Holds room for documents in its context. Raises ApiError (429) if there is none."""
        if not self._has_room(documents):
            raise ApiError(
                429,
                f"under way: {counted(self.documents, 'document')}; "
                f"the server takes {self._most:,}; "
                "try again soon",
                headers={"Retry-After": "1"},
            )
        self.documents += documents
        try:
            yield
        finally:
            self.documents -= documents
