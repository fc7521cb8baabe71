"""Texts as people write them, read as numbers, dates, booleans, choices and lists."""

from __future__ import annotations

import string
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemax.reading.booleans import read_boolean, spellings
from schemax.reading.choices import ChoiceReader
from schemax.reading.dates import read_date
from schemax.reading.lists import items_in
from schemax.reading.nearby import read_nearby
from schemax.reading.numbers import read_number
from schemax.reading.units import check_unit


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # surroundings
        *(("55-Inch", "55"), ("ca. 55", "55"), ("Rs.500", "500"), ("USD1299", "1299")),
        *(("55 inch (140 cm)", "55"), ("(5)", "5"), ("−5 °C", "-5"), ("-5", "-5")),
        # separators
        *(("1,299.00", "1299"), ("1.299,00 €", "1299"), ("1 299,00", "1299"), ("1 299", "1299")),
        *(("1'299.50", "1299.5"), ("12,34,567", "1234567"), ("1.299.000", "1299000")),
        *(("12,5", "12.5"), ("0,299", "0.299"), (".5", ".5"), ("1.299,- €", "1299")),
        # doubtful: a comma separates thousands, a point decimals, but in whole numbers and money
        *(("1,299", "1299"), ("1.299", "1.299"), ("1.299 kg", "1.299"), ("$1.299", "1299")),
        # fractions, factors, words
        *(("3/4", "0.75"), ("2 3/4 in", "2.75"), ("1-1/2", "1.5"), ("1½", "1.5"), ("½", "0.5")),
        *(("1.2 million", "1200000"), ("$40k", "40000"), ("3 Mio.", "3000000")),
        *(("two", "2"), ("fünfundzwanzig", "25"), ("two rooms", "2"), ("zwei", "2")),
        *(("one hundred and two", "102"), ("minus five", "-5"), ("deux", "2")),
        *(("5 dozen", "60"), ("1.5 lakh", "150000"), ("5万", "50000"), ("$5M", "5000000")),
        *(("1.5 × 10⁶", "1500000"), ("3 mil €", "3000"), ("1,2 Md €", "1200000000")),
        *(("12 tysięcy", "12000"), ("3 milioane", "3000000")),
        # signs
        *(("-$5", "-5"), ("$-5", "-5"), ("-€2,97", "-2.97"), ("−£1,299.50", "-1299.5")),
        *(("minus 5", "-5"), ("CHF-5.00", "-5"), ("USD -5", "-5"), ("moins 5 €", "-5")),
        *(("\u200e-5", "-5"), ("-kr 500", "-500"), ("-Rs. 500", "-500")),
        # digits of other scripts
        *(("١٢٫٥", "12.5"), ("١٬٢٩٩٫٥", "1299.5"), ("１２．５", "12.5"), ("१२३", "123")),
        # nouns and units
        *(("300 pages", "300"), ("24 count", "24"), ("2 lb Bag", "2"), ("1080p", "1080")),
        *(("2nd floor", "2"), ("20%", "20")),
    ],
)
def test_a_number_with_what_stands_around_it(text: str, value: str) -> None:
    reading = read_number(text, False, None)
    assert reading.value == value
    assert (reading.note is None) == (text in ("-5", ".5", "1.299"))
    assert reading.note is None or reading.note.startswith(f'"{text}" read as {value}')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("300 pages", '"pages" is not read'),
        ("24 count", '"count" is not read'),
        ("2 lb Bag", '"lb" is a unit, and the field has none; "Bag" is not read'),
        ("1.299 €", '"." for thousands'),
        ("1.299 Euro", '"." for thousands'),
        ("1.2 billion", '"billion" as 1,000,000,000'),
        ("zwei", "number words, de"),
    ],
)
def test_a_note_says_what_was_doubtful_or_not_read(text: str, said: str) -> None:
    assert said in (read_number(text, False, None).note or "")


@pytest.mark.parametrize(
    "text", ["1.2.3", "UN55KU6300", "v2.5", "10⁶", "no", "", "twice", "third", "null"]
)
def test_what_states_no_number_is_left_as_it_is(text: str) -> None:
    assert read_number(text, False, None) == (text, None)


@pytest.mark.parametrize(
    "text",
    [
        *("10 x 20", "10x20", "15 128 GB", "5 or 6", "2 at 5", "2 Cola 5,00 €", "one two"),
        *("100/240 V", "3/4/2021", "12/5/2020", "10/100/1000 Mbps", "1.5/1.7 m", "12.5/13"),
        *("24/7", "10/12", "16:9", "1:30", "5W30", "12A34", "10cmx20cm", "10^3", "10**3"),
        *("50-55 inch", "$10–$15", "between 5 and 7", "5 bis 7", "7 to 5", "5-10K", "2/$5"),
        *("2nd floor, 5 rooms", "5 ft 11 in", "-20/-10 °C"),
    ],
)
def test_several_numbers_are_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="states several numbers"):
        read_number(text, False, None)


@pytest.mark.parametrize(
    "text",
    [
        *("ti million", "2 million three hundred thousand", "5 mil", "- 5", "–5", "--5", "5-"),
        *("tre hundrede fem", "5M", "4K", "two and a half", "5 degrees below zero"),
        *(
            "fifty cents",
            "±5",
            "set of six",
            "zwei Stück",
            "5 May",
            "June 5",
            "($5.00)",
            "$(2,500)",
        ),
    ],
)
def test_what_is_not_wholly_understood_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match=r"may mean|goes on|may be|not understood|states a date"):
        read_number(text, False, None)


def test_whole_numbers_have_no_decimals() -> None:
    assert read_number("1.299", True, None).value == "1299"
    assert read_number("55.0", True, None) == ("55", None)
    assert read_number("54.6", True, None).value == "54.6"  # for Pydantic to refuse


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        *(("140 cm", "inch", "55.1"), ("55-Inch", "inch", "55"), ('55"', "cm", "140")),
        *(("55", "inch", "55"), ("5'11\"", "inch", "71"), ("2 lb 3 oz", "oz", "35")),
        *(("55 inch (140 cm)", "cm", "140"), ("140 cm / 55 inch", "inch", "55")),
        *(("16 fl oz", "ml", "473"), ("500 MG", "g", "0.5"), ("50 Zentimeter", "meter", "0.5")),
        *(("1,5 kg", "g", "1500"), ("5.5 miles", "inch", "348480"), ("72 °F", "°C", "22.2")),
        *(("zwei Meter", "cm", "200"), ("300K", "K", "300"), ("13 Kilogramm", "g", "13000")),
        *(("1.299,00 €", "EUR", "1299"), ("20 %", "%", "20"), ("100 km/h", "mph", "62.1")),
        *(("55 inch TV", "cm", "140"), ("20 sq ft", "m^2", "1.86"), ("2 GB", "MB", "2000")),
        *(("1h30", "min", "90"), ("1h30m", "min", "90"), ("1 h 30", "min", "90")),
        *(("6'2", "inch", "74"), ("5ft11", "inch", "71"), ("-5 °C", "°F", "23")),
        *(("5 lb 3", "oz", "83"), ("3 Fl. Oz.", "fluid_ounce", "3"), ("16 floz", "fl oz", "16")),
        *(("3 hours 20 minutes", "min", "200"), ("1.5M miles", "mile", "1500000")),
        *(("468,3 centímetros", "m", "4.683"), ("138 chilometri", "km", "138")),
        *(("5 GB", "byte", "5000000000"), ("5 m2", "square_meter", "5"), ("5 VND", "VND", "5")),
        *(("1 Std. 20 Min.", "s", "4800"), ("2d3h4m5s", "s", "183845"), ("30 Sek.", "s", "30")),
        *(
            ("73.132 yenes japoneses", "JPY", "73132"),
            ("NT$ 5", "TWD", "5"),
            ("kr 500", "NOK", "500"),
        ),
    ],
)
def test_numbers_are_converted_to_the_unit(text: str, unit: str, value: str) -> None:
    assert read_number(text, False, unit).value == value


def test_a_converted_whole_number_is_rounded() -> None:
    assert read_number("140 cm", True, "inch").value == "55"


@pytest.mark.parametrize(
    ("text", "unit", "names"),
    [
        ("4 kg", "inch", "kilogram does not convert to inch"),
        ("$5", "EUR", "USD does not .* EUR"),
        ("3 Fl Oz", "oz", "fluid_ounce does not convert to oz"),
        ("250 count", "oz", '"count" behind the number'),
        ("55 pretty", "inch", '"pretty" behind the number'),
        ("50 TEUR", "EUR", '"TEUR" behind the number'),
        ("5 kg per bag", "kg", "kilogram / bag does not convert to kg"),
        ("5 kg per day", "kg", "kilogram / day does not convert to kg"),
        ("5 mil", "km", "unit or a factor"),
        ("90 m", "s", "may be in"),
        ("two hours and a half", "s", "goes on"),
        ("20 %", "byte", "percent does not convert"),
        ("W 10 x H 20 cm", "cm", "several numbers"),
        ("12 pack of 16 oz", "oz", "several numbers"),
        ("50 to 55 cm", "inch", "several numbers"),
        ("1 299 g", "g", "several numbers"),
        ("1 m 80", "cm", "several numbers"),
        ("90 min 2019", "hour", "several numbers"),
        ("10 ± 0.5 mm", "mm", "several numbers"),
        ("10 +/- 0.5 mm", "mm", "several numbers"),
        ("30 by 40 cm", "cm", "several numbers"),
        ("2 + 1 kg", "kg", "several numbers"),
    ],
)
def test_another_kind_of_unit_is_an_error(text: str, unit: str, names: str) -> None:
    with pytest.raises(ValueError, match=names):
        read_number(text, False, unit)


@pytest.mark.parametrize(
    ("text", "documents", "unit", "value"),
    [
        ("340", ["Ground coffee, 340 g"], "oz", "12"),
        ("2", ["Whole beans, 2 lb Bag"], "oz", "32"),
        ("139", ["139 cm (55 inch) television"], "inch", "54.7"),
        ("1.5", ["1,5 kg"], "g", "1500"),
        ("340", ["340 g", "coffee", "340 G"], "oz", "12"),
        ("340.0", ["Ground coffee, 340 g"], "oz", "12"),  # as a server writes floats
        ("1299.0", ["1'299 g and 1 299,00 g"], "kg", "1.299"),
        # A number that follows is another one.
        ("55", ["Samsung 55-Inch 4K TV"], "cm", "140"),
        ("55", ["55 inch 3D TV"], "cm", "140"),
        ("55", ["55 inch 2021 model"], "cm", "140"),
        ("340", ["Coffee 340 g 2 pack"], "oz", "12"),
        ("340", ["Coffee, 340 g\n2 packs"], "oz", "12"),
        ("340", ["340 g 100% Arabica"], "oz", "12"),
        ("12", ["Parcel weight 12 lb 2024 edition"], "kg", "5.44"),
        ("90", ["Film, length 90 min 2019"], "hour", "1.5"),
        # Or a smaller part.
        ("5", ["5 ft 11 in"], "inch", "71"),
        ("5", ["height 5' 11\", slim"], "inch", "71"),
        ("2", ["Parcel, weight 2 lb 3 oz"], "kg", "0.99223"),
        ("2", ["2 lb 3 oz"], "lb", "2.1875"),
        ("1", ["1 h 30"], "hour", "1.5"),
        # Or the head of a column has the unit.
        ("340", ["Weight (g): 340"], "oz", "12"),
        ("500", ["| Length (mm) | 500 |"], "cm", "50"),
    ],
)
def test_a_unit_that_the_document_states_behind_the_number(
    text: str, documents: list[str], unit: str, value: str
) -> None:
    reading = read_nearby(text, tuple(documents), False, unit)
    assert reading is not None
    assert reading.value == value
    assert reading.note is not None


@pytest.mark.parametrize(
    ("text", "documents", "unit"),
    [
        ("55", ["139 cm (55 inch) television"], "inch"),  # in the field's own
        ("12", ["12 oz and 12 g"], "oz"),
        ("12", ["12 and 12 g"], "oz"),  # once without
        ("5", ["15 g, 5.2 g, 1/5 g, A5 g"], "oz"),  # in no place of its own
        ("55", ["139 cm, 55 in 1080p"], "inch"),
        ("100", ["100 USD"], "USD"),
        ("5 g", ["5 g"], "oz"),
        ("5", [], "oz"),
        ("5", ["5 " * 1000], "oz"),
    ],
)
def test_a_number_that_is_taken_as_it_is(text: str, documents: list[str], unit: str) -> None:
    assert read_nearby(text, tuple(documents), False, unit) is None


@pytest.mark.parametrize(
    ("text", "documents", "unit", "names"),
    [
        ("3", ["Shampoo, 3 Fl Oz"], "oz", "fluid_ounce does not convert to oz"),
        ("100", ["for 100 EUR"], "USD", "EUR does not convert to USD"),
        ("100", ["for €100"], "USD", "EUR does not convert to USD"),
        ("5", ["Lamp price $5 2 pack"], "EUR", "USD does not convert to EUR"),
        ("5", ["5 g or 5 kg"], "oz", '"5 g" and "5 kg"'),
    ],
)
def test_another_unit_in_the_document_is_an_error(
    text: str, documents: list[str], unit: str, names: str
) -> None:
    with pytest.raises(ValueError, match=names):
        read_nearby(text, tuple(documents), False, unit)


@pytest.mark.parametrize("text", ["2nd", "3rd", "the 1st", "11th place", "22ND"])
def test_places_in_an_order_are_no_amounts(text: str) -> None:
    """ "nd", "rd" and "st" are units of pint's: nanodays, rods and stones."""
    number = "".join(filter(str.isdigit, text))
    assert read_number(text, True, None).value == number
    for unit in ("hour", "inch", "kg"):
        with pytest.raises(ValueError, match="behind the number may be a unit"):
            read_number(text, False, unit)


@pytest.mark.parametrize(
    ("text", "document", "word"),
    [("250", "Vitamin C, 250 count", "count"), ("3", "3rd generation", "rd"), ("9", "9 D", "D")],
)
def test_a_word_behind_the_number_in_the_document_is_said(
    text: str, document: str, word: str
) -> None:
    reading = read_nearby(text, (document,), False, "oz")
    assert reading is not None
    assert reading.value == text
    assert f'{word}"' in (reading.note or "")


def test_stones_are_an_amount() -> None:
    assert read_number("11 stone", False, "kg").value == "69.9"
    assert read_number("5 rod", False, "inch").value == "990"


@pytest.mark.parametrize("unit", ["foo", "", 5, "9**9**9", "m^3^3^3^3", "1 inch", "x" * 99])
def test_an_unknown_unit_is_refused(unit: object) -> None:
    with pytest.raises(ValueError, match="unknown unit"):
        check_unit(unit)


cents = st.integers(0, 10**11).map(lambda number: Decimal(number) / 100)
GROUPINGS = {
    "plain": lambda text: text,
    "english": lambda text: text,
    "german": lambda text: text.translate(str.maketrans(",.", ".,")),
    "french": lambda text: text.translate(str.maketrans(",.", "\u202f,")),
    "swiss": lambda text: text.replace(",", "'"),
}
around = st.sampled_from(["{}", "{} €", "€{}", "{}-Inch", "about {}", "{} (new)", "-{}"])


@given(cents, st.sampled_from(sorted(GROUPINGS)), around)
def test_every_way_to_write_a_number_reads_back(number: Decimal, way: str, form: str) -> None:
    text = f"{number:.2f}" if way == "plain" else GROUPINGS[way](f"{number:,.2f}")
    sign = -1 if form[0] == "-" else 1
    assert Decimal(read_number(form.format(text), False, None).value) == sign * number


@given(st.text(string.printable + "½€£°×–−\u202f", max_size=30), st.booleans())
def test_any_text_is_read_or_refused_with_a_reason(text: str, whole: bool) -> None:
    for unit in (None, "inch"):
        try:
            value = read_number(text, whole, unit).value
        except ValueError as error:
            reason = str(error)
        else:
            reason = "" if value == text or Decimal(value).is_finite() else value
        known = ("states several", "does not convert", "may be", "may mean", "not understood")
        known = (*known, "goes on", "states a date", "is not read")
        assert not reason or any(said in reason for said in known), reason


@pytest.mark.parametrize(
    ("text", "day"),
    [
        *(("March 3, 2021", "2021-03-03"), ("3rd of March 2021", "2021-03-03")),
        *(("3. März 2021", "2021-03-03"), ("1er mars 2021", "2021-03-01")),
        *(("29 de fevereiro de 2024", "2024-02-29"), ("3 de mayo de 2021", "2021-05-03")),
        *(("03.04.2021", "2021-04-03"), ("03/04/2021", "2021-03-04"), ("13/04/2021", "2021-04-13")),
        *(("20240229", "2024-02-29"), ("2024/2/9", "2024-02-09"), ("9 Feb 2024", "2024-02-09")),
        ("Released on March 3, 2021 in Berlin", "2021-03-03"),
    ],
)
def test_dates_in_the_usual_spellings(text: str, day: str) -> None:
    reading = read_date(text, False)
    assert reading.value == day
    assert reading.note is not None
    assert ("first" in reading.note) == (text in ("03.04.2021", "03/04/2021"))


@pytest.mark.parametrize("text", ["2024-02-29", "2021", "March 2021", "55", "Feb 30, 2024", "now"])
def test_what_states_no_whole_date_is_left_as_it_is(text: str) -> None:
    assert read_date(text, False) == (text, None)


@pytest.mark.parametrize("time", [" 12:00:00", "T12:00", "T23:59:59.5Z", "T00:00", " 10:00+02:00"])
def test_the_day_of_a_moment(time: str) -> None:
    text = f"2024-06-09{time}"
    assert read_date(text, False) == (
        "2024-06-09",
        f'"{text}" read as 2024-06-09 (without the time)',
    )
    assert read_date(text, True) == (text, None)
    with pytest.raises(ValueError, match="not understood"):
        read_date("2024-06-09 25:00", False)


def test_moments_and_several_dates() -> None:
    assert read_date("March 3, 2021 5:30 pm", True).value == "2021-03-03T17:30:00"
    assert read_date("12-03-2021 10:00 UTC+2", True).value == "2021-03-12T10:00:00+02:00"
    with pytest.raises(ValueError, match="states several dates"):
        read_date("from 3 March 2021 to 5 March 2021", False)


def test_booleans_by_words() -> None:
    assert read_boolean("true") == (True, None)
    for text, value in {"Yes, with adapter": True, "nein": False, "available: no": False}.items():
        assert read_boolean(text).value is value
    for text in ("Smart TV", "no-slip", "", "55"):
        assert read_boolean(text) == (text, None)
    for text, value in spellings().items():
        assert read_boolean(text).value is value
    for text in ("no: yes", "yes, not"):
        with pytest.raises(ValueError, match="says yes and no"):
            read_boolean(text)
    assert read_boolean("included: not included") == ("included: not included", None)
    assert read_boolean("enthalten: nein").value is False


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        *(("4K", "4K"), ("4k", "4K"), ("4K UHD", "4K"), ("1080 P", "1080p")),
        *(("Full HD (1080p)", "1080p"), ("uhd", None), ("4K or 8K", None), ("not 4K", None)),
        *(("108Op", None), ("stainless-steel", "Stainless Steel"), ("reds", "red")),
        *(("Stainles Steel", "Stainless Steel"), ("light blue denim", "Light Blue")),
        *(("blue and light blue", None), ("USB 3", None), ("USB3.0", "USB 3.0"), ("Back", None)),
        ("", None),
    ],
)
def test_choices_up_to_case_spaces_and_spelling(text: str, choice: str | None) -> None:
    names = ["720p", "1080p", "4K", "8K", "USB 2.0", "USB 3.0", "Stainless Steel", "Light Blue"]
    reading = ChoiceReader({name: name for name in [*names, "Blue", "red", "Black"]}).read(text)
    assert reading.value == (choice or text)
    assert (reading.note is None) == (choice in (None, text))


@pytest.mark.parametrize(
    ("text", "items"),
    [
        *(("HDMI, USB", ["HDMI", "USB"]), ("HDMI,USB", ["HDMI", "USB"]), ("HDMI", ["HDMI"])),
        *(("a, b and c", ["a", "b", "c"]), ("a, b, and c", ["a", "b", "c"])),
        *(("salt and pepper", ["salt and pepper"]), ("AC/DC", ["AC/DC"]), ("", [])),
        *(("HDMI; USB, C", ["HDMI", "USB, C"]), ("HDMI / USB", ["HDMI", "USB"])),
        *(("1,299, 1,500", ["1,299", "1,500"]), ("1,2,3", ["1", "2", "3"])),
        *(("12,50 €", ["12,50 €"]), ("May 5, 2024", ["May 5, 2024"]), ("5 (a, b", ["5 (a", "b"])),
        ("ginger (fresh, sliced), garlic", ["ginger (fresh, sliced)", "garlic"]),
        *(("- a\n- b", ["a", "b"]), ("1. a\n2. b", ["a", "b"]), ("a、b،c", ["a", "b", "c"])),
        *(("• a • b", ["a", "b"]), ("May 5, 2024, June 6, 2024", ["May 5, 2024", "June 6, 2024"])),
    ],
)
def test_lists_in_one_text(text: str, items: list[str]) -> None:
    assert items_in(text) == items
