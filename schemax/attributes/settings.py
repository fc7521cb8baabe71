"""Settings of a declared class (category, format, language ...) and of its fields."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, Union, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from schemax.attributes.classes import declares_fields, own_settings
from schemax.attributes.field_type import FieldPath, FieldType, UnsupportedType
from schemax.base.messages import clipped
from schemax.config import BOUNDS
from schemax.errors import SchemaError
from schemax.reading.cldr import check_language
from schemax.reading.units import check_unit


@dataclass(frozen=True, slots=True)
class SchemaSettings:
    """The settings of a class. None leaves the choice to the call.

    demonstrations: (document, instance or mapping) pairs, as `examples=` takes them.
    language: of the documents, for fields and nested classes that name none.
    """

    category: str
    format: Any = None
    template: Any = None
    demonstrations: tuple[Any, ...] | None = None
    language: str | None = None


def settings_of(model: type[Any]) -> SchemaSettings:
    """The settings of a class that declares fields. Raises SchemaError for anything else."""
    require_model(model)
    if issubclass(model, BaseModel):
        model = model.__pydantic_generic_metadata__["origin"] or model
    declared = [vars(base).get("__schema_settings__", {}) for base in model.__mro__]
    inherited: dict[str, Any] = {}
    for settings in reversed(declared):
        inherited.update(settings)
    return SchemaSettings(
        category=declared[0].get("category") or words_of(model.__name__),
        format=inherited.get("format"),
        template=inherited.get("template"),
        # A subclass may declare other fields.
        demonstrations=declared[0].get("demonstrations"),
        language=inherited.get("language"),
    )


_BETWEEN_WORDS = re.compile(r"(?<=[^\W_A-Z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def words_of(name: str) -> str:
    """The lower-case words of a class name or title: "PhoneCase" -> "phone case"."""
    return " ".join(_BETWEEN_WORDS.sub(" ", name).replace("_", " ").split()).lower()


def spaced(name: str) -> str:
    """The words of a field's name as shown: "screen_size", "screenSize" -> "screen size".

    Capitals begin words only in names that begin with a lower-case letter.
    """
    if re.match(r"[a-z]+[A-Z]", name):
        words = _BETWEEN_WORDS.sub(" ", name).replace("_", " ").split()
        return " ".join(word if word.isupper() else word.lower() for word in words)
    return name.replace("_", " ").strip()


def is_unprintable(text: str) -> bool:
    return not text.strip() or any(
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in text
    )


def require_model(model: Any) -> None:
    if declares_fields(model):
        return
    if declares_fields(type(model)):
        raise SchemaError(type(model).__name__, None, "is an instance; pass its class")
    reason = (
        "is no class derived from pydantic.BaseModel (or schemax.AttrSchema), no dataclass and no "
        "TypedDict"
    )
    if get_origin(model) in (Union, UnionType):
        reason = "is a union; declare a class of it, such as class Item(RootModel[Cat | Dog]): pass"
    if isinstance(model, str):
        reason += (
            "; load_schema(NAME) gives a ready-made one, and AttrSchema.from_json_schema(DOCUMENT) "
            "a class of a JSON Schema document"
        )
        raise SchemaError(clipped(repr(model)), None, reason)
    raise SchemaError(getattr(model, "__name__", type(model).__name__), None, reason)


MOST_DEPTH = 8


def label_of(name: str, field: FieldInfo) -> str:
    if field.title is None:
        return spaced(name)
    if is_unprintable(field.title):
        raise UnsupportedType(
            f"title {field.title!r} must be one line of visible text: the model is shown it"
        )
    return field.title.strip()


def is_two_phase(field: FieldInfo, field_type: FieldType) -> bool:
    declared = own_settings(field)
    names = {
        "long": "long",
        "uniqueItems": "unique",
        "strict": "strict",
        "extractive": "extractive",
    }
    for keyword, name in names.items():
        if (value := declared.get(keyword, False)) not in (True, False):
            raise UnsupportedType(f"{name} must be True or False, not {value!r}")
        if value and not field_type.is_list and keyword in ("long", "uniqueItems"):
            raise UnsupportedType(f"{name} applies to lists only; remove it")
    return bool(field_type.models) or declared.get("long", False) is True


def unit_of(field: FieldInfo, field_type: FieldType) -> str | None:
    unit = own_settings(field).get("unit")
    if unit is None:
        return None
    if field_type.scalar is None or not field_type.scalar.is_number:
        raise UnsupportedType("unit applies to numbers only; remove it, or declare a number")
    try:
        check_unit(unit)
    except ValueError as error:
        raise UnsupportedType(str(error)) from None
    return str(unit)


def language_of(field: FieldInfo) -> str | None:
    language = own_settings(field).get("language")
    if language is None:
        return None
    try:
        check_language(language)
    except ValueError as error:
        raise UnsupportedType(str(error)) from None
    return str(language)


def k_max_of(field: FieldInfo) -> int | None:
    k_max = own_settings(field).get("k_max")
    if k_max is None:
        return None
    try:
        BOUNDS["k_max"].check("k_max", k_max)
    except ValueError as error:
        raise UnsupportedType(str(error)) from None
    return int(k_max)


def max_depth_of(field: FieldInfo) -> int | None:
    """The number of times that a field may lead back into an enclosing model."""
    depth = own_settings(field).get("max_depth")
    if depth is not None and (type(depth) is not int or not 1 <= depth <= MOST_DEPTH):
        raise UnsupportedType(f"max_depth must be a whole number from 1 to {MOST_DEPTH}")
    return depth


def after_of(
    field: FieldInfo, fields: Mapping[str, FieldInfo], around: FieldPath
) -> Iterator[FieldPath]:
    """Yields the paths, from the root, of the fields that a field names by name or alias."""
    named = own_settings(field).get("after", ())
    aliases = {other.alias: name for name, other in fields.items() if other.alias}
    for dotted in named if isinstance(named, (list, tuple)) else (named,):
        if not isinstance(dotted, str):
            raise UnsupportedType(f"after takes names of fields, not {dotted!r}")
        if dotted in aliases:
            yield (*around, aliases[dotted])
        else:
            yield (*around, *dotted.split("."))
