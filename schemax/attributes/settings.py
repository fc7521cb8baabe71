"""Settings of a declared class: category, format, template and demonstrations."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from types import UnionType
from typing import Any, Union, get_origin

from pydantic import BaseModel

from schemax.attributes.classes import declares_fields
from schemax.errors import SchemaError
from schemax.messages import clipped


@dataclass(frozen=True, slots=True)
class SchemaSettings:
    """The settings of a class. None leaves the choice to the call.

    demonstrations: (document, instance or mapping) pairs, as `examples=` takes them.
    """

    category: str
    format: Any = None
    template: Any = None
    demonstrations: tuple[Any, ...] | None = None


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
        reason += "; load_schema(NAME) gives a ready-made one"
        raise SchemaError(clipped(repr(model)), None, reason)
    raise SchemaError(getattr(model, "__name__", type(model).__name__), None, reason)
