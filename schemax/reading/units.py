"""Units of measure in texts: pint's units, money, pieces, and spellings that pint lacks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from functools import lru_cache
from typing import Any

from schemax.reading.amounts import CURRENCIES, Amount, currency_beside, is_ordinal
from schemax.reading.unit_words import ANY_CASE, AREA, CASED, RAISED, VOLUME, kind_of, meant_by

# Lower-case names that pint reads as another unit, or does not know.
_SPELLINGS = {
    **ANY_CASE,
    **dict.fromkeys(('"', "”", "″", "''", "zoll", "pouce", "pouces", "polegadas"), "inch"),
    **dict.fromkeys(("pulgada", "pulgadas", "polegada"), "inch"),
    **dict.fromkeys(("'", "’", "′", "fuß", "pied", "pieds"), "foot"),
    **dict.fromkeys(("fl oz", "fl. oz", "fl.oz", "fluid ounces"), "fluid_ounce"),
    **dict.fromkeys(("floz", "fl ozs", "fl. ozs", "fl.oz.", "fl oz.", "fluid oz"), "fluid_ounce"),
    **dict.fromkeys(("fluid ounce", "us fl oz", "oz fl", "oz. fl"), "fluid_ounce"),
    **dict.fromkeys(("ozs", "onces", "onza", "onzas", "unze", "unzen"), "ounce"),
    **dict.fromkeys(("lbs", "libra", "libras", "livre", "livres"), "pound"),
    **dict.fromkeys(("cc", "ccm"), "cubic_centimeter"),
    **dict.fromkeys(("mil", "mils"), "thou"),
    **{"kb": "kilobyte", "mb": "megabyte", "gb": "gigabyte", "tb": "terabyte"},
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
    "per cent": "percent",
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
_LETTERS = r"""(?:[^\W\d_]|[%°¢#"'’″′”²³/._])+"""
_WORD = rf"{_LETTERS}(?:(?<=[^\W\d_])[23](?!\d))?"
# Only such names are passed to pint, which would compute 9**9**9.
_NAME = re.compile(
    rf"[$€£¥₹]|{_LETTERS}(?:(?:\^|\*\*)?[23])?(?:[\s*·]+{_LETTERS}(?:(?:\^|\*\*)?[23])?){{0,3}}|R\$|US\$"
)
# "half an hour" arrives as "0.5 an hour", whose "an" is no French year.
_BEHIND = re.compile(
    rf"[\s‐-–-]*(?:(?<=\b0\.5\s)an?\s+)?({_WORD})(?:\s+({_WORD}))?(?:\s+({_WORD}))?"
)
_LONGEST = 24

# The usual units of shops' texts, without prefixes. pint knows many more, with which ordinary words
# collide: "D" is a debye, "fl" a femtolitre, "at" a technical atmosphere.
_PREFIX = re.compile(
    r"^(?:kilo|hecto|deci|centi|milli|micro|nano|mega|giga|tera|kibi|mebi|gibi|tebi)"
)
_USUAL = frozenset(
    {"gram", "metric_ton", "ounce", "pound", "stone", "liter", "gallon", "quart", "pint", "cup"}
    | {"tablespoon", "teaspoon", "fluid_ounce", "cubic_centimeter", "meter", "inch", "foot", "yard"}
    | {"mile", "hour", "minute", "second", "day", "week", "month", "year", "watt", "volt", "ampere"}
    | {"ampere_hour", "watt_hour", "hertz", "bit", "byte", "percent", "degree_Celsius", "kelvin"}
    | {"degree_Fahrenheit", "piece", "frame", "lumen", "decibel", "pixel", "dot", "horsepower"}
    | {
        "british_thermal_unit",
        "calorie",
        "joule",
        "newton",
        "pascal",
        "bar",
        "pound_force_per_square_inch",
    }
    | {
        "square_foot",
        "square_inch",
        "acre",
        "hectare",
        "knot",
        "degree",
        "carat",
        "kilometer_per_hour",
        "mile_per_hour",
    }
    | set(CURRENCIES.values())
)
# Characters that name units more often than sizes, classes or versions.
_ONE_LETTER = frozenset("glmvwhs\"'’″′”%$€£¥₹°")
_WORDS_TOO = frozenset({"in", "in."})
_GOES_ON = re.compile(r"\s+[^\W\d_]")
_WORD_BEFORE = re.compile(r"(?<![^\W\d_])([^\W\d_]{2,5})\.?\s?$")
_UNREAD = re.compile(r"[\s\u00a0]?[-‐–]?((?:[^\W\d_]|[¢#‰°\u20a0-\u20cf؋฿៛])+[²³]?)")
_CODE_BEFORE = re.compile(r"((?<![^\W_])[A-Z]{3}|[A-Z]{0,3}[$£¥\u20a0-\u20cf؋฿៛])\.?\s?$")
_WORDS_BEHIND = re.compile(r"(?:\s?[^\W\d_]+\.?){1,4}")
# Words up to this length may be units that are not listed here, except for these words.
_FEW_LETTERS = 3
_NO_UNITS = frozenset(
    {"a", "an", "the", "and", "or", "of", "in", "on", "at", "to", "by", "for", "per", "new", "old"}
    | {"with", "x", "tv", "led", "hd", "uhd", "lcd", "all", "out", "max", "up", "is", "are"}
    | {"und", "oder", "von", "bei", "mit", "pro", "neu", "et", "ou", "de", "du", "par", "y", "o"}
    | {"e", "da", "do", "di", "per", "con", "com", "la", "le", "el", "il", "der", "die", "das"}
    | {"big", "top", "set", "box", "bag", "can", "jar", "pro", "off", "vs", "up", "was", "now"}
)
# Units with unusual prefixes, which pint accepts before all units, metric or not.
_SELDOM = re.compile(
    r"(?:atto|femto|pico|peta|exa|zepto|yocto|zetta|yotta|ronto|quecto|ronna|quetta)"
    r"(?:meter|gram|second|liter|hour|day|year|foot|inch|pound|ounce|metric_ton)|"
    r"(?:milli|centi|micro|nano|deca|hecto)(?:metric_ton|hour|day|year|foot|inch|pound|ounce|ton)|"
    r"centiunified_atomic_mass_unit"
)


@lru_cache(maxsize=1)
def _registry() -> Any:
    # pint is slow to import and to load, so this is done only where a field names a unit.
    import pint

    registry: Any = pint.UnitRegistry(non_int_type=Decimal, on_redefinition="ignore")
    for definition in _DEFINITIONS:
        registry.define(definition)
    return registry


@lru_cache(maxsize=16_384)
def unit_named(name: str) -> Any | None:
    """pint's unit of a name; None for an unknown name."""
    name = name.strip()
    small = " ".join(name.lower().replace(".", " ").split())
    known = CASED.get(name) or _SPELLINGS.get(name.lower()) or CURRENCIES.get(name.upper())
    known = known or _SPELLINGS.get(name.lower().rstrip(".")) or _SPELLINGS.get(small)
    bare = name.rstrip(".")
    if not bare or not _NAME.fullmatch(name):
        return None
    if known is None and (power := _power_named(name)) is not None:
        return power
    attempts = [(known, True)] if known else [(bare, True), (bare.lower(), True), (bare, False)]
    for attempt, case_sensitive in attempts:
        try:
            found = _registry().parse_units(attempt, case_sensitive=case_sensitive)
        except Exception:  # pint may raise anything for an arbitrary word
            continue
        # pint reads "degrees Celsius" as a product.
        return None if any(part.startswith("delta_") for part in found._units) else found
    return None


def _power_named(name: str) -> Any | None:
    """The unit of an area or volume, such as "sq ft", "cu. in." and "m2"; else None."""
    if found := RAISED.fullmatch(name):
        unit = unit_named(found[1])
        return None if unit is None else unit ** int(found[2])
    for pattern, power in ((AREA, 2), (VOLUME, 3)):
        if found := pattern.fullmatch(name):
            unit = unit_named(found[1])
            if unit is not None and dict(unit.dimensionality) == {"[length]": 1}:
                return unit**power
    return None


def check_unit(name: object) -> None:
    """Raises ValueError for a name of no known unit."""
    if not isinstance(name, str) or unit_named(name) is None:
        raise ValueError(
            f"unknown unit {name!r}; name one that pint knows, such as inch, cm, kg, GB or EUR"
        )


def unit_beside(text: str, amount: Amount, wanted: str) -> tuple[Any, int] | None:
    """The unit that a text states with an amount, and its end; None if the text states none.

    Of several readings ("in", "in a") the longest that converts to the wanted unit is used, else
    the longest that is usual in shops.
    """
    code = currency_beside(text, amount.start, amount.end)
    if code is not None:
        return unit_named(code), amount.end
    found = unit_behind(text, amount.end, wanted)
    if found is None and _kind(wanted)[0] == "money":
        return _money_before(text, amount)
    return found


def _money_before(text: str, amount: Amount) -> tuple[Any, int] | None:
    """The currency that a word before an amount names, "Rs. 500" or "kr 5"; else None."""
    found = _WORD_BEFORE.search(text, 0, amount.start)
    meant = meant_by(found[1], "money", "") if found else None
    return (unit_named(meant), amount.end) if meant else None


def _check_money(text: str, amount: Amount, wanted: str) -> str | None:
    """The word before an amount of money that looks like a code but is none, or None.

    Raises ValueError if another currency may stand beside the amount.
    """
    found = _CODE_BEFORE.search(text, 0, amount.start)
    if found and found[1].lower() not in _NO_UNITS:
        raise ValueError(f'"{found[1]}" before the number may be a currency, other than {wanted}')
    behind = _WORDS_BEHIND.match(text, amount.end)
    for word in behind[0].split() if behind else ():
        if meant_by(word, *_kind(wanted)) not in (None, wanted):
            raise ValueError(f'"{word}" behind the number may be a currency, other than {wanted}')
    return found[1] if found else None


@lru_cache(maxsize=1024)
def _kind(wanted: str) -> tuple[str, str]:
    """The quantity that a field's unit measures, see `kind_of`, and pint's name of the unit."""
    unit = unit_named(wanted)
    assert unit is not None, wanted
    return kind_of(dict(unit.dimensionality)), str(unit)


def unit_behind(text: str, end: int, wanted: str) -> tuple[Any, int] | None:
    """The unit that a text names from a place on, and its end; None if the text names none."""
    found = list(_units_behind(text, end, wanted))
    fitting = [pair for pair in found if converts(pair[0], wanted)]
    usual = [pair for pair in found if _is_usual(pair[0], text, end, pair[1])]
    return next(iter(fitting[-1:] or usual[-1:]), None)


def _is_usual(unit: Any, text: str, start: int, end: int) -> bool:
    """True if a unit that does not convert is meant as a unit, not as an ordinary word."""
    name = text[start:end].strip(" \u00a0-‐–.").lower()
    if len(name) == 1 and name not in _ONE_LETTER:
        return False
    if name in _NO_UNITS and name not in _WORDS_TOO:
        return False
    if name in _WORDS_TOO and _GOES_ON.match(text, end):
        return False
    return all(part in _USUAL or _PREFIX.sub("", part) in _USUAL for part in unit._units)


def _units_behind(text: str, end: int, wanted: str) -> Iterator[tuple[Any, int]]:
    """Yields the units that a text may name from a place on, and their ends, shortest first."""
    # pint has units "nd", "rd", "st" and "th".
    match = None if is_ordinal(text, end) else _BEHIND.match(text, end)
    for last in (1, 2, 3):
        if match and match[last] and match.end(last) - match.start(1) <= _LONGEST:
            name = text[match.start(1) : match.end(last)]
            unit = unit_named(meant_by(name, *_kind(wanted)) or name)
            if unit is not None and not _is_seldom(unit, name):
                yield unit, match.end(last)


def _is_seldom(unit: Any, name: str) -> bool:
    """True if a name of few letters would be a unit that shops do not use: "pm", a picometre."""
    return len(name) <= _FEW_LETTERS and any(map(_SELDOM.match, unit._units))


def unread_beside(text: str, amount: Amount, wanted: str) -> str | None:
    """The word beside a number without a unit, or None. Raises ValueError if it may be a unit."""
    end = amount.end
    before = _check_money(text, amount, wanted) if is_money(wanted) else None
    if before is not None:
        return before
    match = None if is_ordinal(text, end) else _UNREAD.match(text, end)
    if match is None:
        return None
    word = match[1]
    name = word.rstrip(".")
    if name.lower() in _NO_UNITS:
        return word
    unit = unit_named(name) or unit_named(name.lower()) or unit_named(name.rstrip("s"))
    is_known = unit is not None and all(
        part in _USUAL or _PREFIX.sub("", part) in _USUAL for part in unit._units
    )
    if is_known or 1 < len(name) <= _FEW_LETTERS or not name[0].isalpha():
        raise ValueError(f'"{word}" behind the number may be a unit, and is not read as {wanted}')
    return word


def is_money(wanted: str) -> bool:
    return _kind(wanted)[0] == "money"


def is_temperature(wanted: str) -> bool:
    return converts(unit_named("kelvin"), wanted)


def is_power(wanted: str) -> bool:
    """True for a unit of areas or volumes."""
    return dict(unit_named(wanted).dimensionality) in ({"[length]": 2}, {"[length]": 3})  # type: ignore[union-attr]


def converts(unit: Any, wanted: str) -> bool:
    return bool(unit.dimensionality == unit_named(wanted).dimensionality)  # type: ignore[union-attr]


def has_parts(larger: Any, smaller: Any) -> bool:
    """True if so many of the smaller unit are one of the larger: 12 inches a foot, 30.4 days a
    month; but no 28.35 grams an ounce."""
    if larger.dimensionality != smaller.dimensionality or not larger > smaller:
        return False
    count = Decimal(_registry().Quantity(Decimal(1), larger).to(smaller).magnitude)
    is_time = dict(larger.dimensionality) == {"[time]": 1}
    return is_time or abs(count - round(count)) < Decimal("1e-6") * count


def converted(amount: Amount, unit: Any, wanted: str) -> Decimal:
    """Converts an amount, rounded to the significant digits of the text, but at least three.

    Digits before the decimal point are never rounded. Raises ValueError.
    """
    target = unit_named(wanted)
    if unit == target:
        return amount.value
    try:
        value = Decimal(_registry().Quantity(amount.value, unit).to(target).magnitude)
    except Exception:  # for a product with degrees, whose zero is undefined
        raise ValueError(f"{unit} does not convert to {wanted}") from None
    decimals = max(0, max(3, amount.digits) - 1 - value.adjusted()) if value else 0
    return Decimal(round(value, decimals))
