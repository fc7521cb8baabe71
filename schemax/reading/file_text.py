"""`FileText`, the text of a file that is a document, with the places of characters in the file."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from typing import Any, NamedTuple, Self, TypeAlias

from schemax.reading.markup import MarkedUp, as_plain

Box: TypeAlias = tuple[float, float, float, float]
"""(left, top, right, bottom) in points (1/72 inch) from the top left corner of the page."""

_BLANKS = re.compile(" {2,}")
_LINE = re.compile(r"^.*\S", re.MULTILINE)


class Location(NamedTuple):
    """The place of a span in its file.

    page: of a PDF, from 1; the first page of a span over several. None for other files.
    boxes: on the page, one for each line of the span. Empty for other files.
    paragraph: in files other than PDF, the number of the line of text, from 1; empty lines do not
        count, and a row of a table is one line.
    """

    page: int | None = None
    boxes: tuple[Box, ...] = ()
    paragraph: int | None = None


class FileText(MarkedUp):
    """The text of a file, taken as plain text without HTML.

    file: the path or address.
    pages: of a PDF, the offset at which each page begins, in characters; else None.
    boxes: of a PDF, four numbers (a `Box`) per character, all 0 for a character without a place.
    """

    file: str
    pages: array[int] | None
    _boxes: array[float]

    @classmethod
    def of(
        cls,
        text: str,
        file: str,
        pages: array[int] | None = None,
        boxes: array[float] | None = None,
    ) -> Self:
        """Makes the text with its places; see the class."""
        made = cls(text, text, as_plain(text)._places)
        made.file, made.pages = file, pages
        made._boxes = array("f") if boxes is None else boxes
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).of, (self.plain, self.file, self.pages, self._boxes)

    def location(self, start: int, end: int) -> Location:
        """The place in the file of `self[start:end]`, which must not be empty."""
        if self.pages is None:
            before = sum(1 for _ in _LINE.finditer(self.plain, 0, start))
            begun = self.plain.rfind("\n", 0, start) + 1
            return Location(paragraph=before + (not self.plain[begun:start].strip()))
        page = bisect_right(self.pages, start)
        if page < len(self.pages):
            end = min(end, self.pages[page])
        return Location(page, tuple(self._lines(start, end)))

    def _lines(self, start: int, end: int) -> list[Box]:
        """The boxes of characters, successive boxes on a line merged."""
        found: list[Box] = []
        for at in range(4 * start, 4 * end, 4):
            left, top, right, bottom = self._boxes[at : at + 4]
            if right <= left and bottom <= top:
                continue
            if found:
                known = found[-1]
                overlap = min(known[3], bottom) - max(known[1], top)
                goes_on = left >= known[0]
                if goes_on and 2 * overlap >= min(known[3] - known[1], bottom - top):
                    found[-1] = (
                        known[0],
                        min(known[1], top),
                        max(known[2], right),
                        max(known[3], bottom),
                    )
                    continue
            found.append((left, top, right, bottom))
        return [_rounded(box) for box in found]


def _rounded(box: Box) -> Box:
    left, top, right, bottom = (round(side, 2) for side in box)
    return left, top, right, bottom


def tidied(text: str) -> str:
    """The text without empty lines, runs of blanks, and blanks around lines and cells."""
    lines = _BLANKS.sub(" ", text).split("\n")
    cells = ("\t".join(cell.strip() for cell in line.split("\t")).rstrip() for line in lines)
    return "\n".join(filter(None, cells))
