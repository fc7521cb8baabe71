"""Reads HTML files: the text that a reader of the page would see."""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from codecs import lookup as codec
from typing import Any

from schemax.io.storage import optional
from schemax.results.file_text import tidied

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
    if (found := _CHARSET.search(data, 0, 4096)) is None:
        return None
    try:
        known = codec(found[1].decode())
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
    said = node.attributes
    return "hidden" in said or bool(_HIDDEN.search(said.get("style") or ""))


def _is_alone(cell: Any) -> bool:
    """True if a cell is alone in its row, as in tables that only lay out a page."""
    return _other(cell, "prev") is None and _other(cell, "next") is None


def _other(cell: Any, direction: str) -> Any:
    found = getattr(cell, direction)
    while found is not None and found.tag not in ("td", "th"):
        found = getattr(found, direction)
    return found
