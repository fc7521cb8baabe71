"""Reads the number that a text states, in the field's unit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise
from typing import Any

from schemax.reading import Reading, noted, units
from schemax.reading.amounts import (
    CURRENCIES,
    Amount,
    amounts_in,
    currency_beside,
    is_ordinal,
    plain,
)
from schemax.reading.number_spelling import spelt_usually
from schemax.reading.number_words import in_digits

_LITERAL = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_UNIT = r"""(?:[^\W\d_]{1,12}\.?|["'’″′”%])?"""
_SIGN = rf"(?:{'|'.join(map(re.escape, CURRENCIES))})?"
_TO = re.compile(
    rf"\s*{_UNIT}\s*(?:[-‐–—~…]|\.\.\.?|to|bis|à|al?|hasta|até)\s*{_SIGN}\s*", re.IGNORECASE
)
_AND = re.compile(rf"\s*{_UNIT}\s*(?:and|und|et|y|e)\s*{_SIGN}\s*", re.IGNORECASE)
_BETWEEN = re.compile(r"\b(?:between|zwischen|entre)\b[^\d]*$", re.IGNORECASE)
_TIMES = re.compile(rf"\s*{_UNIT}\s*[^\W\d_]?\s*(?:[x×*±+]|\+/?[-−–]|by\b)\s*", re.IGNORECASE)
_DEGREES = r"(?:°|º|degrees?|grad|degrés?|grados|graus|gradi|graden)?\s*[cfk]?"
_BELOW = re.compile(
    rf"\s*{_DEGREES}\s+(?:below zero|unter null|sous zéro|bajo cero|abaixo de zero|sotto zero)\b",
    re.IGNORECASE,
)
_BULLET = re.compile(r"\s*[-‐‑–—−]\s+(?=\D{0,3}\d)")
# A dash that touches the number, and the notations of losses in accounting.
_DASH = re.compile(r"(?:^|[\s(\[:=~<>])(?:[‐‑–—]|--)(?:[^\W\d_]{0,3}[$€£¥₹]\s?)?$|−\s{2,}$")
_LOSS = re.compile(r"[-−](?=\s*(?:$|[)\];,]))")
_IN_LOSS = re.compile(r"\s*\([^\d(]*[\d.,'’ ]+[^\d)]*\)\s*")
_MONTHS = "January|February|March|April|June|July|August|September|October|November|December"
# "may" is a verb as well.
_DATE = re.compile(
    rf"\b(?:{_MONTHS})\.?\s+\d{{1,4}}\b|\bMay\s+(?:\d{{1,2}}(?:st|nd|rd|th)?,?\s+)?\d{{4}}\b"
    rf"|\b\d{{1,2}}(?:st|nd|rd|th)?\s+(?:of\s+)?(?:{_MONTHS}|May)\b(?:,?\s+\d{{4}}\b)?"
)
# A price of several pieces: "2/$5" and "2 for $5".
_PRICE_OF = re.compile(r"\d\s?(?:/|for|für|pour|por|per)\s?(?:[$€£¥₹]|[A-Z]{3})\s?$")
_FACTOR_LETTER = re.compile(r"(?:MM|[MB])(?![^\W_])")
# The next smaller unit, and how many of it are one of the larger.
_SMALLER = {
    "foot": ("inch", 12),
    "hour": ("minute", 60),
    "minute": ("second", 60),
    "pound": ("ounce", 16),
    "stone": ("pound", 14),
}
_JOINED = re.compile(r"\s*(?:[,-]|and|und|et|y|e)?\s*", re.IGNORECASE)


@lru_cache(maxsize=65_536)
def read_number(text: str, whole: bool, unit: str | None) -> Reading:
    """Reads the number that a text states, as a text for Pydantic; a text without one unchanged.

    A range yields its lower end. Numbers in brackets are ignored, unless there are no others.

    whole: True if the field takes whole numbers only. unit: of the field, and of a number without a
    unit.

    Raises ValueError for several numbers, and for a unit that does not convert to the field's.
    """
    if _LITERAL.fullmatch(text) and not (whole and "." in text):
        return Reading(text)
    thousands = unit is None or not units.is_temperature(unit)
    shown, text = text, spelt_usually(text, unit)
    is_in_words = False
    if not any(map(str.isdigit, text)):
        written = in_digits(text)
        if is_in_words := written != text:
            text = spelt_usually(written, unit)
    if not any(map(str.isnumeric, text)):  # no digit, and no fraction such as ½
        return Reading(shown)
    amounts = amounts_in(text, whole=whole, thousands=thousands)
    if not amounts:
        return Reading(shown)
    amounts = _without_ordinals(text, amounts, unit)
    _check_understood(text, amounts, unit)
    amounts = _with_factor(text, [_below_zero(text, amount) for amount in amounts])
    if unit is None:
        amount, reason = _one_of(text, amounts)
        value = amount.value
    else:
        amount, value, reason = _in_unit(text, amounts, unit)
        if whole and value != amount.value:
            value = Decimal(round(value))
    if _LITERAL.fullmatch(shown) and Decimal(shown) == value:
        return Reading(plain(value))
    in_words = "number words" if is_in_words else None
    return noted(shown, plain(value), amount.reason, in_words, reason)


def _below_zero(text: str, amount: Amount) -> Amount:
    is_below = amount.value > 0 and _BELOW.match(text, amount.end)
    return replace(amount, value=-amount.value) if is_below else amount


def _with_factor(text: str, amounts: list[Amount]) -> list[Amount]:
    """The amounts, with the factor of a range's upper end at the lower one as well: "5-10K"."""
    for place, (low, high) in enumerate(pairwise(amounts)):
        bare = high.value / high.factor
        if low.factor < high.factor and low.value < bare and _is_range(text, low, high):
            amounts[place] = replace(low, value=low.value * high.factor, factor=high.factor)
    return amounts


def _check_understood(text: str, amounts: Sequence[Amount], unit: str | None) -> None:
    """Raises ValueError for a number whose neighbouring text may change its value."""
    if (found := _BULLET.match(text)) and found.end() >= amounts[0].start - 3:
        raise ValueError("begins with a hyphen, which may be a minus")
    if amounts[0].value > 0 and _DASH.search(text, 0, amounts[0].start):
        raise ValueError("begins with a dash, which may be a minus")
    if _IN_LOSS.fullmatch(text) and currency_beside(text, amounts[0].start, amounts[0].end):
        raise ValueError("stands in brackets, which may be a minus")
    dates = [] if unit is not None else [found.span() for found in _DATE.finditer(text)]
    for amount in amounts:
        if _LOSS.match(text, amount.end) and len(amounts) == 1:
            raise ValueError("ends with a hyphen, which may be a minus")
        if _PRICE_OF.search(text, 0, amount.start):
            raise ValueError("is the price of several")
        if any(start <= amount.start < end for start, end in dates):
            raise ValueError("states a date, which is no number")
        if unit is None and (letter := _FACTOR_LETTER.match(text, amount.end)):
            raise ValueError(f'"{letter[0]}" may be a factor')
        word = _WORD.match(text, amount.end)
        if word is None:
            continue
        name = word[1].lower()
        if name == "mil" and (unit is None or not units.converts(units.unit_named("mil"), unit)):
            raise ValueError('"mil" may be a thousand, or the thousandth of an inch')
        if _SCALE.match(name) and units.unit_named(name) is None:
            raise ValueError(f'"{word[1]}" may be a factor, in a language that is not read')
        is_money = unit is not None and units.is_money(unit) and name in _CENTS
        if " " in word[0] and name != "mil" and not is_money and _is_number_word(name):
            raise ValueError(f'"{word[1]}" goes on with the number in words')


_SCALE = re.compile(
    r"mil[ijy]|mill?[iy]|[bt]il[ijy]|bill?[iy]|tys|tus[ie]n|hund|(?:md|mrd|mlj?n|mld)$"
)
_WORD = re.compile(r"\s?([^\W\d_]+)")


def _is_number_word(word: str) -> bool:
    try:
        return word not in _ARTICLES and in_digits(word) != word
    except ValueError:
        return word not in _ARTICLES


_CENTS = frozenset({"cent", "cents"})
_ARTICLES = frozenset(
    {"a", "an", "en", "e", "y", "et", "und", "um", "un", "una", "uma", "uno", "ein", "eine", "een"}
    | {"one", "half", "once", "single", "double"}
)


def _without_ordinals(text: str, amounts: list[Amount], unit: str | None) -> list[Amount]:
    """The amounts without ordinals such as "2nd"; ordinals alone are numbers.

    Raises ValueError for ordinals alone in a field with a unit.
    """
    others = [amount for amount in amounts if not is_ordinal(text, amount.end)]
    if not others and unit is not None:
        stated = ", ".join(text[amount.start : amount.end + 2] for amount in amounts)
        raise ValueError(f"states a place in an order ({stated}), and no amount in {unit}")
    return others or amounts


def _one_of(
    text: str,
    amounts: Sequence[Amount],
    value_of: Callable[[Amount], Decimal] = lambda amount: amount.value,
) -> tuple[Amount, str | None]:
    """The one amount, or the lower end of the one range, with the reason. Raises ValueError."""
    outside = [amount for amount in amounts if not _in_brackets(text, amount)] or amounts
    if len(outside) == 1:
        return outside[0], None
    if len(outside) == 2 and _is_range(text, *outside):
        low, high = sorted(outside, key=value_of)
        return low, f"lower end of {plain(low.value)} to {plain(high.value)}"
    raise _several(outside)


def _in_unit(text: str, amounts: Sequence[Amount], unit: str) -> tuple[Amount, Decimal, str | None]:
    """The amount, its value in the unit, and the reason. Raises ValueError."""
    if any(_TIMES.fullmatch(text[one.end : other.start]) for one, other in pairwise(amounts)):
        raise _several(amounts)
    stated = {amount: units.unit_beside(text, amount, unit) for amount in amounts}
    if _remarks(text, stated, unit):
        stated = {one: found for one, found in stated.items() if not _in_brackets(text, one)}
        amounts = list(stated)
    if len(amounts) == 2 and _is_range(text, *amounts):
        # "50 to 55 cm": both of them are in centimetres.
        first, last = amounts
        stated[first], stated[last] = (
            stated[first] or stated[last],
            stated[last] or stated[first],
        )
    _take_smaller(text, amounts, stated, unit)
    fitting = {a: found for a, found in stated.items() if found and units.converts(found[0], unit)}
    if not fitting:
        bare = [amount for amount, found in stated.items() if found is None]
        if not bare:
            other = next(found for found in stated.values() if found)
            raise ValueError(f"{other[0]} does not convert to {unit}")
        amount, reason = _one_of(text, bare)
        words = [units.unread_beside(text, one, unit) for one in bare]
        unread = [f'"{word}" is not read' for word in words if word]
        return amount, amount.value, "; ".join(filter(None, [reason, *unread])) or None
    same = [a for a, found in fitting.items() if found[0] == units.unit_named(unit)]
    values = {one: units.converted(one, found[0], unit) for one, found in fitting.items()}
    if parts := _compound(text, fitting):
        total = Decimal(sum(values[part] for part in parts))
        if any(abs(values[one] - total) > total / 50 for one in fitting if one not in parts):
            raise _several(list(fitting))
        if same and same[0] not in parts:  # said once more, in the field's own unit
            return same[0], values[same[0]], None
        return parts[0], total, f"sum of {len(parts)} parts in {unit}"
    if len(same) == 1 and not _is_range(text, *list(fitting)[:2]):
        amount, reason = same[0], None
    else:
        amount, reason = _one_of(text, list(fitting), values.__getitem__)
        if reason and len({found for found, _ in fitting.values()}) > 1:
            reason = "lower end"
    found = fitting[amount][0]
    how = None if found == units.unit_named(unit) else f"{found} in {unit}"
    why = "; ".join(filter(None, (reason, how)))
    return amount, values[amount], why or None


def _remarks(text: str, stated: Mapping[Amount, Any], unit: str) -> bool:
    """True if what stands in brackets says the amount before them once more.

    A single amount there in the field's own unit says it better: 140 cm, of 55 inch (140 cm).
    """
    fitting = [a for a, found in stated.items() if found and units.converts(found[0], unit)]
    inside = [amount for amount in fitting if _in_brackets(text, amount)]
    own = [amount for amount in fitting if stated[amount][0] == units.unit_named(unit)]
    return len(inside) < len(fitting) and not (inside == own and len(own) == 1)


def _take_smaller(
    text: str,
    amounts: Sequence[Amount],
    stated: dict[Amount, tuple[Any, int] | None],
    unit: str,
) -> None:
    """Gives a bare number behind a larger part the next smaller unit: 6'2, 1 h 30.

    Raises ValueError for a number that may be the front of another: "1 299 g".
    """
    for one, other in pairwise(amounts):
        found = stated[one]
        if stated[other] is None and found is not None and units.converts(found[0], unit):
            gap = text[found[1] : other.start].strip()
            is_hyphened = gap == text[one.end] == "-"  # 5-foot-11
            if (gap and not is_hyphened) or _GOES_ON.match(text, other.end):
                continue
            stated[other] = smaller_part(text, other, found[0])
            if stated[other] is None:
                raise _several([one, other])
        elif found is None and _GROUPED.fullmatch(text[one.start : other.end]):
            raise _several([one, other])


def smaller_part(text: str, amount: Amount, larger: Any) -> tuple[Any, int] | None:
    """The unit of a bare number behind an amount in a larger unit, and its end; None if no part."""
    smaller, count = _SMALLER.get(str(larger), ("", 0))
    # Behind "1h30" words may follow, behind "1 h 30" the 30 may be of something else.
    is_apart = text[amount.start - 1].isspace()
    if amount.value >= count or (_GOES_ON if is_apart else _LETTER).match(text, amount.end):
        return None
    return units.unit_named(smaller), amount.end


_GOES_ON, _LETTER = re.compile(r"\s*[^\W_]"), re.compile(r"[^\W_]")
_GROUPED = re.compile(r"\d{1,3} \d{3}")


def _compound(text: str, fitting: dict[Amount, tuple[object, int]]) -> list[Amount]:
    """The parts of the first amount in descending units, "5 ft 11 in"; [] for one without."""
    first, *others = fitting
    parts = [first]
    for other in others:
        (larger, end), (smaller, _) = fitting[parts[-1]], fitting[other]
        if not _JOINED.fullmatch(text[end : other.start]) or not units.has_parts(larger, smaller):
            break
        parts.append(other)
    return parts if len(parts) > 1 else []


def _is_range(text: str, one: Amount, other: Amount | None = None) -> bool:
    if other is None:
        return False
    between = text[one.end : other.start]
    is_and = _AND.fullmatch(between) and _BETWEEN.search(text[: one.start])
    return bool(_TO.fullmatch(between) or is_and)


def _in_brackets(text: str, amount: Amount) -> bool:
    before = text[: amount.start]
    return before.count("(") > before.count(")") or before.count("[") > before.count("]")


def _several(amounts: Sequence[Amount]) -> ValueError:
    stated = ", ".join(plain(amount.value) for amount in amounts)
    return ValueError(f"states several numbers ({stated}); the field takes one")
