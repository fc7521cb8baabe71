"""JSON: one member per line, strings in quotes, lists on one line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from schemax.formats.base import (
    DOUBLE_QUOTED,
    BaseFormat,
    Path,
    Scalar,
    Tree,
    Value,
    Writable,
    clean,
    closed_groups,
    common_depth,
    decode_escapes,
    is_sequence,
    items_of,
    opened_groups,
    scalar_text,
    select,
    split_items,
    without_fence,
)
from schemax.formats.spelling import Form, Spelling, written

_STRING = re.compile(DOUBLE_QUOTED, re.DOTALL)
_BARE = re.compile(r"null|true|false|[^,\n}]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_NULLS = frozenset({"", "null", "Null", "NULL", "None"})
ESCAPES = dict(zip("\"\\/'bfnrt", "\"\\/'\b\f\n\r\t", strict=True))

# Characters that are legal in JSON, but at which many programs break lines or show nothing.
_UNSEEN = re.compile("[\x7f-\x9f\u2028\u2029]")


def quote(text: str) -> str:
    """The text as a JSON string; letters of all scripts stay as they are."""
    quoted = json.dumps(text, ensure_ascii=False)
    if quoted.isascii() and "\x7f" not in quoted:
        return quoted
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)


# States of the literal's automaton. The words come next, one state per letter read, then three
# states per bracket depth: in the list, in a string of it, after a backslash of that string.
_START, _BARE_STATE, _IN_STRING, _ESCAPED = range(4)
_WORDS = (b"null", b"true", b"false")
_WORD_STATES = {
    (word, read): state
    for state, (word, read) in enumerate(
        ((word, read) for word in _WORDS for read in range(1, len(word))), start=4
    )
}
_WORD_OF = {state: key for key, state in _WORD_STATES.items()}
_FIRST_LETTERS = {word[0]: _WORD_STATES[word, 1] for word in _WORDS}
_LISTS = 4 + len(_WORD_STATES)
_MAX_DEPTH = 8


def _in_brackets(state: int, byte: int, opening: bytes, closing: bytes, max_depth: int) -> int:
    """A step inside brackets: states are 3 * (depth - 1) + (0 outside, 1 in, 2 escaped in string).

    Brackets deeper than `max_depth` are not counted, which keeps the states few.
    """
    depth, part = divmod(state, 3)
    if part == 2:
        return state - 1
    if part == 1:
        return state + 1 if byte == 0x5C else state - 1 if byte == 0x22 else state
    if byte == 0x22:
        return state + 1
    if byte in opening:
        return state + 3 if depth + 1 < max_depth else state
    if byte in closing:
        return state - 3 if depth else -1
    return state


@dataclass(frozen=True, slots=True)
class JsonLiteralStop:
    """Ends a slot when its JSON literal is complete.

    A string ends with its closing quote and a list with its bracket, which belong to the value;
    `null`, `true` and `false` with their last letter; numbers and stray words before a comma, a
    line break or a closing brace. An object cannot be a value: its brace counts as a stray word, so
    that the slot ends soon and is reported as broken.
    """

    def advance(self, state: int, byte: int) -> int:
        if state >= _LISTS:
            step = _in_brackets(state - _LISTS, byte, b"[", b"]", _MAX_DEPTH)
            return step if step < 0 else _LISTS + step
        if state == _IN_STRING:
            return -1 if byte == 0x22 else _ESCAPED if byte == 0x5C else _IN_STRING
        if state == _ESCAPED:
            return _IN_STRING
        if state == _START:
            if byte in b" \t":
                return _START
            if byte == 0x22:
                return _IN_STRING
            if byte == 0x5B:
                return _LISTS
            if byte in _FIRST_LETTERS:
                return _FIRST_LETTERS[byte]
        elif state in _WORD_OF:
            word, read = _WORD_OF[state]
            if byte == word[read]:
                return -1 if read + 1 == len(word) else _WORD_STATES[word, read + 1]
        return -2 if byte in b",\n}" else _BARE_STATE


@dataclass(frozen=True, slots=True)
class JsonObjectStop:
    """Ends an output when the root object closes; its opening brace precedes the start."""

    def advance(self, state: int, byte: int) -> int:
        return _in_brackets(state, byte, b"{[", b"}]", 10)


@dataclass(frozen=True)
class JsonFormat(BaseFormat):
    """`  "Size": "XL",` in braces."""

    name = "json"
    delimiter = ",\n"
    stop = JsonLiteralStop()
    end = JsonObjectStop()

    def opening(self) -> str:
        return "{\n"

    def key(self, path: Path, previous: Path | None) -> str:
        keep = common_depth(path, previous)
        parts: list[str] = []
        if previous is not None:
            parts += [f"\n{_indent(depth)}}}" for depth, _ in closed_groups(previous, keep)]
            parts.append(",\n")
        parts += [
            f"{_indent(depth)}{quote(clean(name))}: {{\n"
            for depth, name in opened_groups(path, keep)
        ]
        parts.append(f"{_indent(len(path) - 1)}{quote(clean(path[-1]))}:")
        return "".join(parts)

    def closing(self, last: Path) -> str:
        groups = [f"\n{_indent(depth)}}}" for depth, _ in closed_groups(last, 0)]
        return "".join([*groups, "\n}"])

    def escape(self, value: Writable) -> str:
        literals = [_literal(item) for item in items_of(value)]
        return f" [{', '.join(literals)}]" if is_sequence(value) else f" {literals[0]}"

    def unescape(self, raw: str, *, is_list: bool = False) -> Value:
        text = raw.lstrip(" \t")
        if text == "null":  # most values of most documents
            return None
        if text.startswith("["):
            items, _ = split_items(text)
            return [_value(item) for item in items]
        if text.startswith('"'):
            match = _STRING.match(text)
            if match is None:
                raise ValueError("the string is not closed")
            value: str | None = decode_escapes(match[0][1:-1], ESCAPES)
        else:
            match = _BARE.match(text)
            value = _value(match[0].strip() if match else "")
        return [value] if is_list and value is not None else value

    def spelling(self) -> Spelling:
        quoted = (Form('"', '"', written(lambda character: quote(character)[1:-1])),)
        return Spelling(quoted, quoted, opening="[", separator=", ", closing="]")

    def parse(self, text: str, paths: Sequence[Path]) -> dict[Path, str]:
        text = without_fence(text)
        # The prompt holds the opening brace; some models write it once more.
        start = re.match(r"\s*\{", text)
        tree: Tree = {}
        try:
            _read_object(text, start.end() if start else 0, tree, 1)
        except EOFError:
            pass  # cut off: the tree holds all complete members
        except ValueError:
            tree = _repaired(text if start else "{" + text) | tree
        return select(tree, paths, self.label)


def _indent(depth: int) -> str:
    return "  " * (depth + 1)


def _literal(value: Scalar) -> str:
    text, kind = scalar_text(value)
    if kind == "bare" and (text in ("null", "true", "false") or _NUMBER.fullmatch(text)):
        return text
    return quote(text)


def _value(literal: str) -> str | None:
    """The value of one literal without anything around it."""
    if literal in _NULLS:
        return None
    first = literal[0]
    if first == "{":
        raise ValueError("expected a single value, got an object")
    if first == '"':
        return decode_escapes(literal[1:-1], ESCAPES)
    if first == "'" and literal[-1] == "'" and len(literal) > 1:
        return decode_escapes(literal[1:-1], ESCAPES)
    return clean(literal)


_BETWEEN = re.compile(r"[\s,]*")
_COLON = re.compile(r"\s*:[ \t]*")
_BRACKET = re.compile(rf"{DOUBLE_QUOTED}|[\[\]\"]", re.DOTALL)


def _read_object(text: str, position: int, into: Tree, depth: int) -> int:
    """Reads members until the object closes. Literals stay exactly as they were written.

    Raises EOFError if the text is cut off, ValueError if it is not JSON; `into` then holds all
    members that were complete before.
    """
    if depth > 50:
        raise ValueError("nested too deeply")
    while True:
        position = _end(_BETWEEN, text, position)
        if position == len(text):
            raise EOFError
        if text[position] == "}":
            return position + 1
        after_name = _end(_STRING, text, position)
        name = decode_escapes(text[position + 1 : after_name - 1], ESCAPES)
        if after_name == len(text):
            raise EOFError
        position = _end(_COLON, text, after_name)
        if text.startswith("{", position):
            known = into.get(name)
            group: Tree = known if isinstance(known, dict) else {}
            into[name] = group
            position = _read_object(text, position + 1, group, depth + 1)
        else:
            start, position = position, _literal_end(text, position)
            into[name] = f" {text[start:position]}"


def _end(pattern: re.Pattern[str], text: str, position: int) -> int:
    match = pattern.match(text, position)
    if match is not None:
        return match.end()
    if position == len(text) or (text[position] == '"' and pattern is _STRING):
        raise EOFError
    raise ValueError(f"not JSON at {position}")


def _literal_end(text: str, position: int) -> int:
    if text.startswith('"', position):
        return _end(_STRING, text, position)
    if text.startswith("[", position):
        depth = 0
        for match in _BRACKET.finditer(text, position):
            if match[0] == '"':
                break
            depth += {"[": 1, "]": -1}.get(match[0], 0)
            if depth == 0:
                return match.end()
        raise EOFError
    bare = _BARE.match(text, position)
    end = bare.end() if bare else position
    if end == len(text) and text[position:end] not in ("null", "true", "false"):
        raise EOFError  # cut off: no text, or a number that may have lost digits
    if end == position:
        raise ValueError(f"no value at {position}")
    return end


def _repaired(text: str) -> Tree:
    """Repairs broken JSON; numbers lose their original spelling."""
    import json_repair  # rarely used, so imported only here

    def tree_of(node: object) -> Tree:
        tree: Tree = {}
        for name, value in node.items() if isinstance(node, dict) else ():
            if isinstance(value, dict):
                tree[str(name)] = tree_of(value)
            else:
                try:
                    tree[str(name)] = JsonFormat().escape(value)
                except TypeError:
                    continue  # lists of lists or of objects
        return tree

    try:
        return tree_of(json_repair.loads(text))
    except Exception:  # a guess at broken text may fail in any way
        return {}
