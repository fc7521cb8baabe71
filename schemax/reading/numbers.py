"""One number of a text, for a field that takes one; in the field's unit, if that names one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import pairwise

from schemax.reading import Reading, noted, units
from schemax.reading.amounts import CURRENCIES, Amount, amounts_in, plain
from schemax.reading.number_words import in_digits

_LITERAL = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_UNIT = r"""(?:[^\W\d_]{1,12}\.?|["'’″′”%])?"""
_SIGN = rf"(?:{'|'.join(map(re.escape, CURRENCIES))})?"
_TO = re.compile(
    rf"\s*{_UNIT}\s*(?:[-‐–—~…]|\.\.\.?|to|bis|à|al?|hasta|até)\s*{_SIGN}\s*", re.IGNORECASE
)
_AND = re.compile(rf"\s*{_UNIT}\s*(?:and|und|et|y|e)\s*{_SIGN}\s*", re.IGNORECASE)
_BETWEEN = re.compile(r"\b(?:between|zwischen|entre)\b[^\d]*$", re.IGNORECASE)
_TIMES = re.compile(rf"\s*{_UNIT}\s*[x×*]\s*", re.IGNORECASE)
_JOINED = re.compile(r"\s*(?:,|and|und|et|y|e)?\s*", re.IGNORECASE)


@lru_cache(maxsize=65_536)
def read_number(text: str, whole: bool, unit: str | None) -> Reading:
    """The number that a text states, as a text that Pydantic reads; a text without any as it is.

    whole: whether the field takes whole numbers only. unit: of the field; a number without a unit
    is taken to be in it. Of a range, its lower end. What stands in brackets is a remark, unless
    nothing stands outside of them.

    Raises ValueError for several numbers, and for a unit that does not convert to the field's.
    """
    if _LITERAL.fullmatch(text) and not (whole and "." in text):
        return Reading(text)
    thousands = unit is None or not units.converts(units.unit_named("kelvin"), unit)
    shown = text
    amounts = amounts_in(text, whole=whole, thousands=thousands)
    if not amounts and (text := in_digits(text)) != shown:
        amounts = amounts_in(text, whole=whole, thousands=thousands)
    if not amounts:
        return Reading(shown)
    if unit is None:
        amount, reason = _one_of(text, amounts)
        value = amount.value
    else:
        amount, value, reason = _in_unit(text, amounts, unit)
        if whole and value != amount.value:
            value = Decimal(round(value))
    if _LITERAL.fullmatch(shown) and Decimal(shown) == value:
        return Reading(plain(value))
    in_words = None if text == shown else "number words"
    return noted(shown, plain(value), amount.reason, in_words, reason)


def _one_of(text: str, amounts: Sequence[Amount]) -> tuple[Amount, str | None]:
    """The one amount, or the lower end of the one range, and why that one."""
    outside = [amount for amount in amounts if not _in_brackets(text, amount)] or amounts
    if len(outside) == 1:
        return outside[0], None
    if len(outside) == 2 and _is_range(text, *outside):
        low, high = sorted(outside, key=lambda amount: amount.value)
        return low, f"lower end of {plain(low.value)} to {plain(high.value)}"
    raise _several(outside)


def _in_unit(text: str, amounts: Sequence[Amount], unit: str) -> tuple[Amount, Decimal, str | None]:
    """The amount, its value in the unit, and why."""
    if any(_TIMES.fullmatch(text[one.end : other.start]) for one, other in pairwise(amounts)):
        raise _several(amounts)
    stated = {amount: units.unit_beside(text, amount, unit) for amount in amounts}
    if len(amounts) == 2 and _is_range(text, *amounts):
        # "50 to 55 cm": both of them are in centimetres.
        first, last = amounts
        stated[first] = stated[first] or stated[last]
    fitting = {a: found for a, found in stated.items() if found and units.converts(found[0], unit)}
    if not fitting:
        bare = [amount for amount, found in stated.items() if found is None]
        if not bare:
            other = next(found for found in stated.values() if found)
            raise ValueError(f"{other[0]} does not convert to {unit}")
        amount, reason = _one_of(text, bare)
        return amount, amount.value, reason
    if parts := _compound(text, fitting):
        total = Decimal(sum(units.converted(part, fitting[part][0], unit) for part in parts))
        return parts[0], total, f"sum of {len(parts)} parts in {unit}"
    same = [a for a, found in fitting.items() if found[0] == units.unit_named(unit)]
    if len(same) == 1 and not _is_range(text, *list(fitting)[:2]):
        amount, reason = same[0], None
    else:
        amount, reason = _one_of(text, list(fitting))
    found = fitting[amount][0]
    how = None if found == units.unit_named(unit) else f"{found} in {unit}"
    why = "; ".join(filter(None, (reason, how)))
    return amount, units.converted(amount, found, unit), why or None


def _compound(text: str, fitting: dict[Amount, tuple[object, int]]) -> list[Amount]:
    """The parts of one amount in ever smaller units, "5 ft 11 in"; none of anything else."""
    parts = list(fitting)
    for one, other in pairwise(parts):
        (larger, end), (smaller, _) = fitting[one], fitting[other]
        if not _JOINED.fullmatch(text[end : other.start]) or not larger > smaller:  # type: ignore[operator]
            return []
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
