"""JSON Schema documents become declarations.

The way out is Pydantic's own `model_json_schema()`; what it writes, this module reads back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import (
    BaseModel,
    Field,
    create_model,
)
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError as CoreSchemaError

from schemax.attributes.attributes import MOST_ATTRIBUTES
from schemax.attributes.declaration import Distinct, attr
from schemax.attributes.json_document import (
    MOST_PARTS,
    Node,
    Place,
    SchemaDocument,
    is_object,
    merged,
    without,
)
from schemax.attributes.json_names import class_name, field_names
from schemax.attributes.json_values import (
    CONSTRAINTS,
    LENGTHS,
    NUMERIC,
    choices_type,
    constrained,
    default_of,
    is_decimal,
    is_list,
    text_type,
    union_of,
)
from schemax.attributes.settings import spaced, words_of
from schemax.errors import SchemaError

ModelT = TypeVar("ModelT", bound=BaseModel)

# What `attr` takes, beside `k_max`.
_OWN = ("long", "unit", "strict", "after")

# Of a document, whoever wrote it: what is within what, and schemas with their references followed,
# which could otherwise double with every level.
MOST_LEVELS = 32


class Builder:
    """Builds the classes of one document.

    nested_base: what the classes of nested objects derive from.
    metaclass: of all classes whose base has no other one of its own.
    classes: what was built, the document's own class last.
    """

    def __init__(
        self, document: SchemaDocument, nested_base: type[BaseModel], metaclass: type
    ) -> None:
        self._document = document
        self._nested_base, self._metaclass = nested_base, metaclass
        self.classes: list[type[BaseModel]] = []
        self._models: dict[str, type[BaseModel]] = {}
        self._open = [document.uri + "#"]
        self._levels = self._parts = 0

    def root(self, base: type[ModelT]) -> type[ModelT]:
        """The document's own class. Raises SchemaError, which names the property."""
        node, name = self._document.root, self._document.name
        if "$ref" in node:
            self._open.append(node["$ref"])
            node = {**self._document.target(node["$ref"], ()), **without(node, "$ref")}
        node = self._flat(node, ())
        if not is_object(node):
            raise self._error((), 'the document must have type "object" with properties')
        settings = self._document.settings(node)
        title = node.get("title")
        if isinstance(title, str) and words_of(title) != words_of(name):
            settings.setdefault("category", words_of(title))
        return self._model(node, (), name, base, settings)

    def _model(
        self, node: Node, place: Place, name: str, base: type[ModelT], settings: dict[str, Any]
    ) -> type[ModelT]:
        self._document.check(node, place)
        extra = node.get("additionalProperties", True)
        if (not isinstance(extra, bool) and extra != {}) or node.get("patternProperties"):
            raise self._error(
                place,
                "additionalProperties and patternProperties have no known keys; declare each "
                "of them in properties",
            )
        properties = node.get("properties") or {}
        if isinstance(properties, Mapping):
            properties = {key: child for key, child in properties.items() if not _skips(child)}
        if not isinstance(properties, Mapping) or not properties:
            raise self._error(place, "has no properties; declare at least one")
        if len(properties) > MOST_ATTRIBUTES:
            raise self._error(
                place, f"has {len(properties):,} properties; at most {MOST_ATTRIBUTES:,} are read"
            )
        required = node.get("required", [])
        if not isinstance(required, list):
            raise self._error(place, "required must be a list of property names")
        names = field_names(properties, base)
        invented = "$schema" not in self._document.root and _is_of_pydantic(node)
        fields: dict[str, Any] = {
            names[key]: self._field(
                key, names[key], child, key in required, (*place, key), invented
            )
            for key, child in properties.items()
        }
        description = node.get("description")
        metaclass = self._metaclass if issubclass(self._metaclass, type(base)) else type(base)
        try:
            made = create_model(
                name,
                __base__=base,
                __doc__=description if isinstance(description, str) else None,
                __module__=__name__,
                __cls_kwargs__={"metaclass": metaclass, **settings},
                **fields,
            )
        except (PydanticUserError, CoreSchemaError, NameError) as error:
            raise self._error(place, f"Pydantic cannot build it: {error}") from error
        properties_of = {names[key]: (key, key in required) for key in properties}
        made.__json_properties__ = properties_of  # type: ignore[attr-defined]
        self.classes.append(made)
        return made

    def _field(
        self, key: str, name: str, child: Any, required: bool, place: Place, invented: bool
    ) -> tuple[Any, Any]:
        """invented: whether titles may be Pydantic's own, which nobody chose."""
        annotation = self._type(child, place)
        node = self._document.annotations(child, place)
        title = child.get("title")
        if title is not None and not isinstance(title, str):
            raise self._error(place, "title must be text")
        if invented and title == _title_by_pydantic(key) != spaced(key):
            title = None
        options: dict[str, Any] = {"title": title}
        if name != key:
            options = {"title": title or key, "alias": key}
        if "default" in node:
            options["default"] = default_of(self._document, annotation, node["default"], place)
        elif not required and is_list(annotation) and not node.get("minItems"):
            options["default_factory"] = list
        elif not required:
            annotation = union_of((annotation, None))
        examples = node.get("examples", ())
        if not isinstance(examples, (list, tuple)):
            raise self._error(place, "examples must be a list")
        description = node.get("description")
        if description is not None and not isinstance(description, str):
            raise self._error(place, "description must be text")
        if own := {word: node[word] for word in _OWN if word in node}:
            options["json_schema_extra"] = own
        field = attr(description, examples=examples, k_max=node.get("k_max"), **options)
        return annotation, field

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
        if node.get("nullable") is True:
            return union_of((self._type(without(node, "nullable"), place), None))
        if "$ref" in node:
            return self._referred(node, place)
        if "allOf" in node:
            return self._type(self._flat(node, place), place)
        if "const" in node:
            return choices_type(self._document, [node["const"]], place)
        if "enum" in node:
            return choices_type(self._document, node["enum"], place)
        for word in ("anyOf", "oneOf"):
            if word in node:
                return self._alternatives(node, node[word], place)
        return self._plain_type(node, place)

    def _flat(self, node: Node, place: Place) -> Node:
        """The node with all parts of its `allOf`. A lone reference stays one, to its class."""
        for _ in range(MOST_LEVELS):
            if "allOf" not in node:
                return node
            self._document.check(node, place)
            parts, node = node["allOf"], without(node, "allOf")
            for part in parts:
                if "$ref" in part and not (len(parts) == 1 and "properties" not in node):
                    target = self._document.target(part["$ref"], place)
                    part = {**target, **without(part, "$ref")}
                node = merged(node, part)
        raise self._error(place, f"allOf is nested more than {MOST_LEVELS} levels deep; flatten it")

    def _plain_type(self, node: Node, place: Place) -> Any:
        kind = node.get("type")
        if isinstance(kind, list) and kind:
            return union_of(tuple(self._type({**node, "type": one}, place) for one in kind))
        if kind == "null":
            return None
        if is_object(node):
            return self._model(node, place, class_name(place[-1]), self._nested_base, {})
        if kind == "array" or (kind is None and "items" in node):
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

    def _array(self, node: Node, place: Place) -> Any:
        if not isinstance(node.get("items"), Mapping):
            raise self._error(place, "does not say what it is a list of; give items with a type")
        inner: Any = self._type(node["items"], place)
        annotation: Any = list[inner]
        if node.get("uniqueItems"):
            unique = Field(json_schema_extra={"uniqueItems": True})
            annotation = Annotated[annotation, Distinct(), unique]
        return constrained(self._document, annotation, node, LENGTHS, place)

    def _alternatives(self, node: Node, branches: Any, place: Place) -> Any:
        if not isinstance(branches, list) or not branches:
            raise self._error(place, "anyOf and oneOf must be lists of schemas")
        outer = {key: node[key] for key in (*CONSTRAINTS, "type") if key in node}
        merged = [{**outer, **part} if isinstance(part, Mapping) else part for part in branches]
        values = [part for part in merged if part != {**outer, "type": "null"}]
        if is_decimal(values):
            number = next(part for part in values if part["type"] == "number")
            decimal = constrained(self._document, Decimal, number, NUMERIC, place)
            return decimal if len(values) == len(merged) else union_of((decimal, None))
        return union_of(tuple(self._type(part, place) for part in merged))

    def _referred(self, node: Node, place: Place) -> Any:
        ref = node["$ref"]
        target = self._document.target(ref, place)
        if ref in self._open:
            raise self._error(
                place, f"{ref} refers to itself; a recursive schema has no fixed set of attributes"
            )
        with self._opened(ref):
            if not is_object(target):
                return self._type({**target, **without(node, "$ref")}, place)
            if ref not in self._models:
                name = class_name(ref.rpartition("/")[2])
                self._models[ref] = self._model(target, place, name, self._nested_base, {})
            return self._models[ref]

    @contextmanager
    def _deeper(self, place: Place) -> Iterator[None]:
        if self._levels == MOST_LEVELS:
            # As far as it is of use to whoever looks for it.
            raise self._error(
                (*place[:3], "..."), f"is nested more than {MOST_LEVELS} levels deep; flatten it"
            )
        self._levels += 1
        yield
        self._levels -= 1

    @contextmanager
    def _opened(self, ref: str) -> Iterator[None]:
        self._open.append(ref)
        yield
        self._open.pop()

    def _error(self, place: Place, reason: str) -> SchemaError:
        return self._document.error(place, reason)


def _skips(node: Any) -> bool:
    return isinstance(node, Mapping) and node.get("skip") is True


def _is_of_pydantic(node: Node) -> bool:
    """Whether all titles are what `model_json_schema` writes where there are none."""
    title = node.get("title")
    children = [child for child in node["properties"].values() if isinstance(child, Mapping)]
    return (
        isinstance(title, str)
        and title.isidentifier()
        and all("title" in child or "$ref" in child or "allOf" in child for child in children)
    )


def _title_by_pydantic(key: str) -> str:
    return key.title().replace("_", " ").strip()
