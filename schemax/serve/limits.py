"""Limits of what strangers may ask for at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from schemax.messages import counted
from schemax.serve.errors import ApiError

# Seconds between looks for room.
_PAUSE = 0.02


@dataclass(frozen=True, slots=True)
class Limits:
    """body_bytes: of a request, and of a line of a longer one; stream_bytes: of a request of many
    lines; answer_bytes: of an answer, and of lines of one that wait to be read; documents: of a
    request that is no stream; fields: of a schema, those of lists' items included;
    schema_characters: of a JSON Schema document; cache_bytes: of declarations that are kept; queue:
    documents of all requests; seconds: that a request may take, and that nothing may come for in a
    stream."""

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
    """Documents that are under way, of all requests."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.documents = 0

    async def room_for(self, documents: int) -> None:
        """Waits until there is room for so many beside the others."""
        while not self._has_room(documents):
            await asyncio.sleep(_PAUSE)

    def _has_room(self, documents: int) -> bool:
        return not self.documents or self.documents + documents <= self._most

    @contextmanager
    def place_for(self, documents: int) -> Iterator[None]:
        """Raises ApiError (429) where they are too many beside the others."""
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
