"""A JSON Schema document: parsed, its references followed, unsupported keywords refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from schemax.errors import SchemaError

Node = Mapping[str, Any]
Place = tuple[str, ...]

_SETTINGS = ("category", "format", "template")

# Keywords that restrict or shape the value in ways that a declaration cannot hold. To ignore them
# would accept documents which the author meant to refuse.
_UNSUPPORTED = (
    *("if", "then", "else", "not", "contains", "prefixItems", "additionalItems"),
    *("patternProperties", "propertyNames", "minProperties", "maxProperties"),
    *("dependentSchemas", "dependentRequired", "dependencies"),
    *("unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef"),
)


class SchemaDocument:
    """root: the document itself; name: of the class that it declares, for errors.

    A `place` is the property names on the way from the root, for errors.
    """

    def __init__(self, root: Node, name: str) -> None:
        self.root = root
        self.name = name

    def target(self, ref: Any, place: Place) -> Node:
        """The node that a local reference points to."""
        if not isinstance(ref, str) or not ref.startswith("#"):
            raise self.error(
                place, f"$ref {ref!r} points outside the document; copy the definition into $defs"
            )
        found: Any = self.root
        for step in unquote(ref).split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping):
            raise self.error(place, f"$ref {ref!r} points to nothing in the document")
        return found

    def annotations(self, node: Node, place: Place) -> Node:
        """The node with the default, description and so on of the scalar it refers to.

        Those of an object or an enum describe the type, not this use of it.
        """
        if "allOf" in node:
            (part,) = node["allOf"]
            return {**self.annotations(part, place), **node}
        if "$ref" not in node:
            return node
        target = self.annotations(self.target(node["$ref"], place), place)
        if is_object(target) or "enum" in target or "const" in target:
            return node
        return {**target, **node}

    def settings(self, node: Node) -> dict[str, Any]:
        """What a node says of its class. Raises SchemaError."""
        found = {key: node[key] for key in _SETTINGS if node.get(key) is not None}
        for key in ("format", "template"):
            if not isinstance(found.get(key, ""), str):
                raise self.error((), f"{key} must be text")
        return found

    def check(self, node: Node, place: Place) -> None:
        """Raises SchemaError for keywords that a declaration cannot hold."""
        word = next((word for word in _UNSUPPORTED if word in node), None)
        if word is not None:
            raise self.error(place, f"{word!r} is not supported; describe the values without it")
        if "allOf" in node:
            parts = node["allOf"]
            if not isinstance(parts, list) or len(parts) != 1 or not isinstance(parts[0], Mapping):
                raise self.error(
                    place, "allOf is supported with one part only; merge its parts into one"
                )

    def error(self, place: Place, reason: str) -> SchemaError:
        """The error to raise for what is wrong at a place."""
        return SchemaError(self.name, ".".join(place) or None, reason)


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


def is_object(node: Node) -> bool:
    """Whether a node describes an object with properties."""
    if "$ref" in node:
        return False
    return node.get("type") == "object" or ("type" not in node and "properties" in node)


def without(node: Node, key: str) -> dict[str, Any]:
    """A copy of a node without one keyword."""
    return {name: value for name, value in node.items() if name != key}
