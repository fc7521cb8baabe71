"""JSON Schema documents become declarations.

The way out is Pydantic's own `model_json_schema()`; what it writes, this module reads back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated, Any, ForwardRef, TypeVar

from pydantic import (
    BaseModel,
    Field,
    create_model,
)
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError as CoreSchemaError

from schemax.attributes.annotations import MOST_MEMBERS
from schemax.attributes.attributes import MOST_ATTRIBUTES
from schemax.attributes.declaration import Distinct, attr
from schemax.attributes.json_document import (
    MOST_PARTS,
    Node,
    Place,
    SchemaDocument,
    is_mapping,
    is_object,
    merged,
    without,
)
from schemax.attributes.json_names import class_name, field_names
from schemax.attributes.json_values import (
    CONSTRAINTS,
    LENGTHS,
    NUMERIC,
    SIZES,
    choices_type,
    constrained,
    container_of,
    default_of,
    is_decimal,
    text_type,
    union_of,
)
from schemax.attributes.kinds import MOST_KINDS
from schemax.attributes.settings import spaced, words_of
from schemax.errors import SchemaError

ModelT = TypeVar("ModelT", bound=BaseModel)

# Of a document, whoever wrote it: what is within what, and schemas with their references followed,
# which could otherwise double with every level.
MOST_LEVELS = 32

_OWN = ("long", "unit", "strict", "max_depth")


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
        self._later: dict[str, ForwardRef] = {}
        self._levels = self._parts = self._entered = 0

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
        made = self._model(node, (), name, base, settings)
        self._models.update(dict.fromkeys(self._open, made))
        self._complete()
        return made

    def _model(
        self, node: Node, place: Place, name: str, base: type[ModelT], settings: dict[str, Any]
    ) -> type[ModelT]:
        self._document.check(node, place)
        entered, self._entered = self._entered, len(self._open)
        extra = node.get("additionalProperties", True)
        if (not isinstance(extra, bool) and extra != {}) or node.get("patternProperties"):
            raise self._error(
                place,
                "additionalProperties and patternProperties beside properties have no known keys; "
                "declare each of them in properties, or put them into an object of their own",
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
        self._entered = entered
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
        elif not required and container_of(annotation) and not _fewest(node):
            options["default_factory"] = container_of(annotation)
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
            if word in node and not self._is_condition(node, node[word], place):
                return self._alternatives(node, node[word], place)
        return self._plain_type(node, place)

    def _is_condition(self, node: Node, branches: Any, place: Place) -> bool:
        """Whether alternatives say something of an object's properties, rather than what it is."""
        if not node.get("properties") or not isinstance(branches, list):
            return False
        return not all("properties" in self._resolved(part, place) for part in branches)

    def _resolved(self, part: Any, place: Place) -> Node:
        if not isinstance(part, Mapping):
            return {}
        return self._document.target(part["$ref"], place) if "$ref" in part else part

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
        if is_mapping(node):
            return self._mapping(node, place)
        if is_object(node):
            return self._model(node, place, class_name(place[-1]), self._nested_base, {})
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
        names = dict(node.get("propertyNames") or {})
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
        count = sum(is_object(self._resolved(part, place)) for part in branches)
        if count > MOST_KINDS:
            raise self._error(
                place, f"is a union of {count:,} objects; at most {MOST_KINDS} are read: divide it"
            )
        outer = {key: node[key] for key in (*CONSTRAINTS, "type") if key in node}
        parts = [{**outer, **part} if isinstance(part, Mapping) else part for part in branches]
        values = [part for part in parts if part != {**outer, "type": "null"}]
        if is_decimal(values):
            number = next(part for part in values if part["type"] == "number")
            decimal = constrained(self._document, Decimal, number, NUMERIC, place)
            return decimal if len(values) == len(parts) else union_of((decimal, None))
        common = {key: node[key] for key in ("properties", "required") if node.get("properties")}
        named = count > 1
        return union_of(
            tuple(
                self._branch(part, common, number if named else 0, place)
                for number, part in enumerate(parts, 1)
            )
        )

    def _branch(self, part: Any, common: Node, number: int, place: Place) -> Any:
        """One of several alternatives. common: what the object around all of them says.

        number: of an object, which is named by it, from 1 on; 0 for one that is alone.
        """
        if common:
            part = merged(common, self._resolved(part, place))
        if isinstance(part, Mapping):
            part = self._flat(part, place)
        if not number or not isinstance(part, Mapping) or not is_object(part) or is_mapping(part):
            return self._type(part, place)
        title = part.get("title")
        name = class_name(title if isinstance(title, str) else f"{place[-1]} {number}")
        with self._deeper(place):
            return self._model(part, place, name, self._nested_base, {})

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

    def _complete(self) -> None:
        """Has classes that contain themselves built, once all of them are known."""
        known = {later.__forward_arg__: self._models[ref] for ref, later in self._later.items()}
        for made in self.classes if known else ():
            made.model_rebuild(force=True, raise_errors=False, _types_namespace=known)

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


def _fewest(node: Node) -> Any:
    return node.get("minItems") or node.get("minProperties")


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
