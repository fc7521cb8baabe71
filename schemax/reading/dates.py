"""Dates and times: 3 March 2021, 03.03.2021, 3 mars 2021, 2021年3月3日, 3/3/2021 5:30 pm.

    date = day month year | month day year | year month day
    time = hour ":" minute [":" second] ["am" | "pm"] [zone] | hour ("am" | "pm") [zone]

CLDR names the months, the days of the week and the words between. In dates of numbers alone, four
digits at the front are the year; otherwise the field's language says whether the day or the month
comes first. Without a language the month comes first between slashes, unless there is no such
month, and the note says so. Zones are offsets or UTC: a zone's name may mean several zones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from functools import lru_cache
from typing import NamedTuple

import regex

from schemax.reading import Reading, cldr, noted
from schemax.reading.number_words import is_number_word
from schemax.reading.tokens import Token, in_ascii, tokens_of

_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ][\d:.,]+\s?(?:[Zz]|[-+][\d:]+)?)?")
_DIGIT = re.compile(r"\d")
# English and French have words within dates that CLDR's formats lack.
_WITHIN = frozenset({"of", "st", "nd", "rd", "th", "er", "º", "ª"})
_MARKS = frozenset(",./-")
_CLOCK = regex.compile(
    r"(?P<hour>\d{1,2})(?:\.(?P<minute>\d\d)|:(?P<minute>\d{1,2})"
    r"(?::(?P<second>\d{1,2}(?:[.,]\d{1,6})?))?)?"
)
# An offset or UTC; "10:00-12:00" is a range.
_ZONE = regex.compile(
    r"(?:\s*(?P<name>z|utc|gmt)(?!\w))?"
    r"(?:\s*(?P<sign>\+|(?(name)[-−]|\+))(?P<hours>\d\d?)(?:\s*:?\s*(?P<minutes>\d\d))?)?",
    regex.IGNORECASE,
)
# The most characters of a text that states one date.
_LONGEST = 300
# Two digits of a year from here on may mean 19xx or 20xx.
_PIVOT = 50


class _Part(NamedTuple):
    """A number or the name of a month: tokens `first` up to `end`. digits: 0 for a name."""

    value: int
    digits: int
    first: int
    end: int


class Found(NamedTuple):
    """A date in a text: tokens `first` up to `end`. doubt: how its parts were told apart."""

    day: date
    doubt: str | None
    first: int
    end: int


@lru_cache(maxsize=16_384)
def read_date(text: str, with_time: bool, language: str | None = None) -> Reading:
    """Reads the date that a text states, or date and time, as ISO 8601; other texts unchanged.

    Raises ValueError for several dates or times, and for a time that is not understood.
    """
    if _ISO.fullmatch(text) and (moment := _iso(text)) is not None:
        iso = moment.date().isoformat()
        return Reading(text) if with_time or iso == text else noted(text, iso, "without the time")
    if not _DIGIT.search(text):
        return Reading(text)
    if len(text) > _LONGEST:
        raise ValueError("is too long for a date")
    tokens = tokens_of(text)
    dates = list(dates_in(tokens, language))
    if not dates:
        return Reading(text)
    if len({each.day for each in dates}) > 1:
        stated = ", ".join(each.day.isoformat() for each in dates)
        raise ValueError(f"states several dates ({stated}); the field takes one")
    day, doubt = dates[0].day, dates[0].doubt
    inside = {place for each in dates for place in range(each.first, each.end)}
    clocks = list(_times_in(text, tokens, language, inside))
    inside |= {place for _, first, end in clocks for place in range(first, end)}
    beside = [token for place, token in enumerate(tokens) if place not in inside]
    for token in beside:
        if _is_stated(token, language):
            raise ValueError(f'"{token.text}" beside the date is not understood; it may be a range')
    if len({clock for clock, _, _ in clocks}) > 1:
        raise ValueError("states several times; the field takes one")
    words = [token.text for token in beside if token.kind == "word"]
    unread = f'"{" ".join(words)}" is not read' if words else None
    if not with_time:
        return noted(text, day.isoformat(), doubt, "without the time" if clocks else None, unread)
    clock = clocks[0][0] if clocks else time()
    zone = [token.text for token in tokens[max(inside) + 1 :] if token.kind == "word"]
    if clocks and zone:
        raise ValueError(f'"{zone[0]}" behind the time may be a zone, and is not understood')
    return noted(text, datetime.combine(day, clock).isoformat(), doubt, unread)


def _iso(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _is_stated(token: Token, language: str | None) -> bool:
    """True for a token that may belong to a date or time: numbers, number words, "noon", "BC"."""
    word = cldr.folded_name(token.text).casefold()
    is_word = token.kind == "word" and word not in cldr.words_of_dates(language)
    halves = cldr.halves_of_days(language) if len(word) > 1 else ()
    return token.kind == "number" or (
        is_word
        and (
            is_number_word(word, language) or word in cldr.parts_of_days(language) or word in halves
        )
    )


# --- dates ----------------------------------------------------------------------------------


def dates_in(tokens: Sequence[Token], language: str | None = None) -> Iterator[Found]:
    """Yields the dates among tokens, in order."""
    parts = list(_parts(tokens, language))
    at = 0
    while at < len(parts):
        triple = parts[at : at + 3]
        stated = _date(tokens, triple, language) if len(triple) == 3 else None
        stated = stated or _compact(parts[at])
        if stated is not None:
            yield stated
        end = stated.end if stated is not None else 0
        at += max(1, sum(part.first < end for part in triple))


def _parts(tokens: Sequence[Token], language: str | None) -> Iterator[_Part]:
    months = cldr.months(language)
    at = 0
    while at < len(tokens):
        for end in (at + 2, at + 1):
            name = "".join(token.text for token in tokens[at:end])
            spaced = " ".join(token.text for token in tokens[at:end])
            month = months.get(cldr.folded_name(name).casefold()) or months.get(spaced.casefold())
            if month and end <= len(tokens):
                yield _Part(month, 0, at, end)
                at = end
                break
        else:
            if tokens[at].kind == "number":
                for digits in re.split(r"[./-]", in_ascii(tokens[at].text)):
                    if digits.isdigit():
                        yield _Part(int(digits), len(digits), at, at + 1)
            at += 1


def _compact(part: _Part) -> Found | None:
    """The date of eight digits, 20210303."""
    year, month, day = part.value // 10_000, part.value // 100 % 100, part.value % 100
    is_near = part.digits == 8 and 1900 <= year < 2100
    return _found(year, month, day, None, part, part) if is_near else None


def _date(tokens: Sequence[Token], parts: Sequence[_Part], language: str | None) -> Found | None:
    first, second, third = parts
    gaps = [_gap(tokens, first, second, language), _gap(tokens, second, third, language)]
    if None in gaps or sum(part.digits == 0 for part in parts) > 1:
        return None
    doubt = None
    match [part.digits for part in parts]:
        case [1 | 2, 0, 4]:
            day, month, year = first, second, third
        case [0, 1 | 2, 4]:
            month, day, year = first, second, third
        case [4, 0 | 1 | 2, 1 | 2] if second.digits == 0 or gaps[0] == gaps[1]:
            year, month, day = first, second, third
        case [1 | 2, 1 | 2, 2 | 4] if gaps[0] == gaps[1] and gaps[0] in _MARKS:
            order = (
                cldr.order_of_dates(language) if language else "Mdy" if gaps[0] == "/" else "dMy"
            )
            if third.digits == 4:
                order = "Mdy" if order.find("M") < order.find("d") else "dMy"
            if order[0] != "y" and max(first.value, second.value) > 12:
                order = "Mdy" if second.value > 12 else "dMy"
                if language is None and third.digits == 2 and gaps[0] != ".":
                    raise ValueError("may begin with the year or the day")
            elif language is None and first.value != second.value:
                doubt = "month first" if order == "Mdy" else "day first"
            parts_by = dict(zip(order, parts, strict=True))
            year, month, day = parts_by["y"], parts_by["M"], parts_by["d"]
        case _:
            return None
    if year.digits == 2:
        if year.value >= _PIVOT:
            raise ValueError(f'"{year.value}" may be the year 19{year.value} or 20{year.value}')
        year = year._replace(value=2000 + year.value)
        doubt = "; ".join(filter(None, (doubt, f"the year {year.value}")))
    return _found(year.value, month.value, day.value, doubt, first, third)


def _found(
    year: int, month: int, day: int, doubt: str | None, first: _Part, last: _Part
) -> Found | None:
    if not 1000 <= year <= 2200:  # of another calendar
        return None
    try:
        return Found(date(year, month, day), doubt, first.first, last.end)
    except ValueError:
        return None


def _gap(tokens: Sequence[Token], left: _Part, right: _Part, language: str | None) -> str | None:
    """The signs between two parts; None for a word or sign that belongs to no date."""
    if left.first == right.first:  # in one token: 03.04.2021
        return "."
    between = tokens[left.end : right.first]
    known = (cldr.words_of_dates(language), _WITHIN, _MARKS)
    names = ({token.text.casefold(), cldr.folded_name(token.text).casefold()} for token in between)
    if any(all(words.isdisjoint(spelt) for words in known) for spelt in names):
        return None
    return "".join(token.text for token in between if token.text in _MARKS)


# --- times ----------------------------------------------------------------------------------


def _times_in(
    text: str, tokens: Sequence[Token], language: str | None, inside: set[int]
) -> Iterator[tuple[time, int, int]]:
    """Yields times of the day with their places, zones included."""
    ends = {token.end: place for place, token in enumerate(tokens, 1)}
    end = 0
    for at, token in enumerate(tokens):
        clock = _CLOCK.match(text, token.start)
        if at < end or at in inside or clock is None or clock.end() not in ends:
            continue
        is_afternoon, last = _half_of_day(tokens, ends[clock.end()], language)
        if is_afternoon is None and ":" not in clock[0]:
            continue
        hour, second = int(clock["hour"]), float((clock["second"] or "0").replace(",", "."))
        if is_afternoon is not None and 1 <= hour <= 12:
            hour = hour % 12 + 12 * is_afternoon
        zone = _ZONE.match(text, tokens[last - 1].end)
        end = ends.get(zone.end(), last)
        micro = round(second % 1 * 10**6)
        try:
            offset = _offset(zone) if end > last else None
            yield time(hour, int(clock["minute"] or 0), int(second), micro, offset), at, end
        except ValueError:
            raise ValueError(f'"{clock[0]}" is a time that is not understood') from None


def _offset(zone: regex.Match[str]) -> timezone:
    if zone["sign"] is None:
        return UTC
    span = timedelta(hours=int(zone["hours"]), minutes=int(zone["minutes"] or 0))
    return timezone(span if zone["sign"] == "+" else -span)


def _half_of_day(tokens: Sequence[Token], at: int, language: str | None) -> tuple[bool | None, int]:
    for end in range(min(len(tokens), at + 4), at, -1):
        name = "".join(token.text for token in tokens[at:end])
        half = cldr.halves_of_days(language).get(cldr.folded_name(name).casefold())
        if half is not None:
            return half, end
    return None, at
