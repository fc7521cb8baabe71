"""Dates with a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any

from schemax.reading import Reading
from schemax.reading.dates import read_date
from schemax.reading.kinds.base import Scalar, Writing
from schemax.reading.kinds.ranges import DATE, TIME, ZONE


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

    def terminals(self, writing: Writing) -> Iterator[str]:
        zone = dict(writing.conditions).get("tz_constraint")
        behind = {"aware": ZONE, "naive": ""}.get(str(zone), f"{ZONE}?")
        yield writing.around(datetime(2026, 12, 31), f"/{DATE}T{TIME}{behind}/")
        if zone != "aware":  # a bare date is midnight, without a zone
            yield writing.around(date(2026, 12, 31), f"/{DATE}/")

    def keeps(self, keyword: str, value: Any) -> bool:
        return keyword == "tz_constraint"

    def compared(self, value: Any) -> Any:
        return datetime.fromisoformat(value)
