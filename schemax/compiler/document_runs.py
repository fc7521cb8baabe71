"""Which runs of a document are texts that stand in it: within a line, from edge to edge of a word.

An edge is any place between two characters, but between two digits, and between two letters of a
script that has upper and lower case. So scripts that write no spaces have edges everywhere. White
space begins no text and ends none.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

# Between lines: in no text, since no character is written with this byte.
_BREAK = b"\xff"
# How many edges ahead the last place is looked for where a text may end.
_MOST_EDGES = 64

_LETTER, _DIGIT, _SPACE = 1, 2, 3
# Beyond Unicode's first plane, every character is a word of its own.
_NUM_KINDS = 0x10000


@dataclass(frozen=True, slots=True)
class Way:
    """One way to write a text.

    head: what stands before its characters, the leading space included. marker: the first byte
    behind them. characters: (character, how it is written), of those that do not stand as they are.
    never: what is written between both never matches it from end to end; None for nothing.
    beside: a literal that is no text and begins like one; b"" if there is none.
    """

    head: bytes
    marker: bytes
    characters: tuple[tuple[str, str], ...] = ()
    never: re.Pattern[str] | None = None
    beside: bytes = b""


def lines_of(text: str) -> str:
    """A text's lines, without white space around them, and without empty ones."""
    return "\n".join(line for part in text.splitlines() if (line := part.strip()))


class DocumentRuns:
    """A document in one way to write it. Places are bytes, since tokens end within characters.

    text: as `lines_of` gives it. data: what is written. starts, ends: (len(data) + 1,) 1 where a
    text may start, or end, before a byte; else 0.
    """

    __slots__ = ("_limits", "_never", "data", "ends", "starts")

    def __init__(self, text: str, way: Way) -> None:
        codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
        kinds = _kinds()[np.minimum(codes, _NUM_KINDS - 1)]
        lengths = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
        if way.characters and (special := _special(way.characters)).search(text):
            written = dict(way.characters)
            for match in special.finditer(text):
                lengths[match.start()] = len(written[match[0]].encode())
            text = special.sub(lambda match: written[match[0]], text)
        is_joined = np.zeros(len(codes) + 1, bool)
        is_word = (kinds == _LETTER) | (kinds == _DIGIT)
        is_joined[1:-1] = (kinds[1:] == kinds[:-1]) & is_word[1:]
        is_space = np.ones(len(codes) + 2, bool)
        is_space[1:-1] = kinds == _SPACE
        data = text.encode().replace(b"\n", _BREAK)
        places = np.concatenate([[0], lengths.cumsum()])
        starts, ends = np.zeros((2, len(data) + 1), np.uint8)
        starts[places] = ~is_joined & ~is_space[1:]
        ends[places] = ~is_joined & ~is_space[:-1]
        self.data, self.starts, self.ends = data, starts.tobytes(), ends.tobytes()
        self._never = way.never
        self._limits: dict[int, int] = {}
        if way.beside:
            start, length = len(data) + len(_BREAK), len(way.beside)
            self.data += _BREAK + way.beside
            self.starts += b"\x01" + bytes(length)
            self.ends += bytes(length) + b"\x01"
            self._limits[start] = start + length

    def limit(self, start: int) -> int:
        """How far a text from here on may go, so that it can end; `start` if it cannot."""
        found = self._limits.get(start)
        if found is None:
            found = self._limits[start] = self._limit(start)
        return found

    def _limit(self, start: int) -> int:
        end = self.data.find(_BREAK, start)
        last = place = len(self.data) if end < 0 else end
        if self._is_text(start, last):
            return last
        end, last, place = last, start, start
        for _ in range(_MOST_EDGES):
            place = self.ends.find(1, place + 1, end + 1)
            if place < 0:
                break
            if self._is_text(start, place):
                last = place
        return last

    def _is_text(self, start: int, end: int) -> bool:
        return self._never is None or not self._never.fullmatch(self.data[start:end].decode())

    def places(self, begun: bytes, since: int = 0) -> Iterator[int]:
        """Where a text starts that begins like this, with at least one byte."""
        start = self.data.find(begun, since)
        while start >= 0:
            if self.starts[start] and start + len(begun) <= self.limit(start):
                yield start
            start = self.data.find(begun, start + 1)

    def first(self, begun: bytes, since: int = 0) -> int:
        """The first of these; -1 if there is none."""
        return next(self.places(begun, since), -1)

    def holds(self, text: bytes, since: int = 0) -> bool:
        """Whether this is a whole text."""
        return bool(text) and any(self.ends[p + len(text)] for p in self.places(text, since))

    def all_starts(self) -> Iterator[int]:
        start = self.starts.find(1)
        while start >= 0:
            yield start
            start = self.starts.find(1, start + 1)


@lru_cache(maxsize=64)
def _special(characters: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    return re.compile("[" + "".join(re.escape(character) for character, _ in characters) + "]")


@lru_cache(maxsize=1)
def _kinds() -> npt.NDArray[np.uint8]:
    """(65536,) letters with case and the marks on letters, digits, white space; 0 for others."""
    kinds = np.zeros(_NUM_KINDS, np.uint8)
    for code, character in enumerate(map(chr, range(_NUM_KINDS))):
        if character.isspace():
            kinds[code] = _SPACE
        elif character.isdigit():
            kinds[code] = _DIGIT
        elif character.lower() != character.upper() or unicodedata.combining(character):
            kinds[code] = _LETTER
    return kinds
