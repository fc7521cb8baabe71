"""Dates, and dates with a time."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from schemax.reading import Reading
from schemax.reading.dates import read_date
from schemax.reading.kinds.base import Scalar


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

    def compared(self, value: Any) -> Any:
        return date.fromisoformat(value)


class Moment(Scalar):
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

    def read(self, text: str, unit: str | None = None, language: str | None = None) -> Reading:
        return read_date(text, True, language)

    def literal(self, text: str, choices: Any) -> Any:
        return datetime.fromisoformat(text)

    def compared(self, value: Any) -> Any:
        return datetime.fromisoformat(value)
