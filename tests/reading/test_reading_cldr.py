"""What Babel writes in many languages is read back, or refused; never wrong without a word."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import pycountry
import pytest
from babel import Locale
from babel.dates import format_date, format_datetime
from babel.numbers import format_currency, format_decimal
from babel.units import format_unit

from schemax.reading.kinds import SCALARS

LOCALES = (
    *("en", "de", "fr", "es", "it", "pt", "nl", "sv", "da", "pl", "cs", "ru", "tr", "fi", "nb"),
    *("ja", "hi", "id", "uk", "el"),
)
UNITS = {
    **{"mass-kilogram": ("g", 1000), "mass-gram": ("kg", Decimal("0.001"))},
    **{"length-centimeter": ("m", Decimal("0.01")), "length-kilometer": ("m", 1000)},
    **{"length-meter": ("cm", 100), "length-millimeter": ("cm", Decimal("0.1"))},
    **{"volume-liter": ("ml", 1000), "volume-milliliter": ("l", Decimal("0.001"))},
    **{"duration-hour": ("min", 60), "duration-minute": ("s", 60), "duration-day": ("h", 24)},
    **{"digital-gigabyte": ("MB", 1000), "power-kilowatt": ("W", 1000)},
    **{"area-square-meter": ("cm^2", 10_000), "energy-kilojoule": ("J", 1000)},
    **{"frequency-megahertz": ("kHz", 1000), "mass-pound": ("lb", 1), "length-inch": ("inch", 1)},
}
OTHERS = (
    *("duration-year", "duration-month", "duration-week", "duration-second", "digital-gigabit"),
    *("length-foot", "length-mile", "length-nautical-mile", "length-point", "mass-tonne"),
)
CURRENCIES = ("USD", "EUR", "GBP", "JPY", "INR", "BRL", "CHF", "PLN", "CAD", "CNY", "KRW")


class Case(NamedTuple):
    """A text, what it says, and the call that reads it: kind, unit, language."""

    text: str
    value: Any
    kind: str
    unit: str | None = None
    language: str | None = None


def numbers(locale: str, draw: random.Random) -> Iterator[Case]:
    value = (
        Decimal(draw.randrange(-(10 ** draw.randrange(2, 9)), 10 ** draw.randrange(3, 11))) / 100
    )
    yield Case(format_decimal(value, "#,##0.00", locale=locale), value, "number")
    doubtful = Decimal(draw.randrange(1000, 10**6))
    yield Case(format_decimal(doubtful, locale=locale), doubtful, "number", None, locale)
    three = Decimal(draw.randrange(1001, 10**6, 2)) / 1000
    yield Case(format_decimal(three, "0.000", locale=locale), three, "number", None, locale)


def money(locale: str, draw: random.Random) -> Iterator[Case]:
    value = Decimal(draw.randrange(-(10**7), 10**7)) / 100
    code = draw.choice(CURRENCIES)
    shown = {"locale": locale, "currency_digits": False}
    yield Case(format_currency(value, code, **shown), value, "number", code)
    yield Case(format_currency(value, code, "#,##0.00 ¤¤", **shown), value, "number", code)
    whole = Decimal(draw.randrange(2, 1000))
    text = format_currency(whole, code, locale=locale, format_type="name", currency_digits=False)
    yield Case(text, whole, "number", code)


def measures(locale: str, draw: random.Random) -> Iterator[Case]:
    identity = draw.choice(sorted(UNITS))
    unit, factor = UNITS[identity]
    value = Decimal(draw.randrange(1, 9999)) / draw.choice((1, 10, 100))
    for width in ("long", "short", "narrow"):
        text = format_unit(value, identity, width, format="0.##", locale=locale)
        yield Case(text, value * factor, "number", unit, locale)
        if not is_ambiguous(text, identity):
            yield Case(text, value * factor, "number", unit)


def is_ambiguous(text: str, identity: str) -> bool:
    """True for a name that stands for other measures of the same kind in another language."""
    return len(meanings()[identity.partition("-")[0], name_of(text)]) > 1


def name_of(text: str) -> str:
    return "".join(char for char in text if char.isalpha()).casefold()


@cache
def meanings() -> dict[tuple[str, str], set[str]]:
    """The units that Babel writes with a name, by kind and name."""
    names: dict[tuple[str, str], set[str]] = {}
    for locale, identity in product(LOCALES, (*UNITS, *OTHERS)):
        for width, value in product(("long", "short", "narrow"), (1, 2, 5, Decimal("0.5"))):
            name = name_of(format_unit(value, identity, width, locale=locale))
            names.setdefault((identity.partition("-")[0], name), set()).add(identity)
    return names


def dates(locale: str, draw: random.Random) -> Iterator[Case]:
    day = date(2000, 1, 1) + timedelta(days=draw.randrange(365 * 49))
    for width in ("full", "long", "medium"):
        yield Case(format_date(day, width, locale), day.isoformat(), "date")
    yield Case(format_date(day, "short", locale), day.isoformat(), "date", None, locale)
    moment = datetime.combine(day, datetime.min.time()) + timedelta(minutes=draw.randrange(1440))
    text = f"{format_date(day, 'long', locale)} {format_datetime(moment, 'HH:mm', locale=locale)}"
    yield Case(text, moment.isoformat(), "datetime")


def durations(locale: str, draw: random.Random) -> Iterator[Case]:
    hours, minutes = draw.randrange(1, 24), draw.randrange(1, 60)
    seconds = hours * 3600 + minutes * 60
    for width in ("long", "short"):
        parts = (
            format_unit(hours, "duration-hour", width, locale=locale),
            format_unit(minutes, "duration-minute", width, locale=locale),
        )
        yield Case(" ".join(parts), timedelta(seconds=seconds), "duration", None, locale)
        if not is_ambiguous(parts[0], "duration-hour"):
            yield Case(" ".join(parts), timedelta(seconds=seconds), "duration")


def countries(locale: str, draw: random.Random) -> Iterator[Case]:
    code = draw.choice([country.alpha_2 for country in pycountry.countries])
    yield Case(Locale(locale).territories[code], code, "country")


KINDS: dict[str, Callable[[str, random.Random], Iterator[Case]]] = {
    **{"numbers": numbers, "money": money, "measures": measures, "dates": dates},
    **{"durations": durations, "countries": countries},
}


def judged(case: Case) -> str:
    """ "right", "refused", or "wrong"."""
    scalar = SCALARS[case.kind]
    try:
        reading = scalar.read(case.text, case.unit, case.language)
    except ValueError:
        return "refused"
    if reading.value == case.text and not isinstance(case.value, Decimal):
        return "right" if case.text == case.value else "refused"
    if isinstance(case.value, Decimal):
        try:
            value = Decimal(reading.value)
        except ArithmeticError:
            return "refused"
        is_right = abs(value - case.value) <= Decimal("0.006") * abs(case.value)
        return "right" if is_right else "wrong"
    return "right" if scalar.compared(reading.value) == scalar.compared(case.value) else "wrong"


def tally(kind: str, locale: str, times: int, seed: int) -> dict[str, list[Case]]:
    draw = random.Random(f"{seed} {kind} {locale}")
    results: dict[str, list[Case]] = {"right": [], "refused": [], "wrong": []}
    for _ in range(times):
        for case in KINDS[kind](locale, draw):
            results[judged(case)].append(case)
    return results


SEED = int(os.environ.get("SCHEMAX_SEED", "1"))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_babel_writes_is_read(kind: str) -> None:
    wrong, counts = [], {"right": 0, "refused": 0, "wrong": 0}
    for locale in LOCALES:
        results = tally(kind, locale, 10, SEED)
        wrong += results["wrong"]
        counts = {verdict: counts[verdict] + len(cases) for verdict, cases in results.items()}
    assert wrong == []
    assert counts["right"] >= 0.97 * sum(counts.values()), counts
