"""Units of fields and of texts: CLDR names them, pint converts them, money has codes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

from schemax.reading import cldr

# Spellings that shops use, and neither CLDR nor pint knows.
_ALSO = {
    **{"sqft": "foot ** 2", "cu ft": "foot ** 3", "gr": "gram", "ml": "milliliter"},
    "ps": "metric_horsepower",
    # The calorie of food, and that of physics.
    **dict.fromkeys(("calorie", "calories", "cal"), "kilocalorie or calorie"),
}
# The unit of a bare number behind an amount: 6'2, 1 h 30.
SMALLER = {
    **{"foot": "inch", "hour": "minute", "minute": "second", "pound": "ounce", "stone": "pound"}
}
# Only such names are passed to pint, which would compute 9**9**9.
_SAFE = re.compile(
    r"[^\W\d]+[23]?(?:(?:\s?[*/·]\s?|\s?\*\*\s?|\s?\^\s?)(?:[^\W\d]+|[23](?![\d*^])))*|[%°]\w?"
)
_LONGEST = 40
# Units of pint that take prefixes.
_PREFIXED = frozenset(
    {"ampere", "ampere_hour", "bit", "bits_per_second", "baud", "byte", "calorie", "decibel"}
    | {"farad", "gram", "henry", "hertz", "joule", "liter", "lumen", "meter", "mole", "newton"}
    | {"ohm", "pascal", "second", "tesla", "volt", "watt", "watt_hour", "electron_volt"}
)
OTHER_CASE = 1000
"""From this rank on, a unit's name differs from the text by case."""


@lru_cache(maxsize=1)
def _registry() -> Any:
    # pint is slow to import and to load, so this is done only where a text states a unit.
    from importlib.resources import files

    import pint

    registry: Any = pint.UnitRegistry(None, non_int_type=Decimal, on_redefinition="ignore")
    registry.load_definitions(str(files("pint") / "default_en.txt"))
    # For pint, bits and angles are plain numbers, so that 20 % would be some bits.
    for definition in ("bit = [information]", "radian = [angle]", "frame = [frame]"):
        registry.define(definition)
    return registry


def _parsed_unit(name: str) -> Any | None:
    """pint's unit of a name; None for an unknown name, and for differences of temperature."""
    if not _SAFE.fullmatch(name) or len(name) > _LONGEST:
        return None
    registry = _registry()
    try:
        unit = registry.parse_units(name)
    except Exception:  # pint may raise anything for an arbitrary word
        return None
    is_plain = unit._units and not any(part.startswith("delta_") for part in unit._units)
    return unit if is_plain else None


class FieldUnit:
    """The unit that a field declares.

    name: the name in the declaration.
    unit: pint's unit, or the code of a currency; None if unknown.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_money = name.upper() in cldr.table(cldr.currency_codes, None)
        self.unit: Any = name.upper() if self.is_money else _declared_unit(name)
        self._measure = getattr(self.unit, "dimensionality", None)
        self.is_temperature = self._measure is not None and self.takes(_parsed_unit("kelvin"))
        # The names of the field's own unit, which count in any case.
        own = () if self._measure is None else (name, f"{self.unit}", f"{self.unit:~}")
        self.names = frozenset(map(str.casefold, own))

    @property
    def kind(self) -> object:
        """The kind of the unit: units of the same kind convert to each other."""
        return self._measure or self.unit

    def takes(self, unit: Any) -> bool:
        return bool(unit.dimensionality == self._measure)

    def exact(self, value: Decimal, unit: Any) -> Decimal:
        """Converts a value. Raises ValueError."""
        if unit == self.unit:
            return value
        try:
            return Decimal(_registry().Quantity(value, unit).to(self.unit).magnitude)
        except Exception:  # for a product with degrees, whose zero is undefined
            raise ValueError(f"{unit} does not convert to {self.name}") from None

    def rounded(self, value: Decimal, digits: int) -> Decimal:
        """Rounds a value to significant digits, at least three, and behind the decimal point only.

        Raises ValueError for a value beyond what decimals hold.
        """
        decimals = max(0, max(3, digits) - 1 - value.adjusted()) if value else 0
        try:
            return Decimal(round(value, decimals))
        except ArithmeticError:
            raise ValueError("is beyond what is converted") from None


@lru_cache(maxsize=1024)
def field_unit(name: str) -> FieldUnit:
    return FieldUnit(name)


def _declared_unit(name: str) -> Any | None:
    spelt = cldr.pint_name("-" + re.sub(r"[ _]", "-", name))
    if (unit := _parsed_unit(name) or _parsed_unit(spelt)) is not None:
        return unit
    named = cldr.table(cldr.units, None)[0].get(cldr.folded_name(name), {})
    return next(filter(None, map(_parsed_unit, named)), None)


def check_unit(name: object) -> None:
    """Raises ValueError for a name of no known unit."""
    is_name = isinstance(name, str) and bool(name.strip())
    if not is_name or field_unit(str(name)).unit is None:
        raise ValueError(
            f"unknown unit {name!r}; name one that pint knows, such as inch, cm, kg or GB, or a "
            "currency of ISO 4217, such as EUR"
        )


@lru_cache(maxsize=16_384)
def units_named(name: str, language: str | None) -> tuple[tuple[Any, int], ...] | None:
    """pint's units of a name in a text, with the rank of the language; None for a name of no unit.

    Units whose names differ by case alone rank behind, from `OTHER_CASE` on. The tuple is empty for
    a unit that CLDR names and pint does not know.
    """
    names, spellings = cldr.table(cldr.units, language)
    name = cldr.folded_name(name)
    if name.casefold() in _ALSO:
        return tuple((_parsed_unit(unit), 0) for unit in _ALSO[name.casefold()].split(" or "))
    cased = sorted(spellings.get(name.casefold(), ()), key=lambda spelt: spelt != name)
    ranks = (
        (_parsed_unit(unit), rank + OTHER_CASE * (spelt != name))
        for spelt in cased
        for unit, rank in names[spelt].items()
    )
    return tuple((unit, rank) for unit, rank in ranks if unit is not None) if cased else None


@lru_cache(maxsize=16_384)
def units_of_pint(name: str) -> tuple[tuple[Any, int], ...]:
    """pint's unit of a name, also with a prefix or as a plural: "mAh", "lbs"."""
    name = cldr.folded_name(name)
    if not name.isalpha() or len(name) > _LONGEST:
        return ()
    parts = _registry().parse_unit_name(name)
    # Only some units have prefixes, and letters have no plural: "kmph" and "cs" are no units.
    is_usual = any(
        unit in _PREFIXED if prefix else suffix <= unit[2:] for prefix, unit, suffix in parts
    )
    unit = _parsed_unit(name) if is_usual else None
    return () if unit is None else ((unit, 0),)


def meant(units: Sequence[tuple[Any, int]], field: FieldUnit, larger: Any = None) -> Any | None:
    """The unit that a name means; None if no unit of the name converts to the field's.

    units: the units of the name, with the ranks of their languages.
    larger: the unit of the part before, hours in "1h 30m".
    Raises ValueError for several units of the first language.
    """
    fitting = {unit: rank for unit, rank in reversed(units) if field.takes(unit)}
    if larger is not None:
        smaller = sorted((unit for unit in fitting if larger > unit), reverse=True)
        return smaller[0] if smaller else None
    # A name in neither the field's language nor English must mean the same in all languages.
    best = min(fitting.values(), default=0)
    chosen = [unit for unit in fitting if best > cldr.ENGLISH or fitting[unit] == best]
    if field.unit in chosen and best <= cldr.ENGLISH:
        return field.unit
    alike = [unit for unit in chosen if _root(unit) == _root(field.unit)]
    chosen = alike if len(alike) == 1 and best >= OTHER_CASE else chosen
    if len(chosen) > 1:
        raise ValueError(f"may be in {' or '.join(map(str, chosen))}")
    return chosen[0] if chosen else None


def _root(unit: Any) -> frozenset[str]:
    """The unit without prefixes: bytes for gigabytes."""
    return frozenset(_registry().parse_unit_name(part)[0][1] for part in unit._units)


def is_part(value: Decimal, smaller: Any, larger: Any) -> bool:
    """True for a value below one larger unit, which is a whole number of smaller units.

    12 inches are a foot, but 28.35 grams are an ounce. In time, 30.4 days are a month.
    """
    if larger.dimensionality != smaller.dimensionality or not larger > smaller:
        return False
    count = Decimal(_registry().Quantity(Decimal(1), larger).to(smaller).magnitude)
    is_time = dict(larger.dimensionality) == {"[time]": 1}
    return 0 <= value < count and (is_time or abs(count - round(count)) < Decimal("1e-6") * count)
