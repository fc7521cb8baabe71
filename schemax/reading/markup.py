"""Texts with HTML: the visible text, and its places in the source.

HTML is recognised by complete HTML elements (`<b>soft</b>`, `<br>`, `<p>`) and by character
references (`&amp;`). Other angle brackets stay: `a < b`, `<55"`, `</product>`.

The text is scanned once, bounded at every place: html.parser has no offsets of its own, and takes
quadratic time where comments and tags are not closed.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from html import unescape
from html.entities import html5
from typing import Any, Literal, NamedTuple, Self, TypeAlias

Html: TypeAlias = Literal["strip", "keep"]
"""The treatment of HTML in texts: recognised and removed, or kept."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_INLINE = _names(
    "a abbr acronym b bdi bdo big cite code data del dfn em font i img input ins kbd label mark "
    "meta link q s samp small source span strike strong sub sup time tt u var wbr"
)
_CELLS = _names("td th")
_LINES = _names(
    "address article aside audio blockquote body br button caption center col colgroup dd details "
    "div dl dt fieldset figcaption figure font footer form h1 h2 h3 h4 h5 h6 head header hr html "
    "iframe li main nav ol optgroup option p picture pre section select summary table tbody "
    "textarea tfoot thead title tr ul video"
)
_UNSEEN = _names("noscript script style svg template")
_KNOWN = _INLINE | _CELLS | _LINES | _UNSEEN
# Elements that are complete without an end tag: always, or where they have an attribute.
_ALONE = _names("br dd dt hr li p td th tr wbr")
_ALONE_WITH = _names("col img input link meta source")

_HINT = re.compile(r"<[A-Za-z/!]|&[#A-Za-z]")
_VALUE = r"""(?:"[^"]{0,4000}"|'[^']{0,4000}'|[^\s"'<>=`]{1,4000})"""
_FLAGS = "checked|disabled|selected|hidden|controls|nowrap|noshade|required|readonly|multiple|muted"
_TOKEN = re.compile(
    rf"<(?P<name>[A-Za-z][A-Za-z0-9]{{0,15}})"
    rf"(?P<attributes>(?:\s{{1,20}}(?:[\w:@.-]{{1,60}}\s?=\s?{_VALUE}|(?:{_FLAGS})(?=[\s/>]))){{0,60}}+)"
    r"\s{0,20}/?>"
    r"|</(?P<end>[A-Za-z][A-Za-z0-9]{0,15})\s{0,20}>"
    r"|(?P<comment><!--)|<!(?:doctype|DOCTYPE)[^<>]{0,300}>"
    r"|&(?P<reference>#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});"
)
# White space that becomes one space or line break; single spaces stay with the words around them.
_SPACE = re.compile(r"\s{2,}|[^\S ]|\A\s|\s\Z")


class _Token(NamedTuple):
    """A token of HTML.

    kind: "start", "end", "comment" or "reference"; name: of the element, or the referenced text.
    """

    kind: str
    name: str
    start: int
    end: int
    has_attributes: bool = False


class _Run(NamedTuple):
    """A piece of the visible text: its beginning there, and its place in the source."""

    at: int
    start: int
    end: int


class MarkedUp(str):
    """A text with HTML; as a str, the source.

    plain: the visible text.
    """

    plain: str
    _runs: tuple[_Run, ...]

    def __new__(cls, source: str, plain: str, runs: tuple[_Run, ...]) -> Self:
        made = super().__new__(cls, source)
        made.plain, made._runs = plain, runs
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.plain, self._runs)

    def place(self, start: int, end: int) -> tuple[int, int]:
        """The place in the source of `plain[start:end]`, which must not be empty."""
        first, last = self._run(start), self._run(end - 1)
        into, beyond = self._runs[first], self._runs[last]
        begin = into.start + (start - into.at if self._is_copy(first) else 0)
        stop = beyond.start + end - beyond.at if self._is_copy(last) else beyond.end
        return begin, stop

    def _run(self, at: int) -> int:
        return bisect_right(self._runs, at, key=lambda run: run.at) - 1

    def _is_copy(self, number: int) -> bool:
        """True if a run is a copy of the source, character by character."""
        after = self._runs[number + 1].at if number + 1 < len(self._runs) else len(self.plain)
        run = self._runs[number]
        return run.end - run.start == after - run.at


def plain_text(text: str) -> str:
    """The text without HTML, where HTML was recognised."""
    return text.plain if isinstance(text, MarkedUp) else text


def as_plain(text: str) -> MarkedUp:
    """Wraps a text so that no HTML is recognised in it."""
    return MarkedUp(text, text, (_Run(0, 0, len(text)),))


def recognised(text: str) -> str:
    """Returns a text with HTML as `MarkedUp`, any other text unchanged."""
    if isinstance(text, MarkedUp) or not _HINT.search(text):
        return text
    tokens = list(_tokens(text))
    is_page = _is_page(tokens)
    if not is_page:
        tokens = [token for token in tokens if token.kind == "reference"]
    return _without(text, tokens, squeezed=is_page) if tokens else text


def _tokens(text: str) -> Iterator[_Token]:
    at, size = 0, len(text)
    last_comment = text.rfind("-->")  # beyond this place, no comment is closed
    while at < size and (found := _TOKEN.search(text, at)):
        start, at = found.span()
        if (name := found["name"] or found["end"]) and (name := name.lower()) in _KNOWN:
            kind = "start" if found["name"] else "end"
            yield _Token(kind, name, start, at, bool(found["attributes"]))
        elif found["comment"]:
            if start + 4 <= last_comment:
                at = text.index("-->", at) + 3
                yield _Token("comment", "", start, at)
        elif reference := found["reference"]:
            if reference[0] == "#" or f"{reference};" in html5:
                yield _Token("reference", unescape(found[0]).replace("\xa0", " "), start, at)
        elif not name:
            yield _Token("comment", "", start, at)


def _is_page(tokens: list[_Token]) -> bool:
    """True if some element is complete."""
    open_names = set()
    for token in tokens:
        if token.kind == "start":
            if token.name in _ALONE or (token.name in _ALONE_WITH and token.has_attributes):
                return True
            open_names.add(token.name)
        elif token.kind == "end" and token.name in open_names:
            return True
    return False


class _Seen:
    """Assembles the visible text."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.runs: list[_Run] = []
        self._length = 0
        self._space: tuple[str, int, int] | None = None

    def put(self, text: str, start: int, end: int) -> None:
        if self._space is not None and self.runs:
            self._add(*self._space)
        self._space = None
        if text:
            self._add(text, start, end)

    def space(self, text: str, start: int, end: int) -> None:
        """Adds white space; a run becomes one line break if it has any, else one space."""
        if self._space is not None:
            before, start, _ = self._space
            text = "\n" if "\n" in before + text else " "
        self._space = text, start, end

    def _add(self, text: str, start: int, end: int) -> None:
        self.texts.append(text)
        self.runs.append(_Run(self._length, start, end))
        self._length += len(text)


def _without(text: str, tokens: list[_Token], *, squeezed: bool) -> MarkedUp:
    seen, at = _Seen(), 0
    ends = {token.name: token.start for token in tokens if token.kind == "end"}  # the last of each
    hidden: str | None = None
    for token in tokens:
        if hidden is not None:  # such as a script, which is skipped up to its end
            if token.kind == "end" and token.name == hidden:
                hidden, at = None, token.end
            continue
        _put_data(seen, text, at, token.start, squeezed)
        at = token.end
        if token.kind == "reference":
            if squeezed and token.name.isspace():
                seen.space(" ", token.start, at)
            else:
                seen.put(token.name, token.start, at)
        elif token.name in _UNSEEN:
            if token.kind == "start" and ends.get(token.name, -1) > token.start:
                hidden = token.name
        elif token.name in _LINES:
            seen.space("\n", token.start, at)
        elif token.name in _CELLS:
            seen.space(" ", token.start, at)
    _put_data(seen, text, at, len(text), squeezed)
    return MarkedUp(text, "".join(seen.texts), tuple(seen.runs))


def _put_data(seen: _Seen, text: str, start: int, end: int, squeezed: bool) -> None:
    if not squeezed:
        if start < end:
            seen.put(text[start:end], start, end)
        return
    piece, at = text[start:end], 0
    for found in _SPACE.finditer(piece):
        if at < found.start():
            seen.put(piece[at : found.start()], start + at, start + found.start())
        at = found.end()
        seen.space("\n" if "\n" in found[0] else " ", start + found.start(), start + at)
    if at < len(piece):
        seen.put(piece[at:], start + at, end)
