"""Restores the unit that the document states behind a number copied without it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice

from schemax.reading import Reading, cldr, noted
from schemax.reading.amounts import Text, amounts_of
from schemax.reading.numbers import plain, read_number, statements
from schemax.reading.tokens import NUMBER, in_ascii, value_of
from schemax.reading.units import FieldUnit, field_unit, units_named

_BARE = re.compile(r"[-+−]?\d+(?:[.,]\d*)?(?:[eE][-+]?\d{1,2})?")
_VULGAR = re.compile("[¼-¾⅐-⅞]")
_FRACTION = re.compile(r"(?:\d+[\s-])?\d+\s?[/⁄]\s?\d+")
# A unit in brackets before a number.
_HEAD = re.compile(r"\(([^()\d]{1,12})\)[\s:|=.−-]*$")
# Begins a phrase whose last word is not understood.
_UNREAD = "?"
# The characters around a number that may belong to its amount.
_BEFORE, _BEHIND = 24, 60
# The most places of a number that are examined.
_MOST_PLACES = 100


def read_nearby(
    text: str, documents: tuple[str, ...], whole: bool, unit: str, language: str | None = None
) -> Reading | None:
    """Reads a bare number in the unit that the documents state behind it; None to keep the number.

    The number is kept if a document states it in the field's own unit or without a unit, or if no
    document states it. Numbers are compared by value: "340 g" states 340.0.

    Raises ValueError if all documents state the number in units that do not convert, or in several
    units that do.
    """
    if not _BARE.fullmatch(text):
        return None
    units = (name for source in documents for name in _numbers_in(text, source, unit, language))
    stated = list(islice(units, _MOST_PLACES))
    if not stated or "" in stated:
        return None
    phrases = [phrase for phrase in stated if phrase[0] != _UNREAD]
    if not phrases:
        return noted(text, plain(_decimal(text)), f'the documents say "{stated[0][1:]}"')
    is_negative = text[0] in "-−"
    phrases = [phrase for phrase in phrases if (phrase[0] in "-−") == is_negative] or phrases
    readings = {phrase: read_number(phrase, whole, unit, language) for phrase in phrases}
    if len({reading.value for reading in readings.values()}) > 1:
        shown = " and ".join(f'"{place}"' for place in readings)
        raise ValueError(f"the documents state {shown}, and the value has no unit")
    place, reading = next(iter(readings.items()))
    if not is_negative and place[0] in "-−":
        raise ValueError(f"the documents state {place}, and the value has no minus")
    return reading if reading.note else noted(place, reading.value)


def _places(value: Decimal, document: str) -> Iterator[tuple[int, int]]:
    """Yields the places of a number in a document, whatever its separators, and all fractions."""
    digits = _significant(plain(value))
    for match in NUMBER.finditer(document):
        if not _VULGAR.search(match[0]) and _significant(in_ascii(match[0])) != digits:
            continue
        is_code = match.start() > 0 and document[match.start() - 1].isalpha()
        if not is_code and value in (value_of(match[0])[0], value_of(match[0], True)[0]):
            yield match.span()
    yield from (match.span() for match in _FRACTION.finditer(document))


def _significant(number: str) -> str:
    return "".join(filter(str.isdecimal, number)).strip("0")


def _decimal(text: str) -> Decimal:
    return Decimal(in_ascii(text).replace(",", ".").rstrip("."))


def _numbers_in(text: str, document: str, unit: str, language: str | None) -> Iterator[str]:
    """Yields a number with its unit for each place; "" for the field's own unit, or no unit.

    With `_UNREAD` in front it has a word behind it that is no unit.
    """
    field = field_unit(unit)
    value = abs(_decimal(text))
    for start, end in _places(value, document):
        begin = 0 if start < _BEFORE else document.find(" ", start - _BEFORE, start) + 1 or start
        around = amounts_of(document[begin : end + _BEHIND], False, field, language)
        starts = [begin + around.tokens[amount.at].start for amount in around.amounts]
        if start not in starts:
            continue
        at = starts.index(start)
        amount = around.amounts[at]
        if "fraction" in amount.reasons and abs(amount.value) != value:
            continue
        if (amount.units is None and amount.codes is None) or (field.is_money and not amount.codes):
            yield _of_bare(around, at, document[max(0, start - _BEFORE) : start], field, language)
            continue
        # Only temperatures are negative: other hyphens are bullets.
        is_negative = amount.value < 0 and field.is_temperature
        first = amount.at if amount.value < 0 and not is_negative else amount.first
        try:
            statement = next(statements(around, field, at))
            is_own = statement.parts == 1 and statement.unit == field.unit
            end_of_amount = statement.end
        except ValueError:
            end_of_amount, is_own = amount.end, False
        phrase = around.source[around.tokens[first].start : around.tokens[end_of_amount - 1].end]
        yield "" if is_own and not is_negative else phrase


def _of_bare(around: Text, at: int, before: str, field: FieldUnit, language: str | None) -> str:
    """The phrase of a number without a unit behind it.

    A column's head gives the unit: "Weight (g):". Otherwise the phrase is `_UNREAD` with the word
    behind the number, which is no unit; "" without such a word.
    """
    amount = around.amounts[at]
    number = around.tokens[amount.at]
    head = _HEAD.search(before)
    units = units_named(head[1], language) if head else None
    if head and units and any(field.takes(unit) for unit, _ in units):
        is_own = any(unit == field.unit for unit, _ in units)
        sign = "-" if amount.value < 0 else ""
        return "" if is_own and not sign else f"{sign}{number.text} {head[1]}"
    behind = around.tokens[amount.end : amount.end + 1]
    joins = {"and", *cldr.table(cldr.conjunctions, None)}
    if any(each.kind == "word" and each.text not in joins for each in behind):
        return _UNREAD + around.source[number.start : behind[0].end]
    return ""
