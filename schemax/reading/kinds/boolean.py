"""Booleans."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemax.reading import Reading
from schemax.reading.booleans import read_boolean, spellings
from schemax.reading.kinds.base import Scalar, Writing


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

    def terminals(self, writing: Writing) -> Iterator[str]:
        yield from writing.words((True, False))
        if not writing.literals:
            yield from writing.words(spellings())

    def compared(self, value: Any) -> Any:
        return value if isinstance(value, bool) else None
