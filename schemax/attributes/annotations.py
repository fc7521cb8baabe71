"""Annotations: each becomes a `FieldType` (scalar, list, nested model) or an `UnsupportedType`."""

from __future__ import annotations

import types
import typing
from collections import Counter, abc, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ForwardRef, Literal, get_args, get_origin

from pydantic import (
    AwareDatetime,
    BaseModel,
    NaiveDatetime,
    RootModel,
    TypeAdapter,
    ValidationError,
)
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import SchemaError as CoreSchemaError

from schemax.attributes.constraints import Constraints, constraints_of

Scalar = Literal["string", "integer", "number", "boolean", "date", "datetime", "enum"]
Kind = Literal[Scalar, "model"]


class UnsupportedType(Exception):
    """Why an annotation or field cannot be compiled, and what to do about it."""


MOST_CHOICES, _MOST_CHARACTERS = 10_000, 1_000_000
"""Of a field: all of them are shown to the model, and told apart token by token."""

_KINDS: Mapping[Any, Scalar] = {
    str: "string",
    int: "integer",
    float: "number",
    Decimal: "number",
    bool: "boolean",
    date: "date",
    datetime: "datetime",
}
_JSON_KINDS: Mapping[str, Scalar] = {
    "date": "date",
    "datetime": "datetime",
    "string": "string",
    "integer": "integer",
    "number": "number",
    "boolean": "boolean",
}
_LISTS = (
    *(list, set, frozenset, deque),
    *(abc.Sequence, abc.MutableSequence, abc.Set, abc.MutableSet),
)
_SETS = (set, frozenset, abc.Set, abc.MutableSet)
_TIME_ZONES: Mapping[Any, str] = {AwareDatetime: "aware", NaiveDatetime: "naive"}
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)


@dataclass(frozen=True, slots=True)
class FieldType:
    """What an annotation asks for: a model, a scalar, a list of either; neither: just None."""

    kind: Scalar | None = None
    choices: tuple[tuple[str, Any], ...] = ()
    is_list: bool = False
    nullable: bool = False
    model: type[BaseModel] | None = None
    constraints: Constraints = ()


def field_type_of(annotation: Any) -> FieldType:
    bare, metadata = _unwrapped(annotation)
    field_type = _bare_type(annotation, bare)
    if not metadata:
        return field_type
    own = constraints_of(metadata, field_type.is_list)
    return replace(field_type, constraints=(*field_type.constraints, *own))


def _bare_type(annotation: Any, bare: Any) -> FieldType:
    origin = get_origin(bare)
    if bare is None or bare is types.NoneType:
        return FieldType(nullable=True)
    if origin in (typing.Union, types.UnionType):
        return _union_type([field_type_of(member) for member in get_args(bare)])
    if origin is Literal:
        return _choice_type(get_args(bare))
    if bare is tuple or origin is tuple:
        return _list_type(_item_of_tuple(get_args(bare)))
    if bare in _LISTS or origin in _LISTS:
        items = _list_type(get_args(bare)[0] if get_args(bare) else Any)
        unique = (("uniqueItems", True),) if bare in _SETS or origin in _SETS else ()
        if unique and items.model is not None:
            raise UnsupportedType(
                "a set of nested models is not supported; declare a list of them, with unique=True"
            )
        return replace(items, constraints=(*items.constraints, *unique))
    if isinstance(bare, type) and issubclass(bare, Enum):
        return _choice_type(tuple(bare))
    if isinstance(bare, type) and issubclass(bare, RootModel):
        return field_type_of(annotation_of(bare.model_fields["root"]))
    if isinstance(bare, type) and issubclass(bare, BaseModel):
        return FieldType(model=bare)
    if bare in _TIME_ZONES:
        return FieldType(kind="datetime", constraints=(("tz_constraint", _TIME_ZONES[bare]),))
    return FieldType(kind=_KINDS.get(bare) or _other_kind(annotation, bare))


def _unwrapped(annotation: Any) -> tuple[Any, list[Any]]:
    """The annotation without `Annotated`, `NewType` and aliases; what stood in the `Annotated`."""
    metadata: list[Any] = []
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *pieces = get_args(annotation)
            metadata += pieces
        elif isinstance(annotation, typing.NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation, metadata


def allows_none(annotation: Any) -> bool:
    bare, _ = _unwrapped(annotation)
    if get_origin(bare) in (typing.Union, types.UnionType):
        return any(allows_none(member) for member in get_args(bare))
    return bare is types.NoneType or (get_origin(bare) is Literal and None in get_args(bare))


def _union_type(members: Sequence[FieldType]) -> FieldType:
    nullable = any(member.nullable for member in members)
    values = [member for member in members if member.kind or member.model]
    if len(values) < 2:
        return replace(values[0] if values else FieldType(), nullable=nullable)
    # Conditions of one member alone do not bind the value.
    shared = values[0].constraints
    if any(member.constraints != shared for member in values):
        shared = ()
    if any(member.model for member in values):
        raise UnsupportedType("a union with a nested model is not supported; declare one model")
    kinds = {member.kind for member in values}
    if not any(member.is_list for member in values):
        if kinds == {"enum"}:
            merged = dict.fromkeys(choice for member in values for choice in member.choices)
            return FieldType(kind="enum", choices=_distinct(tuple(merged)), nullable=nullable)
        if len(kinds) == 1:
            return FieldType(kind=values[0].kind, nullable=nullable, constraints=shared)
        if kinds == {"integer", "number"}:
            return FieldType(kind="number", nullable=nullable, constraints=shared)
    raise UnsupportedType("a union of different types is not supported; choose one of them, or str")


def _choice_type(members: Sequence[Any]) -> FieldType:
    nullable = False
    choices = []
    for member in members:
        value = member.value if isinstance(member, Enum) else member
        if value is None:
            nullable = True
        elif isinstance(value, (str, int, float)):
            choices.append((text_of(value), member))
        else:
            raise UnsupportedType(f"choice {value!r} is neither text nor a number; use str values")
    if not choices and not nullable:
        raise UnsupportedType("has no choices; give its Enum members")
    if not choices:
        return FieldType(nullable=True)
    return FieldType(kind="enum", choices=_distinct(tuple(choices)), nullable=nullable)


def _distinct(choices: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    characters = sum(len(text) for text, _ in choices)
    if len(choices) > MOST_CHOICES or characters > _MOST_CHARACTERS:
        raise UnsupportedType(
            f"has {len(choices):,} choices of {characters:,} characters; at most "
            f"{MOST_CHOICES:,} of {_MOST_CHARACTERS:,} are supported: declare it as str, and look "
            "its values up afterwards"
        )
    counts = Counter(text for text, _ in choices)
    twice = next((text for text, count in counts.items() if count > 1), None)
    if twice is not None:
        raise UnsupportedType(f"two choices have the same text {twice!r}; change one of them")
    return choices


def _item_of_tuple(arguments: tuple[Any, ...]) -> Any:
    if not arguments:
        return Any
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return arguments[0]
    raise UnsupportedType(
        "a tuple of fixed length is not supported; use tuple[X, ...], or a nested model"
    )


def _list_type(item: Any) -> FieldType:
    if item is Any:
        raise UnsupportedType("does not say what it is a list of; write for example list[str]")
    field_type = field_type_of(item)
    if field_type.is_list:
        raise UnsupportedType(
            "a list of lists is not supported; declare a list of scalars or of models"
        )
    # A list without None is a valid list of optional items, so None is not offered.
    return replace(field_type, is_list=True, nullable=False)


def _other_kind(annotation: Any, bare: Any) -> Scalar:
    """The kind of a type that only Pydantic knows, by its JSON Schema."""
    if isinstance(bare, (str, ForwardRef)):
        name = bare if isinstance(bare, str) else bare.__forward_arg__
        raise UnsupportedType(
            f"{name!r} holds a name that is not defined; define or import it, "
            "then call model_rebuild() on the class"
        )
    if bare in _MAPPINGS or get_origin(bare) in _MAPPINGS:
        raise UnsupportedType(
            "a dict has no known keys; declare a nested model with one field per key"
        )
    if isinstance(bare, typing.TypeVar):
        raise UnsupportedType(
            f"type parameter {bare.__name__} has no type; set it, as in Model[str]"
        )
    document = _json_schema_of(annotation)
    kind = str(document.get("type"))
    if kind == "string":
        kind = {"date": "date", "date-time": "datetime"}.get(str(document.get("format")), kind)
    if kind in _JSON_KINDS:
        return _JSON_KINDS[kind]
    if bare is Any or bare is object:
        raise UnsupportedType("Any says nothing about the value; name its type, such as str")
    if kind == "object":
        raise UnsupportedType(
            f"{_type_name(bare)} is not a Pydantic model; declare it as a BaseModel"
        )
    raise UnsupportedType(
        f"{_type_name(bare)} cannot be read from text; use a scalar type or a nested BaseModel"
    )


def _json_schema_of(annotation: Any) -> dict[str, Any]:
    """Pydantic's JSON Schema of a type; empty for a type without one."""
    try:
        document = TypeAdapter(annotation).json_schema()
    except (PydanticUserError, PydanticUndefinedAnnotation, CoreSchemaError):
        return {}
    if "$ref" in document:
        target: dict[str, Any] = document["$defs"][document["$ref"].rpartition("/")[2]]
        return target
    return document


def _type_name(bare: Any) -> str:
    return getattr(bare, "__name__", None) or str(bare)


def annotation_of(field: FieldInfo) -> Any:
    """The annotation with the metadata that Pydantic took out of a surrounding `Annotated`."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def check_default(field: FieldInfo) -> None:
    """Refuses a default of another type than the field's, which Pydantic would not notice.

    None goes through, as `brand: str = None` is common; so does a default outside the field's
    bounds, lengths or pattern, which is how a stand-in for "unknown" is declared. A factory is not
    called: it may do anything.
    """
    if field.is_required() or field.default_factory is not None or field.default is None:
        return
    try:
        TypeAdapter(annotation_of(field)).validate_python(field.default)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=False):
            if detail["type"] not in _CONSTRAINT_ERRORS:
                raise UnsupportedType(
                    f"default {field.default!r} does not match the field's type ({detail['msg']}); "
                    "change one of them"
                ) from None
    except Exception:  # of the user's own validators, or a type that needs the class around it
        return


_CONSTRAINT_ERRORS = frozenset(
    (
        *("greater_than", "greater_than_equal", "less_than", "less_than_equal", "multiple_of"),
        *("string_too_short", "string_too_long", "string_pattern_mismatch"),
        *("too_short", "too_long", "finite_number", "value_error", "assertion_error"),
        *("decimal_max_digits", "decimal_max_places", "decimal_whole_digits"),
    )
)


def text_of(value: Any) -> str:
    if isinstance(value, Enum):
        return text_of(value.value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(text_of(item) for item in value)
    return str(value)
