"""`FileText`, the text of a file that is a document, with the places of characters in the file."""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from typing import Any, NamedTuple, Self, TypeAlias, cast

from schemax.reading.markup import MarkedUp, as_plain

Box: TypeAlias = tuple[float, float, float, float]
"""(left, top, right, bottom) in points (1/72 inch) from the top left corner of the page."""

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
        """The boxes of characters, those of a line merged, in any direction of writing."""
        boxes: list[Box] = []
        before: Box | None = None
        for at in range(start, end):
            left, top, right, bottom = box = cast(Box, tuple(self._boxes[4 * at : 4 * at + 4]))
            if self.plain[at] == "\n":
                before = None
            elif right > left or bottom > top:
                if before is not None and _is_beside(before, box):
                    x, y, other_x, other_y = boxes.pop()
                    left, top = min(x, left), min(y, top)
                    right, bottom = max(other_x, right), max(other_y, bottom)
                boxes.append((left, top, right, bottom))
                before = box
        return [cast(Box, tuple(round(side, 2) for side in box)) for box in boxes]


def _is_beside(first: Box, second: Box) -> bool:
    """True if characters that follow each other stand on a line: side by side, or stacked."""
    return any(
        2 * (min(first[end], second[end]) - max(first[start], second[start]))
        >= min(first[end] - first[start], second[end] - second[start])
        for start, end in ((0, 2), (1, 3))
    )
