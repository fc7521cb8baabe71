"""Dates and times in the usual spellings of seven languages: 3 March 2021, 03.03.2021, 3 mars 2021.

In dates of numbers alone, four digits at the front are the year; otherwise the day comes first
between points and hyphens, and the month between slashes, unless there is no such month. A date
requires day, month and year.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache

from schemax.reading import Reading, noted

_LANGUAGES = ["en", "de", "fr", "es", "pt", "it", "nl"]
_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ].*)?", re.DOTALL)
_DIGIT = re.compile(r"\d")
_NUMERIC = re.compile(r"(?<!\d)(\d{1,2})(?P<mark>[./-])(\d{1,2})(?P=mark)(?:\d{4}|\d\d)(?!\d)")
_COMPACT = re.compile(r"(?:19|20)\d\d(?:0[1-9]|1[0-2])(?:0[1-9]|[12]\d|3[01])")
_MONTH = r"[^\W\d_]{3,}\.?"
_PLACED = re.compile(
    r"(?<!\d)\d{4}[-./]\d{1,2}[-./]\d{1,2}(?!\d)"
    rf"|{_NUMERIC.pattern}"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th|er|\.|º|ª)?\s+(?:de\s+|of\s+)?{_MONTH},?\s+(?:de\s+)?\d{{4}}(?!\d)"
    rf"|\b{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?,?\s+\d{{4}}(?!\d)"
)
_NO_WORDS = re.compile(r"[\dTtZz:.,+\s-]*")
# The end of a range of days, of which the last is a whole date: "3-" of "3-5 May 2024".
_DAY_BEFORE = re.compile(
    r"(?<![\d:./-])\d{1,2}(?:st|nd|rd|th|\.)?\s*(?:[-–—&]|\b(?:to|bis|and|und|et|y|al?|à)\b)\s*$"
)
_TIME = re.compile(r"\b\d{1,2}(?::\d\d|\s?[ap]\.?m\b)", re.IGNORECASE)
_TIMES = re.compile(
    r"\d:\d\d(?:\s?[ap]m)?(?:-|\s?[–—]\s?|\s-\s|\s(?:to|bis|until)\s)\d{1,2}(?::\d\d|\s?[ap]m)"
    r"|(?<!\d)\d{1,2}\s?[-–—]\s?\d{1,2}\s?[ap]m",
    re.IGNORECASE,
)


@lru_cache(maxsize=16_384)
def read_date(text: str, with_time: bool) -> Reading:
    """Reads the date that a text states, or date and time, as ISO 8601; other texts unchanged.

    Raises ValueError for several dates or times, and for a time that is not understood.
    """
    # The year, at least, must be in digits: the search for words takes long.
    if _ISO.fullmatch(text) and (_NO_WORDS.fullmatch(text) or not _parsed(text, with_time)):
        return Reading(text) if with_time else _day_of(text)
    if not _DIGIT.search(text):
        return Reading(text)
    if with_time and _TIMES.search(text):
        raise ValueError("states several times; the field takes one")
    places = list(_PLACED.finditer(text))
    if any(_DAY_BEFORE.search(text, 0, place.start()) for place in places):
        raise ValueError("states several dates; the field takes one")
    found = _parsed(text, with_time)
    if found is None:
        if len(places) > 1:
            stated = ", ".join(place[0] for place in places)
            raise ValueError(f"states several dates ({stated}); the field takes one")
        if with_time and places and _TIME.search(text):
            raise ValueError("states a time that is not understood")
        found = _parsed(places[0][0], with_time) if places else None
    if found is None:
        return Reading(text)
    numeric = _NUMERIC.search(text)
    is_doubtful = numeric and int(numeric[1]) <= 12 and int(numeric[3]) <= 12
    order = "month first" if numeric and numeric["mark"] == "/" else "day first"
    return noted(text, found, order if is_doubtful else None)


def _day_of(text: str) -> Reading:
    """The date of a date and time in ISO 8601; other texts unchanged."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return Reading(text)
    day = moment.date().isoformat()
    return Reading(text) if day == text else noted(text, day, "without the time")


def _parsed(text: str, with_time: bool) -> str | None:
    # Slow to import, so only where a text is not ISO 8601.
    from dateparser import parse

    if _COMPACT.fullmatch(text):
        text = f"{text[:4]}-{text[4:6]}-{text[6:]}"
    numeric = _NUMERIC.search(text)
    found = parse(
        text,
        languages=_LANGUAGES,
        settings={
            "DATE_ORDER": "MDY" if numeric and numeric["mark"] == "/" else "DMY",
            "REQUIRE_PARTS": ["day", "month", "year"],
            "PARSERS": ["absolute-time"],
        },
    )
    if found is None:
        return None
    return str(found.isoformat() if with_time else found.date().isoformat())
