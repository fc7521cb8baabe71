"""Review: the documents to correct first, those of unsure fields that are unlike each other."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappush, heappushpop
from typing import Any

from schemax.reading.folding import words_of
from schemax.report.page import Report
from schemax.results import Extraction
from schemax.results.list_results import without_items

_POOL = 20  # unsure documents kept for each document to choose
_COPY = 0.8  # share of common words from which a text counts as a copy


class Review:
    """A choice of a page's documents. All others are only counted, in bounded memory."""

    def __init__(self, page: Report, count: int) -> None:
        self._page, self._count = page, count
        self._pool: list[tuple[float, int, Extraction[Any]]] = []  # a heap, the surest first

    def add(self, item: Extraction[Any]) -> None:
        self._page.count(item)
        if (mistakes := expected_mistakes(item)) is not None:
            is_full = len(self._pool) >= _POOL * self._count
            (heappushpop if is_full else heappush)(self._pool, (mistakes, -self._page.total, item))

    def show(self) -> None:
        """Adds the chosen documents to the page."""
        for item in self._chosen():
            self._page.show(item)

    def _chosen(self) -> Iterator[Extraction[Any]]:
        """Yields documents, each of the most mistakes x distance from all before it (greedy)."""
        pool = sorted(self._pool, reverse=True)
        words = [set(words_of(" ".join(item.texts.values()))) for *_, item in pool]
        distances = [1.0] * len(pool)
        for _ in range(min(self._count, len(pool))):
            gains = [entry[0] * distance for entry, distance in zip(pool, distances, strict=True)]
            best = gains.index(max(gains))
            if not gains[best]:
                return
            yield pool[best][2]
            for n, own in enumerate(words):
                common = len(own & words[best]) / max(1, len(own | words[best]))
                distances[n] = (
                    0.0 if n == best or common >= _COPY else min(distances[n], 1 - common)
                )


def expected_mistakes(item: Extraction[Any]) -> float | None:
    """How many fields are probably wrong; None for a failed row, and without a confidence."""
    wrong, fields = {error.field for error in item.errors}, without_items(item.fields).items()
    sure = [0.0 if name in wrong else field.confidence for name, field in fields]
    known = [confidence for confidence in sure if confidence is not None]
    return None if item.value is None or not known else sum(1 - share for share in known)
