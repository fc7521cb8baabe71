"""Durations."""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from schemax.reading import Reading, noted
from schemax.reading.kinds.base import Scalar
from schemax.reading.numbers import number_of

# As Pydantic reads and writes them; without months and years, which have no fixed length.
_SECONDS = r"[0-9]{1,6}(?:\.[0-9]{1,6})?S"
_TIME = (
    rf"(?:[0-9]{{1,4}}H(?:[0-9]{{1,2}}M)?(?:{_SECONDS})?|[0-9]{{1,4}}M(?:{_SECONDS})?|{_SECONDS})"
)
DURATION = rf"P(?:[0-9]{{1,5}}D(?:T{_TIME})?|T{_TIME})"
_LITERAL = re.compile(rf"[-+]?{DURATION}")
_CLOCK = re.compile(r"(?:(\d{1,5}) days?,? )?(\d{1,3}):([0-5]\d)(?::([0-5]\d(?:\.\d{1,6})?))?")
_PYDANTIC = TypeAdapter(timedelta)


class Duration(Scalar):
    """A timedelta, in ISO 8601: PT2H30M is two hours and a half."""

    name = "duration"
    types = (timedelta,)
    json_types = (("string", "duration"),)
    shown = "duration"
    word = "duration"
    widest = ('"P365DT23H59M59.123456S"', "365 days, 23 hours, 59 minutes and 59 seconds")
    samples = (timedelta(hours=1),)

    def read(self, text: str, unit: str | None = None, language: str | None = None) -> Reading:
        """Reads hours, minutes, days and the like.

        Raises ValueError for a number without a unit, for a unit of another kind, and for several
        durations.
        """
        if _LITERAL.fullmatch(text):
            return Reading(text)
        if clock := _CLOCK.fullmatch(text.strip()):
            days, hours, minutes, seconds = (Decimal(part or 0) for part in clock.groups())
            total = days * 86_400 + hours * 3600 + minutes * 60 + seconds
            return noted(text, _iso(total), None if clock[4] else "hours and minutes")
        number = number_of(text, False, "s", language)
        if number is None:
            return Reading(text)
        # Read in hours and in seconds, a number without a unit gives the same value.
        seconds, reasons = number
        in_hours = number_of(text, False, "h", language)
        if seconds and in_hours and in_hours[0] == seconds:
            raise ValueError("has no unit of time")
        return noted(text, _iso(seconds), *reasons)

    def literal(self, text: str, choices: Any) -> Any:
        if not _LITERAL.fullmatch(text):
            raise ValueError("no duration in ISO 8601")
        return _PYDANTIC.validate_python(text)

    def compared(self, value: Any) -> Any:
        return _PYDANTIC.validate_python(value)


def _iso(seconds: Decimal) -> str:
    microseconds = int(seconds * 10**6)
    if seconds and not microseconds:
        raise ValueError("is shorter than a microsecond")
    try:
        return str(to_jsonable_python(timedelta(microseconds=microseconds)))
    except OverflowError:
        raise ValueError("is longer than any duration can be") from None
