"""Builds declarations from JSON Schema documents.

The inverse is Pydantic's `model_json_schema()`, whose documents this module reads back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, RootModel, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError as CoreSchemaError

from schemax.attributes.attributes import MOST_ATTRIBUTES, MOST_REFUSALS
from schemax.attributes.declaration import attr
from schemax.attributes.json_document import (
    OWN,
    Node,
    Place,
    SchemaDocument,
    field_names,
    is_object,
    without,
)
from schemax.attributes.json_types import Types
from schemax.attributes.json_values import (
    container_of,
    default_of,
    union_of,
)
from schemax.attributes.settings import spaced, words_of
from schemax.base.messages import clipped
from schemax.errors import SchemaError

ModelT = TypeVar("ModelT", bound=BaseModel)


class Builder(Types):
    """Builds the classes of one document; see `Types`.

    metaclass: of all classes whose base has no metaclass of its own.
    refused: collects the faults of properties; None: the first fault is raised.
    """

    def __init__(
        self,
        document: SchemaDocument,
        nested_base: type[BaseModel],
        metaclass: type,
        refused: list[SchemaError] | None = None,
    ) -> None:
        super().__init__(document, nested_base)
        self._metaclass, self._refused = metaclass, refused

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
        made: type[ModelT]
        if self._union_word(node, ()):
            held: Any = self._type(without(node, "title", "$ref"), ())
            made = self._class(node, (), name, (base, RootModel[held]), settings, {})
        else:
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
        if not place and isinstance(extra, Mapping) and extra and not node.get("properties"):
            raise self._error(
                place,
                "is a dict of unknown keys; make it a property of an object, as in "
                '{"properties": {"facts": ...}}',
            )
        if (not isinstance(extra, bool) and extra != {}) or node.get("patternProperties"):
            raise self._error(
                place,
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
            raise self._error(place, f"has no properties; declare at least one{kinds}")
        if len(properties) > MOST_ATTRIBUTES:
            raise self._error(
                place, f"has {len(properties):,} properties; at most {MOST_ATTRIBUTES:,} are read"
            )
        required = node.get("required", [])
        if not isinstance(required, list):
            raise self._error(place, "required must be a list of property names")
        known = node.get("properties") or {}
        if strange := [name for name in required if name not in known]:
            raise self._error(
                place,
                f"required names {strange[0]!r}, which is none of its properties "
                f"({clipped(', '.join(map(str, known)))})",
            )
        names = field_names(properties, base)
        invented = "$schema" not in self._document.root and _is_of_pydantic(node)
        fields: dict[str, Any] = {}
        for key, child in properties.items():
            own = (key, names[key], child, key in required, (*place, key), invented)
            try:
                fields[names[key]] = self._field(*own)
            except SchemaError as error:
                if self._refused is None or len(self._refused) == MOST_REFUSALS:
                    raise
                self._refused.append(error)
                fields[names[key]] = str, ""  # a valid stand-in, so that all other faults are found
                self._entered = len(self._open)
        made: type[ModelT] = self._class(node, place, name, (base,), settings, fields)
        properties_of = {names[key]: (key, key in required) for key in properties}
        made.__json_properties__ = properties_of  # type: ignore[attr-defined]
        self._entered = entered
        return made

    def _class(
        self,
        node: Node,
        place: Place,
        name: str,
        bases: tuple[type[Any], ...],
        settings: dict[str, Any],
        fields: dict[str, Any],
    ) -> Any:
        description, kind = node.get("description"), type(bases[0])
        if node.get("language") is not None:
            settings = {**settings, "language": node["language"]}
        metaclass = self._metaclass if issubclass(self._metaclass, kind) else kind
        try:
            made = create_model(
                name,
                __base__=bases,
                __doc__=description if isinstance(description, str) else None,
                __module__=__name__,
                __cls_kwargs__={"metaclass": metaclass, **settings},
                **fields,
            )
        except (PydanticUserError, CoreSchemaError, NameError) as error:
            raise self._error(place, f"Pydantic cannot build it: {error}") from error
        self.classes.append(made)
        return made

    def _field(
        self, key: str, name: str, child: Any, required: bool, place: Place, invented: bool
    ) -> tuple[Any, Any]:
        """The annotation and field of a property. invented: titles may be Pydantic's, unchosen."""
        annotation = self._type(child, place)
        node = self._document.annotations(child, place)
        title = child.get("title")
        if title is not None and not isinstance(title, str):
            raise self._error(place, "title must be text")
        if invented and title == key.title().replace("_", " ").strip() != spaced(key):
            title = None
        options: dict[str, Any] = {"title": title}
        if name != key:
            options = {"title": title or key, "alias": key}
        if "default" in node:
            options["default"] = default_of(self._document, annotation, node["default"], place)
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
            raise self._error(place, "examples must be a list")
        description = node.get("description")
        if description is not None and not isinstance(description, str):
            raise self._error(place, "description must be text")
        if own := {word: node[word] for word in OWN if word in node}:
            options["json_schema_extra"] = own
        field = attr(description, examples=examples, k_max=node.get("k_max"), **options)
        return annotation, field

    def _complete(self) -> None:
        """Builds the classes that contain themselves, once all classes are known."""
        known = {later.__forward_arg__: self._models[ref] for ref, later in self._later.items()}
        for made in self.classes if known else ():
            try:
                made.model_rebuild(force=True, raise_errors=False, _types_namespace=known)
            except CoreSchemaError as error:
                raise self._error((), f"Pydantic cannot build it: {error}") from error


def _is_of_pydantic(node: Node) -> bool:
    """True if all titles are the defaults that `model_json_schema` writes."""
    title = node.get("title")
    children = [child for child in node["properties"].values() if isinstance(child, Mapping)]
    return (
        isinstance(title, str)
        and title.isidentifier()
        and all("title" in child or "$ref" in child or "allOf" in child for child in children)
    )
