"""Dates, and dates with a time."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from schemax.reading import Reading
from schemax.reading.dates import read_date
from schemax.reading.kinds.base import ColumnType, Scalar


class Date(Scalar):
    """A date, in ISO 8601."""

    name = "date"
    types: tuple[Any, ...] = (date,)
    json_types: tuple[tuple[str, str | None], ...] = (("string", "date"),)
    shown = "date (YYYY-MM-DD)"
    word = "date"
    widest = ('"2026-12-31"', "Wednesday, the 31st of December 2026")
    samples: tuple[Any, ...] = (date(2000, 1, 1),)
    column: ColumnType = "date"
    seconds = date

    def read(self, text: str, unit: str | None = None, language: str | None = None) -> Reading:
        return read_date(text, self.seconds is datetime, language)

    def literal(self, text: str, choices: Any) -> Any:
        return self.seconds.fromisoformat(text)

    def compared(self, value: Any) -> Any:
        return self.seconds.fromisoformat(value)


class Moment(Date):
    """A datetime, in ISO 8601, with or without a time zone."""

    name = "datetime"
    types = (datetime,)
    json_types = (("string", "date-time"),)
    shown = "date and time (YYYY-MM-DDTHH:MM:SS)"
    word = "time"
    widest = (
        '"2026-12-31T23:59:59.123456+00:00"',
        "Wednesday, the 31st of December 2026, 11:59:59 p.m. UTC",
    )
    samples = (datetime(2000, 1, 1),)
    column = "datetime"
    seconds = datetime
