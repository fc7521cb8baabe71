"""Counts the values of labelled files that are read right, refused and read as something else.

    python -m benchmarks.readings labels.jsonl ... [--show 20]

Every value that holds a single number in plain spelling, and no date, is read as a number; one that
is a number with a unit is also read in that unit, and in another of its kind. What is right follows
from the spelling, by a pattern and pint, not from schemax.
"""

from __future__ import annotations

import json
import re
from calendar import month_name
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pint
import typer
from num2words import num2words

from schemax.reading.kinds import SCALARS

_NUMBER = re.compile(r"(?<![\w.,/:+-])(\d{1,3}(?:,\d{3})+|\d+)(\.\d+)?(?![\d.,/:]|\w\d)")
_DIGITS = re.compile(r"\d+(?:[.,]\d+)*")
_MEASURE = re.compile(r"(\d+(?:\.\d+)?)[ -]?([A-Za-z]{1,12})\.?")
# Fractions, dates and further numbers in words, and letters that are factors as well.
_WORDS = [
    num2words(n, lang=name) for n in (*range(21), *range(30, 91, 10)) for name in ("en", "de")
]
_NO_NUMBER = re.compile(
    r"[¼-¾⅐-⅞]|\b(?:half|quarter)|\d[kKMB]\b|\b(?:"
    + "|".join((*(name[:3] for name in month_name[1:]), *(rf"{word}\b" for word in _WORDS)))
    + ")",
    re.IGNORECASE,
)
# Units that every shop means by these names, and another unit of each kind.
UNITS = {
    **{"oz": "gram", "ounce": "gram", "lb": "gram", "lbs": "gram", "pound": "gram", "kg": "gram"},
    **{"g": "kilogram", "gram": "kilogram", "mg": "gram", "inch": "centimeter", "in": "centimeter"},
    **{"inches": "centimeter", "cm": "inch", "mm": "inch", "ft": "meter", "feet": "meter"},
    **{"ml": "liter", "l": "milliliter", "gb": "megabyte", "mb": "gigabyte", "tb": "gigabyte"},
    **{"w": "kilowatt", "ghz": "megahertz", "mhz": "gigahertz", "v": "millivolt", "min": "second"},
    **{"minutes": "second", "hours": "minute", "hour": "minute", "mah": "ampere_hour"},
}
_NAMES = {"gb": "gigabyte", "mb": "megabyte", "tb": "terabyte", "ghz": "gigahertz"}
_NAMES |= {"mhz": "megahertz", "mah": "milliampere_hour", "w": "watt", "v": "volt"}
REGISTRY: Any = pint.UnitRegistry()


class Case(NamedTuple):
    """A text, the unit of its field, and the right value."""

    text: str
    unit: str | None
    value: Decimal


def cases(text: str) -> Iterator[Case]:
    numbers = [] if _NO_NUMBER.search(text) else list(_NUMBER.finditer(text))
    if len(numbers) == 1 and len(_DIGITS.findall(text)) == 1:
        value = Decimal(numbers[0][0].replace(",", ""))
        yield Case(text, None, value)
    if (measure := _MEASURE.fullmatch(text)) and (name := measure[2].lower()) in UNITS:
        unit = _NAMES.get(name, name)
        yield Case(text, unit, Decimal(measure[1]))
        converted = REGISTRY.Quantity(float(measure[1]), unit).to(UNITS[name]).magnitude
        yield Case(text, UNITS[name], Decimal(str(converted)))


def judged(case: Case) -> str:
    try:
        value = Decimal(SCALARS["number"].read(case.text, case.unit).value)
        is_right = abs(value - case.value) <= Decimal("0.006") * case.value
    except (ValueError, ArithmeticError):
        return "refused"
    return "right" if is_right else "other"


def values_of(row: Any) -> Iterator[str]:
    if isinstance(row, str):
        yield row
    elif isinstance(row, dict):
        for value in row.values():
            yield from values_of(value)
    elif isinstance(row, list):
        for value in row:
            yield from values_of(value)


def main(files: list[Path], show: int = 0) -> None:
    counts: dict[str, Counter[str]] = {}
    shown: list[str] = []
    for path in files:
        for line in path.read_text("utf-8").splitlines():
            row = json.loads(line)
            for text in values_of(row.get("attributes", {})):
                for case in cases(text):
                    verdict = judged(case)
                    kind = "numbers in a unit" if case.unit else "numbers"
                    counts.setdefault(kind, Counter())[verdict] += 1
                    if verdict != "right" and len(shown) < show:
                        shown.append(f"{verdict}: {case}")
    for kind, count in counts.items():
        total = sum(count.values())
        rest = ", ".join(f"{count[verdict]} {verdict}" for verdict in ("refused", "other"))
        typer.echo(
            f"{kind}: {count['right']} of {total} right ({count['right'] / total:.4f}); {rest}"
        )
    typer.echo("\n".join(shown))


if __name__ == "__main__":
    typer.run(main)
