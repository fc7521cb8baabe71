"""Types of attributes, derived from the values that documents state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal

from schemax.attributes.ready_made import words_of
from schemax.base.messages import escape_controls, one_line
from schemax.reading.amounts import amounts_of
from schemax.reading.booleans import WORDS
from schemax.reading.lists import items_in
from schemax.reading.units import field_unit

PropertyType = Literal["number", "choice", "yes or no", "list", "text"]

# The least share of values that must be of a type; `_SOME` for lists.
_MOST, _SOME = 0.8, 0.3
# Choices are closed: there must be enough values, and every choice must occur more than once.
_CHOICE_VALUES, _MOST_CHOICES = 8, 10
_EXAMPLES = 3
_LONGEST_NUMBER, _LONGEST_EXAMPLE = 9, 60
# Letters that are units behind a number; other letters name sizes and classes: 4K, 1080p, 5G.
_UNITS = frozenset("glmvwh%\"'″′°")


_Amount = tuple[Decimal, str | None, str]
"""The value, the unit (its name in pint, or a currency), and the text around the amount."""


def declared(title: str, values: Sequence[str]) -> tuple[PropertyType, dict[str, Any]]:
    """Returns the type of a property with these values, and its JSON Schema."""
    values = [escape_controls(one_line(value)) for value in values]
    node: dict[str, Any] = {"title": title}
    if _share(values, lambda value: _is_yes_or_no(value, title)) >= _MOST:
        return "yes or no", {**node, "type": ["boolean", "null"]}
    if (number := _number(values)) is not None:
        return "number", {**node, **number}
    if _share(values, lambda value: len(items_in(value)) > 1) >= _SOME:
        items = [item for value in values for item in items_in(value)]
        listed = {"type": "array", "items": {"type": "string"}, "examples": _commonest(items)}
        return "list", {**node, **listed}
    spelt = _spellings(values)
    distinct, seldom = (
        len(spelt),
        min((sum(counts.values()) for counts in spelt.values()), default=0),
    )
    if len(values) >= _CHOICE_VALUES and distinct <= _MOST_CHOICES and seldom > 1:
        choices = [counts.most_common(1)[0][0] for counts in spelt.values()]
        return "choice", {**node, "enum": [*choices, None]}
    return "text", {**node, "type": ["string", "null"], "examples": _commonest(values)}


def _number(values: Sequence[str]) -> Mapping[str, Any] | None:
    """Returns the JSON Schema of numbers, with their most common unit; None for other values."""
    amounts = [amount for value in values if (amount := _amount(value)) is not None]
    if not amounts or len(amounts) < _MOST * len(values):
        return None
    units = Counter(unit for _, unit, _ in amounts if unit)
    words = Counter(around for _, unit, around in amounts if not unit)
    # Words around numbers without a unit ("Pack of 6") must always be the same.
    if words and words.most_common(1)[0][1] < _MOST * words.total():
        return None
    is_counted = any(around != "#" for around in words)  # "100 Count", beside "20 ct"
    if not units or is_counted:
        whole = all(value == value.to_integral() for value, _, _ in amounts)
        return {"type": ["integer" if whole else "number", "null"]}
    ((unit, times),) = units.most_common(1)
    kinds = {field_unit(name).kind for name in units}
    if times + words.total() < _MOST * len(amounts) and len(kinds) > 1:
        return None
    return {"type": ["number", "null"], "unit": unit}


def _amount(value: str) -> _Amount | None:
    """Returns the only number of a short value; None for codes and for several numbers."""
    text = amounts_of(value)
    if len(text.amounts) != 1 or text.has_codes or len(value.split()) > 4:
        return None
    (amount,) = text.amounts
    number = text.tokens[amount.at].text
    if amount.digits > _LONGEST_NUMBER or (
        len(number) > 1 and number.isdigit() and number[0] == "0"
    ):
        return None
    if amount.codes:
        return amount.value, amount.codes[0], ""
    # A quotation mark is an inch, not a second of arc.
    units = [unit for unit, _ in amount.units or () if "[angle]" not in unit.dimensionality]
    unit = str(units[0]) if units and _is_unit(amount.name) else None
    behind = value[text.tokens[amount.at].end :]
    if unit is None and behind[:1].isalpha():  # "4K", "1080p"
        return None
    before = value[: text.tokens[amount.first].start].strip(" -")
    around = f"{before} # {behind.strip(' -.')}".casefold().strip() if unit is None else before
    return amount.value, unit, around


def _is_unit(name: str) -> bool:
    """Returns True for a name that is a unit in values."""
    return len(name) > 1 or name in _UNITS


def _is_yes_or_no(value: str, title: str) -> bool:
    return value.casefold() in WORDS or set(words_of(value)) <= set(words_of(title))


def _share(values: Sequence[str], matches: Any) -> float:
    return sum(map(bool, map(matches, values))) / len(values) if values else 0.0


def _spellings(values: Sequence[str]) -> dict[tuple[str, ...], Counter[str]]:
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for value in values:
        counts.setdefault(words_of(value) or (value,), Counter())[value] += 1
    return counts


def _commonest(values: Sequence[str]) -> list[str]:
    spelt = _spellings([value for value in values if len(value) <= _LONGEST_EXAMPLE])
    ranked = sorted(spelt.values(), key=lambda counts: -sum(counts.values()))
    return [counts.most_common(1)[0][0] for counts in ranked[:_EXAMPLES]]
