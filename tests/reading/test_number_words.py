"""Numbers as others write them out, in words and in the usages of countries, are read back."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from decimal import Decimal

import pytest
from babel.numbers import format_currency, format_decimal
from num2words import num2words

from schemax.reading.numbers import read_number

READ = ["en", "de", "fr", "fr_BE", "fr_CH", "es", "pt", "pt_BR", "it", "nl", "da"]
NOT_READ = ["fi", "no", "pl", "ro", "sv", "ca", "eo", "tr", "cs"]
LOCALES = [
    *("en_US", "en_IN", "de_DE", "de_CH", "fr_FR", "fr_CH", "es_ES", "pt_BR", "it_IT", "nl_NL"),
    *("sv_SE", "pl_PL", "tr_TR", "da_DK", "ja_JP", "ar_EG", "he_IL", "cs_CZ", "ru_RU", "hi_IN"),
]


def numbers(times: int) -> Iterator[int]:
    draw = random.Random(31)
    yield from range(130)
    for digits in range(3, 10):
        yield 10**digits
        yield 10**digits + 1
        yield from (draw.randrange(10 ** (digits - 1), 10**digits) for _ in range(times))


def spelt(number: int, language: str) -> str:
    words = str(num2words(number, lang=language))
    # num2words spells sixty in Danish as nobody else does.
    return re.sub("(?<!halv)treds", "tres", words) if language == "da" else words


def check(language: str, times: int, named: str | None) -> None:
    """None is wrong; 0.95 are right in the languages that are read. named: the field's."""
    right = refused = 0
    shown = []
    for number in numbers(times):
        words = spelt(number, language)
        try:
            value = read_number(words, False, None, named).value
        except ValueError:
            value = words
        is_right = value == str(number)
        right, refused = right + is_right, refused + (value == words)
        if not is_right and value != words:
            shown.append((number, words, value))
    assert shown == []
    if language in READ and language != "da":  # of which text2num reads up to 99,999
        assert right >= 0.95 * (right + refused), (right, refused)


# "Tres" is sixty in Danish, and three in Spanish.
@pytest.mark.parametrize("language", [*READ[:-1], *NOT_READ])
def test_number_words_are_right_or_refused(language: str) -> None:
    check(language, 10, None)


@pytest.mark.parametrize("language", READ)
def test_number_words_of_the_fields_language_are_read(language: str) -> None:
    check(language, 16, language)


@pytest.mark.release
@pytest.mark.parametrize("language", [*READ[:-1], *NOT_READ])
def test_many_number_words_are_right_or_refused(language: str) -> None:
    check(language, 500, None)


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


@pytest.mark.release
@pytest.mark.parametrize("locale", LOCALES)
def test_many_numbers_and_much_money_of_countries_are_read(locale: str) -> None:
    check_locale(locale, 2000)


@pytest.mark.parametrize(
    ("words", "number"),
    [
        *(("dos mil millones", "2000000000"), ("seven-hundred", "700"), ("twelve hundred", "1200")),
        *(("three point one four", "3.14"), ("drei Komma fünf", "3.5"), ("minus vijf", "-5")),
        *(("zwei Meter", None), ("mil", "1000"), ("two rooms", "2"), ("five dozen", "60")),
    ],
)
def test_other_numbers_in_words(words: str, number: str | None) -> None:
    if number is None:
        with pytest.raises(ValueError, match="not understood"):
            read_number(words, False, None)
        assert read_number(words, False, "cm").value == "200"
    else:
        assert read_number(words, False, None).value == number


@pytest.mark.parametrize("words", ["three quarters", "one third", "two and a half", "deux et demi"])
def test_fractions_in_words_are_refused(words: str) -> None:
    with pytest.raises(ValueError, match=r"goes on|several|not understood"):
        read_number(words, False, None)


@pytest.mark.parametrize("words", ["a dozen", "a quarter", "zweieinhalb", "twice", "third"])
def test_words_that_are_no_numbers_are_left_as_they_are(words: str) -> None:
    assert read_number(words, False, None) == (words, None)
