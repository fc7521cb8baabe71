"""Keeps permanent objects out of garbage collections."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

# New objects that bring on a collection: about as many as some documents in flight hold. Most of
# them are gone once their document is done.
_MOST_NEW = 10_000


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Leaves all current objects out of garbage collections, and has new ones collected less often,
    for as long as the context lasts. Collections that a program has switched off stay off.

    A model and its libraries are some hundred thousand objects. A full collection looks at each of
    them, and reading documents makes enough objects for many full collections.
    """
    usual = gc.get_threshold()
    gc.freeze()
    if usual[0]:
        gc.set_threshold(max(usual[0], _MOST_NEW), *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
