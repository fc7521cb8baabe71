"""YAML 1.2: one `key: value` per line, scalars plain where they read back as the same text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from schemax.formats.base import (
    DOUBLE_QUOTED,
    SINGLE_QUOTED,
    BaseFormat,
    DocumentKey,
    Path,
    Scalar,
    Tree,
    Value,
    Writable,
    clean,
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
from schemax.formats.json_format import ESCAPES, quote
from schemax.formats.spelling import Form, Spelling, written
from schemax.formats.stop_rules import NEWLINE, stop_at

# Texts that do not read back from a plain scalar, each pattern from end to end, in the common
# dialect of Python and Rust: an indicator or white space first, white space last, texts that look
# like a key or a comment, and characters that only quotes can hold.
_NOT_PLAIN = (
    r"""[\s,\[\]{}#&*!|>'"%@`?:](?s:.*)""",
    r"-(?:\s(?s:.*)|--(?s:.*))?",
    r"\.\.\.(?s:.*)",
    r"(?s:.*)(?:\s|:|:\s(?s:.*)|\s\#(?s:.*))",
    r"(?s:.*)"
    r"[^ -~\u00a0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff](?s:.*)",
    # The empty text, and texts that some reader takes for null, a boolean, a number, a date or a
    # merge.
    r"(?:)|~|null|Null|NULL|true|True|TRUE|false|False|FALSE|=|<<",
    r"[-+]?[0-9_]*\.?[0-9_]*(?:[eE][-+]?[0-9_]*)?",
    r"[-+]?0(?:x[0-9a-fA-F_]*|o[0-7_]*|b[01_]*)",
    r"[-+]?[0-9][0-9_]*(?::[0-9]+)+(?:\.[0-9_]*)?",
    r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt\s](?s:.*))?",
)
_NOT_PLAIN_ITEM = r"(?s:.*)[,\[\]{}:#](?s:.*)"
_NEEDS_QUOTES = re.compile("|".join(f"(?:{pattern})" for pattern in _NOT_PLAIN))
_FLOW_INDICATOR = re.compile(_NOT_PLAIN_ITEM)
_QUOTED_UNSEEN = re.compile("[\ufeff\ufffe\uffff]")
_COMMENT = re.compile(r"(?:\A|[ \t])#")
_DOUBLE = re.compile(DOUBLE_QUOTED)
_SINGLE = re.compile(SINGLE_QUOTED)
_BLOCK_SCALAR = re.compile(r"[|>][-+0-9]*")
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_ESCAPES = {
    **ESCAPES,
    **dict(zip(" 0a\tveN_LP", " \0\a\t\v\x1b\x85\xa0\u2028\u2029", strict=True)),
    **{"x": "", "U": ""},  # with their digits
}


@dataclass(frozen=True)
class YamlFormat(BaseFormat):
    """`Size: XL`, nested by indentation. The last value of an output ends with its line."""

    name = "yaml"
    delimiter = "\n"
    stop = NEWLINE
    end = stop_at("\n\n")

    def opening(self) -> str:
        return ""

    def key(self, path: Path, previous: Path | None) -> str:
        keep = common_depth(path, previous)
        parts = [] if previous is None else ["\n"]
        parts += [f"{'  ' * depth}{_name(name)}:\n" for depth, name in opened_groups(path, keep)]
        parts.append(f"{'  ' * (len(path) - 1)}{_name(path[-1])}:")
        return "".join(parts)

    def closing(self, last: Path) -> str:
        return "\n"

    def escape(self, value: Writable) -> str:
        flow = is_sequence(value)
        literals = [_literal(item, flow) for item in items_of(value)]
        return f" [{', '.join(literals)}]" if flow else f" {literals[0]}"

    def unescape(self, raw: str, *, is_list: bool = False) -> Value:
        text = raw.split("\n", 1)[0].strip(" \t\r")
        if text.startswith("["):
            items, end = split_items(text)
            # `[NEW] Acme TV` is no list but broken YAML: it can only be meant as text.
            if _is_blank(text[end:]):
                return [_scalar(item) for item in items]
        value = _scalar(text)
        return [value] if is_list and value is not None else value

    def spelling(self) -> Spelling:
        quoted = Form('"', '"', written(lambda character: _quoted(character)[1:-1]))
        return Spelling(
            texts=(Form(never=_NOT_PLAIN), quoted),
            items=(Form(never=(*_NOT_PLAIN, _NOT_PLAIN_ITEM)), quoted),
            opening="[",
            separator=", ",
            closing="]",
        )

    def parse(self, text: str, paths: Sequence[Path]) -> dict[Path, str]:
        text = without_fence(text)
        tree = self._composed(text)
        return select(self._lines(text) if tree is None else tree, paths, self.label)

    def _composed(self, text: str) -> Tree | None:
        """The output as a YAML parser reads it; None if it is not YAML."""
        # Slow to import, so imported only where it is used.
        from ruamel.yaml import YAML
        from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

        # Nodes instead of values: scalars stay as they were written (`1.50`), and tags have no
        # effect. Converted nodes are remembered, so that aliases cannot blow up the tree.
        converted: dict[int, str | Tree] = {}

        def scalar(node: Any) -> str | None:
            if not isinstance(node, ScalarNode):
                raise TypeError
            return None if node.style is None and node.value in _NULLS else str(node.value)

        def convert(node: Any) -> str | Tree:
            if id(node) in converted:
                return converted[id(node)]
            if isinstance(node, MappingNode):
                group: Tree = {}
                converted[id(node)] = group
                for name, child in node.value:
                    if isinstance(name, ScalarNode):
                        group[str(name.value)] = convert(child)
                return group
            try:
                value: Any = (
                    [scalar(item) for item in node.value]
                    if isinstance(node, SequenceNode)
                    else scalar(node)
                )
            except TypeError:
                return {}  # a list of groups is no value, so it counts as absent
            converted[id(node)] = self.escape(value)
            return converted[id(node)]

        try:
            tree = convert(YAML(typ="safe", pure=True).compose(text))
        except Exception:  # any error of the parser: read line by line
            return None
        return tree if isinstance(tree, dict) else None

    def _lines(self, text: str) -> Tree:
        """Reads the output line by line; an error costs its own line alone."""
        root: Tree = {}
        groups: list[tuple[int, Tree]] = [(-1, root)]
        listed: list[str | None] = []
        owner: tuple[int, Tree, str] | None = None  # the key whose value may follow below
        for line in text.split("\n"):
            match = _LINE.match(line)
            if match is None:
                continue
            indent = len(match[1])
            if match[2] is not None:
                if owner is not None and indent >= owner[0]:
                    try:
                        listed.append(_scalar(match[2].strip(" \t\r")))
                    except ValueError:
                        continue
                    owner[1][owner[2]] = self.escape(listed)
                continue
            try:
                name = _scalar(match[3]) or match[3]
            except ValueError:
                continue
            if owner is not None and indent > owner[0] and not listed:
                group: Tree = {}
                owner[1][owner[2]] = group
                groups.append((owner[0], group))
            while groups[-1][0] >= indent:
                groups.pop()
            parent = groups[-1][1]
            listed, owner = [], None
            raw = match[4] or ""
            try:
                if self.unescape(raw) is None:
                    owner = (indent, parent, name)
            except ValueError:
                continue
            parent[name] = f" {raw}" if raw else " null"
        return root


_LINE = re.compile(
    rf"( *)(?:-[ \t]+(.*)|({DOUBLE_QUOTED}|{SINGLE_QUOTED}|[^\s#\"'].*?)[ \t]*:(?:[ \t]+(.*))?)"
    r"\r?\Z"
)


def is_plain(text: str) -> bool:
    return not _NEEDS_QUOTES.fullmatch(text)


def _quoted(text: str) -> str:
    return _QUOTED_UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", quote(text))


def _name(name: str) -> str:
    text = clean(name)
    if isinstance(name, DocumentKey) and re.fullmatch(r"[0-9]+", text):
        return text
    return text if is_plain(text) else _quoted(text)


def _literal(value: Scalar, flow: bool) -> str:
    text, kind = scalar_text(value)
    if flow and kind != "bare" and _FLOW_INDICATOR.fullmatch(text):
        return _quoted(text)
    return text if kind != "text" or is_plain(text) else _quoted(text)


def _is_blank(rest: str) -> bool:
    return not rest.strip(" \t") or bool(re.match(r"[ \t]+#", rest))


def _scalar(text: str) -> str | None:
    """The value of one scalar without white space around it.

    Does not call a YAML parser, which takes a millisecond, for millions of slots. Text that is an
    error in YAML (`a: b`, `@x`) is taken as it is.
    """
    if text in _NULLS:
        return None
    first = text[0]
    if first in "\"'":
        match = (_DOUBLE if first == '"' else _SINGLE).match(text)
        if match is None:
            raise ValueError("the string is not closed")
        if _is_blank(text[match.end() :]):
            body = match[0][1:-1]
            return decode_escapes(body, _ESCAPES) if first == '"' else body.replace("''", "'")
    elif first == "{":
        raise ValueError("expected a single value, got a mapping")
    elif _BLOCK_SCALAR.fullmatch(text):
        raise ValueError("expected a value on one line, got a block of lines")
    if "#" in text and (comment := _COMMENT.search(text)):
        text = text[: comment.start()].rstrip(" \t")
        if text in _NULLS:
            return None
    return clean(text)
