"""Splits a list that is written as one text, between its tokens: HDMI, USB."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from schemax.reading.dates import dates_in
from schemax.reading.tokens import Token, is_glued, tokens_of, value_of

_STRONG = frozenset(";|•·‣◦●")
_WEAK = frozenset(",،、，")
_AND = frozenset({"and", "und", "et", "y", "e", "&"})
_MARK = re.compile(rf"[{re.escape(''.join(_STRONG | _WEAK))}]|\s/\s")
_OPENING, _CLOSING = "([{（", ")]}）"
# The marks before the items of a list, one a line.
_BULLET = re.compile(r"^[ \t]*(?:[-–*•·‣◦●]|\d{1,2}[.)])[ \t]+", re.MULTILINE)
_YEAR = re.compile(r",\s+\d{4}(?!\d)")


def items_in(text: str) -> list[str]:
    """Splits a text at line breaks, ";", "|", " / " and bullets; without any, at commas.

    Brackets, numbers (12,50) and dates (May 5, 2024) stay whole. Behind commas, the last item is
    also split at "and". A text without separators is a single item.
    """
    text = text.strip()
    if "\n" in text:
        lines = _BULLET.sub("", text).split("\n")
        return [item for line in lines for item in _items(line)]
    return _items(_BULLET.sub("", text)) if text[:1] in "•‣◦●" else _items(text)


def _items(text: str) -> list[str]:
    if not _MARK.search(text):
        return [text.strip()] if text.strip() else []
    tokens = tokens_of(text)
    strong = [place for place in _outside(tokens) if _is_strong(text, tokens, place)]
    if strong:
        return _cut(text, tokens, strong)
    whole = {
        place for date in (dates_in(tokens) if _YEAR.search(text) else ()) for place in date[2]
    }
    commas = [
        place for place in _outside(tokens) if tokens[place].text in _WEAK and place not in whole
    ]
    items = _cut(text, tokens, commas)
    if len(items) > 1:
        items[-1:] = _last(items[-1])
    # "1,2,3" is no number.
    lists = {item: item.split(",") for item in items if _is_list_of_digits(item)}
    return [part for item in items for part in lists.get(item, [item])]


def _outside(tokens: Sequence[Token]) -> Iterator[int]:
    """Yields the places of tokens outside of brackets; brackets that do not close count as text."""
    closing = sum(token.text in _CLOSING for token in tokens)
    depth = 0
    for place, token in enumerate(tokens):
        if token.text in _OPENING and closing:
            depth += 1
        elif token.text in _CLOSING:
            closing, depth = closing - 1, max(0, depth - 1)
        elif not depth or not closing:
            yield place


def _is_strong(text: str, tokens: Sequence[Token], at: int) -> bool:
    if tokens[at].text != "/":
        return tokens[at].text in _STRONG
    beside = [
        pair for pair in ((at - 1, at), (at, at + 1)) if pair[0] >= 0 and pair[1] < len(tokens)
    ]
    return len(beside) == 2 and not any(is_glued(tokens[a], tokens[b]) for a, b in beside)


def _cut(text: str, tokens: Sequence[Token], places: Sequence[int]) -> list[str]:
    starts = [0, *(tokens[place].end for place in places)]
    ends = [*(tokens[place].start for place in places), len(text)]
    items = (text[start:end].strip() for start, end in zip(starts, ends, strict=True))
    return [item for item in items if item]


def _last(item: str) -> list[str]:
    """Splits the last item at "and": "b and c", "and c"."""
    words = item.split()
    for place, word in enumerate(words[:-1]):
        if word in _AND:
            return [
                part for part in (" ".join(words[:place]), " ".join(words[place + 1 :])) if part
            ]
    return [item]


def _is_list_of_digits(item: str) -> bool:
    return bool(re.fullmatch(r"\d+(?:,\d+)+", item)) and value_of(item)[0] is None
