"""The limits of clients' requests, which `schemax serve` takes as options."""

from __future__ import annotations

from schemax.base.options import OptionGroup, option


class ServerLimits(OptionGroup):
    """Limits"""

    body_bytes: int = option("--max-body", default=8_000_000, min=1)
    """Bytes of a request, or of a line."""
    stream_bytes: int = option("--max-stream", default=1_000_000_000, min=1)
    """Bytes of a request of many lines."""
    answer_bytes: int = option("--max-answer", default=64_000_000, min=1)
    """Bytes of an answer, or of rows that wait for the client to read them."""
    documents: int = option("--max-documents", default=1_000, min=1)
    """Documents of a request."""
    fields: int = option("--max-fields", default=256, min=1)
    """Fields of a schema, those of lists' items included."""
    queue: int = option("--max-queue", default=2_000, min=1)
    """Documents of all requests."""
    seconds: float = option("--timeout", default=120.0, min=0.1)
    """Seconds of a request, and of silence in a request of many lines."""
    schema_characters: int = 100_000
    """Characters of a JSON Schema document."""
    cache_bytes: int = 32_000_000
    """Bytes of cached declarations."""
