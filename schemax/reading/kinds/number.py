"""Integers, and numbers with decimals."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from schemax.reading import Reading
from schemax.reading.kinds.base import ColumnType, Scalar
from schemax.reading.numbers import read_number

# The most digits: as many as slots' budgets and doubles hold, so that a number cannot ramble.
INTEGER_DIGITS = 13
NUMBER_DIGITS = 15

_NOT_FINITE = re.compile(r"\s*[-+]?(?:inf|infinity|nan|snan)\s*", re.IGNORECASE)


def _as_double(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # no number: Pydantic refuses it
        return 0.0


class Number(Scalar):
    """A float or Decimal, in plain digits."""

    name = "number"
    types = (float, Decimal)
    json_types: tuple[tuple[str, str | None], ...] = (("number", None),)
    shown = "number"
    word = "number"
    widest = ("-1234567890.12345", "-1,234,567,890.12345 square metres")
    samples = (1,)
    column: ColumnType = "number"
    is_number = True

    def read(self, text: str, unit: str | None = None, language: str | None = None) -> Reading:
        reading = read_number(text, self.name == "integer", unit, language)
        if _NOT_FINITE.fullmatch(reading.value) or abs(_as_double(reading.value)) == math.inf:
            raise ValueError("is no finite number")
        return reading

    def literal(self, text: str, choices: Any) -> Any:
        exact = Decimal(text)
        is_whole = exact == exact.to_integral_value() and text.lstrip("-").isdigit()
        return int(text) if is_whole else exact

    def compared(self, value: Any) -> Any:
        return Decimal(value)


class Integer(Number):
    """An int."""

    name = "integer"
    types: tuple[Any, ...] = (int,)
    json_types = (("integer", None),)
    shown = "whole number"
    widest = ("-1234567890123", "-1,234,567,890,123 square metres")
    column = "integer"

    def literal(self, text: str, choices: Any) -> Any:
        return int(text)
