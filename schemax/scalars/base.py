"""`Scalar`: all that schemax knows of one kind of value."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, Protocol

from schemax.reading import Reading

ColumnType = Literal["string", "integer", "number", "boolean", "date", "datetime", "choice"]


class Writing(Protocol):
    """A value of one attribute in one format, as `compiler.grammars` writes it into a grammar.

    conditions: (keyword, value) pairs that the grammar keeps.
    literals: whether literals alone are written, without texts that are read as values.
    """

    conditions: list[tuple[str, Any]]
    literals: bool

    def texts(self) -> Iterable[str]:
        """Terminals of every text that meets the conditions, quoted as the format does."""

    def choices(self) -> Iterable[str]:
        """Terminals of the attribute's choices, each as such and as its text."""

    def words(self, values: Iterable[Any]) -> Iterable[str]:
        """Terminals of given values."""

    def around(self, sample: Any, terminal: str) -> str:
        """A terminal in place of a sample value, within what the format puts around the value."""


class Scalar(ABC):
    """A kind of value. One subclass a file; `schemax.scalars.SCALARS` lists one instance of each.

    name: what `Attribute.kind` is.
    types: the Python types that it stands for, or their full names where they may be absent.
    json_types: (type, format) of Pydantic's JSON Schema of other types that it stands for.
    output: (type, format) of the JSON Schema of a value, for servers that keep to one.
    shown: the type as a prompt tells it.
    word: the type in one word, beside models of a union.
    widest: the longest value worth waiting for, as a literal and as people write it; () where
        texts have their own budget.
    samples: values, which conditions of a declaration are tried on.
    column: the type of a table's column.
    is_text: whether the value is words of the document, which are copied and found there.
    is_number: whether it takes a unit.
    is_open: whether any text may be written and is then read as a value.
    is_sure: whether a grammar lists all that may be written.
    is_placed: whether the value's text can be found in the document.
    editor: the input of a page that corrects values; "" for plain text.
    seconds: the Python type that Pydantic takes bare numbers for, as seconds; None for others.
    """

    name: str
    types: tuple[Any, ...] = ()
    json_types: tuple[tuple[str, str | None], ...] = ()
    output: tuple[str, str | None]
    shown: str
    word: str
    widest: tuple[str, ...] = ()
    samples: tuple[Any, ...] = ()
    column: ColumnType = "string"
    is_text: bool = False
    is_number: bool = False
    is_open: bool = False
    is_sure: bool = False
    is_placed: bool = True
    editor: str = ""
    seconds: Any = None

    def read(self, text: str, unit: str | None = None) -> Reading:
        """Reads a text; the text itself where it states no such value.

        Raises ValueError for a text that states several values, and for one in a unit that does
        not convert to the field's.
        """
        return Reading(text)

    def literal(self, text: str, choices: Mapping[str, Any]) -> Any:
        """The value whose literal the text is, for unions; choices: values by text.

        Raises ValueError, ArithmeticError or KeyError for any other text.
        """
        return text

    def terminals(self, writing: Writing) -> Iterator[str]:
        """All ways to write a value, as terminals of llguidance's Lark dialect."""
        yield from writing.texts()

    def keeps(self, keyword: str, value: Any) -> bool:
        """True if `terminals` keep a condition by themselves."""
        return False

    def compared(self, value: Any) -> Any:
        """The value in a form that equals the same value in another spelling.

        None for what is no value. Raises ValueError or ArithmeticError likewise.
        """
        return None
