"""Reads DOCX files as Word shows them."""

from __future__ import annotations

import re
from html import escape
from io import BytesIO
from typing import Any

from schemax.io.html_files import shown
from schemax.io.office import readable
from schemax.io.storage import optional

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_UNSEEN = [f"{_W}{name}" for name in ("del", "moveFrom", "pPr", "rPr")]
_UNSEEN.append("{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback")
_TAGS = {"p": "p", "tbl": "table", "tr": "tr", "tc": "td", "rt": "rt", "br": "br", "cr": "br"}
_PARTING = [f"{_W}{name}" for name in ("vertAlign", "strike", "dstrike")]
_STYLES = {"superscript": "sup", "subscript": "sub"}
# By tag what stands before and behind; of equations Word's linear form, (a+b)/(2).
_MARKS = {f"{_W}{name}": (f"<{tag}>", f"</{tag}>") for name, tag in _TAGS.items()}
_MARKS |= {f"{_W}tab": ("\t", ""), f"{_W}ptab": ("\t", ""), f"{_W}noBreakHyphen": ("-", "")}
_LINEAR = {
    **{"f": ("(", ")"), "den": (")/(", ""), "rad": ("√(", ")"), "deg": ("", "&amp;")},
    **{"sup": ("^(", ")"), "sub": ("_(", ")"), "lim": ("_(", ")"), "fName": ("", " ")},
    **{"d": ("(", ")"), "nary": ("∫", ""), "mr": ("", "; ")},
}
_MARKS |= {f"{_M}{name}": marks for name, marks in _LINEAR.items()}


def read_docx(data: bytes) -> str:
    """The text of a file: a line for every paragraph and every row of a table, tabs between cells.

    Raises ValueError for a file that is no Word document, or would take too much memory; any error
    of zipfile, lxml and python-docx for a damaged one.
    """
    docx = optional("docx", "a DOCX file", "files")
    document = docx.Document(readable(BytesIO(data), "Word document"))
    parts = document.part.related_parts.values()
    headers = [part.element for part in parts if part.content_type.endswith("header+xml")]
    footers = [part.element for part in parts if part.content_type.endswith("footer+xml")]
    roots = (*headers, document.element.body, *footers)
    return shown(f"<pre>{'<p>'.join(map(_markup, roots))}")


def _markup(root: Any) -> str:
    """The text of a part of the file as HTML."""
    from lxml import etree

    for ruby in root.iter(f"{_W}ruby"):
        ruby.extend(ruby.findall(f"{_W}rt"))  # behind its base
    pieces: list[str] = []
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, node in walk:
        begin, end = _marks(node)
        pieces.append(begin if event == "start" else end)
        if node.tag in _UNSEEN:
            walk.skip_subtree()
    return re.sub(r"</(sup|sub|del)><\1>", "", "".join(pieces))


def _marks(node: Any) -> tuple[str, str]:
    """What stands before and behind an element, in HTML."""
    tag = node.tag
    if tag in (f"{_W}t", f"{_M}t"):
        return escape(node.text or ""), ""
    if tag == f"{_W}sym":
        return _symbol(node), ""
    if tag == f"{_W}r" and (settings := node.find(f"{_W}rPr")) is not None:
        for setting in settings.iterchildren(*_PARTING):
            value = setting.get(f"{_W}val", "on")
            if value not in ("0", "false", "off", "baseline"):
                style = _STYLES.get(value, "del")
                return f"<{style}>", f"</{style}>"
    begin, end = _MARKS.get(tag, ("", ""))
    if begin + end and str(tag).startswith(_M):
        if not any(node.itertext()):
            return "", ""
        signs = {sign.tag: escape(sign.get(f"{_M}val", "")) for sign in node.iterfind(f"{tag}Pr/*")}
        begin = signs.get(f"{_M}begChr", signs.get(f"{_M}chr", begin))
        end = signs.get(f"{_M}endChr", end)
    return begin, end


def _symbol(node: Any) -> str:
    """The character of a symbol of a font such as Wingdings; "\ufffd" if it is not known."""
    table = optional("mammoth.docx.dingbats", "a DOCX file with symbols", "files").dingbats
    code = int(node.get(f"{_W}char", "FFFD"), 16)
    is_private = 0xE000 <= code < 0xF900
    symbol = node.get(f"{_W}font"), code & 0xFF if is_private else code
    return chr(table.get(symbol, 0xFFFD if is_private else code))
