"""Numbers as others write them out, in words and in the usages of countries, are read back."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal

import pytest
from babel.numbers import format_currency, format_decimal
from num2words import num2words

from schemax.reading.numbers import read_number

READ = ["en", "de", "fr", "fr_BE", "fr_CH", "es", "pt", "pt_BR", "it", "nl"]
NOT_READ = ["da", "fi", "no", "pl", "ro", "sv"]
LOCALES = [
    *("en_US", "en_IN", "de_DE", "de_CH", "fr_FR", "fr_CH", "es_ES", "pt_BR", "it_IT", "nl_NL"),
    *("sv_SE", "pl_PL", "tr_TR", "da_DK", "ja_JP", "ar_EG", "he_IL", "cs_CZ", "ru_RU", "hi_IN"),
]
# "once" is eleven, and one time; num2words misspells numbers that end in 118.
DOUBTFUL = {"once", "centodicotto"}


def numbers(times: int) -> Iterator[int]:
    draw = random.Random(31)
    yield from range(130)
    for digits in range(3, 10):
        yield 10**digits
        yield 10**digits + 1
        yield from (draw.randrange(10 ** (digits - 1), 10**digits) for _ in range(times))


def readings(language: str, times: int) -> Iterator[tuple[int, str, str | None]]:
    for number in numbers(times):
        words = num2words(number, lang=language)
        try:
            read = read_number(words, False, None).value
        except ValueError:
            read = words
        if words not in DOUBTFUL and "centodicotto" not in words:
            yield number, words, None if read == words else read


def check_read(language: str, times: int) -> None:
    wrong = [row for row in readings(language, times) if row[2] != str(row[0])]
    assert wrong == []


def check_not_misread(language: str, times: int) -> None:
    wrong = [row for row in readings(language, times) if row[2] not in (None, str(row[0]))]
    assert wrong == []


@pytest.mark.parametrize("language", READ)
def test_number_words_are_read(language: str) -> None:
    check_read(language, 10)


@pytest.mark.parametrize("language", NOT_READ)
def test_number_words_of_other_languages_are_not_misread(language: str) -> None:
    check_not_misread(language, 10)


@pytest.mark.slow
@pytest.mark.parametrize("language", READ)
def test_many_number_words_are_read(language: str) -> None:
    check_read(language, 500)


@pytest.mark.slow
@pytest.mark.parametrize("language", NOT_READ)
def test_many_number_words_of_other_languages_are_not_misread(language: str) -> None:
    check_not_misread(language, 500)


def check_locale(locale: str, times: int) -> None:
    draw = random.Random(locale)
    for _ in range(times):
        value = Decimal(draw.randrange(-(10 ** draw.randrange(2, 9)), 10 ** draw.randrange(3, 11)))
        value /= 100
        currency = draw.choice(["USD", "EUR", "GBP", "JPY", "INR", "BRL", "CHF", "PLN"])
        for text in (
            format_decimal(value, "#,##0.00", locale=locale),
            format_currency(value, currency, locale=locale, currency_digits=False),
        ):
            assert Decimal(read_number(text, False, None).value) == value, text


@pytest.mark.parametrize("locale", LOCALES)
def test_numbers_and_money_of_countries_are_read(locale: str) -> None:
    check_locale(locale, 50)


@pytest.mark.slow
@pytest.mark.parametrize("locale", LOCALES)
def test_many_numbers_and_much_money_of_countries_are_read(locale: str) -> None:
    check_locale(locale, 2000)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        *(("dos mil millones", "2000000000"), ("seven-hundred", "700"), ("a dozen", "12")),
        *(("three quarters", "0.75"), ("one third", "0.333333333333333"), ("a quarter", "0.25")),
        *(("zweieinhalb", "2.5"), ("deux et demi", "2.5"), ("due e mezzo", "2.5")),
        *(("three point one four", "3.14"), ("drei Komma fünf", "3.5"), ("minus vijf", "-5")),
        *(("twelve hundred", "1200"), ("two-piece set", "2"), ("zwei Meter", "2"), ("mil", "1000")),
    ],
)
def test_other_numbers_in_words(words: str, number: str) -> None:
    assert read_number(words, False, None).value == number
