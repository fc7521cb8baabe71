"""Spans: the places of a value in the texts that it was read from.

A value is searched for in these ways, each only if the ways before found no place:

1. exactly, character by character;
2. loosely: ignoring case, white space, typographic variants, vowel signs and invisible characters;
3. by value, if it is a number: 1299.0 stands in "1,299";
4. barely: also ignoring punctuation and spaces between words ("16oz", "K-Cup", "Kid's");
5. fuzzily: the most similar place, if it reads the same word by word but for plurals and slips.

docs/results.md reports recall and cost on real titles.

A place holds whole tokens (`schemax.results.boundaries`), and no way takes one number for another.
A place between two things is preferred to a place beside a unit or within a word of a script
without spaces, then the first in the order of the texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from itertools import islice

from rapidfuzz import fuzz

from schemax.reading.folding import (
    MOST_OCCURRENCES,
    Folded,
    bare,
    folded,
    loose,
    numbers_in,
    occurrences,
    reads_alike,
)
from schemax.reading.markup import MarkedUp, plain_text
from schemax.reading.tokens import NUMBER, value_of
from schemax.results.boundaries import CLEAN, boundary, of_whole_words
from schemax.results.extraction import Span
from schemax.results.file_text import FileText, Location

# Values up to this length resemble other words by chance, and are not searched for fuzzily.
_SHORT = 3

# The least similarity of a place: 2 * common characters / all characters, times 100.
_SIMILAR = 70.0

# A fuzzy search for short values takes at most about 2 ns per character of the value and character
# of the text: with this bound, 0.1 s per row at most. Values beyond the bound are not searched for
# fuzzily. Sixteen values of 60 characters in a text of 40,000 are within the bound.
_LONGEST_FUZZY = 200
FUZZY_WORK = 40_000_000

_NUMERIC = re.compile(r"([-−]?)(\d+(?:[.,]\d+)?)")
# The numbers of a text that are known by value.
_MOST_NUMBERS = 10_000


class SpanFinder:
    """Searches the texts of a row, by field, for its values.

    A text is folded once, and only if a value is not found exactly. In texts with HTML the visible
    text is searched; places refer to the source.
    """

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._texts = {field: plain_text(text) for field, text in texts.items()}
        self._marked_up = {f: text for f, text in texts.items() if isinstance(text, MarkedUp)}
        self._work_left = FUZZY_WORK

    def locate(self, value: str) -> Span | None:
        """The place that states `value`, a text that a model wrote; None if no place does."""
        return Mentions(self).locate(value)

    def times(self, value: str) -> int:
        """Counts the places that state `value`, at most about a thousand, and no similar ones."""
        return sum(1 for _ in self._stated_spans(value.strip()))

    def locations(self, spans: Sequence[Span | None]) -> tuple[Location | None, ...]:
        """The places of spans in the files of their texts; () if no text is from a file."""
        files = {f: text for f, text in self._marked_up.items() if isinstance(text, FileText)}
        if not files:
            return ()
        return tuple(
            files[span.field].location(span.start, span.end)
            if span is not None and span.field in files
            else None
            for span in spans
        )

    def in_source(self, place: Span) -> Span:
        """The place in the source of a place in the visible text."""
        source = self._marked_up.get(place.field)
        return place if source is None else Span(*source.place(place.start, place.end), place.field)

    def places(self, value: str) -> Iterator[Span]:
        """Yields the places in the visible texts that state a value, the best first."""
        value, is_stated = value.strip(), False
        for place in self._stated_spans(value):
            is_stated = True
            yield place
        if not is_stated and (similar := self._fuzzy(value)) is not None:
            yield similar

    def _stated_spans(self, value: str) -> Iterator[Span]:
        seen: set[Span] = set()
        for way in (self._exact, self._loose, self._equal_spans, self._bare):
            glued = []
            for place in way(value):
                if place in seen:
                    continue
                seen.add(place)
                text = self._texts[place.field]
                start = boundary(text, place.start, is_end=False)
                end = None if start is None else boundary(text, place.end, is_end=True)
                if start == end == CLEAN:
                    yield place
                elif end is not None:
                    glued.append(place)
            yield from glued

    def _exact(self, value: str) -> Iterator[Span]:
        for field, text in self._texts.items():
            for start, end in occurrences(value, text):
                yield Span(start, end, field)

    def _loose(self, value: str) -> Iterator[Span]:
        wanted = folded(value, loose).strip()
        for field, text in self._loosely.items():
            for start, end in text.find(wanted):
                yield Span(start, end, field)

    def _equal_spans(self, value: str) -> Iterator[Span]:
        if number := _NUMERIC.fullmatch(value):
            minus = len(number[1])
            equal = self._numbers.get(Decimal(number[2].replace(",", ".")), [])
            for start, end, field in equal[:MOST_OCCURRENCES]:
                if not minus or self._texts[field][start - 1 : start] in ("-", "−"):
                    yield Span(start - minus, end, field)

    def _bare(self, value: str) -> Iterator[Span]:
        wanted, numbers = folded(value, bare), numbers_in(value)
        for field, text in self._barely.items():
            for start, end in text.find(wanted):
                if numbers_in(self._texts[field][start:end]) == numbers:
                    yield Span(start, end, field)

    def _fuzzy(self, value: str) -> Span | None:
        wanted = folded(value, bare)
        if len(value) <= _SHORT or not 0 < len(wanted) <= _LONGEST_FUZZY:
            return None
        best, least = None, _SIMILAR
        for field, text in self._barely.items():
            work = len(wanted) * len(text.text)
            if work > self._work_left:
                continue
            self._work_left -= work
            likest = fuzz.partial_ratio_alignment(wanted, text.text, score_cutoff=least)
            if likest is None or likest.dest_start == likest.dest_end:
                continue
            # The likest place is as long as the value, so its ends may lie inside words.
            ends = text.original(likest.dest_start, likest.dest_end)
            for start, end in of_whole_words(self._texts[field], *ends):
                piece = self._texts[field][start:end]
                similarity = fuzz.ratio(wanted, folded(piece, bare))
                if similarity > least and reads_alike(value, piece):
                    best, least = Span(start, end, field), similarity
        return best

    @cached_property
    def _numbers(self) -> dict[Decimal | None, list[Span]]:
        """The places of the texts' first numbers by value, by both if a separator is doubtful."""
        places: dict[Decimal | None, list[Span]] = {}
        for field, text in self._texts.items():
            for number in islice(NUMBER.finditer(text), _MOST_NUMBERS):
                for value in {value_of(number[0], grouped)[0] for grouped in (False, True)}:
                    places.setdefault(value, []).append(Span(number.start(), number.end(), field))
        return places

    @cached_property
    def _loosely(self) -> dict[str, Folded]:
        return {field: Folded(text, loose) for field, text in self._texts.items()}

    @cached_property
    def _barely(self) -> dict[str, Folded]:
        return {field: Folded(text, bare) for field, text in self._texts.items()}


class Mentions:
    """Locates the texts of one list: a repeated text gets its next place, as long as it has one."""

    def __init__(self, finder: SpanFinder) -> None:
        self._finder = finder
        self._left: dict[str, Iterator[Span]] = {}
        self._latest: dict[str, Span | None] = {}
        self._taken: set[Span] = set()

    def locate(self, value: str) -> Span | None:
        place = self._latest.get(value)
        for place in self._left.setdefault(value, self._finder.places(value)):
            if place not in self._taken:
                break
        self._latest[value] = place
        if place is None:
            return None
        self._taken.add(place)
        return self._finder.in_source(place)
