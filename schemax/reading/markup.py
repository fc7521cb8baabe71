"""HTML in texts: the visible text, and its places in the source.

A text is a page of HTML if its first complete element is one of HTML: `<b>soft</b>`, `<br>`,
`<img src=a.png>`. All tags of a page are removed. In other texts, angle brackets stay (`a < b`,
`<55"`, `<product>shoe</product>`), and only references to characters, such as `&amp;`, are read.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from html import unescape
from html.entities import html5
from html.parser import HTMLParser
from itertools import compress
from typing import Any, Literal, Self, TypeAlias

Html: TypeAlias = Literal["strip", "keep"]
"""The treatment of HTML in texts: recognised and removed, or kept."""

_Piece: TypeAlias = tuple[str, int, int]
"""A piece of the visible text, and its place in the source."""

_RAW = ("script", "style")
_UNSEEN = """audio canvas datalist iframe math noembed noframes noscript object script style svg
    template video"""
_INLINE = """a abbr acronym b base bdi bdo big cite code data dfn em font i kbd label link mark meta
    nobr picture q rb rp ruby samp small source span strong time tt u var wbr"""
_APART = "audio canvas del iframe img input ins math object rt s strike sub sup svg video"
_BLOCKS = """address area article aside blockquote body br button caption center col colgroup dd
    details dialog dir div dl dt embed fieldset figcaption figure footer form frame frameset h1 h2
    h3 h4 h5 h6 head header hgroup hr html legend li main map marquee menu meter nav ol optgroup
    option output p param pre progress search section select slot summary table tbody textarea
    tfoot thead title tr track ul xmp"""
# Complete without an end tag and attributes.
_COMPLETE = ("br", "dd", "dt", "hr", "li", "p", "td", "th", "tr", "wbr")

THIN = "\x1f"
"""White space that is dropped beside punctuation and other white space."""

# The white space that a tag is shown as; of tags without a known name a line break.
SPACES = {
    **dict.fromkeys([*_UNSEEN.split(), *_INLINE.split()], ""),
    **dict.fromkeys(_APART.split(), THIN),
    **dict.fromkeys(["td", "th"], " "),
    **dict.fromkeys(_BLOCKS.split(), "\n"),
}
_WIDE = re.compile(r"\s{2,}|[^\S ]|\A\s|\s\Z")
_NAME = re.compile(r"[a-z][a-z0-9._-]*(?::[a-z0-9._-]+)?")
_HIDDEN = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_REFERENCE = re.compile(
    r"&(?:#(?:[0-9]{1,20}(?![0-9])|[xX][0-9A-Fa-f]{1,20}(?![0-9A-Fa-f]));?"
    r"|(?P<name>[A-Za-z][A-Za-z0-9]{1,31};?))"
)
# The character before a raised or lowered text, and the text. Several digits may be cents ($49⁹⁹),
# except behind a letter.
_SHIFTED = re.compile(r"(?![\W\d_][0-9]{2,}\Z).[0-9n+−-]+", re.DOTALL)
SHIFTS = {
    "sup": str.maketrans("0123456789n+−-", "⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ⁺⁻⁻"),
    "sub": str.maketrans("0123456789n+−-", "₀₁₂₃₄₅₆₇₈₉ₙ₊₋₋"),
}


def is_unseen(tag: str, attributes: Iterable[tuple[str, str | None]]) -> bool:
    """True if a browser shows nothing of an element."""
    return tag in _UNSEEN.split() or any(
        name == "hidden" or (name == "style" and _HIDDEN.search(value or ""))
        for name, value in attributes
    )


def shifted_characters(tag: str, before: str, text: str) -> str | None:
    """A raised ("sup") or lowered ("sub") text in such characters, 10⁶, H₂O; None if it has to be
    parted from the text before."""
    is_mark = tag in SHIFTS and _SHIFTED.fullmatch((before[-1:] or " ") + text)
    return text.translate(SHIFTS[tag]) if is_mark else None


class MarkedUp(str):
    """A text with HTML; as a str, the source.

    plain: the visible text.
    _places: the start and end in the source of each of its characters.
    """

    plain: str
    _places: tuple[Sequence[int], Sequence[int]]

    def __new__(cls, source: str, plain: str, places: tuple[Sequence[int], Sequence[int]]) -> Self:
        text = super().__new__(cls, source)
        text.plain, text._places = plain, places
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.plain, self._places)

    def place(self, start: int, end: int) -> tuple[int, int]:
        """The place in the source of `plain[start:end]`, which must not be empty."""
        return self._places[0][start], self._places[1][end - 1]


def plain_text(text: str) -> str:
    """The visible text if HTML was recognised, else the text itself."""
    return text.plain if isinstance(text, MarkedUp) else text


def as_plain(text: str) -> MarkedUp:
    """Wraps a text so that no HTML is recognised in it."""
    return MarkedUp(text, text, (range(len(text)), range(1, len(text) + 1)))


def as_marked_up(text: str) -> str:
    """Returns a text with HTML as `MarkedUp`, any other text unchanged."""
    if isinstance(text, MarkedUp) or not re.search(r"<[A-Za-z]|&[#A-Za-z]", text):
        return text
    page = _Page(text)
    is_page = page.first[1] in SPACES
    pieces = page.pieces if is_page else list(_pieces(text, 0, len(text), ";"))
    plain = "".join(shown for shown, _, _ in pieces)
    if plain == text:
        return text
    starts, ends = array("I"), array("I")
    for shown, start, end in pieces:
        is_copy = len(shown) == end - start
        starts.extend(range(start, end) if is_copy else [start] * len(shown))
        ends.extend(range(start + 1, end + 1) if is_copy else [end] * len(shown))
    if is_page:
        kept = _kept_characters(plain)
        starts, ends = (array("I", compress(places, kept)) for places in (starts, ends))
        plain = re.sub(r"[^\S\n]", " ", "".join(compress(plain, kept)))
    return MarkedUp(text, plain, (starts, ends))


def _kept_characters(plain: str) -> bytearray:
    """Marks the characters to keep: one for white space between words, if possible a line break."""
    kept = bytearray(b"\1") * len(plain)
    for match in _WIDE.finditer(plain):
        start, end = match.span()
        kept[start:end] = bytes(end - start)
        if start > 0 and end < len(plain):
            is_punctuated = plain[start - 1] in "($€£" or plain[end] in ".,;:!?)%"
            if not is_punctuated or match[0].strip(THIN):
                kept[max(start, plain.find("\n", start, end))] = 1
    return kept


def _pieces(source: str, start: int, end: int, last: str) -> Iterator[_Piece]:
    """Yields the pieces of `source[start:end]`, with characters for references.

    last: the character that ends a reference; if "", references are read as browsers do.
    """
    at = start
    for match in _REFERENCE.finditer(source, start, end):
        if not last or (match[0].endswith(last) and (match["name"] or "amp") in html5):
            yield source[at : match.start()], at, match.start()
            yield unescape(match[0]).replace("\xa0", " "), *match.span()
            at = match.end()
    yield source[at:end], at, end


class _Page(HTMLParser):
    """Reads a text as a page of HTML.

    The parser is never closed, since it would then search on behind all that is left open, in
    quadratic time. So a tag without an end stays, with all that follows.

    first: the place and name of the first complete element.
    pieces: of the visible text, whose white space is not squeezed yet.
    """

    def __init__(self, source: str) -> None:
        super().__init__()
        self.first = len(source), "-"
        self.pieces: list[_Piece] = []
        self._source = source
        # Begun elements by name: where, the number of pieces before, whether content is hidden.
        self._begun = defaultdict[str, list[tuple[int, int, bool]]](list)
        self.feed(_simplified_source(source))
        rest = source[self._at() :]
        if self.cdata_elem is None and not rest.startswith("<!--"):
            self.handle_data(rest)

    def _at(self) -> int:
        return self.getpos()[1]  # the column, since all is in one line

    def handle_data(self, data: str) -> None:
        self.pieces += _pieces(self._source, self._at(), self._at() + len(data), "")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not _NAME.fullmatch(tag):  # <name@example.com>
            return self.handle_data(self.get_starttag_text() or "")
        self._begun[tag].append((self._at(), len(self.pieces), is_unseen(tag, attrs)))
        if (attrs or tag in _COMPLETE) and all(value is not None for _, value in attrs):
            self._complete(tag, self._at())
        self._part(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag in _RAW and not self._begun["svg"]:  # <script/> has no end yet
            self.set_cdata_mode(tag)
        else:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._begun[tag]:
            start, before, is_hidden = self._begun[tag].pop()
            self._complete(tag, start)
            if is_hidden:
                del self.pieces[before:]
            elif tag in SHIFTS and len(self.pieces) == before + 2:  # a space, and the content
                text, begin, end = self.pieces[-1]
                mark = shifted_characters(tag, self.pieces[before - 1][0] if before else "", text)
                if mark is not None:
                    self.pieces[before:] = [(mark, begin, end)]
                    return
        self._part(tag)

    def set_cdata_mode(self, elem: str, **_: Any) -> None:
        if elem in _RAW:
            super().set_cdata_mode(elem)

    def _complete(self, tag: str, start: int) -> None:
        if not {"-", ":"} & set(tag):  # such names, <my-button>, stand in HTML as well as in XML
            self.first = min(self.first, (start, tag))

    def _part(self, tag: str) -> None:
        self.pieces.append((SPACES.get(tag, "\n"), self._at(), self._at() + 1))


def _simplified_source(source: str) -> str:
    """A text of the same length that html.parser reads alike in all versions: in one line, without
    references and CDATA sections, with comments and scripts that end as in browsers."""
    text = source.replace("\n", " ").replace("&", "+").replace("--!>", "+-->")
    if "<![CDATA[" in text:
        text = text.replace("<![CDATA[", "<!CDATA >").replace("]]>", "</>")
    text = re.sub(r"(?<!<!)--(?=\s+>)", "-+", text.replace("<![", "<!+"))
    return re.sub(r"(</(?:script|style))[\s/](?!\s*>)", r"\1>", text, flags=re.IGNORECASE)
