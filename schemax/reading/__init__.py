"""Reads texts as people write them as values of a type, with a note on the interpretation.

Modules here know no schemas, slots or formats. Pydantic validates: numbers and dates are returned
as texts that Pydantic reads (docs/typed.md has all rules).
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Reading(NamedTuple):
    """The value that a text states.

    value: the value for Pydantic; the text itself if it states no value.
    note: the interpretation in words; None if the text is a literal.
    """

    value: Any
    note: str | None = None


def noted(text: str, value: Any, *reasons: str | None) -> Reading:
    """The reading of a text that is no literal."""
    why = "; ".join(filter(None, reasons))
    return Reading(value, f'"{text}" read as {value}' + (f" ({why})" if why else ""))
