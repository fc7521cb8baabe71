"""A real server around an extractor, in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("fastapi")
uvicorn = pytest.importorskip("uvicorn")

# Freed memory goes back to the system at once, so that what grows is in use.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_ARENA_MAX": "2"}


@contextmanager
def served(extractor: Any, **settings: Any) -> Iterator[str]:
    """The address of the server; closes the extractor in the end."""
    from schemax.serve.app import create_app

    app = create_app(extractor, **settings)
    config = uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=10)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        assert not thread.is_alive()
