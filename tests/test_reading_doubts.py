"""A number that is not wholly understood is an error, or has a note that says what was not read."""

from __future__ import annotations

import pytest

from schemax.reading.nearby import read_nearby
from schemax.reading.numbers import read_number
from schemax.scalars import SCALARS


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        # money
        *(("99¢", "USD", "0.99"), ("50p", "GBP", "0.5"), ("99 cents", "EUR", "0.99")),
        *(("5 pounds", "GBP", "5"), ("5 euros", "EUR", "5"), ("Rs. 5", "INR", "5")),
        *(("fifty cents", "USD", "0.5"), ("5 kr", "SEK", "5"), ("$5 CAD", "CAD", "5")),
        *(("CAD $5", "CAD", "5"), ("AU $5", "AUD", "5"), ("5 dollars", "CAD", "5")),
        # temperatures
        *(("350 F", "degC", "177"), ("350F", "degC", "177"), ("20 C", "degF", "68")),
        *(("350 ° F", "degC", "177"), ("350 deg F", "degC", "177"), ("300 K", "degC", "26.8")),
        *(("20 degrees Celsius", "degF", "68"), ("5 degrees kelvin", "degF", "-451")),
        # case
        *(("5 KW", "W", "5000"), ("5 ghz", "MHz", "5000"), ("5 KWH", "J", "18000000")),
        *(
            ("100 MBps", "Mbps", "800"),
            ("100 Mb/s", "Mbps", "100"),
            ("250 Calories", "kcal", "250"),
        ),
        *(("250 calories", "J", "1046"), ("250 calories", "kcal", "250")),
        # spellings
        *(("50 sqft", "m^2", "4.65"), ("50 sq. ft.", "m^2", "4.65"), ("50 ft2", "m^2", "4.65")),
        *(("5 cu ft", "l", "142"), ("5 ft3", "l", "142"), ("5 m2", "ft^2", "53.8")),
        *(("18 mo", "year", "1.5"), ("3 wks", "day", "21"), ("2 tbs", "ml", "29.6")),
        *(
            ("2 T", "ml", "29.6"),
            ("2 c", "ml", "473"),
            ("2 LT", "ml", "2000"),
            ("5 #", "kg", "2.27"),
        ),
        *(("5 kmh", "mph", "3.11"), ("5 PS", "W", "3677"), ("16 gigs", "MB", "16000")),
        *(("5 mt", "kg", "5000"), ("5 mt", "cm", "500"), ("5 per cent", "percent", "5")),
        # parts
        *(("6'-2\"", "cm", "188.08"), ("6'-2", "cm", "188.08"), ("1h30m15s", "s", "5415")),
        *(("12st 5lb", "kg", "78.47"), ("12 st 5", "kg", "78.47"), ("5 st", "kg", "31.8")),
    ],
)
def test_units_in_all_their_spellings(text: str, unit: str, value: str) -> None:
    assert read_number(text, False, unit).value == value


@pytest.mark.parametrize(
    ("text", "unit", "said"),
    [
        *(("5 euros", "USD", "EUR does not"), ("5 yen", "USD", "JPY does not")),
        *(("Rs. 5", "USD", "INR does not"), ("$5 CAD", "USD", "CAD does not")),
        *(("$1,299 MXN", "USD", "MXN does not"), ("kr 5", "USD", "SEK does not")),
        *(("THB 5", "USD", '"THB" before'), ("5 THB", "USD", '"THB" behind')),
        *(("2/$5", "USD", "price of several"), ("2 for $5", "USD", "price of several")),
        *(("($5.00)", "USD", "may be a minus"), ("$5.00-", "USD", "may be a minus")),
        *(
            ("5 IU", "mg", '"IU" behind'),
            ("5 K", "g", '"K" behind'),
            ("5 pm", "inch", '"pm" behind'),
        ),
        *(('10"W x 20"H', "cm", "several numbers"), ("5'-6'", "cm", "several numbers")),
        *(("20 degrees", "degF", "degree does not"), ("5 ‰", "percent", '"‰" behind')),
        *(("–5", None, "may be a minus"), ("−  5", None, "may be a minus")),
        *(("5M", None, '"M" may be a factor'), ("fifty cents", None, "no number together")),
        *(("cent dotze", None, "no number"), ("zero przecinek pięć", None, "no number")),
        *(("cent vint-i-sis", None, "no number"), ("cent kvin", None, "no number")),
    ],
)
def test_what_is_not_wholly_understood_is_refused(text: str, unit: str | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_number(text, False, unit)


@pytest.mark.parametrize(("text", "unit"), [("55 pretty", "inch"), ("11 D", "oz"), ("5 TV", "cm")])
def test_a_word_that_is_no_unit_is_named(text: str, unit: str) -> None:
    number, word = text.split()
    assert read_number(text, False, unit) == (
        number,
        f'"{text}" read as {number} ("{word}" is not read)',
    )


@pytest.mark.parametrize("text", ["10^3", "10**3", "2^10 m"])
def test_powers_are_no_numbers(text: str) -> None:
    assert read_number(text, False, None) == (text, None)


@pytest.mark.parametrize("text", ["inf", "-Infinity", "NaN", " nan ", "1e400", "-1e999"])
def test_numbers_are_finite(text: str) -> None:
    for kind in ("number", "integer"):
        with pytest.raises(ValueError, match="is no finite number"):
            SCALARS[kind].read(text)


@pytest.mark.parametrize(
    ("text", "document", "unit", "value"),
    [
        *(("+100", "100 g", "oz", "3.53"), ("100.", "100 g", "oz", "3.53")),
        *(
            ("1e2", "100 g", "oz", "3.53"),
            ("0.5", "½ lb", "oz", "8"),
            ("2.5", "2 1/2 lb", "oz", "40"),
        ),
        *(
            ("-5", "-5 °C", "degF", "23"),
            ("5", "-5 °C or 5 °C", "degF", "41"),
            ("5", "2-5 lb", "oz", "80"),
        ),
    ],
)
def test_numbers_are_found_however_they_are_written(
    text: str, document: str, unit: str, value: str
) -> None:
    reading = read_nearby(text, (document,), False, unit)
    assert reading is not None
    assert reading.value == value


def test_a_number_whose_minus_was_left_out_is_refused() -> None:
    with pytest.raises(ValueError, match="state -5 °C, and the value has no minus"):
        read_nearby("5", ("Store at -5 °C",), False, "degF")
