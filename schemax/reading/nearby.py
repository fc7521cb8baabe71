"""Restores the unit that the document states behind a number copied without it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from functools import lru_cache
from itertools import islice
from typing import Any

from schemax.reading import Reading, noted, units
from schemax.reading.amounts import Amount, amounts_in, plain
from schemax.reading.numbers import read_number, smaller_part
from schemax.reading.units import unit_beside

_BARE = re.compile(r"[-+−]?\d+(?:[.,]\d*)?(?:[eE][-+]?\d{1,2})?")
# A minus in front of a number, and the notations of fractions.
_MINUS = re.compile(r"(?:^|[\s(\[:=~<>])[-−–]\s?$")
_FRACTION = re.compile(r"[¼-¾⅐-⅞]|\d\s?[/⁄]\s?\d")
# "3 in 1", where no inches are meant.
_IN_ONE = re.compile(r"\s+in\s+\d{1,2}(?![\w'\"”″])(?![.,]\d)", re.IGNORECASE)
_NEXT = re.compile(r"[^\S\n]*(\d+(?:[.,]\d+)?)")
# The most places of a number that are examined.
_MOST_PLACES = 100


def read_nearby(text: str, documents: tuple[str, ...], whole: bool, unit: str) -> Reading | None:
    """Reads a bare number in the unit that the documents state behind it; None to keep the number.

    The number is kept if a document states it in the field's own unit or without a unit, or if no
    document states it. Numbers are compared by value: "340 g" states 340.0.

    Raises ValueError if all documents state the number in units that do not convert, or in several
    units that do.
    """
    if not _BARE.fullmatch(text):
        return None
    text = _plain(text)
    stated = list(islice(_stated(text, documents, unit), _MOST_PLACES))
    if not stated or "" in stated:
        return None
    found = [(place, read_number(place, whole, unit)) for place in dict.fromkeys(stated)]
    values = {reading.value for _, reading in found}
    if len(values) > 1:
        places = " and ".join(f'"{place}"' for place, _ in found)
        raise ValueError(f"the documents state {places}, and the value has no unit")
    place, reading = found[0]
    return reading if reading.note else noted(place, reading.value)


@lru_cache(maxsize=4096)
def places_of(text: str) -> re.Pattern[str]:
    """A pattern for a number, with any thousands separators and trailing zeros.

    text: digits with at most one decimal separator between them.
    """
    whole, _, decimals = text.lstrip("-−").replace(",", ".").partition(".")
    decimals = decimals.rstrip("0")
    head = len(whole) % 3 or 3
    groups = [whole[:head], *(whole[at : at + 3] for at in range(head, len(whole), 3))]
    digits = "[.,'’ \u00a0\u2009\u202f]?".join(groups)
    behind = rf"[.,]{decimals}0*" if decimals else r"(?:[.,]0{1,2}(?!\d))?"
    return re.compile(rf"(?<![\w.,/'’]){digits}{behind}(?![.,/'’]?\d)")


def _plain(text: str) -> str:
    """Writes a number in digits with at most a point: "+100", "100." and "1e2" as 100."""
    value = Decimal(text.replace("−", "-").replace(",", "."))
    digits = re.sub(r"[eE].*", "", text.lstrip("+-−"))
    is_plain = "e" not in text.lower() and digits[-1] not in ".,"
    return text.lstrip("+") if is_plain else plain(value)


def _stated(text: str, documents: Iterable[str], unit: str) -> Iterator[str]:
    """Yields the number with its unit for each place; "" for the field's own unit, or no unit.

    Raises ValueError if the number stands with a minus that the text lacks.
    """
    shown = re.sub(r"[.,]0+$", "", text)
    negative = None
    for document in documents:
        for start, end in _places(text, document):
            amount = Amount(Decimal(0), start, end, 0)
            found = unit_beside(document, amount, unit)
            whole = 0 if found is None else _end_of_parts(document, found, unit)
            if found is None or _IN_ONE.match(document, end):
                yield ""
            elif whole > found[1]:
                yield shown + document[end:whole]
            elif found[0] == units.unit_named(unit) and not (
                # Of other amounts a hyphen is a bullet.
                units.is_temperature(unit) and _MINUS.search(document, 0, start)
            ):
                yield ""
            elif text[0] not in "-−" and _MINUS.search(document, 0, start):
                negative = document[start : found[1]]
            elif found[1] == end:  # money, whose symbol may stand in front
                yield f"{shown} {found[0]}"
            else:
                yield shown + document[end : found[1]]
                negative = None
    if negative is not None:
        raise ValueError(f"the documents state -{negative}, and the value has no minus")


def _end_of_parts(document: str, found: tuple[Any, int], unit: str) -> int:
    """The end of an amount whose first part has the unit found: behind the inches of 5 ft 11 in."""
    behind = _NEXT.match(document, found[1])
    if behind is None or units.is_money(unit) or not units.converts(found[0], unit):
        return found[1]
    part = Amount(Decimal(behind[1].replace(",", ".")), *behind.span(1), 0)
    smaller = unit_beside(document, part, unit) or smaller_part(document, part, found[0])
    if smaller is None or not units.converts(smaller[0], unit) or not found[0] > smaller[0]:
        return found[1]
    return smaller[1]


def _places(text: str, document: str) -> Iterator[tuple[int, int]]:
    """Yields the places of a number in a document, also as a fraction."""
    for match in places_of(text).finditer(document):
        yield match.span()
    if _FRACTION.search(document):
        value = abs(Decimal(text.replace("−", "-").replace(",", ".")))
        for amount in amounts_in(document, whole=False):
            if amount.reason == "fraction" and abs(amount.value) == value:
                yield amount.start, amount.end
