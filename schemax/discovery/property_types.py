"""Types of attributes, derived from the values that documents state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from schemax.messages import harmless, one_line
from schemax.reading.amounts import amounts_in, currency_beside
from schemax.reading.booleans import WORDS
from schemax.reading.lists import items_in
from schemax.reading.units import check_unit, unit_named
from schemax.ready_made import words_of

PropertyType = Literal["number", "choice", "yes or no", "list", "text"]

# The least shares of values that must be of a type: of lists `_SOME`, of others `_MOST`.
_MOST, _SOME = 0.8, 0.3
# Choices are closed: every choice must occur more than once among enough values.
_CHOICE_VALUES, _MOST_CHOICES = 8, 10
_EXAMPLES = 3
_LONGEST_NUMBER, _LONGEST_EXAMPLE = 9, 60
# Letters behind a number that are no units: 4K, 1080p, 5G.
_NO_UNITS = frozenset({"k", "p", "g", "b", "i", "x", "d", "s", "c"} | {"in", "a", "an"})
_UNITS = frozenset({"g", "d", "s", "in"})


class _Amount(NamedTuple):
    """An amount. unit: as written; rest: the text around the amount."""

    value: Decimal
    unit: str | None
    rest: str


def declared(title: str, values: Sequence[str]) -> tuple[PropertyType, dict[str, Any]]:
    """Returns the type of a property with these values, and its JSON Schema."""
    values = [harmless(one_line(value)) for value in values]
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
    distinct, seldom = len(spelt), min((sum(found.values()) for found in spelt.values()), default=0)
    if len(values) >= _CHOICE_VALUES and distinct <= _MOST_CHOICES and seldom > 1:
        choices = [found.most_common(1)[0][0] for found in spelt.values()]
        return "choice", {**node, "enum": [*choices, None]}
    return "text", {**node, "type": ["string", "null"], "examples": _commonest(values)}


def _number(values: Sequence[str]) -> Mapping[str, Any] | None:
    """Returns the JSON Schema of numbers, with their most common unit; None for other values."""
    amounts = [found for value in values if (found := _amount(value)) is not None]
    if not amounts or len(amounts) < _MOST * len(values):
        return None
    units = Counter(str(unit_named(found.unit)) for found in amounts if found.unit)
    bare = [found for found in amounts if not found.unit]
    # Words around numbers without a unit ("Pack of 6") must always be the same.
    if bare and Counter(found.rest for found in bare).most_common(1)[0][1] < _MOST * len(bare):
        return None
    if not units:
        whole = all(found.value == found.value.to_integral() for found in amounts)
        return {"type": ["integer" if whole else "number", "null"]}
    ((unit, times),) = units.most_common(1)
    if times + len(bare) < _MOST * len(amounts) and not _convert(amounts, unit):
        return None
    try:
        check_unit(unit)
    except ValueError:  # a unit that pint cannot name in a word, such as a compound
        return {"type": ["number", "null"]}
    if unit == "piece":
        return {"type": ["integer", "null"]}
    return {"type": ["number", "null"], "unit": unit}


def _convert(amounts: Sequence[_Amount], unit: str) -> bool:
    wanted = unit_named(unit)
    found = [unit_named(amount.unit) for amount in amounts if amount.unit]
    return wanted is not None and all(
        one is not None and one.dimensionality == wanted.dimensionality for one in found
    )


def _amount(value: str) -> _Amount | None:
    """Returns the only number of a short value; None for codes and for several numbers."""
    found = amounts_in(value, whole=False, thousands=False)
    if len(found) != 1 or len(value.split()) > 4:
        return None
    (amount,) = found
    digits = value[amount.start : amount.end]
    if amount.digits > _LONGEST_NUMBER or (
        len(digits) > 1 and digits.isdigit() and digits[0] == "0"
    ):
        return None
    before, behind = value[: amount.start].strip(" -"), value[amount.end :].strip(" -.")
    money = currency_beside(value, amount.start, amount.end)
    if money is not None:
        return _Amount(amount.value, money, "")
    is_word = behind.casefold() in _NO_UNITS and behind not in _UNITS
    if behind and not is_word and unit_named(behind) is not None:
        return _Amount(amount.value, behind, before)
    if behind and value[amount.end].isalpha():  # "4K", "1080p"
        return None
    return _Amount(amount.value, None, f"{before} # {behind}".casefold())


def _is_yes_or_no(value: str, title: str) -> bool:
    return value.casefold() in WORDS or set(words_of(value)) <= set(words_of(title))


def _share(values: Sequence[str], is_one: Any) -> float:
    return sum(map(bool, map(is_one, values))) / len(values) if values else 0.0


def _spellings(values: Sequence[str]) -> dict[tuple[str, ...], Counter[str]]:
    found: dict[tuple[str, ...], Counter[str]] = {}
    for value in values:
        found.setdefault(words_of(value) or (value,), Counter())[value] += 1
    return found


def _commonest(values: Sequence[str]) -> list[str]:
    spelt = _spellings([value for value in values if len(value) <= _LONGEST_EXAMPLE])
    ranked = sorted(spelt.values(), key=lambda found: -sum(found.values()))
    return [found.most_common(1)[0][0] for found in ranked[:_EXAMPLES]]
