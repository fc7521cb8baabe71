"""Keeps permanent objects out of garbage collections."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# As many new objects bring on a collection: those of some documents in flight, which most of them
# do not outlive.
_YOUNG = 10_000


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Leaves all current objects out of garbage collections, for as long as the context lasts.

    A model and its libraries are some hundred thousand objects. A full collection looks at each of
    them, and reading documents makes enough objects for many full collections.
    """
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(max(usual[0], _YOUNG), *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
