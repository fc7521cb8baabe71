"""Numbers and dates as terminals of a grammar, their bounds included.

Bounds are exact: a number is written in plain digits without leading zeros, so "at least 7.5" is a
matter of how many digits there are and which comes first. Everything here is text in llguidance's
Lark dialect, whose terminals know `&` (and) and `~` (not).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from math import isfinite
from typing import Any

# As wide as the budgets of slots and as what a double keeps: a number cannot ramble.
INTEGER_DIGITS = 13
NUMBER_DIGITS = 15

# Of a bound, which makes a way to write a number for every digit.
_MOST_DIGITS = 60

NEVER = "(/a/ & /b/)"

BOUNDS = {"minimum": ">=", "exclusiveMinimum": ">", "maximum": "<=", "exclusiveMaximum": "<"}
_MIRRORED = {">=": "<=", ">": "<", "<=": ">=", "<": ">"}

# The Gregorian calendar: months of 31 and 30 days, and leap years.
_FOURTH = "(?:0[48]|[2468][048]|[13579][26])"
_YEAR = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})"
_LEAP_YEAR = f"(?:[0-9]{{2}}{_FOURTH}|(?:{_FOURTH})00)"
_DAY = "(?:0[1-9]|1[0-9]|2[0-8])"
DATE = (
    rf"(?:{_YEAR}-(?:(?:0[1-9]|1[0-2])-{_DAY}|(?:0[13-9]|1[0-2])-(?:29|30)|(?:0[13578]|1[02])-31)"
    rf"|{_LEAP_YEAR}-02-29)"
)
TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:\.[0-9]{1,6})?)?"
ZONE = r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"


def all_of(terminals: Iterable[str]) -> str:
    return f"({' & '.join(terminals)})"


def any_of(terminals: Iterable[str]) -> str:
    return f"({' | '.join(terminals) or NEVER})"


def keeps_bound(kind: str, keyword: str, value: Any) -> bool:
    """True if `number` keeps the condition by itself."""
    if keyword in BOUNDS:
        return _is_finite(value)
    if keyword == "multipleOf":
        return (kind == "integer" and value == 1) or _places_of(value) is not None
    return keyword in ("max_digits", "decimal_places") and kind == "number" and value <= 1_000


def number(kind: str, conditions: Iterable[tuple[str, Any]]) -> str:
    """A number within bounds; `conditions` are expressed ones."""
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
    positive = [shapes[0], *_kept(bounds)]
    negative = [shapes[1], *_kept(mirrored)]
    return any_of([all_of(positive), f'("-" {all_of(negative)})'])


def _decimal(digits: int, limits: Sequence[tuple[str, Any]]) -> str:
    """A number without sign or exponent; `total` digits at most, before and after the point."""
    totals = [value for keyword, value in limits if keyword == "max_digits"]
    places = [value for keyword, value in limits if keyword == "decimal_places"]
    steps = [_places_of(value) or 0 for keyword, value in limits if keyword == "multipleOf"]
    most_behind = min([digits, *places, *steps])
    # Pydantic keeps as many digits for the decimals as there may be, whether they are there or not.
    most_before = min([digits, *(total - min(places) for total in totals if places)])
    behind = rf"\.[0-9]{{1,{most_behind}}}" if most_behind else ""
    shape = f"(?:0|[1-9][0-9]{{0,{most_before - 1}}})(?:{behind})?" if most_before else f"0{behind}"
    terminals = [f"/{shape}/", f"/[0-9.]{{1,{digits + 1}}}/"]
    for total in totals:
        # A zero before the point is not counted.
        several = rf"(/[0-9]+\.[0-9]+/ & /[0-9.]{{1,{total + 1}}}/)"
        terminals.append(rf"(/(?:0\.)?[0-9]{{1,{total}}}/ | {several})")
    return all_of(terminals)


def _places_of(step: Any) -> int | None:
    """k if the step is 10 ** -k, so that "multiple of it" means "at most k decimals"."""
    if not _is_finite(step):
        return None
    exact = Decimal(str(step)).normalize()
    exponent = exact.as_tuple().exponent
    is_power = exact.as_tuple().digits == (1,) and exact > 0
    return -exponent if is_power and isinstance(exponent, int) and exponent <= 0 else None


def _is_finite(value: Any) -> bool:
    """True if it is a number of so few digits that they can be compared one by one."""
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        return False
    if isinstance(value, int):
        return bool(abs(value) < 10**_MOST_DIGITS)
    return isfinite(value) and len(_plain(Decimal(str(value)))) <= _MOST_DIGITS


def days(conditions: Iterable[tuple[str, Any]]) -> str:
    """A date within bounds, as `date.isoformat` writes it."""
    kept = [f"/{DATE}/"]
    for keyword, value in conditions:
        if keyword not in BOUNDS:
            continue  # of the list that it is in
        text = value.isoformat()
        above = [
            f"{text[:at]}[{int(digit) + 1}-9][0-9-]*"
            for at, digit in enumerate(text)
            if digit.isdigit() and digit != "9"
        ]
        at_least = f"/{'|'.join([text, *above])}/"
        kept.append(_compared(BOUNDS[keyword], at_least, f"/{text}/"))
    return all_of(kept)


def _kept(bounds: Iterable[tuple[str, Decimal]]) -> Iterator[str]:
    """The bounds of a magnitude, which has no sign, as terminals."""
    for operator, bound in bounds:
        if bound < 0:
            if operator in ("<", "<="):
                yield NEVER
            continue
        magnitude = bound.copy_abs()  # a zero may have a sign
        yield _compared(operator, _at_least(magnitude), _equal(magnitude))


def _compared(operator: str, at_least: str, equal: str) -> str:
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


def _equal(bound: Decimal) -> str:
    whole, fraction = _parts(bound)
    return rf"/{whole}\.{fraction}0*/" if fraction else rf"/{whole}(?:\.0+)?/"


def _at_least(bound: Decimal) -> str:
    """All magnitudes from the bound on: more digits, or the first that differs is greater."""
    whole, fraction = _parts(bound)
    behind = r"(?:\.[0-9]+)?"
    ways = [f"[1-9][0-9]{{{len(whole)},}}{behind}"]
    for at, digit in enumerate(whole):
        if digit != "9":
            rest = len(whole) - at - 1
            ways.append(f"{whole[:at]}[{int(digit) + 1}-9][0-9]{{{rest}}}{behind}")
    for at, digit in enumerate(fraction):
        if digit != "9":
            ways.append(rf"{whole}\.{fraction[:at]}[{int(digit) + 1}-9][0-9]*")
    ways.append(rf"{whole}\.{fraction}[0-9]*" if fraction else f"{whole}{behind}")
    return f"/{'|'.join(ways)}/"
