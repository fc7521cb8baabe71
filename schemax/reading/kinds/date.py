"""Dates."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

from schemax.reading import Reading
from schemax.reading.dates import read_date
from schemax.reading.kinds.base import Scalar, Writing
from schemax.reading.kinds.ranges import BOUNDS, days


class Date(Scalar):
    """A date, in ISO 8601."""

    name = "date"
    types = (date,)
    json_types = (("string", "date"),)
    shown = "date (YYYY-MM-DD)"
    word = "date"
    widest = ('"2026-12-31"', "Wednesday, the 31st of December 2026")
    samples = (date(2000, 1, 1),)
    column = "date"
    seconds = date

    def read(self, text: str, unit: str | None = None, language: str | None = None) -> Reading:
        return read_date(text, False, language)

    def literal(self, text: str, choices: Any) -> Any:
        return date.fromisoformat(text)

    def terminals(self, writing: Writing) -> Iterator[str]:
        yield writing.around(date(2026, 12, 31), days(writing.conditions))

    def keeps(self, keyword: str, value: Any) -> bool:
        return keyword in BOUNDS and isinstance(value, date) and not isinstance(value, datetime)

    def compared(self, value: Any) -> Any:
        return date.fromisoformat(value)
