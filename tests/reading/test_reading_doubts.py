"""A number that is not wholly understood is an error, or has a note that says what was not read."""

from __future__ import annotations

import pytest

from schemax.reading.choices import ChoiceReader
from schemax.reading.kinds import SCALARS
from schemax.reading.nearby import read_nearby
from schemax.reading.numbers import read_number


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        # money
        *(("5 pounds", "GBP", "5"), ("5 euros", "EUR", "5"), ("Rs. 5", "INR", "5")),
        *(("5 kr", "SEK", "5"), ("$5 CAD", "CAD", "5"), ("5 yen", "JPY", "5")),
        *(("CAD $5", "CAD", "5"), ("AU$ 5", "AUD", "5"), ("5 dollars", "CAD", "5")),
        *(("$5", "CAD", "5"), ("US $5", "USD", "5"), ("5 Pakistani rupees", "PKR", "5")),
        *(("€5 (EUR 5)", "EUR", "5"), ("5.00 USD / $5", "USD", "5")),
        # temperatures
        *(("350 F", "degC", "177"), ("350F", "degC", "177"), ("20 C", "degF", "68")),
        *(("350 ° F", "degC", "177"), ("300 K", "degC", "26.8")),
        *(("20 degrees Celsius", "degF", "68"), ("5 kelvins", "degF", "-451")),
        # case
        *(("5 KW", "W", "5000"), ("5 ghz", "MHz", "5000"), ("5 KWH", "J", "18000000")),
        *(("100 Mbps", "Mbps", "100"), ("100 mbps", "Mbps", "100"), ("16 gb", "MB", "16000")),
        *(("250 calories", "kcal", "250"), ("250 kcal", "J", "1046000"), ("5 mAh", "Ah", "0.005")),
        # spellings
        *(("50 sqft", "m^2", "4.65"), ("50 sq. ft.", "m^2", "4.65"), ("50 ft2", "m^2", "4.65")),
        *(("5 cu ft", "l", "142"), ("5 ft3", "l", "142"), ("5 m2", "ft^2", "53.8")),
        *(("3 wks", "day", "21"), ("2 tbsp", "ml", "29.6"), ("2 c", "ml", "473")),
        *(("5 PS", "W", "3677"), ("5 percent", "percent", "5"), ("5 ‰", "percent", "0.5")),
        *(('"5 kg"', "g", "5000"), ("“5 ft 2 in”", "inch", "62"), ('"5"', "inch", "5")),
        # parts
        *(("6'-2\"", "cm", "187.96"), ("6'-2", "cm", "187.96"), ("1h30m15s", "s", "5415")),
        *(("12st 5lb", "kg", "78.471"), ("12 st 5", "kg", "78.471"), ("5 st", "kg", "31.8")),
    ],
)
def test_units_in_all_their_spellings(text: str, unit: str, value: str) -> None:
    assert read_number(text, False, unit).value == value


@pytest.mark.parametrize(
    ("text", "unit", "said"),
    [
        *(("5 euros", "USD", "EUR does not"), ("5 yen", "USD", "may be a unit")),
        *(("Rs. 5", "USD", "INR does not"), ("$5 CAD", "USD", "CAD does not")),
        *(("$1,299 MXN", "USD", "MXN does not"), ("kr 5", "USD", "SEK does not")),
        *(("THB 5", "USD", "THB does not"), ("5 THB", "USD", "THB does not")),
        *(("5 Canadian dollars", "USD", "CAD does not"), ("US $5", "CAD", '"US" may name')),
        *(("5 dollars Canadian", "USD", '"Canadian" may name'), ("€5 $6", "EUR", "several")),
        *(("2/$5", "USD", "several numbers"), ("2 for $5", "USD", "several numbers")),
        *(("($5.00)", "USD", "may be a minus"), ("$5.00-", "USD", "may be a minus")),
        *(("$(2,500.00)", "USD", "may be a minus"), ("-($5)", "USD", "may be a minus")),
        *(("99¢", "USD", '"¢" behind'), ("50p", "GBP", '"p" behind')),
        *(("S$5", "USD", "mixture"), ("₦5", "USD", '"₦" before'), ("¢99", "USD", '"¢" before')),
        *(("-,99 €", "EUR", "may be a minus"), ("$5mm", "USD", '"mm" beside money')),
        *(("$5 kg", "kg", '"kg" beside money'), ("€5 (EUR 6)", "EUR", "several numbers")),
        *(("g: 340", "kg", "may be the unit"), ("Weight (g): 340", "kg", "may be the unit")),
        *(("340, g", "kg", "may be the unit"), ("without 5 kg", "kg", "not meant")),
        *(("5 MT", "kg", '"MT" behind'), ("5 kmph", "km/h", '"kmph" behind')),
        *(("1e28 kg", "g", "beyond"), ("10k", None, "may be a factor")),
        *(("5 IU", "mg", '"IU" behind'), ("100 MBps", "Mbps", '"MBps" behind')),
        *(('10"W x 20"H', "cm", "several numbers"), ("5'-6'", "cm", "several numbers")),
        *(("20 degrees", "degF", "degree does not"), ("250 calories", "J", "may be in")),
        *(("–5", None, "may be a minus"), ("-20/-10 °C", "degC", "several numbers")),
        *(("5M", None, '"M" may be a factor'), ("fifty cents", None, "may mean")),
        *(("cent dotze", None, "not understood"), ("cent kvin", None, "not understood")),
    ],
)
def test_what_is_not_wholly_understood_is_refused(text: str, unit: str | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_number(text, False, unit)


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
            ("-5", "Storage (°C): -5", "degF", "23"),
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
        ("5 ft 11 in (180 cm)", "cm", "180"),
        ("55 inch (140 cm)", "cm", "140"),
        ("55 inch (140 cm)", "inch", "55"),
        ("5-foot-11", "inch", "71"),
        ("5-ft-11-in", "inch", "71"),
        ("1 lb. 8 oz., 680 g", "oz", "24"),
        ("\uff0d5", None, "-5"),
        ("5 ZAR", "ZAR", "5"),
    ],
)
def test_parts_and_remarks(text: str, unit: str | None, value: str) -> None:
    assert read_number(text, False, unit).value == value


@pytest.mark.parametrize("text", ["\u20115", "--5", "\u2013 5"])
def test_a_hyphen_of_any_kind_may_be_a_minus(text: str) -> None:
    with pytest.raises(ValueError, match="may be a minus"):
        read_number(text, False, None)


@pytest.mark.parametrize("text", ["May 2024", "5 May", "June 5", "released May 2024", "3 December"])
def test_a_date_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="states a date"):
        read_number(text, False, None)


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
        (("0.5 mg", "5 mg"), "take .5 mg", "0.5 mg"),
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
        (("sugar", "salt"), "sugar-free", None),
        (("sugar", "salt"), "zero sugar", None),
        (("sugar free", "salt"), "sugar-free gum", "sugar free"),
        (("A+", "A-"), "A positive", None),
        (("A+", "A-", "B"), "a+", "A+"),
        (("A+", "A", "B"), "A+", "A+"),
        (("A", "B"), "A+", None),
        (("hypertension", "diabetes"), "hypotension", None),
        (("I", "II", "III"), "I/II", None),
        (("I", "II", "III"), "type II", "II"),
        (("T-Shirt", "Shoe"), "tshirt", "T-Shirt"),
        (("male", "female"), "Female", "female"),
        (("XL", "L"), "2XL", None),
        (("WiFi 5", "WiFi 6"), "WiFi 5GHz", None),
        (("diabetes", "asthma"), "pre-diabetes", None),
        (("debit card", "cash"), "credit or debit card", None),
        (("vegan", "none"), "vegan: nein", None),
        (("L", "M"), "L'Oréal", None),
    ],
)
def test_choices_with_other_numbers_are_others(
    choices: tuple[str, ...], text: str, value: str | None
) -> None:
    found = ChoiceReader(dict(zip(choices, choices, strict=True))).read(text).value
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
        ("currency", "Pakistani rupees", "PKR"),
        ("currency", "NT$ 5", "TWD"),
        ("currency", "yen", None),
        ("currency", "peso", None),
        ("country", "Made in USA", "US"),
        ("country", "MADE IN CHINA", "CN"),
        ("country", "Made In China", "CN"),
        ("country", "Caribbean Netherlands", "BQ"),
        ("country", "DR Congo", None),
        ("country", "bone china", None),
        ("country", "i.e. good", None),
        ("country", "MADE IN P.R.C", None),
        ("country", "Feito no Brasil", "BR"),
        ("currency", "all 5 colors", None),
        ("datetime", "3 March 2021 10.30am", "2021-03-03T10:30:00"),
        ("datetime", "Wednesday, 3 March 2021, 10:30", "2021-03-03T10:30:00"),
        ("country", "Democratic Republic of the Congo", "CD"),
        ("country", "Newark, New Jersey", None),
        ("country", "New Zealand", "NZ"),
        ("datetime", "2024-05-03 10:00 UTC", "2024-05-03T10:00:00+00:00"),
        ("datetime", "2024-05-03 5pm", "2024-05-03T17:00:00"),
        ("datetime", "2024-05-03T10:00-05:00", None),
        ("datetime", "3 May 2024, 10:00 UTC-5", "2024-05-03T10:00:00-05:00"),
        ("datetime", "3 May 2024, 5:30 p.m.", "2024-05-03T17:30:00"),
        ("date", "12.03.21", "2021-03-12"),
        ("date", "20210303 or 03.03.2021", "2021-03-03"),
        ("date", "2021年3月3日", "2021-03-03"),
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
        ("date", "12 June–14 July 2024"),
        ("date", "June 12–14, 2024 or 5 May 2024"),
        ("date", "5 May or 6 May 2024"),
        ("datetime", "5 May 2024 1530 hrs"),
        ("datetime", "5 May 2024, half past three"),
        ("datetime", "3 June 2021 12:30 PT"),
        ("date", "12.03.56"),
        ("date", "21/03/04"),
        ("datetime", "2021-03-03 下午 8:00"),
        ("datetime", "3 May 2021 10:30 Berlin time"),
        ("date", "3 March 2021 BC"),
        ("country", "China or USA"),
        ("country", "not China"),
        ("country", "Lebanon, PA, USA"),
        ("url", "http://a.b and http://c.d"),
    ],
)
def test_several_values_are_refused(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match=r"several|not understood|understood|may be|not meant"):
        SCALARS[kind].read(text)
