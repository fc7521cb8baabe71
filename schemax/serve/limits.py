"""How much strangers may ask for at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from schemax.serve.errors import ApiError


@dataclass(frozen=True, slots=True)
class Limits:
    """body_bytes: of a request; documents: of a request; fields: of a schema, those of lists' items
    included; schema_characters: of a JSON Schema document; queue: documents of all requests;
    seconds: that a request may take."""

    body_bytes: int = 8_000_000
    documents: int = 1_000
    fields: int = 256
    schema_characters: int = 100_000
    queue: int = 2_000
    seconds: float = 120.0


class Queue:
    """Documents that are under way, of all requests."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.documents = 0

    @contextmanager
    def place_for(self, documents: int) -> Iterator[None]:
        """Raises ApiError (429) where they are too many beside the others."""
        if self.documents and self.documents + documents > self._most:
            raise ApiError(
                429,
                f"{self.documents:,} documents are under way, and the server takes {self._most:,}; "
                "try again soon",
                headers={"Retry-After": "1"},
            )
        self.documents += documents
        try:
            yield
        finally:
            self.documents -= documents
