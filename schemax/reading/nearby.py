"""Restores the unit that the document states behind a number copied without it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice

from schemax.reading import Reading, noted
from schemax.reading.amounts import Grammar
from schemax.reading.numbers import end_of_parts, read_number, stated_unit
from schemax.reading.tokens import NUMBER, in_ascii, value_of
from schemax.reading.units import field_unit

_BARE = re.compile(r"[-+−]?\d+(?:[.,]\d*)?(?:[eE][-+]?\d{1,2})?")
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
    places = (
        place for document in documents for place in _stated(text, document, unit, language)
    )
    stated = list(islice(places, _MOST_PLACES))
    if not stated or None in stated:
        return None
    readings = {place: read_number(place, whole, unit, language) for place in stated if place}
    if len({reading.value for reading in readings.values()}) > 1:
        shown = " and ".join(f'"{place}"' for place in readings)
        raise ValueError(f"the documents state {shown}, and the value has no unit")
    place, reading = next(iter(readings.items()))
    if _decimal(text) >= 0 > Decimal(reading.value) and field_unit(unit).is_temperature:
        raise ValueError(f"the documents state {place}, and the value has no minus")
    return reading if reading.note else noted(place, reading.value)


def places_of(text: str, document: str) -> Iterator[tuple[int, int]]:
    """Yields the places of a number in a document, whatever its separators.

    text: as `read_nearby` takes it.
    """
    value = abs(_decimal(text))
    for match in NUMBER.finditer(document):
        if value in (abs(value_of(match[0], grouped)[0] or -1) for grouped in (False, True)):
            if not (match.start() and document[match.start() - 1].isalpha()):
                yield match.span()


def _decimal(text: str) -> Decimal:
    return Decimal(in_ascii(text).replace(",", ".").rstrip("."))


def _stated(text: str, document: str, unit: str, language: str | None) -> Iterator[str | None]:
    """Yields a number with its unit for each place; None for the field's own unit, or no unit."""
    field = field_unit(unit)
    for start, end in places_of(text, document):
        begin = document.rfind(" ", max(0, start - _BEFORE), max(0, start - 2)) + 1 or start
        begin = start if start - begin > _BEFORE else begin
        grammar = Grammar(document[begin : end + _BEHIND], False, field, language)
        around = grammar.read()
        at = next(
            (n for n, each in enumerate(around.amounts) if _start(around, each.at) == start - begin),
            None,
        )
        if at is None:
            continue
        amount = around.amounts[at]
        is_money = field.code is not None
        if (amount.codes if is_money else amount.units) is None and not amount.codes:
            yield None
            continue
        first, last = _start(around, amount.first), around.tokens[end_of_parts(around, at, field) - 1].end
        phrase = around.source[first:last]
        try:
            is_own = not is_money and stated_unit(around, amount, field) == field.unit
        except ValueError:
            is_own = False
        is_own = is_own or (is_money and field.code in (amount.codes or ()))
        # Of other amounts than temperatures a hyphen is a bullet.
        is_kept = is_own and not (field.is_temperature and amount.value < 0)
        has_parts = last > around.tokens[amount.end - 1].end
        yield None if is_kept and not has_parts else phrase


def _start(text: object, place: int) -> int:
    return int(text.tokens[place].start)  # type: ignore[attr-defined]
