"""Numbers with units in any spelling: the right value, an error, or a note of what was not read.

pint and babel say what is right.
"""

from __future__ import annotations

import string
from decimal import Decimal, InvalidOperation

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from schemax.reading import Reading
from schemax.reading.cldr import factors
from schemax.reading.nearby import read_nearby
from schemax.reading.numbers import read_number

pint = pytest.importorskip("pint")
numbers = pytest.importorskip("babel.numbers")
num2words = pytest.importorskip("num2words")

# pint's name -> how people write it, in any case.
SPELLINGS = {
    "gram": ["g", "gr", "gram", "grams", "gramm"],
    "kilogram": ["kg", "kgs", "kilo", "kilograms"],
    "ounce": ["oz", "ozs", "ounce", "ounces"],
    "pound": ["lb", "lbs", "pound", "pounds"],
    "stone": ["st", "stone"],
    "meter": ["m", "meter", "metres", "mtr"],
    "centimeter": ["cm", "centimeters", "centimetre"],
    "inch": ['"', "in", "inch", "inches", "″", "zoll"],
    "foot": ["'", "ft", "foot", "feet"],
    "yard": ["yd", "yds", "yards"],
    "kilometer": ["km", "kilometers"],
    "liter": ["l", "ltr", "liter", "litres"],
    "milliliter": ["ml", "milliliters"],
    "fluid_ounce": ["fl oz", "fl. oz.", "floz", "fluid ounces"],
    "tablespoon": ["tbsp", "tbs", "tablespoons"],
    "foot**3": ["cu ft", "cu. ft.", "cubic feet", "ft3", "ft³"],
    "foot**2": ["sqft", "sq ft", "sq. ft.", "square feet", "ft2", "ft²"],
    "meter**2": ["sqm", "sq m", "m2", "m²", "square meters"],
    "second": ["s", "sec", "seconds"],
    "minute": ["min", "mins", "minutes"],
    "hour": ["h", "hr", "hrs", "hours"],
    "day": ["day", "days"],
    "week": ["wk", "wks", "weeks"],
    "month": ["mo", "mos", "months"],
    "year": ["yr", "yrs", "years"],
    "watt": ["w", "watt", "watts"],
    "kilowatt": ["kw", "kilowatts"],
    "kilowatt_hour": ["kwh", "kilowatt hours"],
    "joule": ["j", "joule", "joules"],
    "hertz": ["hz", "hertz"],
    "gigahertz": ["ghz"],
    "megahertz": ["mhz"],
    "degree_Celsius": ["c", "°c", "° c", "deg c", "degrees celsius", "celsius"],
    "degree_Fahrenheit": ["f", "°f", "° f", "deg f", "degrees fahrenheit", "fahrenheit"],
    "kelvin": ["k", "kelvin", "degrees kelvin"],
}
REGISTRY = pint.UnitRegistry()
CASES = (str, str.lower, str.upper, str.title)


def alike(unit: str) -> list[str]:
    measure = REGISTRY.parse_units(unit).dimensionality
    return [one for one in SPELLINGS if REGISTRY.parse_units(one).dimensionality == measure]


def read(text: str, unit: str) -> Reading | None:
    """None for an error, whether of the reading or of Pydantic behind it."""
    try:
        reading = read_number(text, False, unit)
        return reading if Decimal(reading.value).is_finite() else None
    except (ValueError, InvalidOperation):
        return None


@st.composite
def measured(draw: st.DrawFn) -> tuple[float, str, str, str]:
    """A number, its unit, the field's unit, and a text of the number and its unit."""
    value = draw(st.integers(1, 9_999)) / draw(st.sampled_from([1, 1, 10, 100]))
    unit = draw(st.sampled_from(sorted(SPELLINGS)))
    wanted = draw(st.sampled_from(alike(unit)))
    spelling = draw(st.sampled_from(CASES))(draw(st.sampled_from(SPELLINGS[unit])))
    shown = draw(st.sampled_from(["{}", "{:,}", "about {}", "+{}"])).format(value)
    gap = draw(st.sampled_from(["", " ", "\u00a0"]))
    return value, unit, wanted, shown + gap + spelling


@given(measured())
@example((350.0, "degree_Fahrenheit", "degree_Celsius", "350.0 F"))
@example((5.0, "kilowatt_hour", "joule", "5.0KWH"))
@example((18.0, "month", "year", "18.0 MO"))
def test_a_unit_in_any_spelling_is_converted_or_not_silent(
    case: tuple[float, str, str, str],
) -> None:
    value, unit, wanted, text = case
    reading = read(text, wanted)
    if reading is None or "is not read" in (reading.note or ""):
        return
    right = REGISTRY.Quantity(value, unit).to(wanted).magnitude
    found = float(reading.value)
    assert found == pytest.approx(right, rel=0.006, abs=0.0051), (text, wanted, reading)


@given(
    st.integers(1, 999),
    st.sampled_from(sorted(SPELLINGS)),
    st.text(string.ascii_letters + "°#¢.", min_size=1, max_size=4),
)
@example(5, "gram", "IU")
@example(5, "inch", "pm")
@example(5, "gram", "bi")
def test_a_word_that_nobody_knows_is_never_silent(value: int, unit: str, word: str) -> None:
    """Where the number is taken as it is, the word is the field's unit, or the note names it."""
    reading = read(f"{value} {word}", unit)
    if reading is None or Decimal(reading.value) != value:
        bare = word.strip(".")
        if {bare, bare.lower()} & factors(None).keys():  # "k", "mio", "bi"
            return
        assert reading is None or " in " in (reading.note or ""), (value, word, unit, reading)
        return
    own = {one.lower() for one in SPELLINGS[unit]}
    is_own = word.lower().strip(".") in own or "is not read" in (reading.note or "")
    assert is_own or read(f"1 {word}", alike(unit)[-1]) != read("1 ", alike(unit)[-1]), (word, unit)


@given(
    st.integers(1, 9_999),
    st.sampled_from(sorted(numbers.list_currencies("en"))),
    st.sampled_from(["USD", "EUR", "GBP"]),
    st.sampled_from(["{n} {name}", "{n} {code}", "{code} {n}", "{sign}{n}", "{n} {sign}"]),
)
@example(5, "CAD", "USD", "{n} {name}")
@example(5, "VND", "USD", "{sign}{n}")
def test_other_money_is_never_taken_for_the_fields(
    value: int, code: str, wanted: str, form: str
) -> None:
    name = numbers.get_currency_name(code, count=value, locale="en")
    sign = numbers.get_currency_symbol(code, locale="en_US")
    text = form.format(n=value, name=name, code=code, sign=sign)
    reading = read(text, wanted)
    if code == wanted:
        assert reading is not None
        assert Decimal(reading.value) == value
    else:
        assert reading is None or "is not read" in (reading.note or ""), (text, wanted, reading)


@given(
    st.integers(1, 999_999),
    st.sampled_from(["en", "de", "fr", "es", "it", "nl", "pt", "ca", "pl", "eo", "sv", "da", "tr"]),
)
@example(112, "ca")
@example(105, "eo")
def test_numbers_in_words_of_any_language_are_right_or_refused(value: int, language: str) -> None:
    try:
        text = num2words.num2words(value, lang=language)
        found = read_number(text, False, None).value
    except ValueError:
        return
    assert found == text or Decimal(found) == value, (text, found)


@given(st.integers(1, 999), st.sampled_from(["g", "lb", "kg"]), st.sampled_from(["oz", "g"]))
def test_a_number_without_its_unit_has_that_of_the_document(
    value: int, unit: str, wanted: str
) -> None:
    right = REGISTRY.Quantity(value, unit).to(wanted).magnitude
    for text in (f"{value}", f"+{value}", f"{value}.", f"{value}.0", f"{value}e0"):
        reading = read_nearby(text, (f"Coffee, {value} {unit}",), False, wanted)
        found = float(text if reading is None else reading.value)
        assert found == pytest.approx(right, rel=0.006, abs=0.0051), (text, unit, wanted)
