"""Turns annotations into `FieldType`s of scalars, nested classes and lists, or refuses them."""

from __future__ import annotations

import types
import typing
from collections import abc, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from enum import Enum
from typing import Annotated, Any, ForwardRef, Literal, get_args, get_origin

import typing_extensions
from pydantic import AwareDatetime, NaiveDatetime, RootModel, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import SchemaError as CoreSchemaError
from pydantic_core import to_jsonable_python

from schemax.attributes.classes import declares_fields
from schemax.attributes.constraints import constraints_of, misplaced
from schemax.attributes.declaration import TextFormat
from schemax.attributes.field_type import (
    MOST_MEMBERS,
    FieldType,
    Kind,
    UnsupportedType,
    distinct,
    samples_of,
    unlike,
)
from schemax.attributes.unions import union_type
from schemax.reading.kinds import SCALARS

_KINDS: Mapping[Any, Kind] = {one: kind.name for kind in SCALARS.values() for one in kind.types}
_JSON_KINDS: Mapping[tuple[str, str | None], Kind] = {
    document: kind.name for kind in SCALARS.values() for document in kind.json_types
}
_LISTS = (
    *(list, set, frozenset, deque),
    *(abc.Sequence, abc.MutableSequence, abc.Set, abc.MutableSet),
)
_SETS = (set, frozenset, abc.Set, abc.MutableSet)
_TIME_ZONES: Mapping[Any, str] = {AwareDatetime: "aware", NaiveDatetime: "naive"}
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)


def field_type_of(annotation: Any) -> FieldType:
    bare, metadata = _unwrapped(annotation)
    field_type = _bare_type(annotation, bare)
    if not metadata:
        return field_type
    if reason := misplaced(bare, metadata, samples_of(field_type)):
        raise UnsupportedType(reason)
    own = constraints_of(metadata, field_type.is_list)
    kind = field_type.kind
    for piece in metadata:
        if isinstance(piece, TextFormat):
            kind = _JSON_KINDS.get(("string", piece.name), kind)
    return replace(field_type, kind=kind, constraints=(*field_type.constraints, *own))


def _bare_type(annotation: Any, bare: Any) -> FieldType:
    origin = get_origin(bare)
    if bare is None or bare is types.NoneType:
        return FieldType(nullable=True)
    if origin in (typing.Union, types.UnionType):
        return union_type([(member, field_type_of(member)) for member in get_args(bare)])
    if origin is Literal:
        return _choice_type(get_args(bare))
    if bare is tuple or origin is tuple:
        return _tuple_type(get_args(bare))
    if bare in _MAPPINGS or origin in _MAPPINGS:
        return _mapping_type(get_args(bare))
    if bare in _LISTS or origin in _LISTS:
        items = _list_type(get_args(bare)[0] if get_args(bare) else Any)
        unique = (("uniqueItems", True),) if bare in _SETS or origin in _SETS else ()
        if unique and items.models:
            raise UnsupportedType(
                "a set of nested models is not supported; declare a list of them, with unique=True"
            )
        return replace(items, constraints=(*items.constraints, *unique))
    if isinstance(bare, type) and issubclass(bare, Enum):
        return _choice_type(tuple(bare))
    if isinstance(bare, type) and issubclass(bare, RootModel):
        return field_type_of(annotation_of(bare.model_fields["root"]))
    if declares_fields(bare):
        return FieldType(models=(bare,))
    if bare in _TIME_ZONES:
        return FieldType(kind="datetime", constraints=(("tz_constraint", _TIME_ZONES[bare]),))
    named = f"{getattr(bare, '__module__', '')}.{getattr(bare, '__qualname__', '')}"
    kind = _KINDS.get(bare) or _KINDS.get(named) or _other_kind(annotation, bare)
    return FieldType(kind=kind)


def _unwrapped(annotation: Any) -> tuple[Any, list[Any]]:
    """The annotation without `Annotated`, `NewType` and aliases, and the metadata."""
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
    return FieldType(kind="enum", choices=distinct(tuple(choices)), nullable=nullable)


def _tuple_type(arguments: tuple[Any, ...]) -> FieldType:
    if not arguments or (len(arguments) == 2 and arguments[1] is Ellipsis):
        return _list_type(arguments[0] if arguments else Any)
    if len(arguments) > MOST_MEMBERS:
        raise UnsupportedType(f"a tuple of more than {MOST_MEMBERS} values is not supported")
    # None may be allowed at one place of a tuple, but not at another.
    items = [_list_type(argument) for argument in arguments]
    if any(item.models for item in items) or any(map(allows_none, arguments)):
        raise UnsupportedType(
            "a tuple of fixed length holds scalars, none of them None; declare a nested model with "
            "one field per place"
        )
    length = (("minItems", len(items)), ("maxItems", len(items)))
    if all(item == items[0] for item in items):
        return replace(items[0], constraints=(*items[0].constraints, *length))
    alone = tuple(replace(item, is_list=False) for item in items)
    members = unlike([one for item in alone for one in item.members or (item,)])
    return FieldType("union", (), True, constraints=length, members=members, positions=alone)


def _mapping_type(arguments: tuple[Any, ...]) -> FieldType:
    key, value = arguments if len(arguments) == 2 else (str, Any)
    keys, values = field_type_of(key), field_type_of(value) if value is not Any else None
    if values is None:
        raise UnsupportedType(
            "a dict does not say what its values are; write for example dict[str, float], or "
            "declare a nested model with one field per key"
        )
    if keys.kind is None or keys.is_list or keys.nullable:
        raise UnsupportedType("the keys of a dict must be text or another scalar; use dict[str, X]")
    # `Any` is for type checkers, which know no class with computed fields.
    fields: Any = {"key": key, "value": value}
    pair: Any = typing_extensions.TypedDict("Pair", fields)  # type: ignore[misc]
    return FieldType(is_list=True, models=(pair,), is_mapping=True)


def _list_type(item: Any) -> FieldType:
    if item is Any:
        raise UnsupportedType("does not say what it is a list of; write for example list[str]")
    field_type = field_type_of(item)
    if field_type.is_mapping:
        raise UnsupportedType("a list of dicts is not supported; declare a list of models")
    if field_type.is_list:
        raise UnsupportedType(
            "a list of lists is not supported; declare a list of scalars or of models"
        )
    # A list without None is a valid list of optional items, so items are never null.
    return replace(field_type, is_list=True, nullable=False)


def _other_kind(annotation: Any, bare: Any) -> Kind:
    """The kind of a type that Pydantic alone knows, by its JSON Schema."""
    if isinstance(bare, (str, ForwardRef)):
        name = bare if isinstance(bare, str) else bare.__forward_arg__
        raise UnsupportedType(
            f"{name!r} holds a name that is not defined; define or import it, "
            "then call model_rebuild() on the class"
        )
    if isinstance(bare, typing.TypeVar):
        raise UnsupportedType(
            f"type parameter {bare.__name__} has no type; set it, as in Model[str]"
        )
    document = _json_schema_of(annotation)
    kind = str(document.get("type"))
    for form in (document.get("format"), None):
        if (kind, form) in _JSON_KINDS:
            return _JSON_KINDS[kind, form]
    if bare is Any or bare is object:
        raise UnsupportedType("Any says nothing about the value; name its type, such as str")
    if kind == "object":
        raise UnsupportedType(
            f"{_type_name(bare)} is no Pydantic model, dataclass or TypedDict; declare it as one"
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
    """The annotation of a field, with the metadata that Pydantic split off."""
    return Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def text_of(value: Any) -> str:
    if isinstance(value, Enum):
        return text_of(value.value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return str(to_jsonable_python(value))
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(text_of(item) for item in value)
    return str(value)
