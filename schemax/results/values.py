"""Splits a slot's text into the texts that it states, and reads them as values for Pydantic."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from pydantic import ValidationError

from schemax.attributes import Attribute
from schemax.attributes.classes import reader_of
from schemax.base.messages import counted
from schemax.formats import OutputFormat
from schemax.formats.base import count_in
from schemax.reading import Reading
from schemax.reading.kinds import SCALARS
from schemax.reading.kinds.number import INTEGER_DIGITS
from schemax.reading.lists import items_in
from schemax.reading.nearby import read_nearby
from schemax.results.fields import Leaf
from schemax.results.slot_text import SlotText

# Separators between groups of digits.
_SEPARATOR = "[ ,'\u00a0\u202f-]"


def texts_of(leaf: Leaf, slot: SlotText, format: OutputFormat) -> list[str] | None:
    """The items of a list, without nulls, or one text; None for null, and for a slot left out.

    A list that is written as one text is split, unless the field is strict, or takes a single item
    as well. Surrounding white space, which small models copy along with words, is stripped.

    Raises ValueError with the reason, and any error of the user's own format.
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
        is_text = (
            len(texts) == 1 and not leaf.attribute.strict and format.unescape(slot.raw) == items[0]
        )
        is_choice = leaf.choices is not None and texts[:1] and texts[0] in leaf.choices.values
        is_one = leaf.attribute.is_one_or_several
        return items_in(texts[0]) if is_text and not is_choice and not is_one else texts
    if len(texts) > 1:
        raise ValueError(f"expected one value, got {len(texts)}")
    return texts or None


def count_of(slot: SlotText, format: OutputFormat) -> int | None:
    """The number of items that a slot states; None for null. Raises as `texts_of` does."""
    _check_whole(slot)
    return count_in(slot.raw, format)


def _check_whole(slot: SlotText) -> None:
    if slot.is_cut:
        if slot.is_loop:
            reason = (
                f"repeated itself for {counted(slot.tokens, 'token')}, so it was cut (truncated)"
            )
            raise ValueError(reason)
        raise ValueError(f"ran out of its budget of {counted(slot.tokens, 'token')} (truncated)")


def readings_of(leaf: Leaf, texts: Sequence[str], documents: Collection[str] = ()) -> list[Reading]:
    """Reads the texts of a slot as values for Pydantic, with notes on the interpretation.

    A choice is read as its Python value. documents: the texts' sources, if known. Raises ValueError
    for a text that states several values, or a value in a unit that does not convert to the
    field's.
    """
    if leaf.attribute.members:
        return _either(leaf, texts)
    if leaf.attribute.is_number:
        for text in texts:
            _check_digits(text, documents)
    if leaf.attribute.strict:
        choices = leaf.choices.values if leaf.choices else {}
        return [Reading(choices.get(text, text)) for text in texts]
    return [_nearby(leaf, text, documents) or _read(leaf, text, documents) for text in texts]


def _check_digits(text: str, documents: Collection[str]) -> None:
    """Raises ValueError for a whole number that grammars ended while its document goes on."""
    digits = text.strip().lstrip("-")
    if len(digits) < INTEGER_DIGITS or not (digits.isascii() and digits.isdigit()):
        return
    spelt = "(?<![0-9])" + f"{_SEPARATOR}?".join(digits)
    cut = re.compile(f"{spelt}(?:[0-9]|{_SEPARATOR}[0-9]{{3}})")
    whole = re.compile(f"{spelt}(?![0-9]|{_SEPARATOR}[0-9]{{3}})")
    if any(map(cut.search, documents)) and not any(map(whole.search, documents)):
        raise ValueError(
            f"has more digits in the document than the {len(digits)} that a number is written "
            "with; declare the field as str"
        )


def _nearby(leaf: Leaf, text: str, documents: Collection[str]) -> Reading | None:
    attribute = leaf.attribute
    if attribute.unit is None or not attribute.is_number:
        return None
    is_whole, language = attribute.kind == "integer", attribute.language
    if reading_language(attribute, text, documents) and _BARE_NUMBER.fullmatch(text):
        # Places in documents are found by value.
        text = SCALARS[attribute.kind].read(text, None, language).value
    return read_nearby(text, tuple(documents), is_whole, attribute.unit, language)


def is_text(
    raw: str, texts: Sequence[str], readings: Sequence[Reading], format: OutputFormat
) -> bool:
    """True if values of a union were written as texts: "55", not 55."""
    as_texts, as_read = list(texts), [reading.value for reading in readings]
    if len(texts) == 1 and raw.strip() == format.escape(texts[0]).strip():
        return format.escape(as_read[0]).strip() != raw.strip()
    return raw.strip() == format.escape(as_texts).strip() != format.escape(as_read).strip()


def _either(leaf: Leaf, texts: Sequence[str]) -> list[Reading]:
    """Reads each text as a literal of the first fitting type of a union, or of a tuple's place."""
    places = leaf.attribute.places
    if places and len(places) != len(texts):
        raise ValueError(f"expected {counted(len(places), 'value')}, got {len(texts)}")
    variants = [place.variants for place in places] or [leaf.attribute.variants] * len(texts)
    return [Reading(_literal(*pair)) for pair in zip(variants, texts, strict=True)]


def _literal(variants: Sequence[Attribute], text: str) -> Any:
    for variant in sorted(variants, key=lambda variant: _NARROWEST.index(variant.kind)):
        try:
            choices = dict(zip(variant.choices, variant.choice_values, strict=True))
            return SCALARS[variant.kind].literal(text, choices)
        except (ValueError, ArithmeticError, KeyError):
            continue
    return text


_NARROWEST = tuple(SCALARS)


def _read(leaf: Leaf, text: str, documents: Collection[str]) -> Reading:
    if leaf.choices is not None:
        return leaf.choices.read(text)
    attribute, scalar = leaf.attribute, leaf.attribute.scalar
    language = reading_language(attribute, text, documents)
    return Reading(text) if scalar is None else scalar.read(text, attribute.unit, language)


_BARE_NUMBER = re.compile(r"\s*[-+]?\d+(\.\d*)?\s*")


def reading_language(attribute: Attribute, text: str, documents: Collection[str]) -> str | None:
    """The language to read a text in: the field's, except for a bare number of no document.

    Models and programs write 1.255 for the "1,255" of a German document, and JSON holds 1.255.
    """
    if attribute.language and attribute.is_number and _BARE_NUMBER.fullmatch(text):
        digits = text.strip().lstrip("+-")
        return attribute.language if any(digits in document for document in documents) else None
    return attribute.language


def as_seconds(leaf: Leaf, text: Any) -> Iterator[Any]:
    """Yields the date that Pydantic makes of a bare number, read as seconds since 1970."""
    scalar = leaf.attribute.scalar
    if scalar and scalar.seconds and isinstance(text, str) and _BARE_NUMBER.fullmatch(text):
        try:
            yield reader_of(scalar.seconds).validate_python(text)
        except ValidationError:
            return
