"""Choices: one of several texts or numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from schemax.reading.kinds.base import Scalar, Writing


class Choice(Scalar):
    """A member of an Enum or Literal. `reading.choices`, which has the choices, reads it."""

    name = "enum"
    shown = "one of the choices"
    word = "choice"
    column = "choice"
    is_sure = True

    def literal(self, text: str, choices: Mapping[str, Any]) -> Any:
        return choices[text]

    def terminals(self, writing: Writing) -> Iterator[str]:
        yield from writing.choices()
