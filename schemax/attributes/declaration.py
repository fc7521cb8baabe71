"""`attr()`: declares a Pydantic field, with all that the model should know about its value."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from inspect import signature
from typing import Any

from annotated_types import BaseMetadata
from pydantic import Field
from pydantic.annotated_handlers import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import core_schema


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
    long: reads a list in two phases, its length and then all items at once, so that it takes only
        as long as its longest item. Lists of nested models are always read so (docs/lists.md).
    unique: drops items of a list that equal an earlier one, after Pydantic's coercion and before
        `min_length` and `max_length` count them.
    unit: of a number, as pint names it ("inch", "kg", "km/h") or a currency ("EUR"). The model is
        shown the unit; a text with another unit is converted, a text without one has this unit.
    after: the field, or several, to read first: their values precede this field's key ("price",
        "size.width"; docs/dependent-fields.md). Names are relative to the model that declares this
        field; the name of a nested model stands for all of its fields.
    max_depth: the number of levels of an enclosing model that are read below a field that leads
        back to the model; without a number, such a model is refused.
    strict: takes literals alone: no "55-Inch", no "two", no "March 3, 2021" (docs/typed.md).
    extractive: whether texts of the field must stand in the document verbatim, so that the model
        invents none; None leaves the choice to the decoding (docs/constraints.md).
    language: of the documents, by its CLDR name ("de", "pt-BR"), for a field or all fields of a
        nested model: in German 1.299 is 1299, in French 03/04/2021 is 3 April (docs/typed.md).
    skip: the field is not read from documents, and keeps its default.

    Raises TypeError for an argument that neither this function nor Pydantic knows, a `description`
    that is no text, `examples` that are a bare string, and an option of this function beside a
    callable `json_schema_extra`.
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
    made = Field(description=description, examples=list(examples) or None, **field)
    if unique:
        made.metadata.insert(0, Distinct())
    return made


class Distinct(BaseMetadata):
    """Metadata of an `Annotated` list or tuple: drops items that equal an earlier one."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        schema = handler(source)
        if schema["type"] == "nullable":
            # Inside, as Pydantic treats lengths, which would else be written as lengths of a text.
            return {**schema, "schema": _without_repeats(schema["schema"])}
        return _without_repeats(schema)


@dataclass(frozen=True, slots=True)
class TextFormat(BaseMetadata):
    """Metadata of an `Annotated` str: the format of JSON Schema that the text has, such as uri.

    The text is read as a value of that format, and stays a str, which Pydantic does not rewrite.
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
