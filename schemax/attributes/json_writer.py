"""Writes declarations as JSON Schema documents: the inverse of `json_schema`."""

from __future__ import annotations

from typing import Any

from pydantic import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import DataclassSchema, DecimalSchema, ModelSchema

from schemax.attributes.classes import asked_fields, fields_of, reader_of
from schemax.attributes.settings import settings_of
from schemax.errors import SchemaError

STANDARD = "https://json-schema.org/draft/2020-12/schema"


class Untitled(GenerateJsonSchema):
    """A generator that omits default titles, which the model would be shown."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def decimal_schema(self, schema: DecimalSchema) -> dict[str, Any]:
        document = super().decimal_schema(schema)
        for part in document.get("anyOf", ()):
            if part.get("type") == "string":  # the pattern tells it from float | str
                part.setdefault("pattern", "^[-+0-9.eE]+$")
        return document

    def dataclass_schema(self, schema: DataclassSchema) -> dict[str, Any]:
        return marked(super().dataclass_schema(schema), schema["cls"])

    def model_schema(self, schema: ModelSchema) -> dict[str, Any]:
        return marked(super().model_schema(schema), schema["cls"])


def marked(document: dict[str, Any], kind: type[Any]) -> dict[str, Any]:
    """Marks the properties that are not read from documents with `skip`."""
    asked, shown = asked_fields(kind), document.get("properties", {})
    for name, field in fields_of(kind).items():
        if name not in asked:
            shown.get(field.alias or name, shown.get(name, {}))["skip"] = True
    return document


def known_declaration(schema: type[Any]) -> dict[str, Any] | None:
    """`declaration_of` without `$schema`; None without fields, or for types without JSON Schema."""
    try:
        document = declaration_of(schema) if asked_fields(schema) else {}
    except (SchemaError, ValueError):
        return None
    document.pop("$schema", None)
    return document or None


def declaration_of(schema: type[Any]) -> dict[str, Any]:
    """Writes a class as JSON Schema, with the Python names of its fields, for another process.

    Raises SchemaError for types that JSON Schema cannot express.
    """
    try:
        document = reader_of(schema).json_schema(by_alias=False, schema_generator=Untitled)
    except PydanticUserError as error:
        raise SchemaError(schema.__name__, None, f"no JSON Schema says it: {error}") from error
    language = settings_of(schema).language
    return {"$schema": STANDARD, **({"language": language} if language else {}), **document}
