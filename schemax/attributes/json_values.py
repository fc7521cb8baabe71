"""Types of single values that JSON Schema declares: texts, numbers, choices, constraints."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timedelta
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import SchemaError as CoreSchemaError

from schemax.attributes.field_type import MOST_CHOICES
from schemax.attributes.json_document import KeyPath, Node, SchemaDocument
from schemax.attributes.settings import TextFormat
from schemax.base.messages import clipped

NUMERIC = {
    "minimum": "ge",
    "maximum": "le",
    "exclusiveMinimum": "gt",
    "exclusiveMaximum": "lt",
    "multipleOf": "multiple_of",
}
_TEXTUAL = {"minLength": "min_length", "maxLength": "max_length", "pattern": "pattern"}
LENGTHS = {"minItems": "min_length", "maxItems": "max_length"}
SIZES = {"minProperties": "min_length", "maxProperties": "max_length"}
_TYPES: Mapping[str, tuple[type[Any], ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
# Each use of an enum takes memory for all its choices: in validation, prompts and grammars.
_MOST_TOGETHER = 50_000
DECLARED_FORMATS = {"date": date, "date-time": datetime, "duration": timedelta}
CONSTRAINTS = (*NUMERIC, *_TEXTUAL, *LENGTHS, "uniqueItems", "format", "items")


def text_type(document: SchemaDocument, node: Node, path: KeyPath) -> Any:
    form = node.get("format")
    if form is not None and not isinstance(form, str):
        raise document.error(path, "format must be text")
    if form in DECLARED_FORMATS:
        return DECLARED_FORMATS[form]
    # Other formats stay texts: a URL of Pydantic, say, would rewrite the document's text.
    text = constrained(document, str, node, _TEXTUAL, path)
    return Annotated[text, TextFormat(form)] if form else text


def constrained(
    document: SchemaDocument,
    annotation: Any,
    node: Node,
    words: Mapping[str, str],
    path: KeyPath,
) -> Any:
    names = {key: word for key, word in words.items() if key != "pattern"}
    options = {names[key]: node[key] for key in names if key in node}
    # Patterns follow lengths, which apply to the text itself.
    patterns: list[Any] = []
    if "pattern" in words and "pattern" in node:
        patterns.append(document.pattern(node["pattern"], path))
    if not options:
        return Annotated[annotation, *patterns] if patterns else annotation
    flag = next((key for key in words if isinstance(node.get(key), bool)), None)
    if flag is not None:
        raise document.error(path, f"{flag} must be a number, as in current JSON Schema drafts")
    result: Any = Annotated[annotation, Field(**options), *patterns]
    try:
        TypeAdapter(result)
    except PydanticUndefinedAnnotation:  # of a class that is not built yet
        return result
    except (PydanticUserError, CoreSchemaError, TypeError) as error:
        shown = ", ".join(f"{key} {node[key]!r}" for key in names if key in node)
        reason = f"Pydantic does not accept {clipped(shown)}: {error}"
        raise document.error(path, reason) from error
    return result


def enum_type(document: SchemaDocument, node: Node, path: KeyPath) -> Any:
    """The type of an enum; references to an enum share its type.

    Raises SchemaError for a choice that is no text or number, and for too many choices: those of an
    enum count again with each use.
    """
    values, kind = node["enum"], node.get("type")
    if not isinstance(values, list) or not values:
        raise document.error(path, "enum must be a list of values")
    # The document keeps the list alive, and so its identity.
    key = id(values), str(kind)
    if key not in document.literals and values != [None]:
        fitting = [value for value in values if _has_type(value, kind)]
        if not fitting:
            raise document.error(path, f"no value of its enum has the type {kind!r}")
        document.literals[key] = literal_of(document, fitting, path)
    document.num_choices += len(values)
    if document.num_choices > _MOST_TOGETHER:
        reason = f"all choices of the document together are more than {_MOST_TOGETHER:,}"
        raise document.error(path, f"{reason}; declare some as texts")
    return document.literals.get(key)


def literal_of(document: SchemaDocument, values: list[Any], path: KeyPath) -> Any:
    if len(values) > MOST_CHOICES:
        reason = f"has {len(values):,} choices; at most {MOST_CHOICES:,} are supported"
        raise document.error(path, reason)
    for value in values:
        if not isinstance(value, (str, int, float, type(None))):
            raise document.error(path, f"choice {value!r} is neither text nor a number")
    literal: Any = Literal
    return literal[tuple(values)]


def _has_type(value: Any, kind: Any) -> bool:
    """True if a value has a `type` of JSON Schema, one name or a list of names."""
    if isinstance(kind, list):
        return any(_has_type(value, name) for name in kind)
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return not isinstance(kind, str) or type(value) in _TYPES.get(kind, (type(value),))


def default_of(document: SchemaDocument, annotation: Any, default: Any, path: KeyPath) -> Any:
    if default is None:
        return None
    try:
        return TypeAdapter(annotation).validate_python(default)
    except (PydanticUndefinedAnnotation, PydanticUserError):  # of a class that is not built yet
        return default
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise document.error(path, f"default {default!r} does not fit: {reason}") from error


def container_of(annotation: Any) -> type[list[Any]] | type[dict[Any, Any]] | None:
    """The container type, list or dict, of an annotation; None for other types."""
    bare = get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation
    origin: Any = get_origin(bare)
    return origin if origin in (list, dict) else None


def is_decimal(parts: list[Any], is_standard: bool) -> bool:
    """True if alternatives are a Decimal as Pydantic writes it: a number, or its text.

    is_standard: True if the document names its `$schema`: a text then needs a pattern.
    """
    if len(parts) != 2 or not all(isinstance(part, Mapping) for part in parts):
        return False
    kinds = {str(part.get("type")): part for part in parts}
    if kinds.keys() != {"number", "string"} or not kinds["string"].keys() <= {"type", "pattern"}:
        return False
    return "pattern" in kinds["string"] or not is_standard


def union_of(members: tuple[Any, ...]) -> Any:
    union: Any = Union
    return union[members]
