"""Files of Office and their kin: what a file is, and copies that python-docx and openpyxl read."""

from __future__ import annotations

import re
from io import BytesIO
from typing import BinaryIO, Literal
from zipfile import ZIP_DEFLATED, ZipFile

ZIP, OLE = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"
"""The first bytes of archives; of encrypted files and old kinds of Office."""

# Bounds of an unpacked file: the tree of XML takes some ten times its size in memory.
_MOST_XML, _MOST_UNPACKED, _MOST_PARTS = 64 << 20, 512 << 20, 10_000

_TYPES = "[Content_Types].xml"
_MAIN = re.compile(rb"application/vnd\.[\w.-]+\.main(?:\+xml)?")
_WORD_MAIN = b"application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
# What a file is by its type, and what to do with it.
_KINDS = (
    (b"sheet.binary", "an Excel workbook in binary form", "save it as .xlsx"),
    (b"excel|spreadsheetml", "an Excel workbook", "name it .xlsx"),
    (b"word", "a Word document", "name it .docx"),
    (b"powerpoint|presentationml", "a PowerPoint presentation", "save it as .pdf"),
    (b"epub", "an e-book (EPUB)", "convert it to .html or .pdf"),
    (b"opendocument", "an OpenDocument file", "save it as .docx, .xlsx or .pdf"),
    (b"", "a ZIP archive", "unpack it"),
)


def refusal(handle: BinaryIO, wanted: str = "") -> str | None:
    """What a file of Office, or an archive, is and what to do with it; None if that is `wanted`.

    Raises BadZipFile for other and damaged files.
    """
    handle.seek(0)
    if handle.read(len(OLE)) == OLE:
        if "EncryptedPackage".encode("utf-16-le") in handle.read():
            return "it is encrypted; save it without its password"
        return "it is of an old kind of Office or Outlook; save it as .docx, .xlsx or .pdf"
    with ZipFile(handle) as archive:
        main, names = b"", archive.namelist()
        if _TYPES in names:
            main = b" ".join(_MAIN.findall(archive.read(_TYPES)))
        elif "mimetype" in names:
            main = archive.read("mimetype")
    name, remedy = next((name, remedy) for kind, name, remedy in _KINDS if re.search(kind, main))
    return None if wanted and name.endswith(wanted) else f"it is {name}; {remedy}"


def readable(handle: BinaryIO, wanted: Literal["Word document", "Excel workbook"]) -> BinaryIO:
    """The file; for strict files, and for Word's files with macros, a copy that the libraries read.

    Raises ValueError for a file of another kind, and for one that would take too much memory;
    BadZipFile and KeyError for a damaged one.
    """
    if (reason := refusal(handle, wanted)) is not None:
        raise ValueError(reason)
    with ZipFile(handle) as archive:
        types, is_word = archive.read(_TYPES), wanted == "Word document"
        plain = _MAIN.sub(_WORD_MAIN, types) if is_word else types
        is_strict = _STRICT.search(archive.read("_rels/.rels")) is not None
        if is_word or is_strict:
            _check_size(archive)
        if is_strict or plain != types:
            copy = BytesIO()
            with ZipFile(copy, "w", ZIP_DEFLATED) as written:
                for name in dict.fromkeys(archive.namelist()):
                    part = plain if name == _TYPES else archive.read(name)
                    if name.endswith((".xml", ".rels")):
                        part = _STRICT.sub(rb"http://schemas.openxmlformats.org/\1/2006/", part)
                    written.writestr(name, part)
            handle = copy
    handle.seek(0)
    return handle


def _check_size(archive: ZipFile) -> None:
    """Raises ValueError for too large sizes in the archive, which zipfile does not exceed."""
    parts = archive.infolist()
    xml = sum(part.file_size for part in parts if part.filename.endswith((".xml", ".rels")))
    total = sum(part.file_size for part in parts)
    if xml > _MOST_XML or total > _MOST_UNPACKED or len(parts) > _MOST_PARTS:
        raise ValueError(
            f"its parts are larger than what is unpacked ({_MOST_XML >> 20} MiB of text, "
            f"{_MOST_UNPACKED >> 20} MiB in all), or more than {_MOST_PARTS:,}"
        )
