"""Cuts a text into numbers, words and signs, from which all values are read.

A number keeps its separators: "1.299,00" is one token, whatever it means. A word is a run of
letters with their marks. Every other character but white space is a sign.
"""

from __future__ import annotations

import unicodedata
from decimal import Context, Decimal
from typing import Literal, NamedTuple

import regex

Kind = Literal["number", "word", "sign"]

_THIN = "\u00a0\u2009\u202f"
_DIGITS = rf"\p{{Nd}}+(?:[.,_٫٬．，]\p{{Nd}}+|[{_THIN}'’_]\p{{Nd}}{{3}}(?!\p{{Nd}}))*"
# Plain spaces group digits only in money, in numbers with cents, and in a text that is a number.
_SPACED = r"\p{Nd}{1,3}(?:\ \p{Nd}{3})+(?![\p{Nd}])"
_GROUPS = rf"""
    {_SPACED}[.,]\p{{Nd}}{{1,2}}(?!\p{{Nd}})|{_SPACED}(?=\s?\p{{Sc}})
    |(?<=\p{{Sc}}\s?){_SPACED}|(?<=^\s*[-+]?){_SPACED}(?=\s*$)
"""
_NUMBER = rf"""
    (?=[\p{{Nd}}.,¼-¾⅐-⅞])
    (?:(?>(?<![\p{{Nd}}.,])(?:{_GROUPS})|{_DIGITS}|(?<![\p{{L}}\p{{Nd}}.,])[.,]\p{{Nd}}+)
    (?:[eE][-+]?[0-9]{{1,2}}(?![\p{{L}}\p{{Nd}}]))?
    (?:\ ?[¼-¾⅐-⅞]|\s?[x×·]\s?10(?:\^|\*\*)?(?:(?<=\^|\*)[-−+]?[0-9]{{1,2}}|[⁻]?[⁰¹²³⁴-⁹]{{1,2}}))?
    (?![⁰¹²³⁴-⁹])
    |[¼-¾⅐-⅞])
"""
TOKEN = regex.compile(
    rf"(?P<number>{_NUMBER})|(?P<word>\p{{L}}[\p{{L}}\p{{M}}\u200c\u200d]*)|(?P<sign>\S)",
    regex.VERBOSE,
)
NUMBER = regex.compile(_NUMBER, regex.VERBOSE)
_INVISIBLE = regex.compile("[\u200b\u200e\u200f\u061c\u2066-\u2069\ufeff]")
_POWER = regex.compile(r"(.*?)\s?[x×·]\s?10(?:\^|\*\*)?([-−⁻+]?[0-9⁰¹²³⁴-⁹]+)")
# The precision of a double.
FRACTIONS = Context(prec=15)
# The most digits of a number, within the precision of decimals.
_MOST_DIGITS = 25


class Token(NamedTuple):
    """A token, `text[start:end]`, of a text."""

    kind: Kind
    text: str
    start: int
    end: int


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, without white space and invisible characters."""
    return [
        Token(match.lastgroup, match[0], *match.span())
        for match in TOKEN.finditer(text)
        if not (match.lastgroup == "sign" and _INVISIBLE.match(match[0]))
    ]


def is_glued(left: Token, right: Token) -> bool:
    return left.end == right.start


def in_ascii(text: str) -> str:
    """A number with the digits and separators of ASCII, in any script."""
    if text.isascii():
        return text
    text = "".join(
        str(unicodedata.decimal(char)) if char.isdecimal() else char
        for char in text
        if char not in _THIN
    )
    return text.translate(str.maketrans("٫٬．，’−⁻", ".,.,'--"))


def value_of(
    text: str, grouped: bool = False, signs: tuple[str, str] | None = None
) -> tuple[Decimal | None, str | None]:
    """The value of a number, or None, and the reading of a doubtful separator.

    The rightmost of "." and "," is the decimal sign, and the other separates thousands; a sign that
    occurs several times separates thousands. A single sign before exactly three digits is doubtful:
    a comma separates thousands, and a point does if `grouped`.

    signs: the (decimal, thousands) signs of the field's language, which settle doubts.
    """
    if sum(map(str.isdigit, text)) > _MOST_DIGITS:
        return None, None
    if text.isascii() and text.isdigit():
        return Decimal(text), None
    power = _POWER.fullmatch(text)
    text, exponent = (
        (power[1], in_ascii(unicodedata.normalize("NFKC", power[2]))) if power else (text, "0")
    )
    part = text[-1:] if text[-1:].isnumeric() and not text[-1:].isdecimal() else ""
    plain = in_ascii(text.removesuffix(part)).strip()
    plain, _, scientific = plain.lower().partition("e")
    whole, reason = _without_separators(plain, grouped, signs) if plain else (Decimal(0), None)
    if whole is None:
        return None, None
    if part:
        return whole + FRACTIONS.plus(Decimal(str(unicodedata.numeric(part)))), "fraction"
    return whole.scaleb(int(scientific or 0) + int(exponent.replace("−", "-"))), reason


def _without_separators(
    text: str, grouped: bool, signs: tuple[str, str] | None
) -> tuple[Decimal | None, str | None]:
    digits = text.replace("'", "").replace("_", "").replace(" ", "")
    points, commas = digits.count("."), digits.count(",")
    if points + commas == 0:
        return Decimal(digits), None
    mark = max(".,", key=digits.rfind)
    before, _, behind = digits.rpartition(mark)
    if points and commas:
        is_grouped = _are_groups(before, "," if mark == "." else ".")
        whole = before.replace(",", "").replace(".", "")
        return (Decimal(f"{whole}.{behind}"), None) if is_grouped else (None, None)
    if digits.count(mark) > 1:
        return (Decimal(digits.replace(mark, "")) if _are_groups(digits, mark) else None), None
    if len(behind) == 3 and 1 <= len(before) <= 3 and before[0] != "0":
        if signs is not None and mark in signs:
            return Decimal(before + behind if mark == signs[1] else f"{before}.{behind}"), None
        if mark == "," or grouped:
            return Decimal(before + behind), f'"{mark}" for thousands'
        return Decimal(f"{before}.{behind}"), '"." for decimals'
    return Decimal(f"{before or 0}.{behind}"), None


def _are_groups(digits: str, mark: str) -> bool:
    """True for groups of three digits; except the last, also of two behind commas, as in India."""
    first, *groups = digits.split(mark)
    middle = (2, 3) if mark == "," else (3,)
    return (
        1 <= len(first) <= 3
        and all(len(group) in middle for group in groups[:-1])
        and all(len(group) == 3 for group in groups[-1:])
    )
