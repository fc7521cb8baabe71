"""Reads PDF files: text with the place of every character, and pages as images."""

from __future__ import annotations

import ctypes
import logging
import re
import sys
import threading
from array import array
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from io import BytesIO
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, TypeAlias
from unicodedata import bidirectional, normalize

import numpy as np

from schemax.base.messages import counted, some_of
from schemax.extraction.documents import MOST_CHARACTERS
from schemax.io.storage import optional
from schemax.results.file_text import Box, FileText

logger = logging.getLogger(__name__)

MOST_PAGES = 10_000

# The text of a page with a line break at its end, and the places of its characters.
_Sheet: TypeAlias = "tuple[str, array[float]]"

_FAR = 1 << 20  # pixels of a page's sides in conversions of coordinates
_HYPHEN = "\x02"  # PDFium's sign for a hyphen at the end of a line, together with the line's end
_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_BROKEN = re.compile(rf"(?<![^\W_])([^\W_]+){_HYPHEN}[^\W_]+")
_PASSWORD = 4  # FPDF_ERR_PASSWORD
_CONTROLS = frozenset((*range(32), 0xFFFE, 0xFFFF)) - set(map(ord, f"\t\n{_HYPHEN}"))
_EXPANDED = frozenset(normalize("NFKC", chr(code)) for code in range(0xFB1D, 0xFEFD))
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
    sheets: list[_Sheet] = []
    with _opened(data) as document:
        if (total := len(document)) > MOST_PAGES:
            raise ValueError(
                f"it has {total:,} pages, more than the {MOST_PAGES:,} that are read; split it"
            )
        length = 0
        for number in range(total):
            sheets.append(_read_page(document, number))
            length += len(sheets[-1][0])
            if length > MOST_CHARACTERS:
                raise ValueError(f"it has more than {MOST_CHARACTERS:,} characters; split it")
    without = [number for number, (text, _) in enumerate(sheets, 1) if not text.strip()]
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
    return _bound(sheets, name)


def _bound(sheets: Sequence[_Sheet], name: str) -> FileText:
    """The texts of all pages in one. A word that a hyphen breaks is whole if the file has it whole
    elsewhere; other hyphens stay, since they may belong to the word ("water-resistant")."""
    text = "".join(text for text, _ in sheets)[:-1]
    words = set(_WORD.findall(text.casefold())) if _HYPHEN in text else ()
    dropped = []
    for match in _BROKEN.finditer(text):
        word = match[0].casefold()
        if word.replace(_HYPHEN, "") in words and word.replace(_HYPHEN, "-") not in words:
            dropped.append(match.end(1))
    pieces = [text[before + 1 : at] for before, at in pairwise((-1, *dropped, len(text)))]
    pages = np.cumsum([0, *(len(text) for text, _ in sheets[:-1])])
    pages -= np.searchsorted(dropped, pages)
    places = np.concatenate([places for _, places in sheets])[:-4].reshape(-1, 4)
    boxes = array("f", np.delete(places, dropped, 0).tobytes())
    text = "".join(pieces).replace(_HYPHEN, "-")
    return FileText.of(text, name, array("q", pages.tolist()), boxes)


def _read_page(document: Any, number: int) -> _Sheet:
    """The text of a page; fields and annotations come last."""
    pdfium = _pdfium()
    raw = pdfium.raw
    try:
        with closing(document[number]) as page:
            text, boxes = _page_text(page, raw)
            if not raw.FPDFPage_GetAnnotCount(page.raw):
                return text, boxes
            own = raw.FPDFPage_CountObjects(page.raw)
            raw.FPDFPage_Flatten(page.raw, raw.FLAT_NORMALDISPLAY)  # draws them on the page
        # Read apart, since PDFium mixes the letters of texts that overlap.
        with closing(document[number]) as page:
            for _ in range(own):
                drawn = raw.FPDFPage_GetObject(page.raw, 0)
                raw.FPDFPage_RemoveObject(page.raw, drawn)
                raw.FPDFPageObj_Destroy(drawn)
            notes, places = _page_text(page, raw)
    except pdfium.PdfiumError as error:
        raise ValueError(f"page {number + 1} is damaged: {error}") from None
    return (text + notes, boxes + places) if notes.strip() else (text, boxes)


def _page_text(page: Any, raw: Any) -> _Sheet:
    to_page = _coordinates(page, raw)
    place = raw.FS_RECTF()
    nowhere: Box = (0.0, 0.0, 0.0, 0.0)
    units: list[tuple[Box, int]] = []
    with closing(page.get_textpage()) as letters:
        for at in range(letters.count_chars()):
            code = raw.FPDFText_GetUnicode(letters.raw, at)
            if code in _CONTROLS or code > sys.maxunicode:
                continue
            if units and units[-1][1] == ord(_HYPHEN) and not chr(code).islower():
                units[-1:] = [(units[-1][0], ord("-")), (nowhere, ord("\n"))]
            box = nowhere
            # Boxes as high as the font, so that a comma is as high as the digits beside it.
            if not chr(code).isspace() and raw.FPDFText_GetLooseCharBox(letters.raw, at, place):
                box = to_page(place.left, place.top, place.right, place.bottom)
            units.append((box, code))
    pieces: list[str] = []
    boxes = array("f")
    for box, glyph in groupby(units, itemgetter(0)):
        piece = _letters([code for _, code in glyph], is_glyph=box != nowhere)
        boxes.extend(box * len(piece))
        pieces.append(piece)
    return f"{''.join(pieces)}\n", boxes + array("f", nowhere)


def _letters(codes: Sequence[int], is_glyph: bool) -> str:
    """The text of PDFium's UTF-16 code units.

    is_glyph: all units are of a single glyph, such as a ligature. PDFium turns the units of a
    glyph from right to left round, unless it has expanded a presentation form of Unicode itself.
    """
    text = "".join(map(chr, codes))
    if is_glyph and len(text) > 1:
        is_turned = any(bidirectional(letter) in ("R", "AL") for letter in text)
        is_expanded = text in _EXPANDED and text[::-1] not in _EXPANDED
        if (is_turned and not is_expanded) or "\udc00" <= text[0] <= "\udfff":
            text = text[::-1]
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "ignore")


def _coordinates(page: Any, raw: Any) -> Callable[..., Box]:
    """A function from a page's own coordinates to points from its top left corner, as shown."""
    width, height = page.get_size()
    across, down = ctypes.c_int(), ctypes.c_int()

    def at(x: float, y: float) -> tuple[float, float]:
        raw.FPDF_PageToDevice(page.raw, 0, 0, _FAR, _FAR, 0, x, y, across, down)
        return across.value * width / _FAR, down.value * height / _FAR

    def box(left: float, top: float, right: float, bottom: float) -> Box:
        # Pages are turned by right angles alone, so two corners suffice.
        (x, y), (other_x, other_y) = at(left, top), at(right, bottom)
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
