"""Reads files that are documents, one record each: PDF, DOCX, HTML and plain text."""

from __future__ import annotations

import logging
import re
import zipfile
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from codecs import lookup as codec
from collections.abc import Iterator
from io import BytesIO
from typing import Any, BinaryIO

from schemax.base.messages import reason_of
from schemax.errors import InputError
from schemax.extraction.documents import MOST_CHARACTERS
from schemax.io.pdf import read_pdf
from schemax.io.records import Record, Unreadable
from schemax.io.storage import optional, suffixes
from schemax.results.file_text import FileText, tidied

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
READ = (*_PDF, *_DOCX, *_HTML, *_TEXT)
"""The suffixes of documents that can be read."""

SUFFIXES = (*READ, *_OTHERS)

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


_UNSEEN = frozenset(("script", "style", "template", "noscript", "svg", "math", "object", "iframe"))
_INLINE = frozenset(
    (
        *("a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn"),
        *("em", "font", "i", "img", "input", "ins", "kbd", "label", "mark", "nobr", "q", "s"),
        *("samp", "small", "span", "strike", "strong", "sub", "sup", "time", "tt", "u", "var"),
        *("wbr", "ruby", "rb", "rt", "rp", "meta", "link", "base", "source", "picture"),
    )
)
_SPACE = re.compile(r"\s+")
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)


def decoded(data: bytes, charset: str | None = None) -> str:
    """Decodes text by its byte order mark, else as `charset`, else UTF-8, else Windows-1252."""
    if data.startswith(BOM_UTF8):
        return data.decode("utf-8-sig", "replace")
    if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    if charset is not None:
        return data.decode(charset, "replace")
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _charset(data: bytes) -> str | None:
    """The text encoding that the page states; None if Python lacks it."""
    if (match := _CHARSET.search(data, 0, 4096)) is None:
        return None
    try:
        known = codec(match[1].decode())
    except LookupError:
        return None
    name = {"iso8859-1": "cp1252", "ascii": "cp1252"}.get(known.name, known.name)
    return name if known._is_text_encoding and not name.startswith("utf-16") else None


def read_html(data: bytes) -> str:
    """The text of a page: a line for every block and every row of a table, tabs between cells.

    Nothing is loaded, and no script runs. Memory alone limits the depth.
    """
    parser = optional("selectolax.lexbor", "an HTML file", "files").LexborHTMLParser
    page = parser(decoded(data, _charset(data)).replace("\0", ""))
    pieces: list[str] = []
    cells: list[bool] = []  # the open cells: whether each is alone in its row
    pre = 0
    node, is_end = page.root, False
    while node is not None:
        tag = node.tag
        if tag == "-text":
            text = node.text_content or ""
            pieces.append(text if pre else _SPACE.sub(" ", text))
        elif is_end or not _is_unseen(node, tag):
            step = -1 if is_end else 1
            if tag in ("td", "th"):
                if is_end:
                    cells.pop()
                    pieces.append("\t")
                else:
                    cells.append(_is_alone(node))
            elif tag in ("tr", "table"):
                pieces.append("\n")
            elif tag == "pre":
                pre += step
                pieces.append("\n")
            elif tag not in _INLINE:
                pieces.append("\n" if not cells or cells[-1] else " ")
            if not is_end:
                if (inner := node.first_child) is not None:
                    node = inner
                else:
                    is_end = True
                continue
        if (beside := node.next) is not None:
            node, is_end = beside, False
        else:
            node, is_end = node.parent, True
    return tidied("".join(pieces))


def _is_unseen(node: Any, tag: str) -> bool:
    if tag in _UNSEEN or tag[:1] in "-!_#":
        return tag != "-document"
    attributes = node.attributes
    return "hidden" in attributes or bool(_HIDDEN.search(attributes.get("style") or ""))


def _is_alone(cell: Any) -> bool:
    """True if a cell is alone in its row, as in tables that only lay out a page."""
    return _neighbour(cell, "prev") is None and _neighbour(cell, "next") is None


def _neighbour(cell: Any, direction: str) -> Any:
    node = getattr(cell, direction)
    while node is not None and node.tag not in ("td", "th"):
        node = getattr(node, direction)
    return node


# Bounds of an unpacked file: the tree of XML takes some ten times its size in memory.
_MOST_XML, _MOST_UNPACKED, _MOST_PARTS = 64 << 20, 512 << 20, 10_000

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_COPIES = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_SIGNS = {f"{_W}tab": "\t", f"{_W}br": "\n", f"{_W}cr": "\n", f"{_W}noBreakHyphen": "-"}


def read_docx(data: bytes) -> str:
    """The text of a file: a line for every paragraph and every row of a table, tabs between cells.

    Raises ValueError for a file that would take too much memory; any error of zipfile, lxml and
    python-docx for a damaged one.
    """
    _check_size(data)
    document = optional("docx", "a DOCX file", "files").Document(BytesIO(data))
    return tidied("\n".join(_docx_text(root) for root in _roots(document)))


def _check_size(data: bytes) -> None:
    """Raises ValueError for too large sizes in the archive, which zipfile does not exceed."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        parts = archive.infolist()
        xml = sum(part.file_size for part in parts if part.filename.endswith((".xml", ".rels")))
        if xml > _MOST_XML or sum(part.file_size for part in parts) > _MOST_UNPACKED:
            raise ValueError(
                f"its parts are larger than what is unpacked ({_MOST_XML >> 20} MiB of text, "
                f"{_MOST_UNPACKED >> 20} MiB in all)"
            )
        if len(parts) > _MOST_PARTS:
            raise ValueError(f"it has {len(parts):,} parts, more than {_MOST_PARTS:,}")


def _roots(document: Any) -> Iterator[Any]:
    kinds = ("", "first_page_", "even_page_")
    for end in ("header", "footer"):
        for section in document.sections:
            for kind in kinds:
                part = getattr(section, f"{kind}{end}")
                if not part.is_linked_to_previous:
                    yield part._element
        if end == "header":
            yield document.element.body


def _docx_text(root: Any) -> str:
    from lxml import etree

    pieces: list[str] = []
    cells: list[bool] = []  # the open cells: whether each is alone in its row
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, node in walk:
        tag = node.tag
        if event == "start":
            if tag == _COPIES:
                walk.skip_subtree()
            elif tag == f"{_W}t":
                pieces.append(node.text or "")
            elif tag in _SIGNS:
                # A tab within w:tabs is a setting.
                is_text = node.getparent().tag == f"{_W}r"
                pieces.append(_within(cells, _SIGNS[tag]) if is_text else "")
            elif tag == f"{_W}tc":
                around = (node.itersiblings(f"{_W}tc", preceding=side) for side in (True, False))
                cells.append(not any(next(side, None) is not None for side in around))
        elif tag == f"{_W}p":
            pieces.append(_within(cells, "\n"))
        elif tag == f"{_W}tc":
            cells.pop()
            pieces.append("\t")
        elif tag == f"{_W}tr":
            pieces.append("\n")
    return "".join(pieces)


def _within(cells: list[bool], sign: str) -> str:
    """The sign, or a blank within one of several cells, where signs would split lines and cells."""
    return sign if not cells or cells[-1] else " "
