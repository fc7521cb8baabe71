"""Output formats: their protocol, and the handling of values and paths that all share.

A value at this level is untyped text, as the model wrote it: `5`, `true` and `"5"` differ for a
parser of the format, but all three are text here. Types are applied later, by Pydantic, which
reads them from text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from schemax.formats.spelling import Spelling
from schemax.formats.stop_rules import StopRule

Path: TypeAlias = tuple[str, ...]
"""Where a slot stands in the output: the names shown to the model, outermost first."""

Value: TypeAlias = None | str | list[str | None]
"""What `unescape` reads out of a slot."""

Scalar: TypeAlias = None | str | bool | int | float | Decimal | date | time
Writable: TypeAlias = Scalar | Sequence[Scalar]
"""What `escape` writes into a slot."""

Tree: TypeAlias = "dict[str, str | Tree]"
"""A parsed output: names of the format to raw literals or to groups."""


class DocumentKey(str):
    """The first path element when several documents share one output: the document's id there."""

    __slots__ = ()


@runtime_checkable
class OutputFormat(Protocol):
    """A format: how keys and values are written, and values read back. Hashable."""

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str: ...
    @property
    def delimiter(self) -> str:
        """The text behind a value in the output, as far as it is the same after every value."""

    @property
    def stop(self) -> StopRule:
        """Ends a slot where its literal is complete."""

    @property
    def end(self) -> StopRule:
        """Ends a whole output that the model writes itself, from right after `opening()`."""

    def opening(self) -> str:
        """The text before the first key."""

    def key(self, path: Path, previous: Path | None) -> str:
        """All that stands between the previous slot's value and this slot's value.

        Without a previous slot: all between `opening()` and this slot's value.
        """

    def closing(self, last: Path) -> str:
        """All that follows the last value."""

    def escape(self, value: Writable) -> str:
        """The value as it stands after its key, the leading space included."""

    def unescape(self, raw: str, *, is_list: bool = False) -> Value:
        """The value that was written into a slot, with or without what follows it.

        With `is_list` a single value is a list of one item. Raises ValueError, which says why,
        for a broken literal.
        """

    def parse(self, text: str, paths: Sequence[Path]) -> dict[Path, str]:
        """The raw literals of a whole output that the model wrote right after `opening()`.

        Lenient: keys that are missing or cut off are absent, and nothing is raised.
        """

    def check(self, paths: Sequence[Path]) -> None:
        """Raises ValueError, naming both, if the keys of two paths cannot be told apart."""


# --- values -------------------------------------------------------------------------------------


_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text with lone surrogates, which no UTF-8 can hold, replaced by U+FFFD."""
    if text.isascii() or not _SURROGATE.search(text):
        return str(text)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


ScalarKind: TypeAlias = Literal["text", "bare", "date"]


def scalar_text(value: Scalar) -> tuple[str, ScalarKind]:
    """A value's text, and whether a format may write it bare (null, true, numbers) or must quote.

    NaN and the infinities have no literal that all readers share, and so count as text, which
    Pydantic reads as numbers all the same.
    """
    if isinstance(value, Enum):
        return scalar_text(value.value)
    if value is None:
        return "null", "bare"
    if isinstance(value, str):
        return clean(value), "text"
    if isinstance(value, bool):
        return ("true" if value else "false"), "bare"
    if isinstance(value, int):
        return int.__repr__(value), "bare"
    if isinstance(value, float):
        return float.__repr__(value), "bare" if isfinite(value) else "text"
    if isinstance(value, Decimal):
        return str(value), "bare" if value.is_finite() else "text"
    if isinstance(value, (date, datetime, time)):
        return value.isoformat(), "date"
    raise TypeError(f"a slot takes text, numbers, dates and lists of these, not {value!r}")


def is_sequence(value: Writable) -> bool:
    """True if `escape` was given a list of values and not one value."""
    return isinstance(value, (list, tuple))


def items_of(value: Writable) -> Sequence[Scalar]:
    """The items of a list of values, or one value as a list of one item."""
    if isinstance(value, (list, tuple)):
        return value
    return [value]  # type: ignore[list-item]  # is_sequence() has told the two apart


def count_in(raw: str, format: OutputFormat) -> int | None:
    """The number of items that a slot states, None for null. Raises ValueError if it does not."""
    value = format.unescape(raw)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip().isdecimal():
        raise ValueError(f"expected a number of items, got {value!r}")
    return int(value)


_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|U[0-9a-fA-F]{8}|.)", re.DOTALL)


def decode_escapes(body: str, known: dict[str, str]) -> str:
    r"""The text of a string literal's body. `known` maps letters after a backslash to characters.

    An escape that is not known keeps its backslash (models write `C:\dir`), except for `\'`.
    """
    if "\\" not in body:
        return clean(body)

    def decode(match: re.Match[str]) -> str:
        escape = match[1]
        if len(escape) > 1:
            if escape[0] != "u" and escape[0] not in known:
                return match[0]
            code = int(escape[1:], 16)
            return chr(code) if code <= 0x10FFFF else "\ufffd"
        return known.get(escape, match[0])

    # Halves of a surrogate pair are decoded one by one and meet in clean().
    return clean(_ESCAPE.sub(decode, body))


DOUBLE_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"'
SINGLE_QUOTED = r"'[^']*(?:''[^']*)*'"
_ITEM = re.compile(
    rf"\s*({DOUBLE_QUOTED}\s*|{SINGLE_QUOTED}\s*|[^\s,\[\]\"][^,\[\]]*|)([,\]])", re.DOTALL
)


def split_items(text: str) -> tuple[list[str], int]:
    """The literals of a list in brackets, which the text begins with, and where it ends."""
    items: list[str] = []
    position = 1
    while True:
        match = _ITEM.match(text, position)
        if match is None:
            raise ValueError("the list is not closed, or contains more than single values")
        if item := match[1].strip():
            items.append(item)
        position = match.end()
        if match[2] == "]":
            return items, position


# --- paths --------------------------------------------------------------------------------------


def common_depth(path: Path, previous: Path | None) -> int:
    """Counts the groups of the previous path that are still open at this path."""
    depth = 0
    for ours, theirs in zip(path[:-1], (previous or ())[:-1], strict=False):
        if ours != theirs:
            break
        depth += 1
    return depth


def check_paths(paths: Sequence[Path], label: Callable[[str], str]) -> None:
    """Raises ValueError if two keys read the same once `label` has rendered their names."""
    seen: dict[Path, Path] = {}
    previous: Path | None = None
    for path in paths:
        if not path:
            raise ValueError("a path must have at least one name")
        for name in path:
            if name.splitlines() not in ([name], []):
                raise ValueError(f"a name must not hold line breaks: {name!r}")
        labels = tuple(label(name) for name in path)
        # Groups that the previous path left open are continued, everything below is new.
        for depth in range(common_depth(path, previous) + 1, len(path) + 1):
            other = seen.get(labels[:depth])
            if other is not None:
                raise ValueError(
                    f"the keys of {_shown(other)} and {_shown(path)} cannot be told apart: "
                    f"both write {labels[depth - 1]}"
                )
            seen[labels[:depth]] = path
        previous = path


def _shown(path: Path) -> str:
    return " > ".join(repr(str(name)) for name in path)


def select(tree: Tree, paths: Sequence[Path], label: Callable[[str], str]) -> dict[Path, str]:
    """The raw literals of those paths that the parsed output holds.

    A name is found under its label, or under the only one that differs in case alone: a model
    that writes its own keys does not always keep to the spelling it was shown.
    """
    found: dict[Path, str] = {}
    for path in paths:
        node: str | Tree | None = tree
        for name in path:
            node = _child(node, label(name)) if isinstance(node, dict) else None
        if isinstance(node, str):
            found[path] = node
    return found


def _child(node: Tree, name: str) -> str | Tree | None:
    if name in node:
        return node[name]
    folded = name.strip().casefold()
    similar = [key for key in node if key.strip().casefold() == folded]
    return node[similar[0]] if len(similar) == 1 else None


_FENCE = re.compile(r"\s*```[^\n]*\n")


def without_fence(text: str) -> str:
    """The text without the Markdown code fence that chat models like to put around it."""
    if match := _FENCE.match(text):
        text = text[match.end() :]
    return text.split("\n```", 1)[0]


class BaseFormat:
    """Optional base of formats: tells keys apart by the names as they are."""

    def label(self, name: str) -> str:
        """A path element as the format tells it apart from its siblings."""
        return clean(name)

    def check(self, paths: Sequence[Path]) -> None:
        check_paths(paths, self.label)

    def spelling(self) -> Spelling | None:
        """The spelling of texts, for grammars; None leaves slots of this format unconstrained."""
        return None


def closed_groups(path: Path, keep: int) -> Iterator[tuple[int, str]]:
    """The groups of `path` to be closed, innermost first, with their depth, down to `keep`."""
    for depth in range(len(path) - 2, keep - 1, -1):
        yield depth, path[depth]


def opened_groups(path: Path, keep: int) -> Iterator[tuple[int, str]]:
    """The groups of `path` to be opened, outermost first, with their depth, from `keep` on."""
    for depth in range(keep, len(path) - 1):
        yield depth, path[depth]
