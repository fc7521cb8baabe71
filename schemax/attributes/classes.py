"""Classes that declare fields: Pydantic models, dataclasses of either kind, TypedDicts."""

from __future__ import annotations

import copyreg
import re
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from typing import Any, TypeGuard, TypeVar, get_args, get_origin

import typing_extensions
from pydantic import BaseModel, TypeAdapter
from pydantic.dataclasses import dataclass as pydantic_dataclass
from pydantic.dataclasses import rebuild_dataclass
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticUndefined
from pydantic_core import SchemaError as CoreSchemaError

from schemax.base.messages import clipped, one_line

T = TypeVar("T")

BROKEN = (PydanticUndefinedAnnotation, PydanticUserError, CoreSchemaError, NameError)
"""The errors of Pydantic, or of evaluating annotations, for a class that cannot be built."""


class MadeClass(type(BaseModel)):  # type: ignore[misc]  # Pydantic's metaclass has no public name
    """The metaclass of classes that no module holds. `__made_by__`: (function, arguments)."""


def _reduce(model: type[Any]) -> str | tuple[Any, ...]:
    # A subclass may be held by a module.
    made_by: str | tuple[Any, ...] = vars(model).get("__made_by__", model.__qualname__)
    return made_by


copyreg.pickle(MadeClass, _reduce)


def broken_at(error: Exception) -> tuple[tuple[str, ...], str]:
    """The field at fault, if Pydantic names it, and the message for an error in BROKEN."""
    text = str(error)
    if not isinstance(error, CoreSchemaError):
        return (), f"Pydantic cannot build it: {text}"
    reason = text.rpartition("SchemaError: ")[2]
    if reason.startswith("regex parse error"):
        # Lines: the pattern, an arrow to the place, the fault. A pattern of several lines has more.
        _, *shown, fault = reason.splitlines()
        pattern = f"pattern {clipped(repr(shown[0][4:]))}" if len(shown) == 2 else "its pattern"
        reason = f"{pattern} cannot be used: {fault.removeprefix('error: ')}; mend it"
        if fault.endswith("not supported"):
            reason += ', or set regex_engine="python-re" in the class\'s model_config'
    else:
        reason = f"Pydantic cannot build it: {one_line(reason.rpartition('Error: ')[2])}"
    return tuple(re.findall(r"""Field ["'](.+?)["']:""", text)), reason


def declares_fields(kind: Any) -> TypeGuard[type[Any]]:
    """True for a class whose fields can be read from documents."""
    if not isinstance(kind, type):
        return False
    return issubclass(kind, BaseModel) or is_dataclass(kind) or is_typed_dict(kind)


def is_typed_dict(kind: Any) -> bool:
    return typing_extensions.is_typeddict(kind)


def fields_of(kind: type[Any]) -> Mapping[str, FieldInfo]:
    """Returns all fields of a class by name. Raises the errors in BROKEN."""
    if issubclass(kind, BaseModel):
        if not kind.__pydantic_complete__:
            kind.model_rebuild(raise_errors=False, _types_namespace={})
        return kind.model_fields
    typed: Any = kind
    return _fields_of_typed_dict(typed) if is_typed_dict(typed) else _fields_of_dataclass(typed)


def asked_fields(kind: type[Any]) -> dict[str, FieldInfo]:
    """The fields of a class that are read from documents; all others keep their defaults.

    Fields are skipped that are excluded from dumps, not set by the caller (`init=False`), hidden
    from JSON Schema, or declared with `attr(skip=True)`.
    """
    return {name: field for name, field in fields_of(kind).items() if not _is_skipped(field)}


def own_settings(field: FieldInfo) -> dict[str, Any]:
    """The settings of a field that `attr` stores beside Pydantic's."""
    extra = field.json_schema_extra
    return dict(extra) if isinstance(extra, dict) else {}


def is_judged_by_class(kind: type[Any], name: str) -> bool:
    """True if the class has validators of a field, which may accept more than its type does."""
    decorators = getattr(kind, "__pydantic_decorators__", None)
    validators = decorators.field_validators.values() if decorators else ()
    return any({name, "*"} & {*validator.info.fields} for validator in validators)


def complete(kind: type[Any]) -> str:
    """Builds a class; returns the title of its validation errors. Raises the errors in BROKEN."""
    if issubclass(kind, BaseModel):
        kind.model_rebuild(_types_namespace={})
        return kind.__pydantic_validator__.title
    return reader_of(kind).validator.title


def validated(kind: type[T], data: Any, **options: Any) -> T:
    """Validates data as an instance, with Pydantic's errors; `options` as `model_validate`'s."""
    instance: T
    if issubclass(kind, BaseModel):
        instance = kind.model_validate(data, **options)
    else:
        instance = reader_of(kind).validate_python(data, **options)
    return instance


def dumped(instance: Any, **options: Any) -> Any:
    """Dumps an instance as a dict; `options` as in Pydantic's `model_dump`."""
    if isinstance(instance, BaseModel):
        return instance.model_dump(warnings=False, **options)
    kind = type(instance) if declares_fields(type(instance)) else dict[str, Any]  # a TypedDict
    return reader_of(kind).dump_python(instance, warnings=False, **options)


def is_instance(value: Any, kind: type[Any]) -> bool:
    """True if Pydantic accepts a value as an instance of a class."""
    return bool(reader_of(kind).validator.isinstance_python(value))


def value_in(holder: Any, name: str) -> Any:
    """The value of an instance's field; None where it is absent."""
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


def _is_skipped(field: FieldInfo) -> bool:
    return (
        field.exclude is True
        or field.init is False
        or own_settings(field).get("skip") is True
        or SkipJsonSchema in map(type, field.metadata)
    )


_QUALIFIERS = ("Required", "NotRequired", "ReadOnly")
reader_of: Callable[[Any], TypeAdapter[Any]] = lru_cache(maxsize=256)(TypeAdapter[Any])
"""Returns the adapter that validates instances of a class. Raises the errors in BROKEN."""


@lru_cache(maxsize=256)
def _fields_of_dataclass(kind: type[Any]) -> Mapping[str, FieldInfo]:
    built: Any = kind
    if "__pydantic_fields__" not in vars(kind):
        built = pydantic_dataclass(kind, frozen=kind.__dataclass_params__.frozen)
    if not built.__pydantic_complete__:
        rebuild_dataclass(built, raise_errors=False)
    fields: Mapping[str, FieldInfo] = built.__pydantic_fields__
    return fields


@lru_cache(maxsize=256)
def _fields_of_typed_dict(kind: Any) -> Mapping[str, FieldInfo]:
    fields = {}
    for name, hint in typing_extensions.get_type_hints(kind, include_extras=True).items():
        is_required = name in kind.__required_keys__
        while (around := str(get_origin(hint)).rpartition(".")[2]) in _QUALIFIERS:
            is_required = is_required and around != "NotRequired"
            (hint,) = get_args(hint)
        field = FieldInfo.from_annotation(hint)
        if not is_required and field.default is PydanticUndefined:
            field.default = None  # the key is omitted where there is no value
        fields[name] = field
    return fields
