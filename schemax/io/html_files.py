"""Reads pages of HTML as a browser shows them."""

from __future__ import annotations

import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_BE, BOM_UTF32_LE
from itertools import chain

from schemax.io.storage import optional
from schemax.reading.markup import SHIFTS, SPACES, THIN, is_unseen, shifted_characters

# UTF-32's little mark begins with that of UTF-16.
MARKS = (
    *((BOM_UTF8, "utf-8-sig"), (BOM_UTF32_LE, "utf-32"), (BOM_UTF32_BE, "utf-32")),
    *((BOM_UTF16_LE, "utf-16"), (BOM_UTF16_BE, "utf-16")),
)
WIDE = tuple(mark for mark, _ in MARKS[1:])
"""Byte order marks of encodings in which text has zero bytes."""

_CELLS = ("td", "th")
_CHARSET = re.compile(
    rb"""(?is)<!--.*?-->|<meta\b[^>]{0,200}?\bcharset\s*=\s*["']?\s*([\w.:-]{1,40})"""
)
_DECLARED = re.compile(rb"""\A\s*<\?xml\s[^>]{0,200}?\bencoding\s*=\s*["']([\w.:-]{1,40})["']""")
_INSTEAD = {"utf-16le": "utf-8", "utf-16be": "utf-8", "x-user-defined": "cp1252", "gbk": "gb18030"}
_CLOSED = re.compile(r"""<([A-Za-z][\w.:-]*)((?:[^<>"']|"[^"]*"|'[^']*')*)/>""")
_PARTED = re.compile(rf"(?<![\s($€£]){THIN}+(?![\s.,;:!?)%])")


def decoded(data: bytes, charset: str | None = None) -> str:
    """Decodes text by its byte order mark, else as `charset`, else UTF-8, else Windows-1252."""
    charset = next((name for mark, name in MARKS if data.startswith(mark)), charset)
    try:
        return data.decode(charset or "utf-8", "replace" if charset else "strict")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def _charset(data: bytes) -> str | None:
    """Python's codec for the encoding that the page states, as browsers read its label; ValueError
    for an encoding that they do not read."""
    webencodings = optional("webencodings", "an HTML file", "files")
    for match in chain(_CHARSET.finditer(data, 0, 4096), _DECLARED.finditer(data, 0, 1024)):
        known = webencodings.lookup(match[1].decode()) if match[1] else None
        if known is not None and known.name == "replacement":
            raise ValueError(f"browsers do not read {match[1].decode()}; save it in UTF-8")
        if known is not None:
            return _INSTEAD.get(known.name) or str(known.codec_info.name)
    return None


def read_html(data: bytes, is_xml: bool = False) -> str:
    """The text of a page; ValueError for an encoding that is not read. is_xml: it is XHTML, in
    which a tag such as `<script/>` has no content."""
    source = decoded(data, _charset(data)).replace("\0", "")
    return shown(_CLOSED.sub(r"<\1\2></\1>", source) if is_xml else source)


def shown(source: str) -> str:
    """The text of a page: a line for every block and every row of a table, tabs between cells.

    Nothing is loaded, and no script runs. Memory alone limits the depth.
    """
    page = optional("selectolax.lexbor", "an HTML file", "files").LexborHTMLParser(source)
    pieces: list[str] = []
    rows: list[bool] = []  # the open rows: whether each has several cells
    shifts: list[int] = []  # where open texts begin that may be raised or lowered
    pre = 0
    node, is_end = page.root, False
    while node is not None:
        tag = node.tag
        is_shared = bool(rows) and rows[-1]
        space = SPACES.get(tag, "\n")
        space = " " if is_shared and space == "\n" else space
        if tag == "-text":
            text = node.text_content or ""
            pieces.append(text if pre and not is_shared else re.sub(r"\s+", " ", text))
        elif tag[:1] in "-!_#" and tag != "-document":
            pass  # a comment, a document type
        elif not is_end and is_unseen(tag, node.attributes.items()):
            pieces.append(space)
        else:
            pre += (tag == "pre") * (-1 if is_end else 1)
            if tag == "tr" and not is_end:
                rows.append(sum(cell.tag in _CELLS for cell in node.iter()) > 1)
            elif tag == "tr":
                rows.pop()
            elif tag in SHIFTS and not is_end:
                shifts.append(len(pieces))
            elif tag in SHIFTS:
                start = shifts.pop()
                text = "".join(pieces[start:])
                mark = shifted_characters(tag, "".join(pieces[max(0, start - 9) : start]), text)
                pieces[start:] = [f"{THIN}{text}{THIN}" if mark is None else mark]
            if tag not in SHIFTS:
                space = "\n" if tag in ("tr", "table") else space
                pieces.append("\t" if is_end and tag in _CELLS else space)
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
    text = _PARTED.sub(" ", "".join(pieces)).replace(THIN, "")
    lines = (line.split("\t") for line in re.sub(" {2,}", " ", text).split("\n"))
    return "\n".join(filter(None, ("\t".join(map(str.strip, row)).rstrip() for row in lines)))
