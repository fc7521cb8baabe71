"""Turns the schemas of a JSON Schema document into annotations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from itertools import chain, count
from typing import Annotated, Any, ForwardRef

from pydantic import BaseModel, Field

from schemax.attributes.declaration import Distinct
from schemax.attributes.discriminator import MOST_MODELS
from schemax.attributes.field_type import MOST_MEMBERS
from schemax.attributes.json_document import (
    MOST_LEVELS,
    MOST_PARTS,
    Node,
    Place,
    SchemaDocument,
    class_name,
    is_mapping,
    is_object,
    merged,
    without,
)
from schemax.attributes.json_values import (
    CONSTRAINTS,
    LENGTHS,
    NUMERIC,
    SIZES,
    Choices,
    constrained,
    is_decimal,
    text_type,
    union_of,
)
from schemax.errors import SchemaError


class Types(ABC):
    """Makes annotations of one document's schemas.

    nested_base: the base of the classes of nested objects.
    classes: the classes built so far, the document's own class last.
    """

    def __init__(self, document: SchemaDocument, nested_base: type[BaseModel]) -> None:
        self._document, self._nested_base = document, nested_base
        self._choices = Choices(document)
        self.classes: list[type[BaseModel]] = []
        self._models: dict[str, type[BaseModel]] = {}
        # References being followed, and references to classes that are not built yet.
        self._open = [document.uri + "#"]
        self._later: dict[str, ForwardRef] = {}
        self._flattened: dict[Any, Node] = {}
        self._levels = self._parts = self._entered = 0

    @abstractmethod
    def _model(
        self, node: Node, place: Place, name: str, base: Any, settings: dict[str, Any]
    ) -> Any:
        """Builds the class of an object."""

    def _type(self, node: Any, place: Place) -> Any:
        """The annotation of a schema node."""
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise self._error(
                place, f"the document has more than {MOST_PARTS:,} parts, references followed"
            )
        with self._deeper(place):
            return self._type_of(node, place)

    def _type_of(self, node: Any, place: Place) -> Any:
        if not isinstance(node, Mapping):
            raise self._error(place, "says nothing about the value; give it a type")
        self._document.check(node, place)
        for key in ("properties", "patternProperties"):
            if not isinstance(node.get(key, {}), Mapping):
                raise self._error(place, f"{key} must be an object of schemas")
        if node.get("nullable") is True:
            return union_of((self._type(without(node, "nullable"), place), None))
        if "$ref" in node:
            return self._referred(node, place)
        if "allOf" in node:
            return self._type(self._flat(node, place), place)
        if "const" in node:
            return self._choices.of_constant(node, place)
        if "enum" in node:
            return self._choices.of_enum(node, place)
        if word := self._union_word(node, place):
            return self._alternatives(node, node[word], place)
        return self._plain_type(node, place)

    def _union_word(self, node: Node, place: Place) -> str | None:
        """The keyword of a node's alternatives; None without any, and for mere conditions."""
        for word in ("anyOf", "oneOf"):
            if word in node and not self._is_condition(node, node[word], place):
                return word
        return None

    def _is_condition(self, node: Node, branches: Any, place: Place) -> bool:
        """True if alternatives are conditions on an object's properties, and define no objects."""
        own = node.get("properties")
        if not own or not isinstance(branches, list):
            return False
        found = [self._resolved(part, place).get("properties") for part in branches]
        # Alternatives name properties of their own; conditions name properties of the node.
        named = [isinstance(one, Mapping) and not one.keys() <= own.keys() for one in found]
        return None in found or not any(named)

    def _resolved(self, part: Any, place: Place) -> Node:
        if not isinstance(part, Mapping):
            return {}
        return self._document.target(part["$ref"], place) if "$ref" in part else part

    def _flat(self, node: Node, place: Place) -> Node:
        """Merges the parts of a node's `allOf`. A lone reference stays, and refers to its class."""
        if "allOf" not in node:
            return node
        with self._deeper(place):
            self._document.check(node, place)
            parts, node = node["allOf"], without(node, "allOf")
            is_alone = len(parts) == 1 and "properties" not in node
            for part in parts:
                part = self._flat(part, place)
                if "$ref" in part and not is_alone:
                    part = {**self._flat_behind(part["$ref"], place), **without(part, "$ref")}
                node = merged(node, part)
        return node

    def _flat_behind(self, ref: Any, place: Place) -> Node:
        """The target of a reference, without `allOf` and references; cached."""
        target = self._document.target(ref, place)
        if ref not in self._flattened:
            with self._deeper(place):
                node = self._flat(target, place)
                if "$ref" in node:
                    node = {**self._flat_behind(node["$ref"], place), **without(node, "$ref")}
            self._flattened[ref] = node
        return self._flattened[ref]

    def _plain_type(self, node: Node, place: Place) -> Any:
        kind = node.get("type")
        if isinstance(kind, list) and kind:
            return union_of(tuple(self._type({**node, "type": one}, place) for one in kind))
        if kind == "null":
            return None
        if is_mapping(node):
            return self._mapping(node, place)
        if is_object(node):
            return self._model(node, place, self._name(place), self._nested_base, {})
        if kind == "array" or (kind is None and ("items" in node or "prefixItems" in node)):
            return self._array(node, place)
        if kind == "string":
            return text_type(self._document, node, place)
        types: dict[Any, Any] = {"integer": int, "number": float, "boolean": bool}
        if isinstance(kind, str) and kind in types:
            words = {} if kind == "boolean" else NUMERIC
            return constrained(self._document, types[kind], node, words, place)
        if kind is None:
            raise self._error(place, "has no type; give it one, such as string")
        raise self._error(
            place,
            f"unknown type {kind!r}; use string, number, integer, boolean, array or object",
        )

    def _mapping(self, node: Node, place: Place) -> Any:
        said = node.get("propertyNames", {})
        if said is False:
            raise self._error(place, "propertyNames allows no name at all; leave it out")
        names = dict(said) if isinstance(said, Mapping) else {}
        values = node.get("additionalProperties")
        for pattern, child in (node.get("patternProperties") or {}).items():
            names["pattern"], values = pattern, child
        key: Any = self._type({"type": "string", **names}, place)
        value: Any = self._type(values, place)
        return constrained(self._document, dict[key, value], node, SIZES, place)

    def _array(self, node: Node, place: Place) -> Any:
        if "prefixItems" in node:
            return self._tuple(node, place)
        if not isinstance(node.get("items"), Mapping):
            raise self._error(place, "does not say what it is a list of; give items with a type")
        inner: Any = self._type(node["items"], place)
        annotation: Any = list[inner]
        if node.get("uniqueItems"):
            unique = Field(json_schema_extra={"uniqueItems": True})
            annotation = Annotated[annotation, Distinct(), unique]
        return constrained(self._document, annotation, node, LENGTHS, place)

    def _tuple(self, node: Node, place: Place) -> Any:
        parts = node["prefixItems"]
        if not isinstance(parts, list) or not parts:
            raise self._error(place, "prefixItems must be a list of schemas")
        if isinstance(node.get("items"), Mapping) or node.get("maxItems", len(parts)) != len(parts):
            raise self._error(
                place, "prefixItems with more items behind them is not supported; declare an object"
            )
        if len(parts) > MOST_MEMBERS:
            raise self._error(place, f"prefixItems holds at most {MOST_MEMBERS} schemas")
        types = tuple(self._type(part, place) for part in parts)
        return tuple[types]  # type: ignore[valid-type]

    def _alternatives(self, node: Node, branches: Any, place: Place) -> Any:
        if not isinstance(branches, list) or not branches:
            raise self._error(place, "anyOf and oneOf must be lists of schemas")
        total = sum("const" not in part for part in branches if isinstance(part, Mapping))
        if total > MOST_MODELS:
            raise self._error(
                place,
                f"is a union of {total:,} schemas; at most {MOST_MODELS} are read: divide it",
            )
        outer = {key: node[key] for key in (*CONSTRAINTS, "type") if key in node}
        if node.get("properties"):  # shared by all alternatives, which are objects
            outer |= {key: node[key] for key in ("properties", "required") if key in node}
            branches = [self._resolved(part, place) for part in branches]
        parts = [merged(outer, part) if isinstance(part, Mapping) else part for part in branches]
        values = [part for part in parts if part != {**outer, "type": "null"}]
        if is_decimal(values, "$schema" in self._document.root):
            number = next(part for part in values if part["type"] == "number")
            decimal = constrained(self._document, Decimal, number, NUMERIC, place)
            return decimal if len(values) == len(parts) else union_of((decimal, None))
        objects = sum("properties" in self._resolved(part, place) for part in values)
        if len(values) == 1:
            return union_of(tuple(self._type(part, place) for part in parts))
        return union_of(tuple(self._kind(part, place, objects == 1) for part in parts))

    def _kind(self, part: Any, place: Place, is_sole: bool) -> Any:
        """The annotation of an alternative. Class names tell objects apart where no field does.

        is_sole: True if no other alternative is an object.
        """
        node = self._flat(part, place) if isinstance(part, Mapping) else {}
        if not is_object(node) or is_mapping(node):
            return self._type(part, place)
        title, taken = node.get("title"), {made.__name__ for made in self.classes}
        stem = class_name(title) if isinstance(title, str) else self._name(place)
        numbered = (f"{stem}{number}" for number in count(1))
        names = chain([stem] if title or is_sole else [], numbered)
        name = next(name for name in names if name not in taken)
        with self._deeper(place):
            return self._model(node, place, name, self._nested_base, {})

    def _referred(self, node: Node, place: Place) -> Any:
        ref = node["$ref"]
        target = self._document.target(ref, place)
        if not is_object(target) or is_mapping(target):
            if ref in self._open[self._entered :]:
                raise self._error(place, f"{ref} refers to itself, and so to no type; give it one")
            with self._opened(ref):
                return self._type({**target, **without(node, "$ref")}, place)
        if ref in self._models:
            return self._models[ref]
        if ref in self._open:
            return self._later.setdefault(ref, ForwardRef(f"Later{len(self._later)}"))
        with self._opened(ref):
            name = class_name(ref.rpartition("/")[2])
            self._models[ref] = self._model(target, place, name, self._nested_base, {})
        return self._models[ref]

    @contextmanager
    def _deeper(self, place: Place) -> Iterator[None]:
        if self._levels == MOST_LEVELS:
            raise self._document.too_deep(place)
        self._levels += 1
        try:
            yield
        finally:
            self._levels -= 1

    @contextmanager
    def _opened(self, ref: str) -> Iterator[None]:
        self._open.append(ref)
        try:
            yield
        finally:
            self._open.pop()

    def _name(self, place: Place) -> str:
        """The class name of an object at a place."""
        return class_name([self._document.name, *place][-1])

    def _error(self, place: Place, reason: str) -> SchemaError:
        return self._document.error(place, reason)
