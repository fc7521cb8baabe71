"""JSON Schema documents become declarations.

The way out is Pydantic's own `model_json_schema()`; what it writes, this module reads back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError as CoreSchemaError

from schemax.attributes.annotations import MOST_CHOICES
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
from schemax.attributes.patterns import Pattern
from schemax.attributes.settings import words_of
from schemax.errors import SchemaError
from schemax.messages import clipped

ModelT = TypeVar("ModelT", bound=BaseModel)

_NUMERIC = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}
_TEXTUAL = {"minLength": "min_length", "maxLength": "max_length", "pattern": "pattern"}
_LENGTHS = {"minItems": "min_length", "maxItems": "max_length"}
# Of a document, whoever wrote it: what is within what, and schemas with their references followed,
# which could otherwise double with every level.
MOST_LEVELS = 32
_CONSTRAINTS = (*_NUMERIC, *_TEXTUAL, *_LENGTHS, "uniqueItems", "format", "items")


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
        if invented and title == _title_by_pydantic(key):
            title = None
        options: dict[str, Any] = {"title": title}
        if name != key:
            options = {"title": title or key, "alias": key}
        if "default" in node:
            options["default"] = self._default(annotation, node["default"], place)
        elif not required and _is_list(annotation) and not node.get("minItems"):
            options["default_factory"] = list
        elif not required:
            annotation = _union((annotation, None))
        examples = node.get("examples", ())
        if not isinstance(examples, (list, tuple)):
            raise self._error(place, "examples must be a list")
        description = node.get("description")
        if description is not None and not isinstance(description, str):
            raise self._error(place, "description must be text")
        if own := {word: node[word] for word in ("long", "unit", "strict") if word in node}:
            options["json_schema_extra"] = own
        field = attr(description, examples=examples, k_max=node.get("k_max"), **options)
        return annotation, field

    def _default(self, annotation: Any, default: Any, place: Place) -> Any:
        if default is None:
            return None
        try:
            return TypeAdapter(annotation).validate_python(default)
        except ValidationError as error:
            reason = error.errors()[0]["msg"]
            raise self._error(place, f"default {default!r} does not fit: {reason}") from error

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
            return _union((self._type(without(node, "nullable"), place), None))
        if "$ref" in node:
            return self._referred(node, place)
        if "allOf" in node:
            return self._type(self._flat(node, place), place)
        if "const" in node:
            return self._choices([node["const"]], place)
        if "enum" in node:
            return self._choices(node["enum"], place)
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
            return _union(tuple(self._type({**node, "type": one}, place) for one in kind))
        if kind == "null":
            return None
        if is_object(node):
            return self._model(node, place, class_name(place[-1]), self._nested_base, {})
        if kind == "array" or (kind is None and "items" in node):
            return self._array(node, place)
        if kind == "string":
            return self._string(node, place)
        types: dict[Any, Any] = {"integer": int, "number": float, "boolean": bool}
        if isinstance(kind, str) and kind in types:
            words = {} if kind == "boolean" else _NUMERIC
            return self._constrained(types[kind], node, words, place)
        if kind is None:
            raise self._error(place, "has no type; give it one, such as string")
        raise self._error(
            place,
            f"unknown type {kind!r}; use string, number, integer, boolean, array or object",
        )

    def _string(self, node: Node, place: Place) -> Any:
        form = node.get("format")
        if form is not None and not isinstance(form, str):
            raise self._error(place, "format must be text")
        types: dict[str | None, Any] = {"date": date, "date-time": datetime}
        if form in types:
            return types[form]
        # Other formats are hints: to parse a URI would rewrite what stands in the text.
        extra = {"json_schema_extra": {"format": form}} if form else {}
        return self._constrained(str, node, _TEXTUAL, place, **extra)

    def _array(self, node: Node, place: Place) -> Any:
        if not isinstance(node.get("items"), Mapping):
            raise self._error(place, "does not say what it is a list of; give items with a type")
        inner: Any = self._type(node["items"], place)
        annotation: Any = list[inner]
        if node.get("uniqueItems"):
            unique = Field(json_schema_extra={"uniqueItems": True})
            annotation = Annotated[annotation, Distinct(), unique]
        return self._constrained(annotation, node, _LENGTHS, place)

    def _constrained(
        self, annotation: Any, node: Node, words: Mapping[str, str], place: Place, **extra: Any
    ) -> Any:
        names = {key: word for key, word in words.items() if key != "pattern"}
        options = {names[key]: node[key] for key in names if key in node} | extra
        if "pattern" in words and "pattern" in node:
            annotation = Annotated[annotation, self._pattern(node["pattern"], place)]
        if not options:
            return annotation
        flag = next((key for key in words if isinstance(node.get(key), bool)), None)
        if flag is not None:
            raise self._error(place, f"{flag} must be a number, as in current JSON Schema drafts")
        constrained: Any = Annotated[annotation, Field(**options)]
        try:
            TypeAdapter(constrained)
        except (PydanticUserError, CoreSchemaError, TypeError) as error:
            shown = ", ".join(f"{key} {node[key]!r}" for key in names if key in node)
            reason = f"Pydantic does not accept {clipped(shown)}: {error}"
            raise self._error(place, reason) from error
        return constrained

    def _pattern(self, pattern: Any, place: Place) -> Pattern:
        try:
            if not isinstance(pattern, str):
                raise ValueError("it must be text")
            return Pattern(pattern)
        except ValueError as error:
            shown = clipped(repr(pattern))
            raise self._error(place, f"pattern {shown} cannot be used: {error}") from error

    def _choices(self, values: Any, place: Place) -> Any:
        if not isinstance(values, list) or not values:
            raise self._error(place, "enum must be a list of values")
        if len(values) > MOST_CHOICES:
            raise self._error(
                place, f"has {len(values):,} choices; at most {MOST_CHOICES:,} are supported"
            )
        for value in values:
            if not isinstance(value, (str, int, float, type(None))):
                raise self._error(place, f"choice {value!r} is neither text nor a number")
        literal: Any = Literal
        return None if values == [None] else literal[tuple(values)]

    def _alternatives(self, node: Node, branches: Any, place: Place) -> Any:
        if not isinstance(branches, list) or not branches:
            raise self._error(place, "anyOf and oneOf must be lists of schemas")
        outer = {key: node[key] for key in (*_CONSTRAINTS, "type") if key in node}
        merged = [{**outer, **part} if isinstance(part, Mapping) else part for part in branches]
        values = [part for part in merged if part != {**outer, "type": "null"}]
        if _is_decimal(values):
            number = next(part for part in values if part["type"] == "number")
            decimal = self._constrained(Decimal, number, _NUMERIC, place)
            return decimal if len(values) == len(merged) else _union((decimal, None))
        return _union(tuple(self._type(part, place) for part in merged))

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


def _is_list(annotation: Any) -> bool:
    bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    return get_origin(bare) is list


def _is_decimal(parts: list[Any]) -> bool:
    """Whether alternatives are how Pydantic writes a Decimal: a number, or its text."""
    if len(parts) != 2 or not all(isinstance(part, Mapping) for part in parts):
        return False
    kinds = {str(part.get("type")): part for part in parts}
    return kinds.keys() == {"number", "string"} and kinds["string"].keys() <= {"type", "pattern"}


def _union(members: tuple[Any, ...]) -> Any:
    union: Any = Union
    return union[members]
