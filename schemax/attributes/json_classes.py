"""Builds and pickles classes of JSON Schema documents, and writes documents of classes.

No module holds such a class, so pickle cannot look it up by name: the class is pickled as its
document. Unpickling builds the class again, unless the process has it already: within one process,
a pickled class stays the same class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from pydantic import BaseModel, PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import DataclassSchema, DecimalSchema, ModelSchema

from schemax.attributes.annotations import kind_by_name
from schemax.attributes.attributes import compile_attributes, refusals_of
from schemax.attributes.classes import asked_fields, fields_of, reader_of
from schemax.attributes.json_checks import Checks, Problem
from schemax.attributes.json_document import (
    MOST_LEVELS,
    SchemaDocument,
    class_name,
    parse,
    with_absolute_references,
)
from schemax.attributes.json_schema import Builder
from schemax.attributes.settings import settings_of
from schemax.errors import SchemaError
from schemax.reading.kinds import SCALARS

ModelT = TypeVar("ModelT", bound=BaseModel)


def build_model(
    document: Mapping[str, Any] | str,
    *,
    base: type[ModelT],
    nested_base: type[BaseModel],
    name: str | None = None,
) -> type[ModelT]:
    """Builds a subclass of `base` with one field per property of a JSON Schema document.

    nested_base: the base of the classes of nested objects.
    Raises SchemaError, naming the property, for a schema that cannot be declared.
    """
    model: type[ModelT] = _make(*_origin_of(document, base, nested_base, name))  # type: ignore[assignment]  # of `base`
    return model


def refusals_of_document(document: str, base: type[BaseModel]) -> list[SchemaError]:
    """The first hundred faults for which `build_model` refuses a document."""
    refused: list[SchemaError] = []
    try:
        _make(*_origin_of(document, base, base, None), refused)
    except SchemaError as error:
        refused.append(error)
    return refused


def _origin_of(
    document: Mapping[str, Any] | str,
    base: type[BaseModel],
    nested_base: type[BaseModel],
    name: str | None,
) -> _Origin:
    root = parse(document, name)
    try:
        # A copy: the classes may be built again later.
        kept = with_absolute_references(root)
    except RecursionError:
        reason = f"the document is nested more than {MOST_LEVELS} levels deep; flatten it"
        raise SchemaError(name or "JSON Schema", None, reason) from None
    return uuid4().hex, kept, base, nested_base, name


_Origin: TypeAlias = tuple[str, Mapping[str, Any], type[BaseModel], type[BaseModel], str | None]
"""A token that identifies a document across processes, and the arguments of `build_model`."""

# By token, the class of a document, which holds the classes of its parts.
_built: WeakValueDictionary[str, type[BaseModel]] = WeakValueDictionary()


def _make(
    token: str,
    root: Mapping[str, Any],
    base: type[BaseModel],
    nested_base: type[BaseModel],
    name: str | None,
    refused: list[SchemaError] | None = None,
) -> type[BaseModel]:
    """Builds the classes. refused: collects faults; None: the first fault is raised."""
    title = name or (root["title"] if isinstance(root.get("title"), str) else "") or "Schema"
    document = SchemaDocument(root, class_name(title))
    builder = Builder(document, nested_base, refused)
    own: Any = builder.root(base)
    if refused is None:
        compile_attributes(own)
    else:
        refused += refusals_of(own)
    own.__json_checks__ = Checks(document)
    own.__schema_classes__ = builder.classes
    model: Any
    for number, model in enumerate(builder.classes):
        model.__made_by__ = _recall, (number, token, root, base, nested_base, name)
        model.__json_root__ = own  # kept as long as any of the classes
    _built[token] = own
    return own  # type: ignore[no-any-return]


def problems_of(instance: BaseModel) -> Iterator[Problem]:
    """Yields the faults of an instance by its class's document, if the class has a document."""
    checks: Checks | None = getattr(type(instance), "__json_checks__", None)
    if checks is not None:
        yield from checks.problems(instance)


def forbidden_by_document(schema: type[BaseModel], value: Any) -> str | None:
    """The reason why a class's document forbids a JSON value; None if it allows the value."""
    checks: Checks | None = getattr(schema, "__json_checks__", None)
    return None if checks is None else checks.forbidden(value)


def is_judged_whole(schema: type[BaseModel]) -> bool:
    """True if a class's document constrains instances beyond their single fields."""
    checks: Checks | None = getattr(schema, "__json_checks__", None)
    return checks is not None and checks.says_more


def _recall(number: int, token: str, *parts: Any) -> type[BaseModel]:
    own: Any = _built.get(token)
    if own is None:
        own = _make(token, *parts)
    model: type[BaseModel] = own.__schema_classes__[number]
    return model


STANDARD = "https://json-schema.org/draft/2020-12/schema"


class Untitled(GenerateJsonSchema):
    """A generator that omits default titles, which prompts would show."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate_inner(self, schema: Any) -> dict[str, Any]:
        document = super().generate_inner(schema)
        # Codes are read from names, too, which their patterns and enums say nothing of.
        validator = schema.get("function") or {}
        owner = getattr(validator.get("function"), "__self__", None)
        if (kind := kind_by_name(owner)) is None:
            return document
        type_name, form = SCALARS[kind].json_types[0]
        return {"type": type_name, "format": form}

    def decimal_schema(self, schema: DecimalSchema) -> dict[str, Any]:
        document = super().decimal_schema(schema)
        for part in document.get("anyOf", ()):
            if part.get("type") == "string":  # the pattern tells it from float | str
                part.setdefault("pattern", "^[-+0-9.eE]+$")
        return document

    def dataclass_schema(self, schema: DataclassSchema) -> dict[str, Any]:
        return with_skip_marks(super().dataclass_schema(schema), schema["cls"])

    def model_schema(self, schema: ModelSchema) -> dict[str, Any]:
        return with_skip_marks(super().model_schema(schema), schema["cls"])


def with_skip_marks(document: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Marks the properties that are not read from documents with `skip`."""
    read, properties = asked_fields(kind), document.get("properties", {})
    for name, field in fields_of(kind).items():
        if name not in read:
            properties.get(field.alias or name, properties.get(name, {}))["skip"] = True
    return document


def known_declaration(schema: type[Any]) -> dict[str, Any] | None:
    """`declaration_of` without `$schema`; None for no fields, or types without JSON Schema."""
    try:
        document = declaration_of(schema) if asked_fields(schema) else {}
    except (SchemaError, ValueError):
        return None
    document.pop("$schema", None)
    return document or None


def declaration_of(schema: type[Any]) -> dict[str, Any]:
    """The JSON Schema of a class, with the Python names of its fields, for another process.

    Raises SchemaError for types that JSON Schema cannot express.
    """
    try:
        document = reader_of(schema).json_schema(by_alias=False, schema_generator=Untitled)
    except PydanticUserError as error:
        raise SchemaError(schema.__name__, None, f"no JSON Schema says it: {error}") from error
    language = settings_of(schema).language
    return {"$schema": STANDARD, **({"language": language} if language else {}), **document}
