"""Settings of classes (category, format, language ...) and of fields, which `attr` declares."""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature
from types import UnionType
from typing import Any, Union, get_origin

from annotated_types import BaseMetadata
from pydantic import BaseModel, Field
from pydantic.annotated_handlers import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from schemax.attributes.classes import declares_fields, own_settings
from schemax.attributes.field_type import FieldPath, FieldType, UnsupportedType
from schemax.base.messages import clipped
from schemax.config import BOUNDS
from schemax.errors import SchemaError
from schemax.reading.cldr import check_language
from schemax.reading.units import check_unit


def attr(
    description: str | None = None,
    *,
    examples: Sequence[Any] = (),
    k_max: int | None = None,
    long: bool = False,
    unique: bool = False,
    unit: str | None = None,
    after: str | Sequence[str] = (),
    max_depth: int | None = None,
    strict: bool = False,
    extractive: bool | None = None,
    language: str | None = None,
    skip: bool = False,
    **field: Any,
) -> Any:
    """Declares a field for the model to fill; further arguments (`field`) go to `pydantic.Field`.

    k_max: the token budget of the value, or of each item of a list that is read in two phases.
    long: reads a list in two phases, its length and then all items at once, which takes as long as
        the longest item. Lists of nested models are always read in two phases (docs/lists.md).
    unique: drops items of a list that equal an earlier one, after Pydantic's coercion and before
        `min_length` and `max_length` count them.
    unit: the unit of a number: a name of pint ("inch", "kg", "km/h") or a currency ("EUR"). The
        prompt names it. A text in another unit is converted; a text without a unit is in this unit.
    after: the names of fields to read first; their values precede this field's key ("price",
        "size.width"; docs/dependent-fields.md). Names are relative to the model that declares this
        field; the name of a nested model stands for all of its fields.
    max_depth: the levels to read of a model that contains itself; None refuses such a model.
    strict: takes literals alone: no "55-Inch", no "two", no "March 3, 2021" (docs/typed.md).
    extractive: whether texts of the field must stand in the document verbatim, so that the model
        invents none; None leaves the choice to the decoding (docs/constraints.md).
    language: the documents' language, by its CLDR name ("de", "pt-BR"), for a field or all fields
        of a nested model: in German 1.299 is 1299, in French 03/04/2021 is 3 April (docs/typed.md).
    skip: True for a field that is not read from documents, and keeps its default.

    Raises TypeError for an unknown argument, a `description` that is no text, `examples` that are a
    bare string, and an option of this function beside a callable `json_schema_extra`.
    """
    if strange := sorted(field.keys() - signature(Field).parameters.keys()):
        known = {*signature(attr).parameters, *signature(Field).parameters}
        near = get_close_matches(strange[0], known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise TypeError(f"attr() and pydantic.Field have no argument {strange[0]!r}{hint}")
    if not isinstance(description, str | None):
        raise TypeError(f"the description must be text, not {description!r}")
    if isinstance(examples, (str, bytes)):
        raise TypeError(f"examples must be a list of examples: write [{examples!r}]")
    own: dict[str, Any] = {"k_max": k_max, "long": long or None, "uniqueItems": unique or None}
    own |= {"unit": unit, "max_depth": max_depth, "strict": strict or None, "skip": skip or None}
    own |= {"extractive": extractive, "language": language}
    own["after"] = (list(after) if isinstance(after, (list, tuple)) else [after]) or None
    if own := {name: value for name, value in own.items() if value is not None}:
        extra = field.pop("json_schema_extra", None)
        if callable(extra):
            name = next(iter(own)).replace("uniqueItems", "unique")
            raise TypeError(f"{name} requires json_schema_extra to be a dict, not a callable")
        field["json_schema_extra"] = {**(extra or {}), **own}
    declared = Field(description=description, examples=list(examples) or None, **field)
    if unique:
        declared.metadata.insert(0, Distinct())
    return declared


class Distinct(BaseMetadata):
    """Metadata of an `Annotated` list or tuple: drops items that equal an earlier one."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        schema = handler(source)
        if schema["type"] == "nullable":
            # Inside, as Pydantic does for lengths, which else become lengths of a text.
            return {**schema, "schema": _without_repeats(schema["schema"])}
        return _without_repeats(schema)


@dataclass(frozen=True, slots=True)
class TextFormat(BaseMetadata):
    """Metadata of an `Annotated` str: the text's format in JSON Schema, such as uri.

    The text is read as a value of the format, but stays a str: Pydantic does not rewrite it.
    """

    name: str

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "format": self.name}


def _without_repeats(schema: core_schema.CoreSchema) -> core_schema.CoreSchema:
    return core_schema.no_info_after_validator_function(_unequal, schema)


def _unequal(items: Any) -> Any:
    if not isinstance(items, (list, tuple, deque)):
        return items
    kept: list[Any] = []
    for item in items:
        if item not in kept:
            kept.append(item)
    return type(items)(kept)


@dataclass(frozen=True, slots=True)
class SchemaSettings:
    """The settings of a class. None leaves the choice to the call.

    demonstrations: (document, instance or mapping) pairs, as `examples=` takes them.
    language: the documents' language, for fields and nested classes that name none.
    """

    category: str
    format: Any = None
    template: Any = None
    demonstrations: tuple[Any, ...] | None = None
    language: str | None = None


def settings_of(model: type[Any]) -> SchemaSettings:
    """The settings of a class that declares fields. Raises SchemaError for any other class."""
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


def words_in(name: str) -> str:
    """The words of a field's name as shown: "screen_size", "screenSize" -> "screen size".

    Capitals begin words only if the name begins with a lower-case letter.
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
        return words_in(name)
    if is_unprintable(field.title):
        raise UnsupportedType(
            f"title {field.title!r} must be one line of visible text: the model is shown it"
        )
    return field.title.strip()


def is_two_phase(field: FieldInfo, field_type: FieldType) -> bool:
    declared = own_settings(field)
    for keyword in ("long", "uniqueItems", "strict", "extractive"):
        name = "unique" if keyword == "uniqueItems" else keyword
        if (value := declared.get(keyword, False)) not in (True, False):
            raise UnsupportedType(f"{name} must be True or False, not {value!r}")
        if value and not field_type.is_list and name in ("long", "unique"):
            raise UnsupportedType(f"{name} applies to lists only; remove it")
    return bool(field_type.models) or declared.get("long", False) is True


def unit_of(field: FieldInfo, field_type: FieldType) -> str | None:
    unit: str | None = own_settings(field).get("unit")
    if unit is not None:
        if field_type.scalar is None or not field_type.scalar.is_number:
            raise UnsupportedType("unit applies to numbers only; remove it, or declare a number")
        check_unit(unit)
    return unit


def language_of(field: FieldInfo) -> str | None:
    language: str | None = own_settings(field).get("language")
    if language is not None:
        check_language(language)
    return language


def k_max_of(field: FieldInfo) -> int | None:
    k_max: int | None = own_settings(field).get("k_max")
    if k_max is not None:
        BOUNDS["k_max"].check("k_max", k_max)
    return k_max


def max_depth_of(field: FieldInfo) -> int | None:
    """The levels to read of a model that contains itself; None if the field declares none."""
    depth = own_settings(field).get("max_depth")
    if depth is not None and (type(depth) is not int or not 1 <= depth <= MOST_DEPTH):
        raise UnsupportedType(f"max_depth must be a whole number from 1 to {MOST_DEPTH}")
    return depth


def after_of(
    field: FieldInfo, fields: Mapping[str, FieldInfo], around: FieldPath
) -> Iterator[FieldPath]:
    """Yields the paths, from the root, of the fields that a field names by name or alias."""
    named = own_settings(field).get("after", ())
    aliases = {sibling.alias: name for name, sibling in fields.items() if sibling.alias}
    for dotted in named if isinstance(named, (list, tuple)) else (named,):
        if not isinstance(dotted, str):
            raise UnsupportedType(f"after takes names of fields, not {dotted!r}")
        if dotted in aliases:
            yield (*around, aliases[dotted])
        else:
            yield (*around, *dotted.split("."))
