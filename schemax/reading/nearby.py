"""The unit that a document states behind a number that was copied without it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from schemax.reading import Reading, units
from schemax.reading.numbers import read_number

_BARE = re.compile(r"\d+(?:[.,]\d+)?")
_NUMBER = re.compile(r"\s*\d")
# Of one number in one document.
_MOST_PLACES = 100


def read_nearby(text: str, documents: tuple[str, ...], whole: bool, unit: str) -> Reading | None:
    """A bare number, in the unit that stands behind it in the documents; None to take it as it is.

    It is taken as it is where any document states it in the field's own unit, without a unit, or
    in several others.
    """
    if not _BARE.fullmatch(text):
        return None
    stated = list(islice(_stated(text, documents, unit), _MOST_PLACES))
    if not stated or "" in stated:
        return None
    readings = [read_number(found, whole, unit) for found in dict.fromkeys(stated)]
    return readings[0] if len({reading.value for reading in readings}) == 1 else None


def _stated(text: str, documents: Iterable[str], unit: str) -> Iterator[str]:
    """The number with its unit, once a place; without it where that is no other of its kind."""
    digits = re.escape(text).replace(r"\.", "[.,]")
    number = re.compile(rf"(?<![\w.,/]){digits}(?![.,/]?\d)")
    for document in documents:
        for match in number.finditer(document):
            # Not "5 ft 11 in", and not "3 in 1".
            behind = [
                (found, end)
                for found, end in units.units_behind(document, match.end())
                if units.converts(found, unit) and not _NUMBER.match(document, end)
            ]
            if not behind or behind[-1][0] == units.unit_named(unit):
                yield ""
            else:
                yield document[match.start() : behind[-1][1]]
