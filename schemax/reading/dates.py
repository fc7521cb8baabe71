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
from typing import NamedTuple, TypeAlias

import regex

from schemax.reading import Reading, cldr, noted
from schemax.reading.number_words import is_number_word
from schemax.reading.tokens import Token, in_ascii, tokens_of

_ISO = re.compile(r"\d{4}-\d\d-\d\d(?:[T ][\d:.,]+\s?(?:[Zz]|[-+][\d:]+)?)?")
_DIGIT = re.compile(r"\d")
# English and French have words within dates that CLDR's formats lack.
_WITHIN = frozenset({"of", "st", "nd", "rd", "th", "er", "º", "ª"})
# The kinds of lexemes: numbers of 1, 2, 4 (y) and 8 digits, the name of a month (M), a mark as
# itself, and all else (x). Words within dates are left out.
_KINDS = {1: "1", 2: "2", 4: "y", 8: "8"}
_DATE = regex.compile(
    r"""
    (?P<year>y) (?P<gap>[.,/-]*) (?P<month>[12]) (?P=gap) (?P<day>[12])
  | (?P<year>y) [.,/-]* (?P<month>M) [.,/-]* (?P<day>[12])
  | (?P<day>[12]) [.,/-]* (?P<month>M) [.,/-]* (?P<year>y)
  | (?P<month>M) [.,/-]* (?P<day>[12]) [.,/-]* (?P<year>y)
  | (?P<first>[12]) (?P<mark>[.,/-]) (?P<second>[12]) (?P=mark) (?P<third>[2y])
  | (?P<compact>8)
    """,
    regex.VERBOSE,
)
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


class _Lexeme(NamedTuple):
    """Tokens `first` up to `end`, which are of one kind. value: of a number or month."""

    kind: str
    value: int
    first: int
    end: int


StatedDate: TypeAlias = tuple[date, str | None, range]
"""A date in a text: the day, how its parts were told apart if in doubt, its tokens' places."""


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
    day, doubt, _ = dates[0]
    if any(each_day != day for each_day, _, _ in dates):
        stated = ", ".join(each_day.isoformat() for each_day, _, _ in dates)
        raise ValueError(f"states several dates ({stated}); the field takes one")
    inside = {place for _, _, places in dates for place in places}
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
    if token.kind != "word":
        return token.kind == "number"
    word = cldr.folded_name(token.text).casefold()
    if word in cldr.table(cldr.words_of_dates, language):
        return False
    is_half = len(word) > 1 and word in cldr.table(cldr.halves_of_days, language)
    is_part = word in cldr.table(cldr.parts_of_days, language)
    return is_half or is_part or is_number_word(word, language)


# --- dates ----------------------------------------------------------------------------------


def dates_in(tokens: Sequence[Token], language: str | None = None) -> Iterator[StatedDate]:
    """Yields the dates among tokens, in order."""
    lexemes = list(_lexemes(tokens, language))
    kinds = "".join(lexeme.kind for lexeme in lexemes)
    at = 0
    while match := _DATE.search(kinds, at):
        stated = _date(lexemes, match, language)
        at = match.start() + 1 if stated is None else match.end()
        if stated is not None:
            yield stated


def _lexemes(tokens: Sequence[Token], language: str | None) -> Iterator[_Lexeme]:
    months = cldr.table(cldr.months, language)
    within = cldr.table(cldr.words_of_dates, language) | _WITHIN
    at = end = 0
    while at < len(tokens):
        for end in (at + 2, at + 1):
            words = [token.text for token in tokens[at:end]]
            name = cldr.folded_name("".join(words)).casefold()
            month = months.get(name) or months.get(" ".join(words).casefold())
            if month and end <= len(tokens):
                yield _Lexeme("M", month, at, end)
                break
        else:
            text = tokens[at].text
            if tokens[at].kind == "number":
                for place, digits in enumerate(re.split(r"[./-]", in_ascii(text))):
                    if place:
                        yield _Lexeme(".", 0, at, end)
                    kind = _KINDS.get(len(digits), "x") if digits.isdigit() else "x"
                    yield _Lexeme(kind, 0 if kind == "x" else int(digits), at, end)
            elif text in ",./-":
                yield _Lexeme(text, 0, at, end)
            elif within.isdisjoint({text.casefold(), name}):
                yield _Lexeme("x", 0, at, end)
        at = end


def _date(
    lexemes: Sequence[_Lexeme], match: regex.Match[str], language: str | None
) -> StatedDate | None:
    """The date of a match of the grammar; None for a month or day that does not exist."""
    parts = {name: lexemes[match.start(name)] for name, kind in match.groupdict().items() if kind}
    doubt = None
    if match["mark"]:
        order, doubt = _order(parts["first"], parts["second"], match, language)
        names = {"y": "year", "M": "month", "d": "day"}
        for letter, place in zip(order, ("first", "second", "third"), strict=True):
            parts[names[letter]] = parts[place]
    if match["compact"]:
        year, month = divmod(parts["compact"].value // 100, 100)
        day = parts["compact"].value % 100
    else:
        year, month, day = (parts[name].value for name in ("year", "month", "day"))
        if parts["year"].kind == "2":
            if year >= _PIVOT:
                raise ValueError(f'"{year}" may be the year 19{year} or 20{year}')
            year += 2000
            doubt = "; ".join(filter(None, (doubt, f"the year {year}")))
    # Other years are of other calendars, or of no date.
    least, most = (1900, 2099) if match["compact"] else (1000, 2200)
    try:
        day_of_year = date(year, month, day) if least <= year <= most else None
    except ValueError:
        return None
    first, end = lexemes[match.start()].first, lexemes[match.end() - 1].end
    return None if day_of_year is None else (day_of_year, doubt, range(first, end))


def _order(
    first: _Lexeme, second: _Lexeme, match: regex.Match[str], language: str | None
) -> tuple[str, str | None]:
    """The order of year, month and day in digits alone, "dMy", and the doubt about it."""
    order = "Mdy" if match["mark"] == "/" else "dMy"
    order = cldr.order_of_dates(language) if language else order
    if match["third"] == "y":
        order = "Mdy" if order.find("M") < order.find("d") else "dMy"
    if order[0] != "y" and max(first.value, second.value) > 12:
        if language is None and match["third"] == "2" and match["mark"] != ".":
            raise ValueError("may begin with the year or the day")
        return "Mdy" if second.value > 12 else "dMy", None
    is_doubtful = language is None and first.value != second.value
    return order, ("month first" if order == "Mdy" else "day first") if is_doubtful else None


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
        half = cldr.table(cldr.halves_of_days, language).get(cldr.folded_name(name).casefold())
        if half is not None:
            return half, end
    return None, at
