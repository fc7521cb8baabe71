"""`SchemaDocument`: parses JSON Schema, follows references, refuses misspelt keywords."""

from __future__ import annotations

import json
import keyword
import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import urldefrag, urljoin

from pydantic import BaseModel

from schemax.attributes.patterns import MOST_STATES, Pattern, states_of
from schemax.base.messages import clipped
from schemax.errors import SchemaError

Node = Mapping[str, Any]
KeyPath = tuple[str, ...]

_SETTINGS = ("category", "format", "template", "demonstrations")
# Keywords of schemax and Pydantic, beside the standard's.
_OWN_WORDS = frozenset(
    {"category", "template", "k_max", "long", "unit", "strict", "extractive", "after"}
    | {"max_depth", "skip", "demonstrations", "language"}
    | {"nullable", "discriminator"}
    | {"example", "xml", "externalDocs"}  # of OpenAPI
)
MOST_PARTS = 20_000
"""The most schemas and maps of schemas in a document; also the most with references followed."""
MOST_LEVELS = 32
"""The most levels of nested schemas; the number of schemas may double with every level."""
# The most levels of JSON objects and lists; a level of schemas takes several.
_MOST_NESTED = 200

OWN = ("long", "unit", "strict", "extractive", "language", "after", "max_depth")
"""The keywords that `attr` takes, beside `k_max`."""

# Keywords whose values are no schemas.
DATA = ("const", "enum", "default", "examples", "demonstrations")

# Keywords that no declaration holds.
_UNSUPPORTED = ("additionalItems", "$dynamicRef", "$recursiveRef")


class SchemaDocument:
    """A JSON Schema document.

    root: the document itself. References are absolute, see `with_absolute_references`; nothing is
        ever fetched. An unknown `$schema` is read as 2020-12.
    name: the name of the document's class, for errors.
    literals, num_choices: the types of enums so far, and the number of their choices.

    `path` holds the property names from the root, for errors. Raises SchemaError for a document
    of too many parts.
    """

    def __init__(self, root: Node, name: str) -> None:
        from referencing import Registry, Resource
        from referencing.jsonschema import DRAFT202012

        self.root = root
        self.name = name
        if not isinstance(root.get("$schema", ""), str):
            raise self.error((), "$schema must be text")
        size, levels = _extent(root)
        if levels > _MOST_NESTED:
            raise self.too_deep(())
        if size > MOST_PARTS:
            raise self.error((), f"the document has more than {MOST_PARTS:,} parts")
        if (surrogate := lone_surrogate(root)) is not None:
            path, text = surrogate
            reason = f"{clipped(path)}: {clipped(text)} has half a surrogate pair, which is no text"
            raise self.error((), reason)
        self._states = self.num_choices = 0
        self.literals: dict[tuple[int, str], Any] = {}
        self.uri = _base_of(root, "")
        self.resource = Resource.from_contents(root, default_specification=DRAFT202012)
        self._resolver = Registry().with_resource(self.uri, self.resource).resolver(self.uri)

    def target(self, ref: Any, path: KeyPath) -> Node:
        """The node that a local reference points to."""
        from referencing.exceptions import NoSuchAnchor, PointerToNowhere, Unresolvable

        shown = clipped(repr(ref))
        outside = f"$ref {shown} points outside the document; copy the definition into $defs"
        if not isinstance(ref, str):
            raise self.error(path, outside)
        try:
            node: Any = self._resolver.lookup(ref).contents
        except (NoSuchAnchor, PointerToNowhere):
            node = None
        except (Unresolvable, ValueError, AttributeError, TypeError):
            # The resolver searches all parts for names, and some parts may not be schemas.
            raise self.error(path, outside) from None
        if not isinstance(node, Mapping):
            raise self.error(path, f"$ref {shown} points to nothing in the document")
        return node

    def pattern(self, pattern: Any, path: KeyPath) -> Pattern:
        """A pattern for values. Raises SchemaError, also for too many patterns."""
        try:
            if not isinstance(pattern, str):
                raise ValueError("it must be text")
            compiled = Pattern(pattern)
            self._states += states_of(pattern)
            if self._states > MOST_STATES:
                raise ValueError(f"all together have more than {MOST_STATES:,} characters")
        except ValueError as error:
            shown = clipped(repr(pattern))
            raise self.error(path, f"pattern {shown} cannot be used: {error}") from error
        return compiled

    def too_deep(self, path: KeyPath) -> SchemaError:
        """The error to raise for nesting that is too deep."""
        shown = (*path[:3], "...") if path else ()  # enough to find it
        return self.error(shown, f"is nested more than {MOST_LEVELS} levels deep; flatten it")

    def settings(self, node: Node) -> dict[str, Any]:
        """Reads the settings of a node's class. Raises SchemaError."""
        values = {key: node[key] for key in _SETTINGS if node.get(key) is not None}
        for key in ("format", "template"):
            if not isinstance(values.get(key, ""), str):
                raise self.error((), f"{key} must be text")
        if "demonstrations" in values:
            values["demonstrations"] = self._demonstrations(values["demonstrations"])
        return values

    def _demonstrations(self, rows: Any) -> list[tuple[str, dict[str, Any]]]:
        rows = rows if isinstance(rows, list) else [rows]
        for number, row in enumerate(rows):
            text, attributes = (
                (row.get("text"), row.get("attributes")) if isinstance(row, Mapping) else (None, 0)
            )
            if not isinstance(text, str) or not isinstance(attributes, Mapping):
                raise self.error(
                    (), f'demonstrations[{number}] must be {{"text": text, "attributes": object}}'
                )
        return [(row["text"], nested(row["attributes"])) for row in rows]

    def check(self, node: Node, path: KeyPath) -> None:
        """Raises SchemaError for keywords that are misspelt, or that no declaration holds."""
        word = next((word for word in _UNSUPPORTED if word in node), None)
        if word is not None:
            raise self.error(path, f"{word!r} is not supported; describe the values without it")
        for word in node:
            if word not in _words() and (meant := _meant(word)):
                raise self.error(
                    path, f"unknown keyword {clipped(repr(word))}; did you mean {meant!r}?"
                )
        parts = node.get("allOf", [])
        if not isinstance(parts, list) or not all(isinstance(part, Mapping) for part in parts):
            raise self.error(path, "allOf must be a list of schemas")

    def error(self, path: KeyPath, reason: str) -> SchemaError:
        """The error to raise for a fault at a path."""
        return SchemaError(self.name, ".".join(path) or None, reason)


def parse(document: Mapping[str, Any] | str, name: str | None) -> Node:
    """The root node. Raises SchemaError for anything but a JSON object."""
    shown = name or "JSON Schema"
    if isinstance(document, str):
        try:
            document = json.loads(document)
        except (ValueError, RecursionError) as error:
            raise SchemaError(shown, None, f"the document is not valid JSON: {error}") from error
    if not isinstance(document, Mapping):
        raise SchemaError(
            shown, None, f"the document must be a JSON object, not {type(document).__name__}"
        )
    return document


def with_absolute_references(node: Any, base: str = "") -> Any:
    """A copy with absolute references: each is joined to the enclosing `$id`.

    Raises RecursionError for a document that is nested too deeply.
    """
    if isinstance(node, list):
        return [with_absolute_references(item, base) for item in node]
    if not isinstance(node, Mapping):
        return node
    base = _base_of(node, base)
    copy: dict[Any, Any] = {}
    for key, value in node.items():
        if key == "$ref" and isinstance(value, str):
            copy[key] = _joined_address(base, value)
        else:
            copy[key] = value if key in DATA else with_absolute_references(value, base)
    return copy


def is_object(node: Node) -> bool:
    """True if a node describes an object with properties."""
    if "$ref" in node:
        return False
    return node.get("type") == "object" or ("type" not in node and "properties" in node)


def is_mapping(node: Node) -> bool:
    """True if a node describes an object with unknown keys, but a known type of values."""
    extra = node.get("additionalProperties")
    values = [extra] if isinstance(extra, Mapping) and extra else []
    values += patterns if isinstance(patterns := node.get("patternProperties"), Mapping) else ()
    return is_object(node) and not node.get("properties") and len(values) == 1


def without(node: Node, *keys: str) -> dict[str, Any]:
    """A copy of a node without keywords."""
    return {name: value for name, value in node.items() if name not in keys}


def merged(first: Node, second: Node) -> dict[str, Any]:
    """A node that requires what two nodes require, as far as a declaration can hold it."""
    node = {**first, **second}
    for key in ("properties", "$defs"):
        if isinstance(first.get(key), Mapping) and isinstance(second.get(key), Mapping):
            node[key] = {**first[key], **second[key]}
    if isinstance(first.get("required"), list) and isinstance(second.get("required"), list):
        names = [*first["required"], *second["required"]]
        node["required"] = [*dict.fromkeys(name for name in names if isinstance(name, str))]
    return node


def _extent(root: Any) -> tuple[int, int]:
    """Counts schemas and maps of schemas, and levels of JSON."""
    size, levels, parts = 0, 0, [root]
    while parts and levels <= _MOST_NESTED:
        below: list[Any] = []
        for part in parts:
            if isinstance(part, list):
                below += part
            elif isinstance(part, Mapping):
                size += 1
                below += (value for key, value in part.items() if key not in DATA)
        levels, parts = levels + 1, below
    return size, levels


def _base_of(node: Node, base: str) -> str:
    own = node.get("$id")
    return urldefrag(urljoin(base, own))[0] if isinstance(own, str) else base


def _joined_address(base: str, ref: str) -> str:
    """Joins addresses as `urljoin` does, also for bases such as "urn:example:tv"."""
    if ref.startswith("#"):
        return base + ref.rstrip("#") if ref != "#" else base + "#"
    return urljoin(base, ref)


@cache
def _words() -> frozenset[str]:
    """The keywords of all drafts of the standard, and our own."""
    from jsonschema_specifications import REGISTRY

    contents = (REGISTRY.contents(uri) for uri in REGISTRY)
    return _OWN_WORDS.union(
        *(schema.get("properties", ()) for schema in contents if isinstance(schema, Mapping))
    )


def _meant(word: str) -> str | None:
    """The keyword that a misspelt word resembles, or None."""
    from rapidfuzz import fuzz, process

    closest = process.extractOne(word, sorted(_words()), scorer=fuzz.ratio, score_cutoff=85)
    return closest and closest[0]


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values under dotted names as a tree without nulls, but with all inner nodes."""
    tree: dict[str, Any] = {}
    for dotted, value in values.items():
        *parents, leaf = dotted.split(".")
        node = tree
        for name in parents:
            node = node.setdefault(name, {})
        if value is not None:
            node[leaf] = value
    return tree


def class_name(title: str) -> str:
    """A Python class name of the words of a title."""
    words = re.findall(r"[^\W_]+", re.sub(r"['\u2019]", "", title))
    name = "".join(word[:1].upper() + word[1:] for word in words) or "Schema"
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"Schema{name}"


def field_names(properties: Mapping[str, Any], base: type[BaseModel]) -> dict[str, str]:
    """A Python field name for every property. Properties that are valid names keep them."""
    names = {key: key for key in properties if _is_field_name(key, base)}
    used, times = set(names), Counter[str]()
    for key in properties:
        if key in names:
            continue
        words = re.findall(r"\w+", key)
        stem = "_".join(words).lower().strip("_") if not key.isidentifier() else key.strip("_")
        if not stem.isidentifier() or stem.startswith(("model_validate", "model_dump")):
            stem = f"field_{stem}".rstrip("_")
        if not _is_field_name(stem, base):
            stem += "_"
        name = stem
        while name in used:
            times[stem] += 1
            name = f"{stem}_{times[stem] + 1}".replace("__", "_")
        used.add(name)
        names[key] = name
    return names


def _is_field_name(name: str, base: type[BaseModel]) -> bool:
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and not name.startswith(("_", "model_validate", "model_dump"))
        and not hasattr(base, name)
    )


def lone_surrogate(root: Any) -> tuple[str, str] | None:
    """The path of the first text that UTF-8 cannot encode, and the escaped text; or None.

    `"\\ud800"` is JSON, but half a surrogate pair is no character.
    """
    parts: list[tuple[str, Any]] = [("#", root)]
    while parts:
        path, part = parts.pop()
        if isinstance(part, Mapping):
            parts += ((path, key) for key in part)
            parts += ((f"{path}/{_escaped(str(key))}", value) for key, value in part.items())
        elif isinstance(part, (list, tuple)):
            parts += ((f"{path}/{number}", value) for number, value in enumerate(part))
        elif isinstance(part, str) and not part.isascii() and part != (shown := _escaped(part)):
            return path, shown
    return None


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
