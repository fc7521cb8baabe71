"""Reads texts as people write them as values of a type, with a note on the interpretation.

One module per kind, none of which knows schemas, slots or formats. Validation is left to Pydantic:
numbers and dates are returned as texts that Pydantic reads (docs/typed.md has all rules).
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Reading(NamedTuple):
    """The value that a text was read as.

    value: for Pydantic; the text itself where no value was found.
    note: the interpretation in words; None where the text was a literal already.
    """

    value: Any
    note: str | None = None


def noted(text: str, value: Any, *reasons: str | None) -> Reading:
    """The reading of a text that is no literal."""
    why = "; ".join(filter(None, reasons))
    return Reading(value, f'"{text}" read as {value}' + (f" ({why})" if why else ""))
