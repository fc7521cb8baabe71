"""The types of fields: annotations as `FieldType`s, with unions, and recursive models cut off.

An unsupported annotation raises UnsupportedType.
"""

from __future__ import annotations

import types
import typing
from collections import abc, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, timedelta
from enum import Enum
from typing import (
    Annotated,
    Any,
    ForwardRef,
    Generic,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
)

import typing_extensions
from pydantic import AwareDatetime, NaiveDatetime, RootModel, TypeAdapter
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import SchemaError as CoreSchemaError
from pydantic_core import to_jsonable_python

from schemax.attributes.classes import MadeClass, declares_fields, fields_of
from schemax.attributes.field_type import (
    LIST_KEYWORDS,
    MOST_MEMBERS,
    FieldType,
    Kind,
    UnsupportedType,
    constraints_of,
    distinct,
    limits_of,
    misplaced,
    samples_of,
    unlike,
)
from schemax.attributes.settings import TextFormat
from schemax.reading.kinds import SCALARS

T = TypeVar("T")
Member = tuple[Any, FieldType]
"""The annotation of a member of a union, and its type."""


class ValueOf(RootModel[T], Generic[T], metaclass=MadeClass):
    """A model that stands in a union of models for a scalar, a list or a dict."""


def is_bare(model: type[Any]) -> bool:
    """True if a model of a union stands for a scalar, a list or a dict."""
    return issubclass(model, ValueOf)


def union_type(members: Sequence[Member]) -> FieldType:
    """The type of a union. Raises UnsupportedType."""
    nullable = any(field_type.nullable for _, field_type in members)
    stated = [
        (annotation, replace(field_type, nullable=False))
        for annotation, field_type in members
        if field_type.kind or field_type.models
    ]
    return replace(_union_of(stated), nullable=nullable)


def _union_of(members: Sequence[Member]) -> FieldType:
    types = [field_type for _, field_type in members]
    if len(types) < 2:
        return types[0] if types else FieldType()
    if all(field_type.models and not field_type.is_list for field_type in types):
        return FieldType(
            models=tuple(dict.fromkeys(m for field_type in types for m in field_type.models))
        )
    if not any(field_type.models or field_type.is_list for field_type in types):
        return _scalar(types)
    return _one_or_several(members) or _mixed_union(members)


def _scalar(types: Sequence[FieldType]) -> FieldType:
    # Constraints of a single member do not bind the value.
    shared = types[0].constraints
    if any(field_type.constraints != shared for field_type in types):
        shared = ()
    members = [member for field_type in types for member in field_type.members or (field_type,)]
    kinds = {member.kind for member in members}
    if kinds == {"enum"}:
        merged = dict.fromkeys(choice for member in members for choice in member.choices)
        return FieldType(kind="enum", choices=distinct(tuple(merged)))
    if all(member.is_text for member in members):
        kinds = {"string"}
    if len(kinds) == 1:
        return FieldType(kind=kinds.pop(), constraints=shared)
    if kinds == {"integer", "number"}:
        return FieldType(kind="number", constraints=shared)
    plain = unlike(members)
    if len(plain) > MOST_MEMBERS:
        raise UnsupportedType(
            f"a union of {len(plain):,} types is more than {MOST_MEMBERS}; declare it as str"
        )
    return FieldType(kind="union", members=plain)


def _one_or_several(members: Sequence[Member]) -> FieldType | None:
    """The list type of `X | list[X]`, whose value may be a single item; None for other unions."""
    lists = [field_type for _, field_type in members if field_type.is_list]
    if len(lists) != 1:
        return None
    single = _union_of([member for member in members if not member[1].is_list])
    of_items = tuple(pair for pair in lists[0].constraints if pair[0] not in LIST_KEYWORDS)
    if replace(lists[0], is_list=False, constraints=()) != replace(single, constraints=()):
        return None
    # A single item is enough, and constraints of a single member do not bind the value.
    of_list = (pair for pair in lists[0].constraints if pair[0] in LIST_KEYWORDS)
    kept = [(word, min(value, 1) if word == "minItems" else value) for word, value in of_list]
    return replace(
        lists[0],
        constraints=(*(of_items if of_items == single.constraints else ()), *kept),
        is_one_or_several=True,
    )


def _mixed_union(members: Sequence[Member]) -> FieldType:
    """The type of models with one `ValueOf` for all scalars, and one for each list and dict."""

    def is_scalar(field_type: FieldType) -> bool:
        return not field_type.is_list and not field_type.models

    union: Any = Union
    scalars = [annotation for annotation, field_type in members if is_scalar(field_type)]
    models: dict[type[Any], None] = {}
    for annotation, field_type in members:
        if field_type.models and not field_type.is_list:
            models |= dict.fromkeys(field_type.models)
        elif field_type.is_list or annotation is scalars[0]:
            models[_value_of(annotation if field_type.is_list else union[tuple(scalars)])] = None
    return FieldType(models=tuple(models))


def _value_of(annotation: Any) -> type[Any]:
    model: type[Any] = ValueOf[annotation]
    model.__made_by__ = _value_of, (annotation,)
    return model


_KINDS: Mapping[Any, Kind] = {t: kind.name for kind in SCALARS.values() for t in kind.types}
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
    bare, metadata = _annotation_and_metadata(annotation)
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
    return FieldType(kind=_KINDS.get(bare) or kind_by_name(bare) or _other_kind(annotation, bare))


def kind_by_name(bare: Any) -> Kind | None:
    """The kind of a class that only an optional package has, such as a code of a country."""
    return _KINDS.get(f"{getattr(bare, '__module__', '')}.{getattr(bare, '__qualname__', '')}")


def _annotation_and_metadata(annotation: Any) -> tuple[Any, list[Any]]:
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
    bare, _ = _annotation_and_metadata(annotation)
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
    items = [_list_type(argument) for argument in arguments]
    if any(item.models for item in items) or any(map(allows_none, arguments)):
        raise UnsupportedType(
            "a tuple of fixed length holds scalars, none of them None; declare a nested model with "
            "one field per place"
        )
    length = (("minItems", len(items)), ("maxItems", len(items)))
    if all(item == items[0] for item in items):
        return replace(items[0], constraints=(*items[0].constraints, *length))
    places = tuple(replace(item, is_list=False) for item in items)
    members = unlike([member for item in places for member in item.members or (item,)])
    return FieldType("union", (), True, constraints=length, members=members, positions=places)


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
    # Items are never null: a list without None is valid as a list of optional items.
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


def asked_type(
    field: FieldInfo, around: Sequence[type[Any]], max_depth: int | None
) -> FieldType | None:
    """The type of a field within its enclosing models, without models that are nested too deep.

    max_depth: the depth of the field, else of the closest enclosing field.
    Returns None if all models of the field are nested too deep: the field is not read. Raises
    UnsupportedType if no depth is declared, or if a field that is not read requires a value.
    """
    field_type = _below(field)
    if not field_type.models:
        return field_type
    models = (
        _below(fields_of(field_type.models[0])["value"]).models
        if field_type.is_mapping
        else field_type.models
    )
    deep = {model: _too_deep(model, around, max_depth or 0) for model in models}
    kept = tuple(model for model in models if deep[model] is None)
    if len(kept) == len(models):
        return field_type
    named = next(filter(None, deep.values()))
    if max_depth is None:
        raise UnsupportedType(
            f"{named.__name__} contains itself, so that its attributes have no end; say how many "
            'levels of it to read: attr(max_depth=1), or "max_depth": 1 in JSON Schema'
        )
    if len(kept) == 1 and is_bare(kept[0]):
        inner = _below(fields_of(kept[0])["root"])
        if not field_type.is_list:
            return replace(inner, nullable=field_type.nullable)
        own = inner.constraints + field_type.constraints
        return replace(inner, is_list=True, nullable=field_type.nullable, constraints=own)
    if kept and not field_type.is_mapping:
        return replace(field_type, models=kept)
    fewest, _ = limits_of(field_type.constraints, "Items")
    if field.is_required() and not field_type.nullable and not (field_type.is_list and fewest == 0):
        raise UnsupportedType(
            f"requires one {named.__name__} in every {named.__name__}, and so no end of them; give "
            "it a default, or None"
        )
    return None


def root_type(model: type[RootModel[Any]]) -> FieldType:
    """The type of a RootModel's root, a class or a union of classes. Raises UnsupportedType."""
    field_type = _below(fields_of(model)["root"])
    if (
        not field_type.models
        or field_type.is_list
        or field_type.nullable
        or any(map(is_bare, field_type.models))
    ):
        raise UnsupportedType(
            "a root that is no object has no named fields; declare a class with a field for it"
        )
    return field_type


def _below(field: FieldInfo) -> FieldType:
    return field_type_of(annotation_of(field))


def _too_deep(model: type[Any], around: Sequence[type[Any]], depth: int) -> type[Any] | None:
    """The model that is nested too deep, itself or in a list or dict that it holds; or None."""
    inner = _below(fields_of(model)["root"]) if is_bare(model) else None
    if inner is None:
        return model if around.count(model) > depth else None
    if inner.is_mapping:
        inner = _below(fields_of(inner.models[0])["value"])
    return next(filter(None, (_too_deep(member, around, depth) for member in inner.models)), None)
