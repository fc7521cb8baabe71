"""The texts that a slot may copy from a document: runs within a line, from word edge to word edge.

An edge is any place between two characters, except between two digits, and between two letters of
a script that has upper and lower case. So scripts without spaces have edges everywhere. No text
ends with white space. A text in quotes may begin with it, since tokens bring it along; reading the
value drops it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
import numpy.typing as npt

BREAK = b"\xff"
"""The separator of lines: a byte that no character is written with."""

# The most bytes of a text that patterns are tried on, since some take quadratic time; and the most
# edges among which the last end of a text is searched.
_LONGEST, _MOST_EDGES = 1_024, 64

# Kinds of characters: letters with case and the marks on them, digits, white space; 0 for others.
# Bytes but the first of a character have a further bit: no text starts or ends before them.
_LETTER, _DIGIT, _SPACE, _INNER = 1, 2, 3, 8
_BREAK_KIND = bytes([_SPACE])
_STARTS = re.compile(rb"[\x00\x03]|(?<![\x01\x09])\x01|(?<![\x02\x0a])\x02")
# Beyond Unicode's first plane, every character is a word of its own.
_NUM_KINDS = 0x10000


@dataclass(frozen=True, slots=True)
class Way:
    """A form in which a text is written.

    head: the bytes before its characters, the leading space included. marker: the first byte
    behind them. characters: (character, how it is written), for escaped characters alone.
    never: matches from end to end what no text may be, as written; None for no such pattern.
    beside: the literal of null where it could be taken for a text; b"" if there is none.
    """

    head: bytes
    marker: bytes
    characters: tuple[tuple[str, str], ...] = ()
    never: re.Pattern[str] | None = None
    beside: bytes = b""


def lines_of(text: str) -> str:
    """The lines of a text that are not empty, without white space around them."""
    return "\n".join(line for part in text.splitlines() if (line := part.strip()))


class DocumentRuns:
    """A document as one `Way` writes it. Places count bytes, since tokens end within characters.

    text: as `lines_of` gives it. data: the text as written. marker, never: of the way.

    From its start, a text may go on within its line to the last place where one may end.
    """

    __slots__ = ("_apart", "_kinds", "_limits", "data", "marker", "never")

    def __init__(self, text: str, way: Way) -> None:
        self.marker, self.never = way.marker, way.never
        self._apart = (0, _SPACE) if way.never is None else (0,)
        self._limits: dict[int, int] = {}
        self.data, kinds = _written(text, way)
        if way.beside:
            start = len(self.data) + len(BREAK)
            self.data += BREAK + way.beside
            kinds += _BREAK_KIND + way.beside.translate(_ascii_kinds())
            self._limits[start] = len(self.data)
        # The kind of every byte, with a line's end before the first and behind the last.
        self._kinds = _BREAK_KIND + kinds + _BREAK_KIND

    def goes_on(self, data: bytes, start: int, end: int) -> bool:
        """True if the text from start to end goes on with these bytes, and may end behind them."""
        return self.data.startswith(data, end) and (
            self.never is None or end + len(data) <= self.limit(start)
        )

    def is_end(self, place: int) -> bool:
        """True if a text may end before this byte."""
        before, after = self._kinds[place] & ~_INNER, self._kinds[place + 1]
        return before != _SPACE and after < _INNER and (before != after or not after)

    def limit(self, start: int) -> int:
        """The furthest end of a text that starts here; `start` if it cannot end."""
        limit = self._limits.get(start)
        if limit is None:
            limit = self._limits[start] = self._limit(start)
        return limit

    def _limit(self, start: int) -> int:
        end = self.data.find(BREAK, start)
        if end < 0:
            end = len(self.data)
        if self.never is None:
            return end
        if end - start > _LONGEST:
            end = next(filter(self.is_end, range(start + _LONGEST, start, -1)), start)
        if self._is_text(start, end):
            return end
        edges = filter(self.is_end, range(start + 1, end))
        return max(
            (place for place in islice(edges, _MOST_EDGES) if self._is_text(start, place)),
            default=start,
        )

    def _is_text(self, start: int, end: int) -> bool:
        assert self.never is not None
        return not self.never.fullmatch(self.data[start:end].decode())

    def places(self, begun: bytes, since: int = 0) -> Iterator[int]:
        """Yields the places where a text starts that begins with these bytes, at least one."""
        start = self.data.find(begun, since)
        while start >= 0:
            if self._is_start(start) and start + len(begun) <= self.limit(start):
                yield start
            start = self.data.find(begun, start + 1)

    def _is_start(self, place: int) -> bool:
        before, after = self._kinds[place] & ~_INNER, self._kinds[place + 1]
        return after in self._apart or (before != after and after in (_LETTER, _DIGIT))

    def first(self, begun: bytes, since: int = 0) -> int:
        """The first of `places`; -1 if there is none."""
        return next(self.places(begun, since), -1)

    def holds(self, text: bytes, since: int = 0) -> bool:
        """True if these bytes are a whole text of the document."""
        return bool(text) and any(self.is_end(p + len(text)) for p in self.places(text, since))

    def starts(self) -> Iterator[int]:
        """Yields all places where a text may start."""
        matches = _STARTS.finditer(self._kinds, 1, len(self._kinds) - 1)
        return (match.start() - 1 for match in matches if self._is_start(match.start() - 1))


def _written(text: str, way: Way) -> tuple[bytes, bytes]:
    """A text as it is written, and the kind of every byte's character."""
    special = _special(way.characters)
    if text.isascii() and not special.search(text):
        data = text.encode()
        return data.replace(b"\n", BREAK), data.translate(_ascii_kinds())
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    lengths = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
    written = dict(way.characters)
    for match in special.finditer(text):
        lengths[match.start()] = len(written[match[0]].encode())
    data = special.sub(lambda match: written[match[0]], text).encode()
    kinds = np.repeat(_all_kinds()[np.minimum(codes, _NUM_KINDS - 1)] | _INNER, lengths)
    kinds[lengths.cumsum() - lengths] &= ~np.uint8(_INNER)
    return data.replace(b"\n", BREAK), kinds.tobytes()


@lru_cache(maxsize=64)
def _special(characters: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    """The pattern that finds escaped characters."""
    if not characters:
        return re.compile(r"(?!)")
    return re.compile("[" + "".join(re.escape(character) for character, _ in characters) + "]")


def _kind(character: str) -> int:
    if character.isspace():
        return _SPACE
    if character.isdigit():
        return _DIGIT
    has_case = character.lower() != character.upper()
    return _LETTER if has_case or unicodedata.combining(character) else 0


@lru_cache(maxsize=1)
def _ascii_kinds() -> bytes:
    return bytes(_kind(chr(code)) if code < 0x80 else 0 for code in range(0x100))


@lru_cache(maxsize=1)
def _all_kinds() -> npt.NDArray[np.uint8]:
    """(65536,) the kinds of all characters of Unicode's first plane."""
    return np.array([*map(_kind, map(chr, range(_NUM_KINDS)))], np.uint8)
