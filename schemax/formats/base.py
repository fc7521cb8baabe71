"""The protocol of output formats: stop rules, spellings, and helpers for values and paths.

Values are untyped text at this level, as the model wrote them: `5`, `true` and `"5"` differ for a
parser of the format, but all three are text here. Pydantic converts texts to types later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from itertools import takewhile
from math import isfinite
from typing import Literal, Protocol, TypeAlias, runtime_checkable


class StopRule(Protocol):
    """A byte automaton that finds the end of a value. State 0 is the start.

    Rules are hashable, with few states, numbered from 0 (at most 100: stop tables are int8). They
    read bytes, not characters, because tokens may end inside a character.
    """

    def __hash__(self) -> int: ...

    def advance(self, state: int, byte: int) -> int:
        """The next state (>= 0), or -1 - n if this byte completes the rule.

        n: the number of last bytes, this one included, that belong to the delimiter.
        """


@dataclass(frozen=True, slots=True)
class StopAt:
    """Ends a value with a delimiter, which is trimmed."""

    delimiter: bytes

    def __post_init__(self) -> None:
        if not 1 <= len(self.delimiter) <= 100:
            raise ValueError(
                f"a delimiter has 1 to 100 bytes, not {len(self.delimiter)}: {self.delimiter!r}"
            )

    def advance(self, state: int, byte: int) -> int:
        read = self.delimiter[:state] + bytes([byte])
        count = next(n for n in range(len(read), -1, -1) if read.endswith(self.delimiter[:n]))
        return -1 - count if count == len(self.delimiter) else count


def stop_at(delimiter: str | bytes) -> StopAt:
    """The rule that ends a value with `delimiter`."""
    return StopAt(delimiter.encode() if isinstance(delimiter, str) else bytes(delimiter))


NEWLINE = stop_at("\n")


def split_at_stop(rule: StopRule, data: bytes) -> tuple[bytes, bool]:
    """The bytes of the value before the delimiter, and whether the value is complete."""
    rows = transitions(rule)
    row = rows[0]
    for position, byte in enumerate(data, start=1):
        state = row[byte]
        if state < 0:
            return data[: position + state + 1], True
        row = rows[state]
    return data, False


@lru_cache(maxsize=256)
def transitions(rule: StopRule) -> dict[int, tuple[int, ...]]:
    """The transitions of all reachable states: state -> the result of `advance` for each byte."""
    rows: dict[int, tuple[int, ...]] = {}
    waiting = {0}
    while waiting:
        state = waiting.pop()
        rows[state] = tuple(rule.advance(state, byte) for byte in range(256))
        waiting |= {following for following in rows[state] if following >= 0} - rows.keys()
    return rows


@dataclass(frozen=True, slots=True)
class Form:
    """A form of texts: characters one by one, between `before` and `after`.

    characters: all ways to write the characters that cannot, or need not, stand as they are.
    never: regular expressions, in the common dialect of Python and Rust, none of which matches the
        written characters from end to end.
    """

    before: str = ""
    after: str = ""
    characters: Mapping[str, tuple[str, ...]] | None = None
    never: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spelling:
    """The forms of texts as values and as items of lists, and the brackets of lists.

    `OutputFormat.escape` writes a text in one way; a `Spelling` describes all ways, for grammars.
    Numbers, words and dates have the spelling of `escape` alone.

    exceptions: texts without a form, which only `escape` can write. All other texts have a form,
        and no form reads back as another text.
    alone: the text that may follow a list's only item, before `closing`, to tell it from a text.
    """

    texts: tuple[Form, ...]
    items: tuple[Form, ...]
    opening: str
    separator: str
    closing: str
    exceptions: tuple[str, ...] = ()
    alone: str = ""


_NOT_PLAIN = (*map(chr, range(0xA0)), *"\u2028\u2029\ufeff\ufffe\uffff")


def written(
    write: Callable[[str], str], characters: Iterable[str] = _NOT_PLAIN
) -> dict[str, tuple[str, ...]]:
    """The characters that `write` changes, each with what it writes."""
    return {text: (write(text),) for text in characters if write(text) != text}


Path: TypeAlias = tuple[str, ...]
"""The path of a slot in the output: the names shown to the model, outermost first."""

Value: TypeAlias = None | str | list[str | None]
"""A value that `unescape` reads from a slot."""

Scalar: TypeAlias = None | str | bool | int | float | Decimal | date | time
Writable: TypeAlias = Scalar | Sequence[Scalar]
"""A value that `escape` writes into a slot."""

Tree: TypeAlias = "dict[str, str | Tree]"
"""A parsed output: names in the format -> raw literals or groups."""


class DocumentKey(str):
    """A document's id as the first path element, if several documents share one output."""

    __slots__ = ()


@runtime_checkable
class OutputFormat(Protocol):
    """A format, which writes keys and values, and reads values back. Hashable."""

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str: ...
    @property
    def delimiter(self) -> str:
        """The text that follows every value in the output, as far as it is always the same."""

    @property
    def stop(self) -> StopRule:
        """The rule that ends a slot when its literal is complete."""

    @property
    def end(self) -> StopRule:
        """The rule that ends a whole output that the model writes itself, behind `opening()`."""

    def opening(self) -> str:
        """The text before the first key."""

    def key(self, path: Path, previous: Path | None) -> str:
        """The text between the previous slot's value and this slot's value.

        Without a previous slot: the text between `opening()` and this slot's value.
        """

    def closing(self, last: Path) -> str:
        """The text behind the last value."""

    def escape(self, value: Writable) -> str:
        """Writes a value behind its key, the leading space included."""

    def unescape(self, raw: str, *, is_list: bool = False) -> Value:
        """Reads the text of a slot, without its delimiter, as a value.

        With `is_list` a single value is a list of one item. Raises ValueError, with the reason,
        for a text that is not one literal.
        """

    def parse(self, text: str, paths: Sequence[Path]) -> dict[Path, str]:
        """Reads the raw literals of a whole output that the model wrote behind `opening()`.

        Raises nothing. A missing key is absent. `unescape` refuses the literal of a value that is
        broken or cut off.
        """

    def check(self, paths: Sequence[Path]) -> None:
        """Raises ValueError, which names the paths, if the keys of two paths look the same."""


# --- values -------------------------------------------------------------------------------------


_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """Replaces lone surrogates, which UTF-8 cannot hold, by U+FFFD."""
    if text.isascii() or not _SURROGATE.search(text):
        return str(text)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


ScalarKind: TypeAlias = Literal["text", "bare", "date"]


def scalar_text(value: Scalar) -> tuple[str, ScalarKind]:
    """A value's text, and whether a format may write it bare (null, true, numbers) or must quote.

    NaN and the infinities have no literal that all readers share, so they count as text. Pydantic
    still reads them as numbers.
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
    """True for a list of values, False for a single value."""
    return isinstance(value, (list, tuple))


def items_of(value: Writable) -> Sequence[Scalar]:
    """The items of a list of values; a single value becomes a list of one item."""
    if isinstance(value, (list, tuple)):
        return value
    return [value]  # type: ignore[list-item]  # is_sequence() has told the two apart


def count_in(raw: str, format: OutputFormat) -> int | None:
    """The number of items that a slot states, None for null. Raises ValueError for other texts."""
    value = format.unescape(raw)
    if value is None:
        return None
    if not isinstance(value, str) or not value.strip().isdecimal():
        raise ValueError(f"expected a number of items, got {value!r}")
    return int(value)


_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|U[0-9a-fA-F]{8}|.)", re.DOTALL)


def decode_escapes(body: str, known: dict[str, str]) -> str:
    r"""Decodes the body of a string literal. `known` maps letters after a backslash to characters.

    An unknown escape keeps its backslash (models write `C:\dir`), except for `\'`.
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

    # Halves of a surrogate pair are decoded one by one; clean() joins them.
    return clean(_ESCAPE.sub(decode, body))


DOUBLE_QUOTED = r'"[^"\\]*(?:\\.[^"\\]*)*"'
SINGLE_QUOTED = r"'[^']*(?:''[^']*)*'"
_ITEM = re.compile(
    rf"\s*({DOUBLE_QUOTED}\s*|{SINGLE_QUOTED}\s*|[^\s,\[\]\"][^,\[\]]*|)([,\]])", re.DOTALL
)


def split_items(text: str) -> tuple[list[str], int]:
    """The literals of the list in brackets with which a text begins, and the list's end.

    Raises ValueError for a list that is not closed, or holds lists or objects.
    """
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
    pairs = zip(path[:-1], (previous or ())[:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def check_paths(paths: Sequence[Path], label: Callable[[str], str]) -> None:
    """Raises ValueError if two keys look the same in the form of `label`."""
    seen: dict[Path, Path] = {}
    previous: Path | None = None
    for path in paths:
        if not path:
            raise ValueError("a path must have at least one name")
        for name in path:
            if name.splitlines() not in ([name], []):
                raise ValueError(f"a name must not hold line breaks: {name!r}")
        labels = tuple(label(name) for name in path)
        # Groups that the previous path left open continue; groups below are new.
        for depth in range(common_depth(path, previous) + 1, len(path) + 1):
            equal = seen.get(labels[:depth])
            if equal is not None:
                raise ValueError(
                    f"the keys of {_shown(equal)} and {_shown(path)} cannot be told apart: "
                    f"both write {labels[depth - 1]}"
                )
            seen[labels[:depth]] = path
        previous = path


def _shown(path: Path) -> str:
    return " > ".join(repr(str(name)) for name in path)


NOT_SCALAR = " {"
"""A literal that `unescape` refuses in JSON and YAML: a group, or two values for one."""


def select(tree: Tree, paths: Sequence[Path], label: Callable[[str], str]) -> dict[Path, str]:
    """The raw literals of the paths that a parsed output holds.

    A name is looked up by its label, else by the only label that differs in case alone: a model
    that writes keys may change their spelling. If the output holds no path's first name, the only
    group that holds such a name is the output: `{"product": {...}}`.
    """
    similar: dict[int, dict[str, list[str]]] = {}

    def child(node: Tree, name: str) -> str | Tree | None:
        if name in node:
            return node[name]
        if id(node) not in similar:
            keys = similar[id(node)] = {}
            for key in node:
                keys.setdefault(key.strip().casefold(), []).append(key)
        alike = similar[id(node)].get(name.strip().casefold(), [])
        return node[alike[0]] if len(alike) == 1 else None

    def holds(node: str | Tree) -> bool:
        return isinstance(node, dict) and any(child(node, head) is not None for head in heads)

    heads = {label(path[0]) for path in paths}
    groups = [] if holds(tree) else [group for group in tree.values() if holds(group)]
    root = groups[0] if len(groups) == 1 else tree
    literals: dict[Path, str] = {}
    for path in paths:
        node: str | Tree | None = root
        for name in path:
            node = child(node, label(name)) if isinstance(node, dict) else None
        if node is not None:
            literals[path] = node if isinstance(node, str) else NOT_SCALAR
    return literals


# The prompt may have opened the thought.
_THOUGHTS = re.compile(r"\s*+(?:<think>.*?(?:</think>|\Z)|(?![{\[\"'<`]).*?</think>)", re.DOTALL)
_FENCED = re.compile(r"^[ \t]*```([^\n]*)\n(.*?)(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE)


def answer_in(text: str) -> str:
    """The text without the thoughts before it, and without the Markdown code fence around it.

    Of several fenced blocks, all that are labelled as the first one.
    """
    if thoughts := _THOUGHTS.match(text):
        text = text[thoughts.end() :]
    first = _FENCED.search(text)
    if first and (first[1].strip() or not text[: first.start()].strip()):
        return "".join(block[2] for block in _FENCED.finditer(text) if block[1] == first[1])
    return text.split("\n```", 1)[0]


class BaseFormat:
    """An optional base of formats, which tells keys apart by unchanged names."""

    def label(self, name: str) -> str:
        """The form of a path element in which it must differ from its siblings."""
        return clean(name)

    def check(self, paths: Sequence[Path]) -> None:
        check_paths(paths, self.label)

    def spelling(self) -> Spelling | None:
        """The spelling of texts, for grammars; None leaves slots of this format unconstrained."""
        return None


def groups_of(path: Path, keep: int) -> list[tuple[int, str]]:
    """The groups of `path` from the depth `keep` on, outermost first, with their depths."""
    return list(enumerate(path[:-1]))[keep:]
