"""`Scalar`: the base of all kinds of values."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol

from schemax.reading import Reading

ColumnType = Literal["string", "integer", "number", "boolean", "date", "datetime", "choice"]


class Writing(Protocol):
    """The terminals of one attribute's values in one format, from `compiler.grammars`.

    conditions: (keyword, value) pairs that the grammar enforces.
    literals: whether literals alone are written, without texts that are read as values.
    """

    conditions: list[tuple[str, Any]]
    literals: bool

    def texts(self) -> Iterable[str]:
        """Terminals of all texts that meet the conditions, as the format writes them."""

    def choices(self) -> Iterable[str]:
        """Terminals of the attribute's choices, each as a value and as its text."""

    def words(self, values: Iterable[Any]) -> Iterable[str]:
        """Terminals of given values."""

    def around(self, sample: Any, terminal: str) -> str:
        """A terminal with what the format puts around a value like `sample`, such as quotes."""


class Scalar(ABC):
    """A kind of value. `schemax.reading.kinds.SCALARS` lists an instance of each subclass.

    name: the value of `Attribute.kind`.
    types: the Python types of this kind, as full names if their package may be absent.
    json_types: (type, format) in Pydantic's JSON Schema of further types of this kind.
    shown: the type in prompts.
    word: the type in one word, beside models of a union.
    widest: the longest value that budgets provide for, as a literal and as people write it; () for
        a fixed budget.
    samples: values on which conditions of a declaration are tried.
    column: the type of a table's column.
    is_text: whether values are words of the document, which are copied and found there.
    is_number: whether values take a unit.
    is_sure: whether a grammar lists all possible texts.
    is_placed: whether the value's text can be found in the document.
    seconds: the Python type as which Pydantic reads bare numbers, in seconds; None for others.
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
        """True if any text may be written, and is then read as a value."""
        return not (self.is_text or self.is_sure)

    def read(self, text: str, unit: str | None = None, language: str | None = None) -> Reading:
        """Reads a value from a text; returns the text itself if it states no value of this kind.

        Raises ValueError for several values, and for a unit that does not convert to the field's.
        """
        return Reading(text)

    def literal(self, text: str, choices: Mapping[str, Any]) -> Any:
        """The value of a literal, for unions. choices: values by text.

        Raises ValueError, ArithmeticError or KeyError for any other text.
        """
        return text

    def terminals(self, writing: Writing) -> Iterator[str]:
        """Yields all ways to write a value, as terminals of llguidance's Lark dialect."""
        yield from writing.texts()

    def keeps(self, keyword: str, value: Any) -> bool:
        """True if `terminals` enforce a condition."""
        return False

    def compared(self, value: Any) -> Any:
        """The value in a form that is equal for all spellings of the value.

        Returns None, or raises ValueError or ArithmeticError, for anything that is no value.
        """
        return None
