"""Texts of any kind of scalar."""

from __future__ import annotations

from schemax.reading import Reading
from schemax.reading.booleans import read_boolean
from schemax.reading.dates import read_date
from schemax.reading.numbers import read_number


def read_scalar(kind: str | None, text: str, unit: str | None = None) -> Reading:
    """What a text states for a number, date or bool; for other kinds the text itself.

    Raises ValueError for a text that states several values, and for one in a unit that does not
    convert to the field's.
    """
    if kind in ("integer", "number"):
        return read_number(text, kind == "integer", unit)
    if kind in ("date", "datetime"):
        return read_date(text, kind == "datetime")
    return read_boolean(text) if kind == "boolean" else Reading(text)
