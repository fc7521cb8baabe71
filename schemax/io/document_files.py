"""Reads files that are documents, one record each: PDF, DOCX, HTML and plain text."""

from __future__ import annotations

import logging
import re
from codecs import BOM_UTF8
from io import BytesIO
from typing import BinaryIO

from schemax.base.messages import reason_of
from schemax.errors import InputError
from schemax.extraction.documents import MOST_CHARACTERS
from schemax.io.docx_files import read_docx
from schemax.io.html_files import WIDE, decoded, read_html
from schemax.io.office import OLE, ZIP, refusal
from schemax.io.pdf import read_pdf
from schemax.io.records import Record, Unreadable
from schemax.io.storage import optional, suffixes
from schemax.results.file_text import FileText

logger = logging.getLogger(__name__)

COLUMNS = ("id", "text")
"""The keys of a record: the file's path or address, and its text."""

MOST_BYTES = 256 << 20
"""The largest size of a file, which is read into memory as a whole."""

_PDF, _DOCX = (".pdf",), (".docx", ".docm", ".dotx", ".dotm")
_HTML, _TEXT = (".html", ".htm", ".xhtml"), (".txt", ".md")
# Unreadable kinds of documents, whose rows say so, with a remedy.
_OTHERS = (
    *(".png", ".jpg", ".jpeg", ".tif", ".tiff", ".gif", ".bmp", ".webp"),
    *(".doc", ".rtf", ".odt", ".odp", ".epub", ".ppt", ".pptx", ".pptm", ".eml", ".msg"),
)
READ = (*_PDF, *_DOCX, *_HTML, *_TEXT)
"""The suffixes of documents that can be read."""

SUFFIXES = (*READ, *_OTHERS)

_HEAD = 1024
_BEGINNING_OF_HTML = re.compile(
    rb"\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--.{0,600}?-->\s*)*<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"GIF8", b"BM", b"RIFF")


def is_document(name: str) -> bool:
    """True if a file is a document, by its suffix."""
    return suffixes(name)[0] in SUFFIXES


def check_packages(name: str) -> None:
    """Raises InputError if the package that reads files of this suffix is missing."""
    suffix = suffixes(name)[0]
    for known, package in ((_PDF, "pypdfium2"), (_DOCX, "docx"), (_HTML, "selectolax.lexbor")):
        if suffix in known:
            optional(package, f"a {suffix} file", "files")


def read_document(handle: BinaryIO, name: str) -> Record:
    """The record of a file; an error that names the file if it cannot be read."""
    try:
        data = handle.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise ValueError(f"it is larger than {MOST_BYTES >> 20} MiB")
        return {"id": name, "text": _text_of(data, name)}
    except (InputError, ValueError) as error:  # InputError: a package is missing
        return unreadable(name, str(error))
    except Exception as error:  # damaged files may raise anything, and cost their own row only
        logger.debug("cannot read %s", name, exc_info=True)
        return unreadable(name, f"it is damaged: {reason_of(error)}")


def unreadable(name: str, reason: str) -> Unreadable:
    """The error in the place of a file's record."""
    return Unreadable(f"cannot read {name}: {reason}", {"id": name})


def _text_of(data: bytes, name: str) -> FileText:
    """The text of a file. Raises ValueError, or any error of the packages that read it."""
    if not data.strip():
        raise ValueError("it is empty")
    # Some bytes may precede the mark of a PDF; a text file may mention it.
    if data.startswith(b"%PDF-") or (suffixes(name)[0] in _PDF and b"%PDF-" in data[:_HEAD]):
        return read_pdf(data, name)
    text = _flowing(data, suffixes(name)[0])
    if not text.strip():
        raise ValueError("it has no text")
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"it has more than {MOST_CHARACTERS:,} characters; split it")
    return FileText.of(text, name)


def _flowing(data: bytes, suffix: str) -> str:
    """The text of a file without pages; its first bytes, then its suffix, decide its kind."""
    if data.startswith(ZIP):
        return read_docx(data)
    if data.startswith(OLE):
        raise ValueError(refusal(BytesIO(data)))
    if data.startswith(_IMAGES) and b"\0" in data:
        raise ValueError("it is an image; recognise its text first (OCR)")
    if data.startswith(b"{\\rtf"):
        raise ValueError("it is RTF; save it as .docx or .pdf")
    is_wide = data.startswith(WIDE)
    if b"\0" in data and not is_wide:
        raise ValueError("it is neither PDF, DOCX, HTML nor text")
    head = decoded(data[: 4 * _HEAD]).encode() if is_wide else data[:_HEAD].removeprefix(BOM_UTF8)
    if suffix in _HTML or _BEGINNING_OF_HTML.match(head):
        return read_html(data, is_xml=suffix == ".xhtml")
    if suffix not in _TEXT:
        raise ValueError(f"it is no {suffix} file, but some text; name it .txt if it is a document")
    return decoded(data).replace("\r\n", "\n").replace("\r", "\n")
