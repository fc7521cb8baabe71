"""Reads files that are documents, one record each: PDF, DOCX, HTML and plain text."""

from __future__ import annotations

import logging
import os
import re
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, BinaryIO

from schemax.base.messages import reason_of
from schemax.errors import InputError
from schemax.extraction.documents import MOST_CHARACTERS
from schemax.io.docx import read_docx
from schemax.io.html import decoded, read_html
from schemax.io.pdf import read_pdf
from schemax.io.records import Record, Unreadable
from schemax.io.storage import optional, suffixes
from schemax.results.file_text import FileText

logger = logging.getLogger(__name__)

COLUMNS = ("id", "text")
"""The keys of a record: the file's path or address, and its text."""

MOST_BYTES = 256 << 20
"""The largest size of a file, which is read into memory as a whole."""

_PDF, _DOCX, _HTML, _TEXT = (".pdf",), (".docx",), (".html", ".htm", ".xhtml"), (".txt", ".md")
# Unreadable kinds of documents, whose rows say so, with a remedy.
_OTHERS = (
    *(".png", ".jpg", ".jpeg", ".tif", ".tiff", ".gif", ".bmp", ".webp"),
    *(".doc", ".rtf", ".odt", ".pptx", ".eml", ".msg"),
)
SUFFIXES = (*_PDF, *_DOCX, *_HTML, *_TEXT, *_OTHERS)

_HEAD = 1024
_BEGINNING_OF_HTML = re.compile(
    rb"\s*(?:<\?xml[^>]{0,200}>\s*)?(?:<!--.{0,600}?-->\s*)*<(?:!doctype\s+html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
_IMAGES = (b"\x89PNG", b"\xff\xd8\xff", b"II*\0", b"MM\0*", b"GIF8", b"BM", b"RIFF")
_ZIP, _OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def is_document(name: str) -> bool:
    """True if a file is a document, by its suffix."""
    return suffixes(name)[0] in SUFFIXES


def check_packages(name: str) -> None:
    """Raises InputError if the package that reads files of this suffix is missing."""
    suffix = suffixes(name)[0]
    for known, package in ((_PDF, "pypdfium2"), (_DOCX, "docx"), (_HTML, "selectolax.lexbor")):
        if suffix in known:
            optional(package, f"a {suffix} file", "files")


def load_document(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads a PDF, DOCX, HTML or text file for `extract`: {"id": path, "text": its text}.

    path: a path, or an address such as s3://bucket/invoice.pdf. The file's first bytes decide its
    kind, not its name. Spans in the text have locations (page and boxes, or paragraph).

    Raises InputError for a file that cannot be read, or has no text.
    """
    from schemax.io.readers import read_file

    with closing(read_file(os.fspath(path))) as records:
        record = next(records) if is_document(os.fspath(path)) else None
    if isinstance(record, InputError):
        raise record
    if not isinstance(record, dict):
        raise InputError(f"cannot read {os.fspath(path)}: it is no document ({' '.join(_READ)})")
    return record


_READ = (*_PDF, *_DOCX, *_HTML, *_TEXT)


def load_documents(
    paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
) -> Iterator[Record]:
    """Yields the documents of paths, addresses, folders and patterns ("inbox/*.pdf").

    A document is read as by `load_document`. In the place of an unreadable one comes the
    InputError, which `extract` and `Extractor.stream` turn into a failed row.

    Raises InputError for paths that match nothing, and for a file that is no document.
    """
    from schemax.io.readers import InputFiles

    names = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    source = InputFiles.of([os.fspath(name) for name in names])
    for file in source.files:
        if not is_document(file):
            raise InputError(f"cannot read {file}: it is no document ({' '.join(_READ)})")
    return (record for _, record in source.rows())


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
    if data.startswith(_ZIP):
        return read_docx(data)
    if data.startswith(_OLE):
        if "EncryptedPackage".encode("utf-16-le") in data:
            raise ValueError("it is encrypted; save it without its password")
        raise ValueError("it is of an old kind of Office or Outlook; save it as .docx or .pdf")
    if data.startswith(_IMAGES) and b"\0" in data:
        raise ValueError("it is an image; recognise its text first (OCR)")
    if data.startswith(b"{\\rtf"):
        raise ValueError("it is RTF; save it as .docx or .pdf")
    is_wide = data.startswith(_UTF_16)
    if b"\0" in data and not is_wide:
        raise ValueError("it is neither PDF, DOCX, HTML nor text")
    head = decoded(data[: 2 * _HEAD]).encode() if is_wide else data[:_HEAD].removeprefix(BOM_UTF8)
    if suffix in _HTML or _BEGINNING_OF_HTML.match(head):
        return read_html(data)
    if suffix not in _TEXT:
        raise ValueError(f"it is no {suffix} file, but some text; name it .txt if it is a document")
    return decoded(data).replace("\r\n", "\n").replace("\r", "\n")
