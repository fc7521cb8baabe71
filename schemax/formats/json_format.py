"""JSON: one member per line, strings in quotes, lists on one line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from schemax.base.messages import clipped
from schemax.formats.base import (
    DOUBLE_QUOTED,
    NOT_SCALAR,
    BaseFormat,
    Form,
    Path,
    Scalar,
    Spelling,
    Tree,
    Value,
    Writable,
    answer_in,
    clean,
    common_depth,
    decode_escapes,
    groups_of,
    is_sequence,
    items_of,
    scalar_text,
    select,
    split_items,
    written,
)

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_ANY_STRING = re.compile(rf"{DOUBLE_QUOTED}|'[^'\\]*(?:\\.[^'\\]*)*'", re.DOTALL)
_AROUND = " \t\r\n,"
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
            parts += [f"\n{_indent(depth)}}}" for depth, _ in reversed(groups_of(previous, keep))]
            parts.append(",\n")
        parts += [
            f"{_indent(depth)}{quote(clean(name))}: {{\n" for depth, name in groups_of(path, keep)
        ]
        parts.append(f"{_indent(len(path) - 1)}{quote(clean(path[-1]))}:")
        return "".join(parts)

    def closing(self, last: Path) -> str:
        groups = [f"\n{_indent(depth)}}}" for depth, _ in reversed(groups_of(last, 0))]
        return "".join([*groups, "\n}"])

    def escape(self, value: Writable) -> str:
        literals = [_literal(item) for item in items_of(value)]
        return f" [{', '.join(literals)}]" if is_sequence(value) else f" {literals[0]}"

    def unescape(self, raw: str, *, is_list: bool = False) -> Value:
        text = raw.strip(_AROUND)
        if text == "null":  # most values of most documents
            return None
        if text.startswith("["):
            items, end = split_items(text)
            if end < len(text):
                raise ValueError(f"expected one list, got more: {clipped(text)}")
            return [_value(item) for item in items]
        value = _value(text)
        return [value] if is_list and value is not None else value

    def spelling(self) -> Spelling:
        quoted = (Form('"', '"', written(lambda character: quote(character)[1:-1])),)
        return Spelling(quoted, quoted, opening="[", separator=", ", closing="]")

    def parse(self, text: str, paths: Sequence[Path]) -> dict[Path, str]:
        tree, rest = _members(answer_in(text))
        while rest and tree:
            draft, rest = _members(rest)
            if draft != tree and draft.keys() & tree.keys():
                tree = {}
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
    if literal[0] in "\"'":
        string = _ANY_STRING.match(literal)
        if string is None:
            raise ValueError("the string is not closed")
        if string.end() < len(literal):
            raise ValueError(f"text stands behind the string: {clipped(literal)}")
        return decode_escapes(literal[1:-1], ESCAPES)
    if literal[0] == "{":
        raise ValueError("expected a single value, got an object or several values")
    return clean(literal)


def _string(quote: str) -> str:
    """The pattern of a string in which a model may have left quotes as they are.

    A quote ends the string where a mark, a key or the end of the line follows, and the end of a
    line where a key follows.
    """
    plain = rf"[^{quote}\\\n]*+"
    key = rf"{quote}{plain}{quote}[ \t]*:"
    end = rf"{quote}(?=\s*(?:[,:}}\]]|\Z|{key})|[ \t]*\n)|\n(?=[ \t]*{key})"
    return rf"(?<!\w){quote}{plain}(?:(?!{end})(?:\\.|[{quote}\n]){plain})*+(?:{quote}|\\?\Z|)"


_TOKEN = re.compile(rf"({_string(chr(34))}|{_string(chr(39))})(\s*:)?|[{{}}\[\]]", re.DOTALL)
_OPENING = re.compile(r"\A\s*(?=[\"'])|\{\s*(?=[\"'])")
_BLANK = re.compile(r"\s*")
# A literal that shows where it ends.
_WHOLE = re.compile(r"\s*(?:[\"'\[]|(?:null|true|false)\s*\Z)")


def _members(text: str) -> tuple[Tree, str]:
    """The members of the first object in a text, and the text behind it.

    The opening brace may precede the text.

    A literal is the text between a colon and the next key, or the brace that closes the object.
    Only keys, brackets and strings are told apart here: `unescape` reads literals.
    """
    root: Tree = {}
    groups, depth = [root], 0
    name, key, start = "", 0, 0  # of the member that is read, start 0 between members

    def end_literal(end: int) -> None:
        if start:
            literal = f" {text[start:end].strip(_AROUND)}"
            if groups[-1].setdefault(name, literal) != literal:
                groups[-1][name] = NOT_SCALAR

    opening, token = _OPENING.search(text), None
    for token in _TOKEN.finditer(text, opening.end()) if opening else ():
        mark = token[0]
        if depth or mark == "[":
            depth += (mark in "[{") - (mark in "]}")
        elif token[2] and _ANY_STRING.fullmatch(token[1]):
            end_literal(token.start())
            name, key, start = decode_escapes(token[1][1:-1], ESCAPES), token.start(), token.end()
        elif mark == "{" and start and _BLANK.fullmatch(text, start, token.start()):
            group = groups[-1].get(name)
            groups.append(group if isinstance(group, dict) else {})
            groups[-2][name], start = groups[-1], 0
        elif mark == "{" and start:
            depth = 1
        elif mark == "}":
            end_literal(token.start())
            start = 0
            groups.pop()
            if not groups:
                return root, text[token.end() :]
    # The output is cut off: behind a member, if its last string or white space follows a comma.
    end = token.start() if token and token[1] and token.start() > start else len(text)
    is_behind = re.search(r",\s*\Z" if end < len(text) else r",\s+\Z", text[start:end])
    end_literal(end if is_behind else len(text))
    if start and not is_behind and not _WHOLE.match(text, start):
        groups[-1][name] = f" {text[key:].strip()}"  # with its key, no literal can be read
    return root, ""


def objects_in(text: str) -> list[str] | None:
    """The texts of the objects in a list; None for a text that is no list of objects."""
    objects: list[str] = []
    start, end, depth = 0, 1, 0
    for token in _TOKEN.finditer(text):
        depth += (token[0] in "[{") - (token[0] in "]}")
        if depth == 2 and token[0] == "{":
            start = token.start()
        elif depth == 1 and token[0] == "}":
            if text[end:start].strip(_AROUND):
                return None
            objects.append(text[start : token.end()])
            end = token.end()
    return objects if text[:1] == "[" and text[end:].strip(_AROUND) == "]" else None
