"""Reads the one amount that a text states, in the field's unit.

The whole text must be understood. A second number, a minus or a word that may be a unit is an error
that names it, since it may change the amount.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from schemax.reading import Reading, cldr, noted
from schemax.reading.amounts import DASHES, Amount, Text, amounts_of
from schemax.reading.booleans import NEGATIONS, says_no_value
from schemax.reading.number_words import FRACTIONS, in_digits, is_number_word
from schemax.reading.tokens import Token, in_ascii, is_glued
from schemax.reading.units import (
    OTHER_CASE,
    SMALLER,
    FieldUnit,
    field_unit,
    is_part,
    meant,
    units_named,
)

_LITERAL = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
# How far two statements of one amount may differ: 55 inch (140 cm).
_ROUNDED = Decimal("0.02")
# The most characters of a text that states one number.
_LONGEST = 300
# Signs that may follow a bare number; any other may be a unit.
_CLOSING = frozenset(")]}.,;:!?\"'…»”’|/+~")
# Signs that may precede a number, which is no money then.
_OPENING = frozenset("([{:=~≈<>≤≥\"'“„«,;|+-–—")
# A possible minus: "- 5", "–5", "5-", "($5)". An unknown currency may stand between the hyphen and
# the number: "-Rs 5".
_DASH = f"[{re.escape(''.join(DASHES))}]"
_DASH_BEFORE = re.compile(rf"(?:^|[(\[:=~≈<>≤≥-])\s*{_DASH}\s*(?:[^\W\d_]+|\S)?\s*$")
_DASH_BEHIND = re.compile(rf"\s*{_DASH}\s*(?:$|[)\];,])")
# English letters of thousands, millions and milliards.
_FACTORS = frozenset("kKMB")
_OPENED, _CLOSED = re.compile(r"[\W_]*\([^\w()]*"), re.compile(r"[\s)]*")


@lru_cache(maxsize=65_536)
def read_number(text: str, whole: bool, unit: str | None, language: str | None = None) -> Reading:
    """Reads the number that a text states, as a text for Pydantic; keeps a text without a number.

    whole: True if the field takes whole numbers only.
    unit: the unit of the field, and of a number without a unit.
    language: the language of the text, by its CLDR name; None if unknown.

    Raises ValueError for several numbers, for a unit that does not convert to the field's, and for
    a word or sign beside the number that is not understood.
    """
    ascii_text = in_ascii(text)
    is_literal = len(text) <= _LONGEST and _LITERAL.fullmatch(ascii_text)
    if is_literal and language is None and not (whole and "." in text):
        return Reading(text) if text.isascii() else noted(text, ascii_text)
    number = number_of(text, whole, unit, language)
    if number is None:
        return Reading(text)
    value, reasons = number
    if _LITERAL.fullmatch(text) and Decimal(text) == value:
        return Reading(plain(value))
    return noted(text, plain(value), *reasons)


def number_of(
    text: str, whole: bool, unit: str | None, language: str | None
) -> tuple[Decimal, list[str]] | None:
    """The number that a text states, and notes on its reading; None without a number.

    Takes and raises what `read_number` does.
    """
    if len(text) > _LONGEST:
        raise ValueError("is too long for a number")
    words = None
    if not any(map(str.isnumeric, text)):
        # JSON's null is zero in German.
        is_null = says_no_value(text) or (language is None and "null" in text.casefold())
        words = None if is_null else in_digits(text, language)
        if words is None:
            return None
    field = field_unit(unit) if unit is not None else None
    stated = amounts_of(words[0] if words else text, whole, field, language)
    if not stated.amounts:
        return None
    statement, value, reasons = _one_statement(stated, field)
    unread = _unread(stated, statement, field, language)
    if words:
        _check_words(stated, statement, field, words[1] == "en", unread[1])
        reasons.insert(0, "number words" if words[1] == "en" else f"number words, {words[1]}")
    if whole and value != statement.amount.value:
        value = Decimal(round(value))
    reasons += [f'"{words}" is not read' for words in unread if words]
    return value, [*statement.amount.reasons, *reasons]


def plain(value: Decimal) -> str:
    """Writes a number in digits and at most a point, without trailing zeros behind the point."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# --- the amount -----------------------------------------------------------------------------


class Statement(NamedTuple):
    """The sum of the amounts that are its parts: "5 ft 11 in".

    amount: the first part.
    total: the sum in the field's unit.
    parts: the number of parts.
    unit: the unit of the last part; None for a bare number.
    end: the place behind the last part.
    """

    amount: Amount
    total: Decimal
    unit: Any
    parts: int
    end: int


def _one_statement(text: Text, field: FieldUnit | None) -> tuple[Statement, Decimal, list[str]]:
    """The statement of a text, its value in the field's unit, and notes on the reading.

    Several amounts are one statement if they are its parts (5 ft 11 in), or if they are equal: 55
    inch (140 cm). Raises ValueError for other amounts.
    """
    first, unit = text.amounts[0], field
    if field is None and len(text.amounts) > 1 and first.units:
        unit = field_unit(str(first.units[0][0]))  # the amounts may still say the same
    if unit is not None:
        statement = _agreeing_statement(text, unit)
    elif len(text.amounts) > 1:
        raise _conflict(text)
    else:
        statement = Statement(first, first.value, None, 1, first.end)
    if field is None:
        if statement.parts > 1:
            raise _conflict(text)
        is_unit = first.units is not None and first.codes is None
        reason = f'"{first.name}" is a unit, and the field has none' if is_unit else None
        return statement, first.value, [reason] if reason else []
    if statement.parts > 1:
        reasons = [f"sum of {statement.parts} parts in {field.name}"]
        return statement, field.rounded(statement.total, 5), reasons
    if statement.unit in (None, field.unit):
        codes = statement.amount.codes
        is_doubtful = codes and codes[0] != field.unit
        reasons = ["the sign stands for several currencies"] if is_doubtful else []
        return statement, statement.total, reasons
    value = field.rounded(statement.total, statement.amount.digits)
    return statement, value, [f"{statement.unit} in {field.name}"]


def _agreeing_statement(text: Text, field: FieldUnit) -> Statement:
    """The statement in the field's unit, else the first, if all are equal up to rounding.

    Raises ValueError for different statements.
    """
    try:
        alike = list(statements(text, field))
    except ValueError:
        if len(text.amounts) == 1:
            raise
        raise _conflict(text) from None
    first = alike[0]
    for statement in alike:
        is_alike = (statement.unit is None) == (first.unit is None)
        if not is_alike or abs(statement.total - first.total) > _ROUNDED * abs(first.total):
            raise _conflict(text)
    return next((statement for statement in alike if statement.unit == field.unit), first)


def statements(text: Text, field: FieldUnit, begin: int = 0) -> Iterator[Statement]:
    """Yields the statements of a text, parts added up. begin: the number of the first amount.

    Raises ValueError for a unit that does not convert to the field's.
    """
    statement: Statement | None = None
    for amount in text.amounts[begin:]:
        part = statement and _part(text, statement, amount, field)
        if statement and part:
            exact = field.exact(amount.value, part)
            total = statement.total + (-exact if statement.total < 0 else exact)
            statement = Statement(statement.amount, total, part, statement.parts + 1, amount.end)
            continue
        if statement:
            yield statement
        unit = _unit(amount, field)
        total = amount.value if unit is None else field.exact(amount.value, unit)
        statement = Statement(amount, total, unit, 1, amount.end)
    if statement:
        yield statement


def _unit(amount: Amount, field: FieldUnit) -> Any:
    """The unit or currency of an amount, as the field decides; None for a bare number.

    Raises ValueError for a unit that does not convert to the field's.
    """
    if amount.units is not None and amount.codes is not None:
        raise ValueError(f'"{amount.name}" beside money is not understood')
    if amount.units is None and amount.codes is None:
        return None
    unit = meant(amount.units or (), field)
    unit = field.unit if field.unit in (amount.codes or ()) else unit
    if unit is None:
        unknown = "an unknown unit" if amount.codes is None else "a mixture of currencies"
        stated = [*(amount.codes or ()), *(unit for unit, _ in amount.units or ()), unknown]
        raise ValueError(f"{stated[0]} does not convert to {field.name}")
    return unit


def _part(text: Text, statement: Statement, amount: Amount, field: FieldUnit) -> Any:
    """The unit of an amount that is a smaller part of the statement before it: 6'2, 1 h 30.

    None for any other amount.
    """
    between = [token.text.casefold() for token in text.tokens[statement.end : amount.first]]
    is_beside = between in ([], [","], ["-"], ["and"]) or (
        len(between) == 1 and between[0] in cldr.table(cldr.conjunctions, None)
    )
    if statement.unit is None or field.is_money or not is_beside or amount.codes is not None:
        return None
    unit = meant(amount.units or (), field, statement.unit)
    if amount.units is None and str(statement.unit) in SMALLER:
        is_run = is_glued(text.tokens[amount.at - 1], text.tokens[amount.at])  # 1h30
        is_last = amount.end == len(text.tokens) or text.tokens[amount.end].kind == "sign"
        unit = field_unit(SMALLER[str(statement.unit)]).unit if is_run or is_last else None
    return unit if unit is not None and is_part(amount.value, unit, statement.unit) else None


def _conflict(text: Text) -> ValueError:
    stated = ", ".join(plain(amount.value) for amount in text.amounts[:9])
    return ValueError(f"states several numbers ({stated}); the field takes one")


# --- what is left over ----------------------------------------------------------------------


def _unread(
    text: Text, statement: Statement, field: FieldUnit | None, language: str | None
) -> tuple[str, str]:
    """The words before and behind an amount, which are not read; "" without words.

    Raises ValueError for a word or sign that may change the amount.
    """
    amount, tokens = statement.amount, text.tokens
    inside = {place for each in text.amounts for place in range(each.first, each.end)}
    outside = [(place, token) for place, token in enumerate(tokens) if place not in inside]
    before = [token for place, token in outside if place < amount.first]
    behind = [token for place, token in outside if place >= statement.end]
    leader = tokens[amount.first - 1] if amount.first else None
    follower = tokens[statement.end] if statement.end < len(tokens) else None
    _check_signs(text, statement)
    name = cldr.folded_name(amount.name).casefold()
    if len(name) > 1 and name in cldr.table(cldr.factors, language) and amount.codes is None:
        raise ValueError(f'"{amount.name}" may be a unit or a factor')
    is_run = follower is not None and is_glued(tokens[statement.end - 1], follower)
    for token in (*before, *behind[is_run:]):
        if token.text in "±^√":
            raise ValueError(f'"{token.text}" beside the number is not understood')
        if token.kind == "word" and is_number_word(token.text, language):
            raise ValueError(f'"{token.text}" goes on with the number in words')
    if leader and leader.text.casefold() in NEGATIONS - {"no"}:  # "No 33" is a number
        raise ValueError(f'"{leader.text}" says what is not meant')
    if name in FRACTIONS or (
        len(behind) > 1 and not is_run and behind[0].text in cldr.table(cldr.conjunctions, None)
    ):
        raise ValueError(f'"{amount.name or behind[0].text}" goes on with the amount')
    if field is None:
        _check_unitless(text, amount, language)
    elif statement.unit is None:
        _check_bare(leader, follower, (*before, *behind), field, language)
    if field is not None and field.is_money:
        words_of_money = cldr.table(cldr.words_of_money, language)
        for token in (*before, *behind):
            codes = words_of_money.get(token.text.casefold(), {field.unit})
            if token.kind == "word" and field.unit not in codes:
                raise ValueError(f'"{token.text}" may name another currency than {field.unit}')
    return _words_of(text, before), _words_of(text, behind)


def _words_of(text: Text, tokens: Sequence[Token]) -> str:
    words = [token for token in tokens if token.kind == "word"]
    return text.source[words[0].start : words[-1].end] if words else ""


def _check_signs(text: Text, statement: Statement) -> None:
    """Raises ValueError for a possible minus: "- 5", "–5", "5-", "($5)"."""
    before = text.source[: text.tokens[statement.amount.first].start]
    behind = text.source[text.tokens[statement.end - 1].end :]
    if statement.amount.value > 0 and _DASH_BEFORE.search(before):
        raise ValueError("begins with a hyphen, which may be a minus")
    if _DASH_BEHIND.match(behind):
        raise ValueError("ends with a hyphen, which may be a minus")
    is_money = statement.amount.codes is not None or any(sign in before for sign in "$€£¥")
    if is_money and _OPENED.fullmatch(before) and _CLOSED.fullmatch(behind):
        raise ValueError("stands in brackets, which may be a minus")


def _check_words(
    text: Text, statement: Statement, field: FieldUnit | None, is_english: bool, unread: str
) -> None:
    """Raises ValueError for words around a number in words that may belong to it: "ti million".

    In English, which text2num knows best, a word behind the number is a noun.
    """
    amount = statement.amount
    before = text.tokens[amount.first - 1] if amount.first else None
    word = before.text if before is not None and before.kind == "word" else None
    if not is_english:
        name = amount.name if field is None else None
        word = word or unread or name or ("the factor" if amount.factor > 1 else None)
    if word:
        raise ValueError(f'"{word}" beside the number in words is not understood')


def _check_bare(
    leader: Token | None,
    follower: Token | None,
    beside: Sequence[Token],
    field: FieldUnit,
    language: str | None,
) -> None:
    """Raises ValueError for a possible unit of a bare number: "55 pretty", "g: 340"."""
    if follower and (follower.kind == "word" or follower.text not in _CLOSING):
        raise ValueError(f'"{follower.text}" behind the number may be a unit')
    if field.is_money and leader and (leader.kind == "word" or leader.text not in _OPENING):
        raise ValueError(f'"{leader.text}" before the number may be a currency')
    for token in beside:
        units = units_named(token.text, language) or ()
        if any(rank < OTHER_CASE for _, rank in units) and token.text not in _OPENING:
            raise ValueError(f'"{token.text}" may be the unit of the number')


def _check_unitless(text: Text, amount: Amount, language: str | None) -> None:
    """Raises ValueError for a date, money whose point is in doubt, and a factor: "5M"."""
    places = (amount.first - 1, amount.end, amount.end - 1)
    beside = [text.tokens[at].text.casefold() for at in places if 0 <= at < len(text.tokens)]
    words = {word for word in beside if word.isalpha()}
    is_doubtful = '"." for decimals' in amount.reasons and amount.factor == 1
    if is_doubtful and (money := words & cldr.table(cldr.words_of_money, language).keys()):
        raise ValueError(f'"{money.pop()}" may be money, whose point separates thousands')
    if not words.isdisjoint(cldr.table(cldr.own_months, language or "en")):
        raise ValueError("states a date, which is no number")
    number, *letter = text.tokens[amount.at : amount.at + 2]
    is_factor = letter and is_glued(number, letter[0]) and letter[0].text in _FACTORS
    if is_factor and amount.codes is None:
        raise ValueError(f'"{letter[0].text}" may be a factor')
