"""A number that is not wholly understood is an error, or has a note that says what was not read."""

from __future__ import annotations

import pytest

from schemax.reading.choices import Choices
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


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("5 ft 11 in (180 cm)", "inch", "71"),
        ("5'11\" (180 cm)", "inch", "71"),
        ("180 cm (5 feet 11 inches)", "cm", "180"),
        ("180 cm (5 feet 11 inches)", "inch", "70.9"),
        ("5 ft 11 in (180 cm)", "cm", "180"),
        ("55 inch (140 cm)", "cm", "140"),
        ("55 inch (140 cm)", "inch", "55"),
        ("5-foot-11", "inch", "71"),
        ("5-ft-11-in", "inch", "71"),
        ("1 lb. 8 oz., 680 g", "oz", "24"),
        ("1 h 30 min (prep 10 min)", "hour", "1.5"),
        ("an hour and a half", "hour", "1.5"),
        ("2 million and a half", None, "2500000"),
        ("45 min to 1 hour", "min", "45"),
        ("30 min - 2 h", "minute", "30"),
        ("500 g - 1 kg", "gram", "500"),
        ("5-10K", None, "5000"),
        ("500 to 1 million", None, "500"),
        ("$1-2 million", "USD", "1000000"),
        ("between 5 and 10 million dollars", "USD", "5000000"),
        ("\uff0d5", None, "-5"),
        ("5 ZAR", "ZAR", "5"),
        ("a quarter of an hour", "minute", "15"),
        ("half of an hour", "minute", "30"),
        ("NOK 1 299", "NOK", "1299"),
    ],
)
def test_parts_ranges_and_factors(text: str, unit: str | None, value: str) -> None:
    assert read_number(text, False, unit).value == value


@pytest.mark.parametrize("text", ["\u20115", "--5", "\u2013 5"])
def test_a_hyphen_of_any_kind_may_be_a_minus(text: str) -> None:
    with pytest.raises(ValueError, match="may be a minus"):
        read_number(text, False, None)


@pytest.mark.parametrize(
    "text", ["3rd of May 2024", "May 2024", "5 May", "June 5", "released May 3, 2024"]
)
def test_a_date_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="states a date"):
        read_number(text, False, None)


def test_a_verb_is_no_month() -> None:
    assert read_number("may hold 5 kg", False, None).value == "5"
    assert read_number("5 may fit", False, None).value == "5"


def test_an_amount_beside_another_that_differs_is_refused() -> None:
    with pytest.raises(ValueError, match="several numbers"):
        read_number("1 lb 8 oz, 340 g", False, "oz")


@pytest.mark.parametrize(
    ("text", "document", "unit", "value"),
    [("1", "Takes 1h30 to cook", "minute", "90"), ("2", "2h20", "minute", "140")],
)
def test_hours_and_minutes_that_run_together(
    text: str, document: str, unit: str, value: str
) -> None:
    reading = read_nearby(text, (document,), False, unit)
    assert reading is not None
    assert reading.value == value


def test_temperatures_keep_their_minus() -> None:
    with pytest.raises(ValueError, match="the value has no minus"):
        read_nearby("5", ("It is -5 \u00b0C",), False, "degC")
    assert read_nearby("5", ("- 5 oz coffee",), False, "oz") is None


@pytest.mark.parametrize(
    ("choices", "text", "value"),
    [
        (("0.5 mg", "5 mg"), ".5 mg", "0.5 mg"),
        (("0.5 mg", "5 mg"), "take .5 mg", None),
        (("1", "2", "10"), "1.0", "1"),
        (("1", "2", "10"), "10.5", None),
        (("1", "2", "10"), "-1", None),
        (("1", "2", "10"), "+2", "2"),
        (("15", "20"), "1.5", None),
        (("+5", "-5"), "5", "+5"),
        (("+5", "-5"), "\u22125", "-5"),
        (("1.0", "10.0"), "10", "10.0"),
        (("720p", "1080p"), "1,080 P", "1080p"),
        (("802.11ac", "802.11n"), "802.11 AC", "802.11ac"),
        (("red", "green"), "isn't red", None),
        (("sugar", "salt"), "sugar-free", None),
        (("sugar", "salt"), "zero sugar", None),
        (("sugar free", "salt"), "sugar-free gum", "sugar free"),
    ],
)
def test_choices_with_other_numbers_are_others(
    choices: tuple[str, ...], text: str, value: str | None
) -> None:
    found = Choices(dict(zip(choices, choices, strict=True))).read(text).value
    assert found == (text if value is None else value)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("url", "https://en.wikipedia.org/wiki/Mercury_(planet)", None),
        ("url", "see (https://x.org/a).", "https://x.org/a"),
        ("url", "[link](https://x.org)", "https://x.org"),
        ("duration", "2 days, 3:00:00", "P2DT3H"),
        ("currency", "Canadian dollars", "CAD"),
        ("currency", "Egyptian pounds", "EGP"),
        ("country", "Democratic Republic of the Congo", "CD"),
        ("country", "Newark, New Jersey", None),
        ("country", "New Zealand", "NZ"),
        ("datetime", "2024-05-03 10:00 UTC", "2024-05-03T10:00:00+00:00"),
        ("datetime", "2024-05-03 5pm", "2024-05-03T17:00:00"),
        ("datetime", "2024-05-03T10:00-05:00", None),
        ("date", "2024-05-03 (Friday)", "2024-05-03"),
    ],
)
def test_values_within_prose(kind: str, text: str, value: str | None) -> None:
    assert SCALARS[kind].read(text).value == (text if value is None else value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("date", "3-5 May 2024"),
        ("date", "April 30 to May 2, 2024"),
        ("date", "1, 2 and 3 May 2024"),
        ("datetime", "3 May 2024 10:00-12:00"),
        ("datetime", "3 May 2024, 10:00 - 12:00"),
        ("datetime", "3 May 2024, 9-11 am"),
        ("datetime", "3 May 2024 25:00"),
        ("url", "http://a.b and http://c.d"),
    ],
)
def test_several_values_are_refused(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"several|not understood"):
        SCALARS[kind].read(text)
