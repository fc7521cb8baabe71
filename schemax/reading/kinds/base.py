"""`Scalar`: the base of all kinds of values."""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping
from typing import Any, Literal

from schemax.reading import Reading

ColumnType = Literal["string", "integer", "number", "boolean", "date", "datetime", "choice"]


class Scalar(ABC):
    """A kind of value. `schemax.reading.kinds.SCALARS` lists an instance of each subclass.

    name: the value of `Attribute.kind`.
    types: the Python types of the kind; a full name stands for a type of an optional package.
    json_types: the (type, format) by which Pydantic's JSON Schema describes other types of the
        kind.
    shown: the type in prompts.
    word: the name of the kind beside models of a union.
    widest: the longest value that budgets allow, as a literal and as people write it; () for a
        fixed budget.
    samples: values that try the conditions of a declaration.
    column: the type of a table's column.
    is_text: whether values are words of the document, copied from it and found in it.
    is_number: whether values have units.
    is_sure: whether a grammar lists all texts of the kind.
    is_placed: whether the text of a value can be found in the document.
    seconds: the Python type for which Pydantic reads bare numbers as seconds; else None.
    """

    name: str
    types: tuple[Any, ...] = ()
    json_types: tuple[tuple[str, str | None], ...] = ()
    shown: str
    word: str
    widest: tuple[str, ...] = ()
    samples: tuple[Any, ...] = ()
    column: ColumnType = "string"
    is_text: bool = False
    is_number: bool = False
    is_sure: bool = False
    is_placed: bool = True
    seconds: Any = None

    @property
    def output(self) -> tuple[str, str | None]:
        """(type, format) of the JSON Schema of a value, for servers that constrain outputs."""
        return self.json_types[0] if self.json_types else ("string", None)

    @property
    def is_open(self) -> bool:
        """True if a slot may write any text, which is then read as a value."""
        return not (self.is_text or self.is_sure)

    def read(self, text: str, unit: str | None = None, language: str | None = None) -> Reading:
        """Reads a value from a text; returns the text itself if it states no value of the kind.

        unit, language: those of the field. Raises ValueError for several values, and for a unit
        that does not convert to the field's.
        """
        return Reading(text)

    def literal(self, text: str, choices: Mapping[str, Any]) -> Any:
        """The value of a literal, for unions. choices: the values of choices, by their texts.

        Raises ValueError, ArithmeticError or KeyError for a text that is no literal.
        """
        return text

    def compared(self, value: Any) -> Any:
        """A form of the value that all its spellings share.

        Returns None, or raises ValueError or ArithmeticError, if it is no value of the kind.
        """
        return None
