"""Countries, languages and currencies: names in seven languages stand for their codes."""

from __future__ import annotations

from decimal import Decimal

import pytest
from pydantic import BaseModel, TypeAdapter
from pydantic_extra_types.country import CountryAlpha2, CountryAlpha3
from pydantic_extra_types.currency_code import ISO4217, Currency
from pydantic_extra_types.language_code import LanguageAlpha2
from values_of_kinds import check_kind, read_as

from schemax.attributes import compile_attributes
from schemax.reading.kinds import SCALARS
from schemax.reading.kinds.codes import Code

DECLARED = {
    "country": CountryAlpha2,
    "country3": CountryAlpha3,
    "language": LanguageAlpha2,
    "currency": ISO4217,
}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        *(("country", text, "DE") for text in ("Made in Germany", "Deutschland", "deu", "de.")),
        *(("country", text, "GB") for text in ("UK", "U.K.", "England", "Royaume-Uni")),
        *(("country", text, "US") for text in ("USA", "U.S.A.", "Estados Unidos")),
        *(("country", text, "KR") for text in ("South Korea", "Republic of Korea")),
        *(("country", "Equatorial Guinea", "GQ"), ("country", "Côte d'Ivoire", "CI")),
        *(("country3", "Germany", "DEU"), ("country3", "DE", "DEU")),
        *(("language", text, "de") for text in ("in German", "deutsch", "allemand", "deu")),
        *(
            ("language", "Greek", "el"),
            ("language", "Chinese", "zh"),
            ("language", "Norwegian", "no"),
        ),
        *(("currency", text, "EUR") for text in ("€ 12.50", "euros", "Euro", "eur")),
        *(("currency", "US$ 5", "USD"), ("currency", "12 zł", "PLN"), ("currency", "A$ 5", "AUD")),
    ],
)
def test_names_stand_for_codes(kind: str, text: str, value: str) -> None:
    reading = SCALARS[kind].read(text)
    assert (reading.value, reading.note) == (value, f'"{text}" read as {value}')


def test_a_sign_of_several_currencies_is_noted() -> None:
    assert SCALARS["currency"].read("$5") == (
        "USD",
        '"$5" read as USD (the sign stands for several)',
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [("country", "Germany or France"), ("language", "English, French"), ("currency", "€5 ($6)")],
)
def test_several_names_are_an_error(kind: str, text: str) -> None:
    with pytest.raises(ValueError, match="states several"):
        SCALARS[kind].read(text)


@pytest.mark.parametrize(
    ("kind", "text"),
    [("country", "XX"), ("country", "this is it"), ("language", "as is"), ("currency", "free")],
)
def test_what_names_nothing_is_left_as_it_is(kind: str, text: str) -> None:
    assert SCALARS[kind].read(text) == (text, None)
    assert read_as(DECLARED[kind], text).errors


@pytest.mark.parametrize("kind", DECLARED)
def test_all_codes_are_values_and_read_as_they_are(kind: str) -> None:
    scalar = SCALARS[kind]
    assert isinstance(scalar, Code)
    codes = {*scalar.codes()}
    assert len(codes) > 150
    reader = TypeAdapter(DECLARED[kind])
    for code in codes:
        assert reader.validate_python(code) == code
        assert scalar.read(code) == (code, None)


@pytest.mark.parametrize(
    ("annotation", "kind", "value", "text"),
    [
        (CountryAlpha2, "country", "DE", "Made in Germany"),
        (CountryAlpha3, "country3", "DEU", "Made in Germany"),
        (LanguageAlpha2, "language", "de", "German"),
        (ISO4217, "currency", "EUR", "€"),
    ],
)
def test_codes_are_kinds(annotation: type[str], kind: str, value: str, text: str) -> None:
    check_kind(annotation, value, text, kind=kind)


def test_an_amount_of_money_has_its_currency_beside_it() -> None:
    class Price(BaseModel):
        amount: Decimal
        currency: Currency

    assert [a.kind for a in compile_attributes(Price)] == ["number", "currency"]
    assert read_as(Currency, "£ 1,299").value.value == "GBP"
