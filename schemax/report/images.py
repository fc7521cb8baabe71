"""Images of pages of PDF files with marked values, as many as a report has room for."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from schemax.errors import InputError
from schemax.io.document_files import MOST_BYTES
from schemax.io.pdf import page_images
from schemax.io.readers import decompressed
from schemax.io.storage import reading, suffixes
from schemax.results import Extraction
from schemax.results.file_text import Box, FileText
from schemax.results.list_results import without_items

logger = logging.getLogger(__name__)

_MOST_OF_ROW = 4  # pages
ROOM = 40_000_000  # characters of images in a report
_LONGEST = 1_100  # pixels of a page's longer side


class PageImages:
    """A maker of rows' images, within the room of a report.

    room: the characters left for images.
    """

    def __init__(self) -> None:
        self.room = ROOM

    def of(self, item: Extraction[Any], fields: Mapping[str, int]) -> list[Any]:
        """Returns the first pages with values: [page, data URL, width, height, marks].

        A mark is [field, left, top, right, bottom], in points, as width and height are. [] if no
        page has values, or pages can no longer be read.

        fields: name -> number.
        """
        found = []
        for text in item.texts.values():
            if isinstance(text, FileText) and text.pages is not None:
                found += self._of_text(text, _marks(item, text, fields))
        return found

    def _of_text(self, text: FileText, marks: dict[int, list[tuple[int, Box]]]) -> list[Any]:
        numbers = sorted(marks)[:_MOST_OF_ROW]
        if not numbers or self.room <= 0:
            return []
        try:
            with reading(text.file) as raw, decompressed(raw, suffixes(text.file)[1]) as handle:
                images = page_images(handle.read(MOST_BYTES), numbers, _LONGEST)
        except (InputError, OSError, EOFError, ValueError) as error:
            logger.warning("pages of %s are not shown: %s", text.file, error)
            return []
        found = []
        for number, (url, width, height) in zip(numbers, images, strict=True):
            if len(url) <= self.room:
                self.room -= len(url)
                places = [[field, *box] for field, box in marks[number]]
                found.append([number, url, round(width, 1), round(height, 1), places])
        return found


def _marks(
    item: Extraction[Any], text: FileText, fields: Mapping[str, int]
) -> dict[int, list[tuple[int, Box]]]:
    """Returns page -> (field, box) of all values that are found in the text."""
    found: dict[int, list[tuple[int, Box]]] = {}
    for name, result in without_items(item.fields).items():
        for span in result.spans:
            if span is None or item.texts[span.field] is not text:
                continue
            page, boxes, _ = text.location(span.start, span.end)
            if page is not None and boxes:
                found.setdefault(page, []).extend((fields[name], box) for box in boxes)
    return found
