"""A cache bounded in bytes, since clients choose its contents and their size."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Generic, TypeVar

V = TypeVar("V")
F = TypeVar("F", bound=Callable[..., object])


class ByteCache(Generic[V]):
    """Values by key, the least recently used dropped first. most: the bytes of all values, as given
    to `put`; a single value may be larger."""

    def __init__(self, most: int) -> None:
        self._most, self.bytes = most, 0
        self._kept: dict[Hashable, tuple[V, int]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def clear(self) -> None:
        with self._lock:
            self._kept.clear()
            self.bytes = 0

    def get(self, key: Hashable) -> V | None:
        with self._lock:
            found = self._kept.pop(key, None)
            if found is None:
                return None
            self._kept[key] = found
            return found[0]

    def drop(self, key: Hashable) -> None:
        with self._lock:
            self.bytes -= self._kept.pop(key, (None, 0))[1]

    def put(self, key: Hashable, value: V, size: int) -> None:
        """Adds a value. size: its bytes, roughly."""
        with self._lock:
            self.bytes += size - self._kept.pop(key, (None, 0))[1]
            self._kept[key] = value, size
            while self.bytes > self._most and len(self._kept) > 1:
                self.bytes -= self._kept.pop(next(iter(self._kept)))[1]


def cached_in_bytes(most: int, size: Callable[..., int]) -> Callable[[F], F]:
    """Caches results like `functools.lru_cache`. size: bytes of a result, from the arguments."""

    def decorate(make: F) -> F:
        cache = ByteCache[tuple[object]](most)

        @wraps(make)
        def made(*arguments: Hashable) -> object:
            found = cache.get(arguments)
            if found is None:
                found = (make(*arguments),)
                cache.put(arguments, found, size(*arguments))
            return found[0]

        made.cache_clear = cache.clear  # type: ignore[attr-defined]  # as of lru_cache
        return made  # type: ignore[return-value]  # what is made is the same

    return decorate
