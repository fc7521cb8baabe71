"""Turns regular expressions over texts into regular expressions over texts as a format writes them.

A pattern speaks of a text's characters, a grammar of their written form: in JSON `^a"?$` is
`a(?:\\\\")?`. So every set of characters in a pattern is replaced by all ways to write one of them,
and the structure around it stays. The dialect is that of Rust's `regex` crate, which both Pydantic
and llguidance use, and which shares most constructs with Python's.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Literal, TypeAlias

from schemax.attributes.patterns import search_of
from schemax.formats import Form

Write: TypeAlias = Callable[[str], str]
"""A set of characters -> all ways to write one of them, both as regular expressions."""

ANY = r"[\s\S]"

# The most characters of a pattern, which the grammar writes out, and the most characters that its
# repetitions stand for: each takes several states of the automaton.
_LONGEST, _MOST_REPEATED = 10_000, 1_000


class Unsupported(Exception):
    """A part of a pattern that no grammar can express."""


def spelled_pattern(pattern: str, write: Write) -> str:
    """A regular expression for whole texts, as `write` writes them, that the pattern is found in.

    Raises Unsupported for constructs beyond sets of texts, such as look-around, for flags and
    anchors within the pattern, and for a pattern that is too large.
    """
    if len(pattern) > _LONGEST:
        raise Unsupported(f"more than {_LONGEST:,} characters")
    tokens = deque(_tokens_of(pattern))
    whole = _read_branches(tokens)
    if tokens:
        raise Unsupported(f"a stray {tokens[0][0]!r}")
    expanded, plain = _sizes(whole)
    if expanded - plain > _MOST_REPEATED:
        raise Unsupported(f"repetitions of more than {_MOST_REPEATED:,} characters")
    return _branches(whole, "open", "open", write)


def is_supported(pattern: str) -> bool:
    """True if a grammar can express the pattern, and Rust's `regex` can search for it."""
    try:
        spelled_pattern(pattern, str)
        is_found(pattern, "")  # compiles as a whole
    except Unsupported:
        return False
    return True


def writer(form: Form) -> Write:
    """The function that writes the characters of a form."""
    characters = form.characters or {}
    specials = tuple(characters)
    kept = "".join(map(exactly, specials))

    @lru_cache(maxsize=256)
    def write(source: str) -> str:
        special = [character for character in specials if is_found(f"^(?:{source})$", character)]
        if not special:
            return source
        ways = [exactly(way) for character in special for way in characters[character]]
        return f"(?:{'|'.join([f'[{source}&&[^{kept}]]', *ways])})"

    return write


def exactly(text: str) -> str:
    """A regular expression for this text alone, also safe within brackets and between slashes."""
    return "".join(c if c.isascii() and c.isalnum() else f"\\x{{{ord(c):x}}}" for c in text)


def is_found(pattern: str, text: str) -> bool:
    """True if Rust's `regex` finds the pattern in the text. Raises Unsupported."""
    try:
        search, _, is_linear = search_of(pattern)
    except ValueError as error:
        raise Unsupported(f"{pattern!r}: {error}") from error
    if not is_linear:
        raise Unsupported(f"{pattern!r} is more than a set of texts")
    return search(text)


# --- reading ------------------------------------------------------------------------------------

_TOKEN = re.compile(
    r"""
    (?P<open> \( (?: \?: | \?P?<[A-Za-z_]\w*> )? (?!\?) )
    | (?P<close> \) )
    | (?P<bar> \| )
    | (?P<repeat> (?: [*+?] | \{[0-9]+(?:,[0-9]*)?\} ) \?? )
    | (?P<begin> \^ | \\A )
    | (?P<end> \$ | \\[zZ] )
    | (?P<set>
        \[ \^? \]? (?: [^\[\]\\] | \\. | \[:\^?[a-z]+:\] )* \]
        | \\[pP] (?: [A-Z] | \{[^{}]+\} ) | \\[dDwWsS]
        | \\x[0-9a-fA-F]{2} | \\x\{[0-9a-fA-F]+\} | \\u[0-9a-fA-F]{4} | \\U[0-9a-fA-F]{8}
        | \\[tnrfva] | \\[^\w\s] | [^\\()\[{|*+?^$]
      )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


@dataclass(slots=True)
class _Item:
    """A set of characters, a group or an anchor ("^" or "$"), and its repetition."""

    content: str | list[list[_Item]]
    is_anchor: bool = False
    repeat: str = ""


def _tokens_of(pattern: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise Unsupported(f"{pattern[at:][:12]!r}, which is more than a set of texts")
        yield token
        at = token.end()


def _read_branches(tokens: deque[re.Match[str]]) -> list[list[_Item]]:
    branches = [_read_sequence(tokens)]
    while tokens and tokens[0].lastgroup == "bar":
        tokens.popleft()
        branches.append(_read_sequence(tokens))
    return branches


def _read_sequence(tokens: deque[re.Match[str]]) -> list[_Item]:
    items: list[_Item] = []
    while tokens and tokens[0].lastgroup not in ("bar", "close"):
        token = tokens.popleft()
        kind, text = token.lastgroup, token[0]
        if kind == "open":
            items.append(_Item(_read_branches(tokens)))
            if not tokens:
                raise Unsupported("a group that is not closed")
            tokens.popleft()
        elif kind == "repeat":
            if not items or items[-1].is_anchor or items[-1].repeat:
                raise Unsupported(f"{text!r} after nothing to repeat, or possessive")
            # Greedy and lazy repetitions find the same texts.
            items[-1].repeat = text.removesuffix("?") or text
        elif kind == "set":
            items.append(_Item(_usual_set(text)))
        else:
            items.append(_Item("^" if kind == "begin" else "$", is_anchor=True))
    return items


def _sizes(branches: list[list[_Item]]) -> tuple[int, int]:
    """Counts the sets of characters with repetitions written out, and as they stand."""
    expanded = plain = 0
    for item in chain.from_iterable(branches):
        size = (1, 1) if isinstance(item.content, str) else _sizes(item.content)
        times = max((int(number[:9]) for number in re.findall("[0-9]+", item.repeat)), default=1)
        expanded, plain = expanded + times * size[0], plain + size[1]
    return expanded, plain


def _usual_set(characters: str) -> str:
    """A set of characters as a grammar allows it: digits are 0 to 9, not those of all scripts.

    A model that may write any digit, but not yet a quote, otherwise ends numbers with foreign
    digits.
    """
    if characters == ".":
        return r"[^\n]"
    if characters == r"\d":
        return "[0-9]"
    if characters.startswith("[") and not characters.startswith("[^"):
        return re.sub(r"\\(.)", lambda match: "0-9" if match[1] == "d" else match[0], characters)
    return characters


# --- writing ------------------------------------------------------------------------------------

# The neighbour of a part of the pattern: any text, since patterns are searched for; the end of the
# text, by an anchor; or more of the pattern.
_Side: TypeAlias = Literal["open", "edge", "inside"]

_FEWEST = {"+": "", "*": "{0}", "?": "{0}"}


def _branches(branches: list[list[_Item]], left: _Side, right: _Side, write: Write) -> str:
    return f"(?:{'|'.join(_sequence(branch, left, right, write) for branch in branches)})"


def _sequence(items: list[_Item], left: _Side, right: _Side, write: Write) -> str:
    first, last = 0, len(items)
    while first < last and items[first].is_anchor and items[first].content == "^":
        first, left = first + 1, _anchored_side(left)
    while last > first and items[last - 1].is_anchor and items[last - 1].content == "$":
        last, right = last - 1, _anchored_side(right)
    items = items[first:last]
    if not items:
        return f"{write(ANY)}*" if "open" in (left, right) else ""
    parts = []
    for at, item in enumerate(items):
        here = left if at == 0 else "inside"
        there = right if at == len(items) - 1 else "inside"
        parts.append(_item(item, here, there, write))
    return "".join(parts)


def _item(item: _Item, left: _Side, right: _Side, write: Write) -> str:
    if item.is_anchor:
        raise Unsupported(f"{item.content!r} in the middle")
    if not isinstance(item.content, str) and not item.repeat and _anchors(item.content):
        return _branches(item.content, left, right, write)
    before = f"{write(ANY)}*" if left == "open" else ""
    after = f"{write(ANY)}*" if right == "open" else ""
    fewest = _FEWEST.get(item.repeat, item.repeat)
    # Beside any text the fewest repetitions suffice, which keeps the automaton small.
    repeat = fewest if before or after else item.repeat
    if isinstance(item.content, str):
        body = write(item.content)
    else:
        body = _branches(item.content, "inside", "inside", write)
    return f"{before}{body}{repeat}{after}" if repeat != "{0}" else before or after


def _anchored_side(side: _Side) -> _Side:
    if side == "inside":
        raise Unsupported("an anchor in the middle")
    return "edge"


def _anchors(branches: list[list[_Item]]) -> bool:
    return any(
        item.is_anchor or (not isinstance(item.content, str) and _anchors(item.content))
        for branch in branches
        for item in branch
    )
