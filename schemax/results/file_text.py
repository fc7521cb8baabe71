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

    page: the first page of the span in a PDF, from 1. None for other files.
    boxes: the boxes on the page, one per line of the span. Empty for other files.
    paragraph: the number of the line of text, from 1, in other files than PDF. Empty lines do not
        count, and a table's row is a line.
    """

    page: int | None = None
    boxes: tuple[Box, ...] = ()
    paragraph: int | None = None


class FileText(MarkedUp):
    """The text of a file, as plain text without HTML.

    file: the path or address.
    pages: the offset of each page of a PDF, in characters; None for other files.
    boxes: four numbers (a `Box`) per character of a PDF, all 0 for a character without a place.
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
        file_text = cls(text, text, as_plain(text)._places)
        file_text.file, file_text.pages = file, pages
        file_text._boxes = array("f") if boxes is None else boxes
        return file_text

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
        boxes: list[Box] = []
        for at in range(4 * start, 4 * end, 4):
            left, top, right, bottom = self._boxes[at : at + 4]
            if right <= left and bottom <= top:
                continue
            if boxes:
                last = boxes[-1]
                overlap = min(last[3], bottom) - max(last[1], top)
                goes_on = left >= last[0]
                if goes_on and 2 * overlap >= min(last[3] - last[1], bottom - top):
                    boxes[-1] = (
                        last[0],
                        min(last[1], top),
                        max(last[2], right),
                        max(last[3], bottom),
                    )
                    continue
            boxes.append((left, top, right, bottom))
        return [_rounded(box) for box in boxes]


def _rounded(box: Box) -> Box:
    left, top, right, bottom = (round(side, 2) for side in box)
    return left, top, right, bottom


def tidied(text: str) -> str:
    """The text without empty lines, runs of blanks, and blanks around lines and cells."""
    lines = _BLANKS.sub(" ", text).split("\n")
    cells = ("\t".join(cell.strip() for cell in line.split("\t")).rstrip() for line in lines)
    return "\n".join(filter(None, cells))
