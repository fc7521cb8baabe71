"""Reads PDF files: text with the place of every character, and pages as images."""

from __future__ import annotations

import ctypes
import logging
import threading
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from typing import Any

from schemax.base.messages import counted, some_of
from schemax.extraction.documents import MOST_CHARACTERS
from schemax.io.storage import optional
from schemax.results.file_text import Box, FileText

logger = logging.getLogger(__name__)

MOST_PAGES = 10_000

_FAR = 1 << 20  # pixels of a page's sides in conversions of coordinates
_HYPHEN = 2  # PDFium's code in the place of a hyphen at the end of a line, and of the line's end
_PASSWORD = 4  # FPDF_ERR_PASSWORD
_LOCK = threading.Lock()  # PDFium may be called by one thread at a time


def _pdfium() -> Any:
    return optional("pypdfium2", "a PDF file", "files")


@contextmanager
def _opened(data: bytes) -> Iterator[Any]:
    """Opens a document in PDFium, for this thread alone. Raises ValueError if it is unreadable."""
    pdfium = _pdfium()
    with _LOCK:
        try:
            document = pdfium.PdfDocument(data)
        except pdfium.PdfiumError as error:
            if getattr(error, "err_code", None) == _PASSWORD:
                raise ValueError("it is encrypted; save it without its password") from None
            raise ValueError(f"it is damaged: {error}") from None
        with closing(document):
            document.init_forms()  # so that values of fields are drawn; has no JavaScript
            yield document


def read_pdf(data: bytes, name: str) -> FileText:
    """The text of all pages, in the order of the file.

    Raises ValueError for a file that cannot be read, has no text, or too many pages or characters.
    """
    text: list[str] = []
    boxes, pages = array("f"), array("q")
    length, without = 0, []
    with _opened(data) as document:
        if len(document) > MOST_PAGES:
            raise ValueError(
                f"it has {len(document):,} pages, more than the {MOST_PAGES:,} that are read; "
                "split it"
            )
        total = len(document)
        for number in range(total):
            if text:
                text.append("\n")
                boxes.extend((0, 0, 0, 0))
                length += 1
            pages.append(length)
            piece = _page_text(document, number, boxes)
            length += len(piece)
            text.append(piece)
            if not piece.strip():
                without.append(number + 1)
            if length > MOST_CHARACTERS:
                raise ValueError(f"it has more than {MOST_CHARACTERS:,} characters; split it")
    if len(without) == total:
        raise ValueError(
            f"it has no text layer on its {counted(total, 'page')}, as of scans; recognise its "
            "text first (OCR)"
        )
    if without:
        logger.warning(
            "%s: no text layer on %s of %d: %s; text in images is not read",
            *(name, counted(len(without), "page"), total, some_of(map(str, without))),
        )
    return FileText.of("".join(text), name, pages, boxes)


def _page_text(document: Any, number: int, boxes: array[float]) -> str:
    """The text of a page; appends the places of its characters to `boxes`."""
    pdfium = _pdfium()
    raw = pdfium.raw
    try:
        _draw_notes(document, number, raw)
        with closing(document[number]) as page, closing(page.get_textpage()) as letters:
            to_page = _coordinates(page, raw)
            place = raw.FS_RECTF()
            pieces: list[str] = []
            codes = [
                raw.FPDFText_GetUnicode(letters.raw, at) for at in range(letters.count_chars())
            ]
            for at, code in enumerate(codes):
                piece = _letters(codes, at, code)
                if not piece:
                    continue
                box = (0.0, 0.0, 0.0, 0.0)
                # Boxes as high as the font, so that a comma is as high as the digits beside it.
                if not piece.isspace() and raw.FPDFText_GetLooseCharBox(letters.raw, at, place):
                    box = to_page(place.left, place.top, place.right, place.bottom)
                boxes.extend(box * len(piece))
                pieces.append(piece)
            return "".join(pieces)
    except pdfium.PdfiumError as error:
        raise ValueError(f"page {number + 1} is damaged: {error}") from None


def _draw_notes(document: Any, number: int, raw: Any) -> None:
    """Draws form fields and annotations into the contents of a page."""
    with closing(document[number]) as page:
        if raw.FPDFPage_GetAnnotCount(page.raw):
            raw.FPDFPage_Flatten(page.raw, raw.FLAT_NORMALDISPLAY)


def _letters(codes: list[int], at: int, code: int) -> str:
    """The text of a character of PDFium; "" for a code without a character."""
    if code == _HYPHEN:
        around = [chr(letter) for letter in codes[max(0, at - 1) : at + 2 : 2]]
        is_word = len(around) == 2 and all(letter.islower() for letter in around)
        return "" if is_word else "-\n"
    if code == 10 or code == 9:
        return chr(code)
    if code < 32 or 0xD800 <= code < 0xE000 or code in (0xFFFE, 0xFFFF) or code > 0x10FFFF:
        return ""
    return chr(code)


def _coordinates(page: Any, raw: Any) -> Callable[..., Box]:
    """A function from a page's own coordinates to points from its top left corner, as shown."""
    width, height = page.get_size()

    def at(x: float, y: float) -> tuple[float, float]:
        across, down = ctypes.c_int(), ctypes.c_int()
        raw.FPDF_PageToDevice(page.raw, 0, 0, _FAR, _FAR, 0, x, y, across, down)
        return across.value * width / _FAR, down.value * height / _FAR

    origin, right, up = at(0, 0), at(100, 0), at(0, 100)
    by_x = [(right[i] - origin[i]) / 100 for i in (0, 1)]
    by_y = [(up[i] - origin[i]) / 100 for i in (0, 1)]

    def box(left: float, top: float, right: float, bottom: float) -> Box:
        # Pages are turned by right angles alone, so two corners suffice.
        corners = (left, top), (right, bottom)
        (x, other_x), (y, other_y) = (
            [origin[side] + a * by_x[side] + b * by_y[side] for a, b in corners] for side in (0, 1)
        )
        return min(x, other_x), min(y, other_y), max(x, other_x), max(y, other_y)

    return box


def page_images(data: bytes, numbers: list[int], longest: int) -> list[tuple[str, float, float]]:
    """Pages (from 1) as data URLs of JPEG images, with the width and the height of the page in
    points.

    longest: pixels of the longer side. Raises ValueError for a file that cannot be read.
    """
    pdfium = _pdfium()
    optional("PIL", "an image of a page", "files")
    images = []
    with _opened(data) as document:
        for number in numbers:
            try:
                with closing(document[number - 1]) as page:
                    width, height = page.get_size()
                    image = page.render(scale=longest / max(width, height, 1)).to_pil()
            except (pdfium.PdfiumError, IndexError) as error:
                raise ValueError(f"page {number} is damaged: {error}") from None
            stream = BytesIO()
            image.convert("RGB").save(stream, "JPEG", quality=60)
            url = f"data:image/jpeg;base64,{b64encode(stream.getvalue()).decode()}"
            images.append((url, width, height))
    return images
