"""Caches that are bounded by what is in them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from schemax.base.byte_cache import ByteCache, cached_in_bytes


def test_what_was_used_last_is_kept() -> None:
    cache = ByteCache[str](100)
    for key in "abc":
        cache.put(key, key.upper(), 40)
    assert [cache.get(key) for key in "abc"] == [None, "B", "C"]
    assert (len(cache), cache.bytes) == (2, 80)
    assert cache.get("b") == "B"
    cache.put("d", "D", 20)
    cache.put("e", "E", 10)
    assert [cache.get(key) for key in "bcde"] == ["B", None, "D", "E"]
    cache.put("b", "again", 10)
    assert (cache.get("b"), cache.bytes) == ("again", 40)


def test_one_alone_may_be_larger() -> None:
    cache = ByteCache[str](100)
    cache.put("small", "s", 1)
    cache.put("large", "l", 1_000)
    assert (cache.get("small"), cache.get("large"), len(cache)) == (None, "l", 1)
    cache.put("small", "s", 1)
    assert (cache.get("large"), cache.bytes) == (None, 1)


def test_functions_are_called_once_while_there_is_room() -> None:
    called: list[int] = []

    @cached_in_bytes(10, lambda number: number)
    def make(number: int) -> int | None:
        called.append(number)
        if number < 0:
            raise ValueError("negative")
        return None

    for number in (4, 5, 4, 5, 6, 4):
        assert make(number) is None
    assert called == [4, 5, 6, 4]
    for _ in range(2):
        with pytest.raises(ValueError, match="negative"):
            make(-1)
    assert called[-2:] == [-1, -1]


def test_threads_share_a_cache() -> None:
    cache = ByteCache[int](500)

    def use(start: int) -> None:
        for n in range(2_000):
            cache.put((start + n) % 97, n, 10)
            cache.get(n % 97)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, range(8)))
    assert cache.bytes == 10 * len(cache) <= 500
