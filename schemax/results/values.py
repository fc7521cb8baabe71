"""What a slot's text states: texts, and what Pydantic is passed for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from functools import lru_cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from schemax.formats import OutputFormat, count_in
from schemax.results.extraction import SlotText
from schemax.results.fields import Leaf, case_folded

_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")


def texts_of(leaf: Leaf, slot: SlotText, format: OutputFormat) -> list[str] | None:
    """The items of a list, nulls dropped, or one text; None for null, and for what is left out.

    Without white space around them, which small models like to copy along with a word.

    Raises ValueError, which says why, and whatever a format of the user's own raises.
    """
    _check_whole(slot)
    if slot.left_out:
        return None
    value = format.unescape(slot.raw, is_list=leaf.attribute.is_list)
    if value is None:
        return None
    items = [value] if isinstance(value, str) else value
    texts = [item.strip() for item in items if item is not None]
    if leaf.attribute.is_list:
        return texts
    if len(texts) > 1:
        raise ValueError(f"expected one value, got {len(texts)}")
    return texts or None


def count_of(slot: SlotText, format: OutputFormat) -> int | None:
    """How many items a slot says there are; None for null. Raises as `texts_of` does."""
    _check_whole(slot)
    return count_in(slot.raw, format)


def _check_whole(slot: SlotText) -> None:
    if slot.finish_reason == "length" and not slot.complete:
        raise ValueError(f"ran out of its budget of {slot.tokens} tokens (truncated)")


def value_of(leaf: Leaf, texts: list[str]) -> Any:
    """What is passed to Pydantic for the texts of a slot."""
    values = [_typed(leaf, text) for text in texts]
    return values if leaf.attribute.is_list else values[0]


def _typed(leaf: Leaf, text: str) -> Any:
    """A choice as the Python value behind it; all other texts are left to Pydantic."""
    if leaf.choices:
        return leaf.choices.get(text, leaf.folded_choices.get(case_folded(text), text))
    # Pydantic reads no separators, and prices stand in texts with them. Nothing else is repaired:
    # a number with a unit or a currency may well be another number than the one asked for.
    if leaf.attribute.kind in ("integer", "number") and _THOUSANDS.fullmatch(text.strip()):
        return text.strip().replace(",", "")
    return text


_DATES: Mapping[str, Any] = {"date": date, "datetime": datetime}
_BARE_NUMBER = re.compile(r"\s*[-+]?\d+(\.\d*)?\s*")


@lru_cache
def _date_reader(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_DATES[kind])


def as_seconds(leaf: Leaf, text: Any) -> Iterator[Any]:
    """What Pydantic makes of a bare number as a date: seconds since 1970."""
    if isinstance(text, str) and _BARE_NUMBER.fullmatch(text):
        try:
            yield _date_reader(leaf.attribute.kind).validate_python(text)
        except ValidationError:
            return
