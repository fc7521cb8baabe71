"""YAML 1.2: one `key: value` per line, scalars plain where they read back as the same text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

from schemax.base.messages import one_line
from schemax.formats.base import (
    DOUBLE_QUOTED,
    NEWLINE,
    NOT_SCALAR,
    SINGLE_QUOTED,
    BaseFormat,
    DocumentKey,
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
    stop_at,
    written,
)
from schemax.formats.json_format import ESCAPES, quote

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
        parts += [f"{'  ' * depth}{_name(name)}:\n" for depth, name in groups_of(path, keep)]
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
        text = answer_in(text)
        if len(text) > _MOST_CHARACTERS:
            return {}
        tree = self._tree(text, max(map(len, paths), default=0))
        return select(tree if isinstance(tree, dict) else {}, paths, self.label)

    def _tree(self, text: str, depth: int) -> str | Tree:
        """A value as a YAML parser reads it; if the parser refuses, each key is read by itself.

        depth: the most levels of keys to read by themselves.
        """
        # Slow to import, so imported only where it is used.
        from ruamel.yaml import YAML

        yaml = YAML(typ="safe", pure=True)
        yaml.max_depth, yaml.composer.warn_double_anchors = _MOST_LEVELS, False
        try:
            return self._converted(yaml.compose(text), set())
        except Exception:  # any error of the parser
            blocks = _NEXT_KEY.split(dedent(text).strip("\n")) if depth else ()
        pairs: list[tuple[str, str | Tree]] = []
        for block in blocks:
            if not (key := _KEY.match(block)):
                continue
            name = _scalar(key[1]) if key[1][0] in "\"'" else key[1].rstrip(" \t")
            value = block[key.end() :]
            if value.startswith("\n"):
                pairs.append((str(name), self._tree(value, depth - 1)))
            elif "\n" in value and len(blocks) > 1:
                whole = self._tree(block, depth)
                pairs += whole.items() if isinstance(whole, dict) else ()
            else:
                pairs.append((str(name), f" {one_line(value)}"))
        return _tree_of(pairs)

    def _converted(self, node: Any, known: set[int]) -> str | Tree:
        """A node as literals. A list that holds more than scalars is a group of its items.

        Scalars stay as they were written (`1.50`), and tags have no effect. known: the nodes that
        were converted, so that no alias is.
        """
        from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

        def text_of(scalar: Any) -> str | None:
            return None if scalar.style is None and scalar.value in _NULLS else str(scalar.value)

        if id(node) in known:
            return NOT_SCALAR
        known.add(id(node))
        if isinstance(node, ScalarNode):
            return self.escape(text_of(node))
        if isinstance(node, SequenceNode):
            if all(isinstance(item, ScalarNode) for item in node.value):
                return self.escape([text_of(item) for item in node.value])
            return {str(n): self._converted(item, known) for n, item in enumerate(node.value)}
        pairs = node.value if isinstance(node, MappingNode) else ()
        return _tree_of((str(key.value), self._converted(child, known)) for key, child in pairs)


def _tree_of(pairs: Iterable[tuple[str, str | Tree]]) -> Tree:
    """Names with their values; no value if a name has two: which one counts is not known."""
    tree: Tree = {}
    for name, value in pairs:
        if tree.setdefault(name, value) != value:
            tree[name] = NOT_SCALAR
    return tree


# The parser takes up to two seconds for 16,000 characters; a deeper output is read key by key.
_MOST_CHARACTERS, _MOST_LEVELS = 16_000, 20
_NEXT_KEY = re.compile(r"\n(?=[^\s#-])")
_KEY = re.compile(rf"\s*({DOUBLE_QUOTED}|{SINGLE_QUOTED}|[^\s#\"'][^\n]*?):(?=\s|\Z)")


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


def _is_blank(text: str) -> bool:
    return not text.strip(" \t") or bool(re.match(r"[ \t]+#", text))


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
        raise ValueError("expected a single value, got a mapping or several values")
    elif _BLOCK_SCALAR.fullmatch(text):
        raise ValueError("expected a value on one line, got a block of lines")
    if "#" in text and (comment := _COMMENT.search(text)):
        text = text[: comment.start()].rstrip(" \t")
        if text in _NULLS:
            return None
    return clean(text)
