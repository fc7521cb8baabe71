"""Reads DOCX files: the text of headers, body and footers."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from io import BytesIO
from typing import Any

from schemax.io.storage import optional
from schemax.results.file_text import tidied

# Bounds of an unpacked file: the tree of XML takes some ten times its size in memory.
_MOST_XML, _MOST_BYTES, _MOST_PARTS = 64 << 20, 512 << 20, 10_000

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
    return tidied("\n".join(_text(root) for root in _roots(document)))


def _check_size(data: bytes) -> None:
    """Raises ValueError for too large sizes in the archive, which zipfile does not exceed."""
    with zipfile.ZipFile(BytesIO(data)) as archive:
        parts = archive.infolist()
        xml = sum(one.file_size for one in parts if one.filename.endswith((".xml", ".rels")))
        if xml > _MOST_XML or sum(one.file_size for one in parts) > _MOST_BYTES:
            raise ValueError(
                f"its parts are larger than what is unpacked ({_MOST_XML >> 20} MiB of text, "
                f"{_MOST_BYTES >> 20} MiB in all)"
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


def _text(root: Any) -> str:
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
