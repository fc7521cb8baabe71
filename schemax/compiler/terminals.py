"""Terminals of a grammar: numbers and dates within bounds.

Bounds are exact: a number is written in plain digits without leading zeros, so its count of digits
and its first differing digit decide "at least 7.5". Terminals are texts in llguidance's Lark
dialect, whose `&` means and, and whose `~` means not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from math import isfinite
from typing import Any

from schemax.reading.kinds.number import INTEGER_DIGITS, NUMBER_DIGITS

# The most digits of a bound, since every digit adds an alternative to the terminal.
_MOST_DIGITS = 60

NEVER = "(/a/ & /b/)"

BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
_MIRRORED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}

# The Gregorian calendar: months of 31 and 30 days, and leap years.
_FOURTH = "(?:0[48]|[2468][048]|[13579][26])"
_YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP_YEAR = f"(?:[0-9]{{2}}{_FOURTH}|(?:{_FOURTH})00)"
_DAY = "(?:0[1-9]|1[0-9]|2[0-8])"
_DATE = (
    rf"(?:{_YEAR}-(?:(?:0[1-9]|1[0-2])-{_DAY}|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    rf"|{_LEAP_YEAR}-02-29)"
)
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
_ZONE = r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"


def all_of(terminals: Iterable[str]) -> str:
    return f"({' & '.join(terminals)})"


def any_of(terminals: Sequence[str]) -> str:
    return f"({' | '.join(terminals) or NEVER})"


def keeps(kind: str, keyword: str, value: Any) -> bool:
    """True if the terminals of a kind enforce a condition."""
    if kind == "datetime":
        return keyword == "tz_constraint"
    if kind == "date":
        return keyword in BOUNDS and isinstance(value, date) and not isinstance(value, datetime)
    if kind not in ("integer", "number"):
        return False
    if keyword in BOUNDS:
        return _is_finite(value)
    if keyword == "multipleOf":
        return (kind == "integer" and value == 1) or _places_of(value) is not None
    return keyword in ("max_digits", "decimal_places") and kind == "number" and value <= 1_000


def number(kind: str, conditions: Iterable[tuple[str, Any]]) -> str:
    """The terminal of numbers within bounds. conditions: bounds that `keeps` accepts."""
    bounds, limits = [], []
    for keyword, value in conditions:
        if keyword in BOUNDS:
            bounds.append((BOUNDS[keyword], Decimal(str(value))))
        else:
            limits.append((keyword, value))
    widest = max((len(_plain(bound.copy_abs())) for _, bound in bounds), default=0)
    if kind == "integer":
        digits = max(INTEGER_DIGITS, widest)
        shapes = (f"/0|[1-9][0-9]{{0,{digits - 1}}}/", f"/[1-9][0-9]{{0,{digits - 1}}}/")
    else:
        shapes = (_decimal(max(NUMBER_DIGITS, widest), limits),) * 2
    # Not -bound, which rounds to 28 digits.
    mirrored = [(_MIRRORED[operator], bound.copy_negate()) for operator, bound in bounds]
    positive = [shapes[0], *_magnitude_terminals(bounds)]
    negative = [shapes[1], *_magnitude_terminals(mirrored)]
    return any_of([all_of(positive), f'("-" {all_of(negative)})'])


def _decimal(digits: int, limits: Sequence[tuple[str, Any]]) -> str:
    """The terminal of numbers without sign or exponent. digits: the most in all."""
    totals = [value for keyword, value in limits if keyword == "max_digits"]
    places = [value for keyword, value in limits if keyword == "decimal_places"]
    steps = [_places_of(value) or 0 for keyword, value in limits if keyword == "multipleOf"]
    most_behind = min([digits, *places, *steps])
    # Pydantic reserves digits for all decimals allowed, even if there are fewer.
    most_before = min([digits, *(total - min(places) for total in totals if places)])
    behind = rf"\.[0-9]{{1,{most_behind}}}" if most_behind else ""
    shape = f"(?:0|[1-9][0-9]{{0,{most_before - 1}}})(?:{behind})?" if most_before else f"0{behind}"
    terminals = [f"/{shape}/", f"/[0-9.]{{1,{digits + 1}}}/"]
    for total in totals:
        # A zero before the point does not count.
        several = rf"(/[0-9]+\.[0-9]+/ & /[0-9.]{{1,{total + 1}}}/)"
        terminals.append(rf"(/(?:0\.)?[0-9]{{1,{total}}}/ | {several})")
    return all_of(terminals)


def _places_of(step: Any) -> int | None:
    """k if the step is 10 ** -k, so that multiples have at most k decimals; else None."""
    if not _is_finite(step):
        return None
    exact = Decimal(str(step)).normalize()
    exponent = exact.as_tuple().exponent
    is_power = exact.as_tuple().digits == (1,) and exact > 0
    return -exponent if is_power and isinstance(exponent, int) and exponent <= 0 else None


def _is_finite(value: Any) -> bool:
    """True for a finite number with few enough digits to compare one by one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return False
    if isinstance(value, int):
        return bool(abs(value) < 10**_MOST_DIGITS)
    return isfinite(value) and len(_plain(Decimal(str(value)))) <= _MOST_DIGITS


def days(conditions: Iterable[tuple[str, Any]]) -> str:
    """The terminal of dates within bounds, as `date.isoformat` writes them."""
    kept = [f"/{_DATE}/"]
    for keyword, value in conditions:
        if keyword not in BOUNDS:
            continue  # a condition on the list around the date
        text = value.isoformat()
        above = [
            f"{text[:at]}[{int(digit) + 1}-9][0-9-]*"
            for at, digit in enumerate(text)
            if digit.isdigit() and digit != "9"
        ]
        at_least = f"/{'|'.join([text, *above])}/"
        kept.append(_comparison(BOUNDS[keyword], at_least, f"/{text}/"))
    return all_of(kept)


def moments(zone: str | None) -> str:
    """The terminal of dates with a time. zone: "aware", "naive", or None for both."""
    behind = {"aware": _ZONE, "naive": ""}.get(str(zone), f"{_ZONE}?")
    return f"/{_DATE}T{_TIME}{behind}/"


def _magnitude_terminals(bounds: Iterable[tuple[str, Decimal]]) -> Iterator[str]:
    """Yields the bounds of a magnitude, which has no sign, as terminals."""
    for operator, bound in bounds:
        if bound < 0:
            if operator in ("<", "<="):
                yield NEVER
            continue
        magnitude = bound.copy_abs()  # a zero may have a sign
        yield _comparison(operator, _at_least(magnitude), _equal_terminal(magnitude))


def _comparison(operator: str, at_least: str, equal: str) -> str:
    return {
        ">=": at_least,
        ">": f"({at_least} & ~{equal})",
        "<=": f"(~{at_least} | {equal})",
        "<": f"(~{at_least})",
    }[operator]


def _plain(value: Decimal) -> str:
    return f"{value:f}"


def _parts(bound: Decimal) -> tuple[str, str]:
    whole, _, fraction = _plain(bound).partition(".")
    return whole.lstrip("0") or "0", fraction.rstrip("0")


def _equal_terminal(bound: Decimal) -> str:
    whole, fraction = _parts(bound)
    return rf"/{whole}\.{fraction}0*/" if fraction else rf"/{whole}(?:\.0+)?/"


def _at_least(bound: Decimal) -> str:
    """The terminal of magnitudes from the bound on.

    They have more digits, or the first digit that differs is greater.
    """
    whole, fraction = _parts(bound)
    behind = r"(?:\.[0-9]+)?"
    ways = [f"[1-9][0-9]{{{len(whole)},}}{behind}"]
    for at, digit in enumerate(whole):
        if digit != "9":
            left = len(whole) - at - 1
            ways.append(f"{whole[:at]}[{int(digit) + 1}-9][0-9]{{{left}}}{behind}")
    for at, digit in enumerate(fraction):
        if digit != "9":
            ways.append(rf"{whole}\.{fraction[:at]}[{int(digit) + 1}-9][0-9]*")
    ways.append(rf"{whole}\.{fraction}[0-9]*" if fraction else f"{whole}{behind}")
    return f"/{'|'.join(ways)}/"
