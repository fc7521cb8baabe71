"""Booleans, choices and texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from schemax.reading import Reading
from schemax.reading.booleans import read_boolean
from schemax.reading.kinds.base import Scalar


class Boolean(Scalar):
    """A bool."""

    name = "boolean"
    types = (bool,)
    json_types = (("boolean", None),)
    shown = "true or false"
    word = "yes or no"
    widest = ("false", "FALSE")
    column = "boolean"
    is_sure = True
    is_placed = False

    def read(self, text: str, unit: str | None = None, language: str | None = None) -> Reading:
        return read_boolean(text)

    def literal(self, text: str, choices: Any) -> Any:
        return {"true": True, "false": False}[text]

    def compared(self, value: Any) -> Any:
        return value if isinstance(value, bool) else None


class Choice(Scalar):
    """A member of an Enum or Literal. `reading.choices`, which has the choices, reads it."""

    name = "enum"
    shown = "one of the choices"
    word = "choice"
    column = "choice"
    is_sure = True

    def literal(self, text: str, choices: Mapping[str, Any]) -> Any:
        return choices[text]


class Text(Scalar):
    """A str, or a value without a kind of its own: a time of day, a UUID, a path."""

    name = "string"
    types = (str,)
    json_types = (("string", None),)
    shown = "text"
    word = "text"
    # With samples for types that Pydantic reads from texts.
    samples = ("a", "01:00", "https://a.b", "00000000-0000-4000-8000-000000000000")
    is_text = True
