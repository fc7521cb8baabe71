"""Reads the one amount that a text states, in the field's unit.

The whole text must be understood. What is left over beside the amount and could change it is an
error that names it: a second number, a minus, a word that may be a unit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple

from schemax.reading import Reading, cldr, noted
from schemax.reading.absence import NEGATIONS, says_no_value
from schemax.reading.amounts import DASHES, Amount, Text, amounts_of
from schemax.reading.number_words import FRACTIONS, in_digits, is_number_word
from schemax.reading.tokens import Token, in_ascii, is_glued
from schemax.reading.units import (
    OTHER_CASE,
    SMALLER,
    FieldUnit,
    field_unit,
    has_parts,
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


@lru_cache(maxsize=65_536)
def read_number(text: str, whole: bool, unit: str | None, language: str | None = None) -> Reading:
    """Reads the number that a text states, as a text for Pydantic; a text without one unchanged.

    whole: True if the field takes whole numbers only. unit: of the field, and of a number without a
    unit. language: of the text, by its CLDR name; None if unknown.

    Raises ValueError for several numbers, for a unit that does not convert to the field's, and for
    what stands beside a number and is not understood.
    """
    ascii_text = in_ascii(text)
    if len(text) > _LONGEST:
        raise ValueError("is too long for a number")
    if _LITERAL.fullmatch(ascii_text) and language is None and not (whole and "." in text):
        return Reading(text) if text.isascii() else noted(text, ascii_text)
    field = field_unit(unit) if unit is not None else None
    how, words = None, None
    if not any(map(str.isnumeric, text)):
        # JSON's null is zero in German.
        is_null = says_no_value(text) or (language is None and "null" in text.casefold())
        words = None if is_null else in_digits(text, language)
        if words is None:
            return Reading(text)
        how = "number words" if words[1] == "en" else f"number words, {words[1]}"
    stated = amounts_of(words[0] if words else text, whole, field, language)
    if not stated.amounts:
        return Reading(text)
    said, reasons = _one_statement(stated, field)
    before, behind = _check_left_over(stated, said, field, language)
    if how:
        _check_words(stated, said, field, how == "number words", behind)
    value = said.value
    if whole and value != said.amount.value:
        value = Decimal(round(value))
    if _LITERAL.fullmatch(text) and Decimal(text) == value:
        return Reading(plain(value))
    unread = [f'"{words}" is not read' for words in (before, behind) if words]
    return noted(text, plain(value), *said.amount.reasons, how, *reasons, *unread)


def _check_words(
    text: Text, said: Statement, field: FieldUnit | None, is_english: bool, unread: str
) -> None:
    """Raises ValueError for words around a number in words that may belong to it: "ti million".

    What is behind is a noun in English alone, which text2num knows best.
    """
    amount = said.amount
    before = text.tokens[amount.first - 1] if amount.first else None
    word = before.text if before is not None and before.kind == "word" else None
    if not is_english:
        is_unit = field is None and bool(amount.name)
        word = word or unread or (amount.name if is_unit else None)
        word = word or ("the factor" if amount.factor > 1 else None)
    if word:
        raise ValueError(f'"{word}" beside the number in words is not understood')


def plain(value: Decimal) -> str:
    """Writes a number in digits and at most a point, without trailing zeros behind the point."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


# --- the amount -----------------------------------------------------------------------------


class Statement(NamedTuple):
    """What one or more amounts say together, in the field's unit: "5 ft 11 in".

    amount: the first part; parts: how many; end: the place behind the last. unit: of the last part,
    None for a bare number.
    """

    amount: Amount
    value: Decimal
    unit: Any
    parts: int
    end: int


def _one_statement(text: Text, field: FieldUnit | None) -> tuple[Statement, list[str]]:
    """What a text states, and how it was read.

    Several amounts are one statement if they are its parts (5 ft 11 in), or all say the same: 55
    inch (140 cm). Raises ValueError for other amounts.
    """
    first = text.amounts[0]
    if field is not None and field.unit is not None:
        said = _agreeing(text, field)
        chosen = next((each for each in said if each.unit == field.unit), said[0])
        if chosen.parts > 1:
            return chosen, [f"sum of {chosen.parts} parts in {field.name}"]
        is_converted = chosen.unit not in (None, field.unit)
        return chosen, [f"{chosen.unit} in {field.name}"] if is_converted else []
    if len(text.amounts) > 1:
        # The field has no unit, but the amounts may still say the same.
        if field is not None or not first.units:
            raise several(text)
        if _agreeing(text, field_unit(str(first.units[0][0])))[0].parts > 1:
            raise several(text)
    reasons = _unitless(first) if field is None else _in_money(first, str(field.code))
    return Statement(first, first.value, None, 1, first.end), reasons


def _agreeing(text: Text, field: FieldUnit) -> list[Statement]:
    """The statements of a text, which are all equal up to rounding. Raises ValueError."""
    try:
        said = list(statements(text, field))
    except ValueError:
        if len(text.amounts) == 1:
            raise
        raise several(text) from None
    first = said[0]
    for each in said:
        is_alike = (each.unit is None) == (first.unit is None)
        if not is_alike or abs(each.value - first.value) > _ROUNDED * abs(first.value):
            raise several(text)
    return said


def statements(text: Text, field: FieldUnit) -> list[Statement]:
    """The amounts of a text in the field's unit, with parts added up. Raises ValueError."""
    said: list[Statement] = []
    for amount in text.amounts:
        last = said[-1] if said else None
        larger = last.unit if last and _is_beside(text, last.end, amount.first) else None
        unit = stated_unit(text, amount, field, larger)
        if (
            last
            and larger is not None
            and unit is not None
            and is_part(field, larger, unit, amount)
        ):
            part = field.exact(amount.value, unit)
            total = field.exact(last.amount.value, last.unit) if last.parts == 1 else last.value
            total += -part if total < 0 else part
            said[-1] = Statement(last.amount, total, unit, last.parts + 1, amount.end)
        else:
            value = amount.value if unit is None else field.value(amount.value, unit, amount.digits)
            said.append(Statement(amount, value, unit, 1, amount.end))
    return [
        each._replace(value=field.rounded(each.value, 5)) if each.parts > 1 else each
        for each in said
    ]


def stated_unit(text: Text, amount: Amount, field: FieldUnit, larger: Any = None) -> Any:
    """The unit of an amount; None for a bare number.

    larger: the unit of the amount before, of which this one may be a smaller part, named or not:
    6'2, 1 h 30. Raises ValueError for a unit that does not convert to the field's.
    """
    if amount.codes is not None:
        stated = amount.codes[0] if amount.codes else "a mixture of currencies"
        raise ValueError(f"{stated} does not convert to {field.name}")
    if amount.units is None:
        if str(larger) not in SMALLER:
            return None
        smaller = field_unit(SMALLER[str(larger)]).unit
        is_run = is_glued(text.tokens[amount.at - 1], text.tokens[amount.at])  # 1h30
        is_last = amount.end == len(text.tokens) or text.tokens[amount.end].kind == "sign"
        return smaller if (is_run or is_last) and is_part(field, larger, smaller, amount) else None
    if not amount.units:
        raise ValueError(f'"{amount.name}" is a unit that is not read')
    unit = larger and meant(amount.units, field, larger)
    unit = unit or meant(amount.units, field)
    if unit is None:
        raise ValueError(f"{amount.units[0][0]} does not convert to {field.name}")
    return unit


def is_part(field: FieldUnit, larger: Any, smaller: Any, amount: Amount) -> bool:
    """True for an amount that is less than one of the larger unit: 11 inches, behind feet."""
    size = field.exact(Decimal(1), larger)
    return has_parts(larger, smaller) and 0 <= field.exact(amount.value, smaller) < size


def end_of_parts(text: Text, at: int, field: FieldUnit) -> int:
    """The place behind the last part of the amount with a number: of "11 in" for "5 ft 11 in"."""
    amount, *behind = text.amounts[at:]
    end = amount.end
    try:
        unit = stated_unit(text, amount, field) if amount.units else None
        for part in behind:
            smaller = (
                stated_unit(text, part, field, unit) if _is_beside(text, end, part.first) else None
            )
            if unit is None or smaller is None or not is_part(field, unit, smaller, part):
                break
            unit, end = smaller, part.end
    except ValueError:
        pass
    return end


def _is_beside(text: Text, end: int, first: int) -> bool:
    """True if no more than a comma, a hyphen or a conjunction stands between two amounts."""
    words = [token.text.casefold() for token in text.tokens[end:first]]
    return words in ([], [","], ["-"]) or (
        len(words) == 1 and (words[0] == "and" or words[0] in cldr.conjunctions(None))
    )


def _in_money(amount: Amount, code: str) -> list[str]:
    """How an amount of money was read. Raises ValueError for other currencies."""
    if amount.units is not None:
        raise ValueError(f'"{amount.name}" is no currency')
    if amount.codes is None:
        return []
    if code not in amount.codes:
        stated = amount.codes[0] if amount.codes else "a mixture of currencies"
        raise ValueError(f"{stated} does not convert to {code}")
    return [] if amount.codes[0] == code else ["the sign stands for several currencies"]


def _unitless(amount: Amount) -> list[str]:
    is_unit = amount.units is not None and amount.codes is None
    return [f'"{amount.name}" is a unit, and the field has none'] if is_unit else []


def several(text: Text) -> ValueError:
    stated = ", ".join(plain(amount.value) for amount in text.amounts[:9])
    return ValueError(f"states several numbers ({stated}); the field takes one")


# --- what is left over ----------------------------------------------------------------------


def _check_left_over(
    text: Text, said: Statement, field: FieldUnit | None, language: str | None
) -> tuple[str, str]:
    """The words before and behind an amount, which are not read; "" without any.

    Raises ValueError for what may change the amount.
    """
    amount, tokens = said.amount, text.tokens
    inside = {place for each in text.amounts for place in range(each.first, each.end)}
    rest = [place for place in range(len(tokens)) if place not in inside]
    before = [tokens[place] for place in rest if place < amount.first]
    behind = [tokens[place] for place in rest if place >= said.end]
    _check_signs(text, said)
    name = cldr.folded_name(amount.name).casefold()
    if len(name) > 1 and name in cldr.factors(language) and amount.codes is None:
        raise ValueError(f'"{amount.name}" may be a unit or a factor')
    if name in FRACTIONS:
        raise ValueError(f'"{amount.name}" goes on with the number')
    is_run = said.end < len(tokens) and is_glued(tokens[said.end - 1], tokens[said.end])
    for token in (*before, *behind[is_run:]):
        if token.text in "±^√":
            raise ValueError(f'"{token.text}" beside the number is not understood')
        if token.kind == "word" and is_number_word(token.text, language):
            raise ValueError(f'"{token.text}" goes on with the number in words')
    leader = tokens[amount.first - 1] if amount.first else None
    follower = tokens[said.end] if said.end < len(tokens) else None
    if leader and leader.text.casefold() in NEGATIONS - {"no"}:  # "No 33" is a number
        raise ValueError(f'"{leader.text}" says what is not meant')
    if len(behind) > 1 and not is_run and behind[0].text in cldr.conjunctions(None):
        raise ValueError(f'"{behind[0].text}" goes on with the amount')
    if field is None:
        _check_unitless(text, amount, language)
    elif said.unit is None and amount.codes is None:
        _check_bare(leader, follower, (*before, *behind), field, language)
    if field is not None and field.code:
        _check_currencies((*before, *behind), field.code, language)
    return _words_of(text, before), _words_of(text, behind)


def _words_of(text: Text, tokens: Sequence[Token]) -> str:
    words = [token for token in tokens if token.kind == "word"]
    return text.source[words[0].start : words[-1].end] if words else ""


def _check_bare(
    leader: Token | None,
    follower: Token | None,
    rest: Sequence[Token],
    field: FieldUnit,
    language: str | None,
) -> None:
    """Raises ValueError for what may be the unit of a bare number: "55 pretty", "g: 340"."""
    if follower and (follower.kind == "word" or follower.text not in _CLOSING):
        raise ValueError(f'"{follower.text}" behind the number may be a unit')
    is_led = leader is not None and (leader.kind == "word" or leader.text not in _OPENING)
    if field.code and leader and is_led:
        raise ValueError(f'"{leader.text}" before the number may be a currency')
    for token in rest:
        units = units_named(token.text, language) or ()
        if any(rank < OTHER_CASE for _, rank in units) and token.text not in _OPENING:
            raise ValueError(f'"{token.text}" may be the unit of the number')


def _check_signs(text: Text, said: Statement) -> None:
    """Raises ValueError for what may be a minus: "- 5", "–5", "5-", "($5)"."""
    tokens, amount = text.tokens, said.amount
    if amount.value > 0:
        # Between the number and the hyphen may stand what is not known as a currency: "-Rs 5".
        for place in range(max(0, amount.first - 2), amount.first):
            is_separator = place > 0 and tokens[place - 1].text not in "([:=~≈<>≤≥-"
            if tokens[place].text in DASHES and not is_separator:
                raise ValueError("begins with a hyphen, which may be a minus")
    behind = tokens[said.end :]
    if behind and behind[0].text in DASHES and (len(behind) == 1 or behind[1].text in ")];,"):
        raise ValueError("ends with a hyphen, which may be a minus")
    opened = [token.text for token in tokens[: amount.first] if token.text in "()"]
    outside = tokens[: amount.first] if opened[-1:] == ["("] else ()
    if amount.codes is not None or any(token.text in "$€£¥" for token in outside):
        is_all = bool(outside) and all(token.kind == "sign" for token in outside)
        if is_all and all(token.text in ")" for token in behind):
            raise ValueError("stands in brackets, which may be a minus")


def _check_currencies(tokens: Sequence[Token], code: str, language: str | None) -> None:
    """Raises ValueError for a word of another currency's name: "5 dollars Canadian" in USD."""
    for token in tokens:
        codes = cldr.words_of_money(language).get(token.text.casefold(), frozenset({code}))
        if token.kind == "word" and code not in codes:
            raise ValueError(f'"{token.text}" may name another currency than {code}')


def _check_unitless(text: Text, amount: Amount, language: str | None) -> None:
    """Raises ValueError for a date, money whose point is in doubt, and a factor: "5M"."""
    beside = [
        text.tokens[at] for at in (amount.first - 1, amount.end) if 0 <= at < len(text.tokens)
    ]
    words = {token.text.casefold() for token in beside} & cldr.words_of_money(language).keys()
    if words and '"." for decimals' in amount.reasons and amount.factor == 1:
        raise ValueError(f'"{words.pop()}" may be money, whose point separates thousands')
    months = cldr.own_months(language or "en")
    for place in (amount.first - 1, amount.end - 1, amount.end):
        if 0 <= place < len(text.tokens) and text.tokens[place].text.casefold() in months:
            raise ValueError("states a date, which is no number")
    letter = text.tokens[amount.at + 1] if amount.at + 1 < len(text.tokens) else None
    is_near = letter is not None and is_glued(text.tokens[amount.at], letter)
    letters = {
        "k",
        *(
            name
            for name, size in cldr.own_factors("en").items()
            if len(name) == 1 and size < 10**12
        ),
    }
    if letter and is_near and letter.text in letters and amount.codes is None:
        raise ValueError(f'"{letter.text}" may be a factor')
