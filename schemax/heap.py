"""Objects that are loaded for good, kept apart from what comes and goes with documents."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Leaves all objects that are there now out of garbage collections, for as long as the context
    lasts.

    A model and its libraries are some hundred thousand objects. A full collection looks at each of
    them, and reading documents makes enough objects for many full collections.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
