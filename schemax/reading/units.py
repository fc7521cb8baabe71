"""Units of measure, as texts name them: pint's, money, pieces, and what pint does not spell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any

from schemax.reading.amounts import CURRENCIES, Amount, currency_beside

# What pint takes for something else, or does not know; in lower case.
_SPELLINGS = {
    **dict.fromkeys(('"', "”", "″", "''", "zoll", "pouce", "pouces", "polegadas"), "inch"),
    **dict.fromkeys(("pulgada", "pulgadas", "polegada"), "inch"),
    **dict.fromkeys(("'", "’", "′", "fuß", "pied", "pieds"), "foot"),
    **dict.fromkeys(("fl oz", "fl. oz", "fl.oz", "fluid ounces"), "fluid_ounce"),
    **dict.fromkeys(("gr", "g", "gramm", "gramme", "grammes", "gramos", "gramas"), "gram"),
    **dict.fromkeys(("kilo", "kilos", "kgs"), "kilogram"),
    **dict.fromkeys(("ltr", "litro", "litros"), "liter"),
    **dict.fromkeys(("m", "mtr", "metros", "mètre", "mètres"), "meter"),
    **{
        "ml": "milliliter",
        "mm": "millimeter",
        "mg": "milligram",
        "mp": "megapixel",
        "pfund": "pound",
    },
    **{
        "dpi": "dot / inch",
        "ppi": "pixel / inch",
        "mbps": "megabit / second",
        "fps": "frame / second",
    },
    **dict.fromkeys(("stunde", "stunden", "heure", "heures", "hora", "horas", "std"), "hour"),
    **dict.fromkeys(("tag", "tage", "jour", "jours", "día", "días", "dia", "dias"), "day"),
    **dict.fromkeys(("woche", "wochen", "semaine", "semaines", "semana", "semanas"), "week"),
    **dict.fromkeys(("monat", "monate", "mois", "mes", "meses", "mês"), "month"),
    **dict.fromkeys(("jahr", "jahre", "an", "ans", "année", "années", "año", "años"), "year"),
    **dict.fromkeys(("ano", "anos"), "year"),
    **dict.fromkeys(("minuten", "minuto", "minutos"), "minute"),
    **dict.fromkeys(("prozent", "percentage", "por ciento", "por cento", "pour cent"), "percent"),
    **dict.fromkeys(
        ("ct", "count", "pack", "packs", "pcs", "pc", "pk", "stück", "pièces"), "piece"
    ),
}
_DEFINITIONS = (
    "bit = [information]",
    "piece = [piece] = _ = pieces",
    "frame = [frame]",
    *(f"{code} = [money_{code}]" for code in sorted(set(CURRENCIES.values()))),
)
_LETTERS = r"""(?:[^\W\d_]|[%°"'’″′”²³/.])+"""
_WORD = rf"{_LETTERS}[23]?"
# No more than that reaches pint, which would compute 9**9**9.
_NAME = re.compile(
    rf"[$€£¥₹]|{_LETTERS}(?:(?:\^|\*\*)?[23])?(?:[\s*·]+{_LETTERS}(?:(?:\^|\*\*)?[23])?){{0,3}}|R\$|US\$"
)
_BEHIND = re.compile(rf"[\s‐-–-]*({_WORD})(?:\s+({_WORD}))?(?:\s+({_WORD}))?")
_LONGEST = 24


@lru_cache(maxsize=1)
def _registry() -> Any:
    # Slow to import and to read its definitions, so only where a field names a unit.
    import pint

    registry: Any = pint.UnitRegistry(non_int_type=Decimal, on_redefinition="ignore")
    for definition in _DEFINITIONS:
        registry.define(definition)
    return registry


@lru_cache(maxsize=16_384)
def unit_named(name: str) -> Any | None:
    """pint's unit of that name; None for an unknown one."""
    name = name.strip()
    known = _SPELLINGS.get(name.lower()) or CURRENCIES.get(name.upper())
    known = known or _SPELLINGS.get(name.lower().rstrip("."))
    bare = name.rstrip(".")
    if not bare or not _NAME.fullmatch(name):
        return None
    attempts = [(known, True)] if known else [(bare, True), (bare.lower(), True), (bare, False)]
    for attempt, case_sensitive in attempts:
        try:
            return _registry().parse_units(attempt, case_sensitive=case_sensitive)
        except Exception:  # of any word that a text puts behind a number
            continue
    return None


def check_unit(name: object) -> None:
    """Raises ValueError for a name that is no unit."""
    if not isinstance(name, str) or unit_named(name) is None:
        raise ValueError(
            f"unknown unit {name!r}; name one that pint knows, such as inch, cm, kg, GB or EUR"
        )


def unit_beside(text: str, amount: Amount, wanted: str) -> tuple[Any, int] | None:
    """The unit that a text states with an amount, and where it ends; None if it states none.

    Of several readings ("in", "in a") the longest that converts to the wanted unit, else the
    shortest: "fl" is a femtolitre.
    """
    code = currency_beside(text, amount.start, amount.end)
    if code is not None:
        return unit_named(code), amount.end
    found = list(units_behind(text, amount.end))
    fitting = [pair for pair in found if converts(pair[0], wanted)]
    return next(iter(fitting[-1:] or found), None)


def units_behind(text: str, end: int) -> Iterator[tuple[Any, int]]:
    """Units that a text may name from some place on, and where each ends; ever longer ones."""
    match = _BEHIND.match(text, end)
    for last in (1, 2, 3):
        if match and match[last] and match.end(last) - match.start(1) <= _LONGEST:
            unit = unit_named(text[match.start(1) : match.end(last)])
            if unit is not None:
                yield unit, match.end(last)


def converts(unit: Any, wanted: str) -> bool:
    return bool(unit.dimensionality == unit_named(wanted).dimensionality)  # type: ignore[union-attr]


def converted(amount: Amount, unit: Any, wanted: str) -> Decimal:
    """Rounded to as many significant digits as the text has, and at least three.

    Never before the decimal point.
    """
    target = unit_named(wanted)
    if unit == target:
        return amount.value
    value = Decimal(_registry().Quantity(amount.value, unit).to(target).magnitude)
    decimals = max(0, max(3, amount.digits) - 1 - value.adjusted()) if value else 0
    return Decimal(round(value, decimals))
