"""Spans: the places of a value in the texts that it was read from.

A value is searched for in four ways, each only if the ways before found no place:

1. exactly, character by character;
2. loosely: ignoring case, white space, typographic variants and invisible characters;
3. barely: also ignoring punctuation and spaces between words ("16oz", "K-Cup", "Kid's");
4. fuzzily: the most similar place, if it reads the same word by word except for plural endings and
   typos, or is a quotation with hardly a character changed.

docs/results.md reports recall and cost on real titles.

Different numbers never match: the last two ways require equal numbers. A place between word
boundaries is preferred to a place inside a word, then the first in the order of the texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice

from rapidfuzz import fuzz

from schemax.reading.file_text import FileText, Location
from schemax.reading.folding import Folded, bare, folded, is_mark, loose, occurrences, units_of
from schemax.reading.likeness import numbers_in, reads_alike
from schemax.reading.markup import MarkedUp, plain_text
from schemax.reading.nearby import places_of
from schemax.results.extraction import Span

# Values up to this length occur inside words by chance. They count only as whole words, and are not
# searched for fuzzily.
_SHORT = 3

# The least similarity of a place: 2 * common characters / all characters, times 100.
_SIMILAR = 70.0

# A fuzzy search for short values takes at most about 2 ns per character of the value and character
# of the text: with this bound, 0.1 s per row at most. Values beyond the bound are not searched for
# fuzzily. Sixteen values of 60 characters in a text of 40,000 are within the bound.
_LONGEST_FUZZY = 200
FUZZY_WORK = 40_000_000

# The farthest that the end of a word is searched for.
_LONGEST_WORD = 50

# The parts that a cut at a place of a text separates: words, number and unit, or parts of a word.
_BETWEEN, _NUMBER_AND_UNIT, _THROUGH = range(3)


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
        found = self._located(value)
        if found is None or (source := self._marked_up.get(found.field)) is None:
            return found
        return Span(*source.place(found.start, found.end), found.field)

    def locations(self, spans: Sequence[Span | None]) -> tuple[Location | None, ...]:
        """The places of spans in the files of their texts; () if no text is from a file."""
        if not any(isinstance(text, FileText) for text in self._marked_up.values()):
            return ()
        return tuple(span and self._in_file(span) for span in spans)

    def _in_file(self, span: Span) -> Location | None:
        text = self._marked_up.get(span.field)
        return text.location(span.start, span.end) if isinstance(text, FileText) else None

    def _located(self, value: str) -> Span | None:
        value = value.strip()
        short = len(value) <= _SHORT
        is_number = _NUMERIC.fullmatch(value) is not None
        allowed = _NUMBER_AND_UNIT if short or is_number else _THROUGH
        return (
            self._best(self._exact(value), allowed)
            or self._best(self._loose(value), allowed)
            or (self._best(self._numbers(value), allowed) if is_number else None)
            or self._best(self._bare(value), _NUMBER_AND_UNIT)
            or (None if short else self._fuzzy(value))
        )

    def _best(self, places: Iterable[Span], allowed: int) -> Span | None:
        """The first of the places with the weakest cut; None if all cut more than `allowed`."""
        best = None
        for place in places:
            text = self._texts[place.field]
            cut = max(_cut(text, place.start), _cut(text, place.end))
            if cut <= allowed:
                best, allowed = place, cut - 1
                if cut == _BETWEEN:
                    break
        return best

    def times(self, value: str) -> int:
        """Counts the places that state `value`, also inside words, but not merely similar ones."""
        value = value.strip()
        ways = [self._exact, self._loose, self._bare]
        ways += [self._numbers] if _NUMERIC.fullmatch(value) else []
        return max(sum(1 for _ in way(value)) for way in ways)

    def _exact(self, value: str) -> Iterator[Span]:
        for field, text in self._texts.items():
            for start, end in occurrences(value, text):
                yield Span(start, end, field)

    def _numbers(self, value: str) -> Iterator[Span]:
        """Yields the places of equal numbers: 1299.0 stands in "1,299"."""
        number = places_of(value)
        for field, text in self._texts.items():
            for found in islice(number.finditer(text), _MOST_NUMBERS):
                yield Span(*found.span(), field)

    def _loose(self, value: str) -> Iterator[Span]:
        wanted = folded(value, loose).strip()
        for field, text in self._loosely.items():
            for start, end in text.find(wanted):
                yield Span(start, end, field)

    def _bare(self, value: str) -> Iterator[Span]:
        wanted, numbers = folded(value, bare), numbers_in(value)
        for field, text in self._barely.items():
            for start, end in text.find(wanted):
                if numbers_in(self._texts[field][start:end]) == numbers:
                    yield Span(start, end, field)

    def _fuzzy(self, value: str) -> Span | None:
        wanted = folded(value, bare)
        if not _SHORT < len(wanted) <= _LONGEST_FUZZY:
            return None
        best, least = None, _SIMILAR
        for field, text in self._barely.items():
            work = len(wanted) * len(text.text)
            if work > self._work_left:
                continue
            self._work_left -= work
            found = fuzz.partial_ratio_alignment(wanted, text.text, score_cutoff=least)
            if found is None or found.dest_start == found.dest_end:
                continue
            original = self._texts[field]
            # The window found is as long as the value, so its ends may lie inside words.
            window = text.original(found.dest_start, found.dest_end)
            for start, end in _trimmed(original, *window):
                piece = original[start:end]
                similarity = fuzz.ratio(wanted, folded(piece, bare))
                if similarity > least and reads_alike(value, piece, similarity):
                    best, least = Span(start, end, field), similarity
        return best

    @cached_property
    def _units(self) -> dict[str, list[str]]:
        return {field: units_of(text) for field, text in self._texts.items()}

    @cached_property
    def _loosely(self) -> dict[str, Folded]:
        return {field: Folded(units, loose) for field, units in self._units.items()}

    @cached_property
    def _barely(self) -> dict[str, Folded]:
        return {field: Folded(units, bare) for field, units in self._units.items()}


def _cut(text: str, at: int) -> int:
    """The parts that a place that starts or ends at `at` separates; see `_BETWEEN`."""
    if not 0 < at < len(text):
        return _BETWEEN
    before, after = text[at - 1], text[at]
    if is_mark(after):
        return _THROUGH
    if _DIGIT.search(text, max(0, at - 2), at + 2) and _is_inside_number(text, at):
        return _THROUGH
    if before in ".," or after in ".,":
        return _THROUGH if _NUMBER_GOES_ON.match(text, at - (before in ".,") - 1) else _BETWEEN
    if before in "'’":  # "men's" contains "men", but no "s"
        return _THROUGH if after.isalpha() and text[at - 2 : at - 1].isalpha() else _BETWEEN
    if not (_in_word(before) and _in_word(after)):
        return _BETWEEN
    if before.isdigit() != after.isdigit() or _unspaced(before) or _unspaced(after):
        return _NUMBER_AND_UNIT
    return _THROUGH


def _is_inside_number(text: str, at: int) -> bool:
    start = max(0, at - _LONGEST_NUMBER)
    window = _SEPARATED.finditer(text, start, at + _LONGEST_NUMBER)
    return any(found.start() < at < found.end() for found in window)


_DIGIT = re.compile(r"\d")
_NUMERIC = re.compile(r"[-−]?\d+(?:[.,]\d+)?")
_LONGEST_NUMBER = 32
_MOST_NUMBERS = 1000
# Numbers whose separators might also separate two numbers: the digits that follow decide, and the
# unit.
_UNITS = (
    r"[kmcd]?[gml]|oz|lbs?|inch|in|Zoll|ft|k?W|V|h|USD|EUR|GBP|CHF|PLN|kr|zł|[Ee]uros?|"
    r"Stück|Stk|St|pcs|pieces|count|ct"
)
_CODE = r"(?:(?<=[$€£¥₹])|(?<=(?:USD|EUR|GBP|CHF|PLN|SEK|NOK|DKK)[\ \u00a0]))"
_OF = rf"""(?=\s?(?:[$€£¥₹%°"″]|(?:{_UNITS})\b))"""
_SEPARATED = re.compile(
    rf"""(?<![\d.,'’])(?:\d{{1,3}}(?:[\u00a0\u2009\u202f'’_·]\d{{3}})+(?!\d)(?:[.,]\d+)?
    |\d{{1,3}}(?:\ \d{{3}})+(?!\d)(?:[.,]\d{{2}}(?!\d)|{_OF})
    |{_CODE}\d{{1,3}}(?:\ \d{{3}})+(?!\d)
    |\d{{1,3}}(?:\ \d{{3}}){{2,}}(?!\d)
    |\d+,\d(?![\d,])
    |{_CODE}\d+,\d\d(?!\d)
    |\d+٫\d+|(?<!\w)\.\d+|\d+(?:\.\d+)?[eE][-+]?\d+(?!\w)
    |(?<!\w)[-−]\d+(?:[.,]\d+)?(?=\s?[°$€£¥])
    |\d+,\d{{1,2}}(?!\d){_OF})""",
    re.VERBOSE,
)
_NUMBER_GOES_ON = re.compile(r"\d(\.\d|,\d{3}(?!\d))")


def _in_word(char: str) -> bool:
    return char.isalnum() or is_mark(char)


def _unspaced(char: str) -> bool:
    """True in scripts without spaces between words: Thai, Lao, Burmese, Khmer, kana, Chinese."""
    return char >= "\u0e00" and (
        "\u2e80" <= char <= "\u9fff"
        or "\u0e00" <= char <= "\u0eff"
        or "\u1000" <= char <= "\u109f"
        or "\u1780" <= char <= "\u17ff"
        or char >= "\U00020000"
    )


_FRINGE = " \t\n\r\xa0,.;:|/()[]-&"


def _trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yields the place with the words at its ends wholly in or out, without outer punctuation."""
    for first in _word_around(text, start):
        for last in _word_around(text, end - 1):
            piece = text[first:last]
            skipped = len(piece) - len(piece.lstrip(_FRINGE))
            if skipped < len(piece):
                yield first + skipped, first + len(piece.rstrip(_FRINGE))


def _word_around(text: str, at: int) -> tuple[int, int]:
    start, end = at, at + 1
    while _cut(text, start) == _THROUGH and at - start < _LONGEST_WORD:
        start -= 1
    while _cut(text, end) == _THROUGH and end - at < _LONGEST_WORD:
        end += 1
    return start, end
