"""Builds declarations from JSON Schema documents.

The inverse is Pydantic's `model_json_schema()`, whose documents this module reads back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from itertools import chain, count
from typing import Annotated, Any, ForwardRef, TypeVar

from pydantic import BaseModel, Field, RootModel, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError as CoreSchemaError

from schemax.attributes.attributes import MOST_ATTRIBUTES, MOST_REFUSALS
from schemax.attributes.classes import MadeClass
from schemax.attributes.discriminator import MOST_MODELS
from schemax.attributes.field_type import MOST_MEMBERS
from schemax.attributes.json_document import (
    MOST_LEVELS,
    MOST_PARTS,
    OWN,
    KeyPath,
    Node,
    SchemaDocument,
    class_name,
    field_names,
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
    constrained,
    container_of,
    default_of,
    enum_type,
    is_decimal,
    literal_of,
    text_type,
    union_of,
)
from schemax.attributes.settings import Distinct, attr, words_in, words_of
from schemax.base.messages import clipped
from schemax.errors import SchemaError


class Builder:
    """Builds the classes of one document.

    nested_base: the base of the classes of nested objects.
    refused: collects the faults of properties; None: the first fault is raised.
    classes: the classes built so far, the document's own class last.
    """

    def __init__(
        self,
        document: SchemaDocument,
        nested_base: type[BaseModel],
        refused: list[SchemaError] | None = None,
    ) -> None:
        self._document, self._nested_base = document, nested_base
        self._refused = refused
        self.classes: list[type[BaseModel]] = []
        self._models: dict[str, type[BaseModel]] = {}
        # References being followed, and references to classes that are not built yet.
        self._open = [document.uri + "#"]
        self._later: dict[str, ForwardRef] = {}
        self._flattened: dict[Any, Node] = {}
        self._levels = self._parts = self._entered = 0

    def root(self, base: type[ModelT]) -> type[ModelT]:
        """Builds the document's own class. Raises SchemaError, which names the property."""
        node, name = self._document.root, self._document.name
        if "$ref" in node:
            self._open.append(node["$ref"])
            node = {**self._document.target(node["$ref"], ()), **without(node, "$ref")}
        node = self._flat(node, ())
        if not self._union_word(node, ()) and not is_object(node):
            raise self._error(
                (), 'the document must have type "object" with properties, or be anyOf of such'
            )
        settings = self._document.settings(node)
        title = node.get("title")
        if isinstance(title, str) and words_of(title) != words_of(name):
            settings.setdefault("category", words_of(title))
        model: type[ModelT]
        if self._union_word(node, ()):
            held: Any = self._type(without(node, "title", "$ref"), ())
            model = self._class(node, (), name, (base, RootModel[held]), settings, {})
        else:
            model = self._model(node, (), name, base, settings)
        self._models.update(dict.fromkeys(self._open, model))
        self._complete()
        return model

    def _model(
        self, node: Node, path: KeyPath, name: str, base: type[ModelT], settings: dict[str, Any]
    ) -> type[ModelT]:
        self._document.check(node, path)
        entered, self._entered = self._entered, len(self._open)
        extra = node.get("additionalProperties", True)
        if not path and isinstance(extra, Mapping) and extra and not node.get("properties"):
            raise self._error(
                path,
                "is a dict of unknown keys; make it a property of an object, as in "
                '{"properties": {"facts": ...}}',
            )
        if (not isinstance(extra, bool) and extra != {}) or node.get("patternProperties"):
            raise self._error(
                path,
                "additionalProperties and patternProperties beside properties have no known keys; "
                "declare each of them in properties, or put them into an object of their own",
            )
        properties = node.get("properties") or {}
        if isinstance(properties, Mapping):
            properties = {
                key: child
                for key, child in properties.items()
                if not (isinstance(child, Mapping) and child.get("skip") is True)
            }
        if not isinstance(properties, Mapping) or not properties:
            kinds = "; put its alternatives into one" if {"anyOf", "oneOf"} & node.keys() else ""
            raise self._error(path, f"has no properties; declare at least one{kinds}")
        if len(properties) > MOST_ATTRIBUTES:
            raise self._error(
                path, f"has {len(properties):,} properties; at most {MOST_ATTRIBUTES:,} are read"
            )
        required = node.get("required", [])
        if not isinstance(required, list):
            raise self._error(path, "required must be a list of property names")
        known = node.get("properties") or {}
        if strange := [name for name in required if name not in known]:
            raise self._error(
                path,
                f"required names {strange[0]!r}, which is none of its properties "
                f"({clipped(', '.join(map(str, known)))})",
            )
        names = field_names(properties, base)
        invented = "$schema" not in self._document.root and _is_of_pydantic(node)
        fields: dict[str, Any] = {}
        for key, child in properties.items():
            own = (key, names[key], child, key in required, (*path, key), invented)
            try:
                fields[names[key]] = self._field(*own)
            except SchemaError as error:
                if self._refused is None or len(self._refused) == MOST_REFUSALS:
                    raise
                self._refused.append(error)
                fields[names[key]] = str, ""  # a valid field, to find the faults of other fields
                self._entered = len(self._open)
        model: type[ModelT] = self._class(node, path, name, (base,), settings, fields)
        properties_of = {names[key]: (key, key in required) for key in properties}
        model.__json_properties__ = properties_of  # type: ignore[attr-defined]
        self._entered = entered
        return model

    def _class(
        self,
        node: Node,
        path: KeyPath,
        name: str,
        bases: tuple[type[Any], ...],
        settings: dict[str, Any],
        fields: dict[str, Any],
    ) -> Any:
        description, kind = node.get("description"), type(bases[0])
        if node.get("language") is not None:
            settings = {**settings, "language": node["language"]}
        metaclass = MadeClass if issubclass(MadeClass, kind) else kind
        try:
            model = create_model(
                name,
                __base__=bases,
                __doc__=description if isinstance(description, str) else None,
                __module__=__name__,
                __cls_kwargs__={"metaclass": metaclass, **settings},
                **fields,
            )
        except (PydanticUserError, CoreSchemaError, NameError) as error:
            raise self._error(path, f"Pydantic cannot build it: {error}") from error
        self.classes.append(model)
        return model

    def _field(
        self, key: str, name: str, child: Any, required: bool, path: KeyPath, invented: bool
    ) -> tuple[Any, Any]:
        """The annotation and field of a property. invented: Pydantic may have made the titles."""
        annotation = self._type(child, path)
        node = self._with_target(child, path)
        title = child.get("title")
        if title is not None and not isinstance(title, str):
            raise self._error(path, "title must be text")
        if invented and title == key.title().replace("_", " ").strip() != words_in(key):
            title = None
        options: dict[str, Any] = {"title": title}
        if name != key:
            options = {"title": title or key, "alias": key}
        if "default" in node:
            options["default"] = default_of(self._document, annotation, node["default"], path)
        elif (
            not required
            and container_of(annotation)
            and not (node.get("minItems") or node.get("minProperties"))
        ):
            options["default_factory"] = container_of(annotation)
        elif not required:
            annotation = union_of((annotation, None))
        examples = node.get("examples", ())
        if not isinstance(examples, (list, tuple)):
            raise self._error(path, "examples must be a list")
        description = node.get("description")
        if description is not None and not isinstance(description, str):
            raise self._error(path, "description must be text")
        if own := {word: node[word] for word in OWN if word in node}:
            options["json_schema_extra"] = own
        field = attr(description, examples=examples, k_max=node.get("k_max"), **options)
        return annotation, field

    def _complete(self) -> None:
        """Builds the classes that contain themselves, once all classes are known."""
        known = {later.__forward_arg__: self._models[ref] for ref, later in self._later.items()}
        for model in self.classes if known else ():
            try:
                model.model_rebuild(force=True, raise_errors=False, _types_namespace=known)
            except CoreSchemaError as error:
                raise self._error((), f"Pydantic cannot build it: {error}") from error

    def _type(self, node: Any, path: KeyPath) -> Any:
        """The annotation of a schema node."""
        self._parts += 1
        if self._parts > MOST_PARTS:
            raise self._error(
                path, f"the document has more than {MOST_PARTS:,} parts, references followed"
            )
        with self._deeper(path):
            return self._type_of(node, path)

    def _type_of(self, node: Any, path: KeyPath) -> Any:
        if not isinstance(node, Mapping):
            raise self._error(path, "says nothing about the value; give it a type")
        self._document.check(node, path)
        for key in ("properties", "patternProperties"):
            if not isinstance(node.get(key, {}), Mapping):
                raise self._error(path, f"{key} must be an object of schemas")
        if node.get("nullable") is True:
            return union_of((self._type(without(node, "nullable"), path), None))
        if "$ref" in node:
            return self._referred(node, path)
        if "allOf" in node:
            return self._type(self._flat(node, path), path)
        if "const" in node:
            value = node["const"]
            return None if value is None else literal_of(self._document, [value], path)
        if "enum" in node:
            return enum_type(self._document, node, path)
        if word := self._union_word(node, path):
            return self._alternatives(node, node[word], path)
        return self._plain_type(node, path)

    def _union_word(self, node: Node, path: KeyPath) -> str | None:
        """The keyword of a node's alternatives; None for no alternatives, and for conditions."""
        for word in ("anyOf", "oneOf"):
            if word in node and not self._is_condition(node, node[word], path):
                return word
        return None

    def _is_condition(self, node: Node, branches: Any, path: KeyPath) -> bool:
        """True if alternatives are conditions on an object's properties, not objects."""
        own = node.get("properties")
        if not own or not isinstance(branches, list):
            return False
        properties = [self._resolved_node(part, path).get("properties") for part in branches]
        # Alternatives name properties of their own; conditions name properties of the node.
        named = [
            isinstance(names, Mapping) and not names.keys() <= own.keys() for names in properties
        ]
        return None in properties or not any(named)

    def _resolved_node(self, part: Any, path: KeyPath) -> Node:
        if not isinstance(part, Mapping):
            return {}
        return self._document.target(part["$ref"], path) if "$ref" in part else part

    def _flat(self, node: Node, path: KeyPath) -> Node:
        """A node with the parts of its `allOf` merged. A single reference stays a reference."""
        if "allOf" not in node:
            return node
        with self._deeper(path):
            self._document.check(node, path)
            parts, node = node["allOf"], without(node, "allOf")
            is_alone = len(parts) == 1 and "properties" not in node
            for part in parts:
                part = self._flat(part, path)
                if "$ref" in part and not is_alone:
                    part = {**self._flat_behind(part["$ref"], path), **without(part, "$ref")}
                node = merged(node, part)
        return node

    def _flat_behind(self, ref: Any, path: KeyPath) -> Node:
        """The target of a reference, without `allOf` and references; kept for later calls."""
        target = self._document.target(ref, path)
        if ref not in self._flattened:
            with self._deeper(path):
                node = self._flat(target, path)
                if "$ref" in node:
                    node = {**self._flat_behind(node["$ref"], path), **without(node, "$ref")}
            self._flattened[ref] = node
        return self._flattened[ref]

    def _with_target(self, node: Node, path: KeyPath) -> Node:
        """A node with the default, description and so on of the scalar that it refers to.

        Those of an object or enum describe the type, not its use.
        """
        node = self._flat(node, path)
        if "$ref" not in node:
            return node
        target = self._flat_behind(node["$ref"], path)
        is_type = is_object(target) or "enum" in target or "const" in target
        return node if is_type else {**target, **node}

    def _plain_type(self, node: Node, path: KeyPath) -> Any:
        kind = node.get("type")
        if isinstance(kind, list) and kind:
            return union_of(tuple(self._type({**node, "type": name}, path) for name in kind))
        if kind == "null":
            return None
        if is_mapping(node):
            return self._mapping(node, path)
        if is_object(node):
            return self._model(node, path, self._name(path), self._nested_base, {})
        if kind == "array" or (kind is None and ("items" in node or "prefixItems" in node)):
            return self._array(node, path)
        if kind == "string":
            return text_type(self._document, node, path)
        types: dict[Any, Any] = {"integer": int, "number": float, "boolean": bool}
        if isinstance(kind, str) and kind in types:
            words = {} if kind == "boolean" else NUMERIC
            return constrained(self._document, types[kind], node, words, path)
        if kind is None:
            raise self._error(path, "has no type; give it one, such as string")
        raise self._error(
            path,
            f"unknown type {kind!r}; use string, number, integer, boolean, array or object",
        )

    def _mapping(self, node: Node, path: KeyPath) -> Any:
        pattern_of_names = node.get("propertyNames", {})
        if pattern_of_names is False:
            raise self._error(path, "propertyNames allows no name at all; leave it out")
        names = dict(pattern_of_names) if isinstance(pattern_of_names, Mapping) else {}
        values = node.get("additionalProperties")
        for pattern, child in (node.get("patternProperties") or {}).items():
            names["pattern"], values = pattern, child
        key: Any = self._type({"type": "string", **names}, path)
        value: Any = self._type(values, path)
        return constrained(self._document, dict[key, value], node, SIZES, path)

    def _array(self, node: Node, path: KeyPath) -> Any:
        if "prefixItems" in node:
            return self._tuple(node, path)
        if not isinstance(node.get("items"), Mapping):
            raise self._error(path, "does not say what it is a list of; give items with a type")
        inner: Any = self._type(node["items"], path)
        annotation: Any = list[inner]
        if node.get("uniqueItems"):
            unique = Field(json_schema_extra={"uniqueItems": True})
            annotation = Annotated[annotation, Distinct(), unique]
        return constrained(self._document, annotation, node, LENGTHS, path)

    def _tuple(self, node: Node, path: KeyPath) -> Any:
        parts = node["prefixItems"]
        if not isinstance(parts, list) or not parts:
            raise self._error(path, "prefixItems must be a list of schemas")
        if isinstance(node.get("items"), Mapping) or node.get("maxItems", len(parts)) != len(parts):
            raise self._error(
                path, "prefixItems with more items behind them is not supported; declare an object"
            )
        if len(parts) > MOST_MEMBERS:
            raise self._error(path, f"prefixItems holds at most {MOST_MEMBERS} schemas")
        types = tuple(self._type(part, path) for part in parts)
        return tuple[types]  # type: ignore[valid-type]

    def _alternatives(self, node: Node, branches: Any, path: KeyPath) -> Any:
        if not isinstance(branches, list) or not branches:
            raise self._error(path, "anyOf and oneOf must be lists of schemas")
        total = sum("const" not in part for part in branches if isinstance(part, Mapping))
        if total > MOST_MODELS:
            raise self._error(
                path,
                f"is a union of {total:,} schemas; at most {MOST_MODELS} are read: divide it",
            )
        outer = {key: node[key] for key in (*CONSTRAINTS, "type") if key in node}
        if node.get("properties"):  # shared by all alternatives, which are objects
            outer |= {key: node[key] for key in ("properties", "required") if key in node}
            branches = [self._resolved_node(part, path) for part in branches]
        parts = [merged(outer, part) if isinstance(part, Mapping) else part for part in branches]
        values = [part for part in parts if part != {**outer, "type": "null"}]
        if is_decimal(values, "$schema" in self._document.root):
            number = next(part for part in values if part["type"] == "number")
            decimal = constrained(self._document, Decimal, number, NUMERIC, path)
            return decimal if len(values) == len(parts) else union_of((decimal, None))
        objects = sum("properties" in self._resolved_node(part, path) for part in values)
        if len(values) == 1:
            return union_of(tuple(self._type(part, path) for part in parts))
        return union_of(tuple(self._kind(part, path, objects == 1) for part in parts))

    def _kind(self, part: Any, path: KeyPath, is_sole: bool) -> Any:
        """The annotation of an alternative. Class names tell objects apart where no field does.

        is_sole: True if no other alternative is an object.
        """
        node = self._flat(part, path) if isinstance(part, Mapping) else {}
        if not is_object(node) or is_mapping(node):
            return self._type(part, path)
        title, used = node.get("title"), {model.__name__ for model in self.classes}
        stem = class_name(title) if isinstance(title, str) else self._name(path)
        numbered = (f"{stem}{number}" for number in count(1))
        names = chain([stem] if title or is_sole else [], numbered)
        name = next(name for name in names if name not in used)
        with self._deeper(path):
            return self._model(node, path, name, self._nested_base, {})

    def _referred(self, node: Node, path: KeyPath) -> Any:
        ref = node["$ref"]
        target = self._document.target(ref, path)
        if not is_object(target) or is_mapping(target):
            if ref in self._open[self._entered :]:
                raise self._error(path, f"{ref} refers to itself, and so to no type; give it one")
            with self._opened(ref):
                return self._type({**target, **without(node, "$ref")}, path)
        if ref in self._models:
            return self._models[ref]
        if ref in self._open:
            return self._later.setdefault(ref, ForwardRef(f"Later{len(self._later)}"))
        with self._opened(ref):
            name = class_name(ref.rpartition("/")[2])
            self._models[ref] = self._model(target, path, name, self._nested_base, {})
        return self._models[ref]

    @contextmanager
    def _deeper(self, path: KeyPath) -> Iterator[None]:
        if self._levels == MOST_LEVELS:
            raise self._document.too_deep(path)
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

    def _name(self, path: KeyPath) -> str:
        """The class name of an object at a path."""
        return class_name([self._document.name, *path][-1])

    def _error(self, path: KeyPath, reason: str) -> SchemaError:
        return self._document.error(path, reason)


ModelT = TypeVar("ModelT", bound=BaseModel)


def _is_of_pydantic(node: Node) -> bool:
    """True if all titles are the defaults that `model_json_schema` writes."""
    title = node.get("title")
    children = [child for child in node["properties"].values() if isinstance(child, Mapping)]
    return (
        isinstance(title, str)
        and title.isidentifier()
        and all("title" in child or "$ref" in child or "allOf" in child for child in children)
    )
