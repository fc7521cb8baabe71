"""XML: one element per value, in elements named after the attributes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from schemax.base.messages import clipped
from schemax.formats.base import (
    BaseFormat,
    DocumentKey,
    Form,
    Path,
    Scalar,
    Spelling,
    Value,
    Writable,
    answer_in,
    clean,
    common_depth,
    groups_of,
    is_sequence,
    items_of,
    scalar_text,
    stop_at,
    written,
)
from schemax.reading.lists import items_in

_ROOT = "result"
_EMPTY = "<![CDATA[]]>"
"""The literal of null: an element without text."""

_DIACRITIC = re.compile("([a-z])[\u0300-\u036f]+")
_NOT_IN_NAMES = re.compile(
    "[^0-9a-z\xc0-\xd6\xd8-\xf6\xf8-\u02ff\u0370-\u037d\u037f-\u1fff\u2070-\u218f\u2c00-\u2fef"
    "\u3005-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff]+"
)
_NAME_CATEGORIES = ("L", "M", "N")


def tag(name: str) -> str:
    """The element name of a path element: lower case, words joined by underscores.

    Letters become ASCII where Unicode defines it ("Größe": grosse); letters of other scripts stay,
    since XML allows them. Two names may give the same tag: see `check`.
    """
    folded = unicodedata.normalize("NFKD", clean(name).casefold())
    folded = unicodedata.normalize("NFC", _DIACRITIC.sub(r"\1", folded)).casefold()
    kept = "".join(c if unicodedata.category(c)[0] in _NAME_CATEGORIES else "_" for c in folded)
    slug = re.sub("_+", "_", _NOT_IN_NAMES.sub("_", kept)).strip("_")
    if not slug:
        return "field"
    # XML requires a letter first and reserves "xml..."; </result> must end only the root.
    usable = slug[0].isalpha() and not slug.startswith("xml") and slug != _ROOT
    return slug if usable else f"field_{slug}"


# Markup, line breaks (XML changes some), characters that XML 1.0 cannot hold, and white space at
# the ends (which readers strip): written as numeric references, which our own reader reads back.
_SPECIAL = re.compile(
    "[&<>\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]|\\A[ \t]+|[ \t]+\\Z"
)
_REFERENCE = re.compile(r"&(?:#([0-9]{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-z]{2,4}));")
_ENTITIES = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}
_NAMED = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_WHITE = " \t\r\n"


@dataclass(frozen=True)
class XmlFormat(BaseFormat):
    """`  <size> XL</size>` in a `<result>`. Lists have ` | ` between items."""

    name = "xml"
    delimiter = "</"
    stop = stop_at("</")
    end = stop_at(f"</{_ROOT}>")

    def label(self, name: str) -> str:
        if isinstance(name, DocumentKey):
            return f'product id="{_escaped(clean(name)).replace(chr(34), "&quot;")}"'
        return tag(name)

    def opening(self) -> str:
        return f"<{_ROOT}>\n"

    def key(self, path: Path, previous: Path | None) -> str:
        keep = common_depth(path, previous)
        parts = [] if previous is None else self._closed(previous, keep)
        parts += [f"{_indent(d)}<{self.label(name)}>\n" for d, name in groups_of(path, keep)]
        parts.append(f"{_indent(len(path) - 1)}<{self.label(path[-1])}>")
        return "".join(parts)

    def closing(self, last: Path) -> str:
        return "".join([*self._closed(last, 0), f"</{_ROOT}>"])

    def _closed(self, path: Path, keep: int) -> list[str]:
        groups = [
            f"{_indent(depth)}</{self.label(name).partition(' ')[0]}>\n"
            for depth, name in reversed(groups_of(path, keep))
        ]
        return [f"</{self.label(path[-1])}>\n", *groups]

    def escape(self, value: Writable) -> str:
        if not is_sequence(value):
            return f" {_literal(items_of(value)[0])}"
        literals = [_literal(item).replace("|", "&#124;") for item in items_of(value)]
        # A separator at the end distinguishes the empty list and a list of null from null, and a
        # list of one item from several items in one text.
        end = " |" if len(literals) == 1 and _is_doubtful(items_of(value)[0]) else ""
        return f" {' | '.join(literals)}{end}" if literals else " |"

    def unescape(self, raw: str, *, is_list: bool = False) -> Value:
        text = raw.strip(_WHITE)
        if "<" in text:
            if contents := _contents(text):
                return [_value(content.strip(_WHITE)) for content in contents]
            text = _CLOSING.sub("", text).rstrip(_WHITE)
        if not is_list:
            return _value(text)
        if text in ("", "null"):
            return None
        items = (item.strip(_WHITE) for item in text.split("|"))
        return [_value(item) for item in items if item]

    def spelling(self) -> Spelling:
        characters = written(lambda character: _escaped(f"x{character}x")[1:-1])
        # White space at the ends, which readers strip, is written as a reference.
        characters |= {" ": (" ", "&#32;"), "\t": ("\t", "&#9;")}
        never = (r"(?:[ \t](?s:.*))?", r"(?s:.*)[ \t]", "null")
        return Spelling(
            texts=(Form("", "", characters, never),),
            items=(Form("", "", characters | {"|": ("&#124;",)}, never),),
            opening="",
            separator=" | ",
            closing="",
            exceptions=("", "null"),
            alone=" |",
        )

    def parse(self, text: str, paths: Sequence[Path]) -> dict[Path, str]:
        """Scans for tags, since XML parsers drop text when they recover, such as `AT&T`.

        An element without a closing tag ends at the next tag. The literal of a repeated element is
        all its elements, with their tags; so is the literal of an element that is cut off.
        """
        text = answer_in(text)
        leaves = {tuple(self.label(name) for name in path): path for path in paths}
        groups = {labels[:depth] for labels in leaves for depth in range(1, len(labels))}
        tags = list(_TAG.finditer(text))
        closed_by = _closing_tags(tags)
        elements: dict[Path, list[tuple[str, str]]] = {}  # each without and with its tags
        here: list[str] = []
        first = 0  # the tag behind the last value
        for place, tag in enumerate(tags):
            closing, name, attributes = tag.groups()
            if place < first or attributes.endswith("/"):  # an empty element is null
                continue
            if closing:
                opened = [label.partition(" ")[0] for label in here]
                if name in opened:
                    del here[len(opened) - 1 - opened[::-1].index(name) :]
                continue
            identity = _ID.search(attributes)
            here.append(f'{name} id="{identity[1]}"' if identity else name)
            if tuple(here) in groups:
                continue
            if (path := leaves.get(tuple(here))) is not None:
                first = closed_by.get(place, place + 1)
                end = tags[first] if first < len(tags) else None
                if end is not None and end[1]:
                    literals = text[tag.end() : end.start()], text[tag.start() : end.end()]
                else:  # the tag tells that the value is cut off
                    literals = (text[tag.start() : end and end.start()],) * 2
                elements.setdefault(path, []).append(literals)
                first += end is not None and end[2] == name
            here.pop()
        return {
            path: parts[0][0] if len(parts) == 1 else "".join(whole for _, whole in parts)
            for path, parts in elements.items()
        }


_TAG = re.compile(r"<(/?)([^\s<>/!?]++)([^<>]*+)>")
_CLOSING = re.compile(r"</[^<>]*>?\Z")  # of the slot's own element, if slots end with their lines
_ELEMENT = re.compile(rf"\s*{_TAG.pattern}([^<]*)</\2\s*>\s*")
_ID = re.compile(r'\sid="([^"]*)"')
_CDATA = re.compile(r"<!\[CDATA\[((?:(?!\]\]>|<!\[CDATA\[).)*+)\]\]>", re.DOTALL)


def _closing_tags(tags: Sequence[re.Match[str]]) -> dict[int, int]:
    """The place of each tag that a later tag of the same name closes -> the place of that tag."""
    closed_by: dict[int, int] = {}
    opened: dict[str, list[int]] = {}
    for place, tag in enumerate(tags):
        if not tag[1] and not tag[3].endswith("/"):
            opened.setdefault(tag[2], []).append(place)
        elif tag[1] and opened.get(tag[2]):
            closed_by[opened[tag[2]].pop()] = place
    return closed_by


def _contents(text: str) -> list[str]:
    """The contents of the elements that a text consists of; [] for any other text."""
    contents, at = [], 0
    while element := _ELEMENT.match(text, at):
        contents.append(element[4])
        at = element.end()
    return contents if at == len(text) else []


def _indent(depth: int) -> str:
    return "  " * (depth + 1)


def _escaped(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        return _NAMED.get(match[0]) or "".join(f"&#{ord(character)};" for character in match[0])

    return _SPECIAL.sub(replace, text)


def _literal(value: Scalar) -> str:
    text, kind = scalar_text(value)
    if kind != "text":
        return text
    if text == "null":
        return "&#110;ull"
    return _escaped(text) or _EMPTY


def _is_doubtful(item: Scalar) -> bool:
    text, kind = scalar_text(item)
    return text == "null" if kind != "text" else len(items_in(text)) != 1


def _value(text: str) -> str | None:
    if text in ("", "null"):
        return None
    if "<" in text:
        parts = _CDATA.split(text)  # text and sections in turn; sections are taken as they are
        if any(map(_TAG.search, parts[::2])):
            raise ValueError(f"expected text, got markup: {clipped(text)}")
        return clean("".join(p if i % 2 else _references(p) for i, p in enumerate(parts)))
    return clean(_references(text))


def _references(text: str) -> str:
    if "&" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        decimal, hexadecimal, name = match.groups()
        if name:
            return _ENTITIES.get(name, match[0])
        code = int(decimal) if decimal else int(hexadecimal, 16)
        return chr(code) if code <= 0x10FFFF else "\ufffd"

    return _REFERENCE.sub(replace, text)
