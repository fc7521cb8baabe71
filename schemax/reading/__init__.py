"""Texts as people write them, read as values of a type: text -> value, and what was made of it.

One file a kind, and nothing of schemas, slots or formats. What a value has to be is Pydantic's
affair: numbers and dates leave as texts that Pydantic reads (docs/typed.md has all rules).
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Reading(NamedTuple):
    """The value that a text was read as.

    value: for Pydantic; the text itself, where nothing was found in it.
    note: in words, what was read into the text; None where it was a literal already.
    """

    value: Any
    note: str | None = None


def noted(text: str, value: Any, *reasons: str | None) -> Reading:
    """The reading of a text that is no literal."""
    why = "; ".join(filter(None, reasons))
    return Reading(value, f'"{text}" read as {value}' + (f" ({why})" if why else ""))
