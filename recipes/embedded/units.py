"""Numbers in texts: with units, separators and words around them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal

# Name of a unit in a question -> its spellings in texts.
UNITS: Mapping[str, tuple[str, ...]] = {
    "inches": ("inches", "inch", "in", "in.", '"', "”", "″", "''", "zoll", "pouces", "pulgadas"),
    "feet": ("ft", "ft.", "feet", "foot"),
    "cm": ("cm",),
    "mm": ("mm",),
    "metres": ("m", "metre", "metres", "meter", "meters"),
    "km": ("km",),
    "ounces": ("oz", "oz.", "ounce", "ounces"),
    "fluid ounces": ("fl oz", "fl. oz", "fl. oz.", "fluid ounce", "fluid ounces", "fl oz."),
    "pounds": ("lb", "lbs", "lb.", "lbs.", "pound", "pounds"),
    "grams": ("g", "gr", "gram", "grams"),
    "kg": ("kg", "kgs", "kilo", "kilos"),
    "mg": ("mg",),
    "ml": ("ml",),
    "litres": ("l", "litre", "litres", "liter", "liters", "ltr"),
    "watts": ("w", "watt", "watts"),
    "volts": ("v", "volt", "volts"),
    "amperes": ("a", "amp", "amps"),
    "Ah": ("ah",),
    "mAh": ("mah",),
    "Wh": ("wh",),
    "GB": ("gb", "go"),
    "TB": ("tb", "to"),
    "MB": ("mb",),
    "Hz": ("hz",),
    "MHz": ("mhz",),
    "GHz": ("ghz",),
    "ms": ("ms",),
    "dB": ("db",),
    "lumens": ("lm", "lumen", "lumens"),
    "kelvin": ("k",),
    "fps": ("fps",),
    "dpi": ("dpi",),
    "Mbps": ("mbps", "mbit/s"),
    "percent": ("%", "percent", "% abv", "vol", "% vol"),
    "pieces": (
        *("ct", "ct.", "count", "pack", "packs", "pc", "pcs", "piece", "pieces", "pk", "-pack"),
        *("tablets", "capsules", "softgels", "gummies", "bags", "tea bags", "pods", "k-cups"),
        *("sheets", "wipes", "loads", "rolls", "boxes", "bottles"),
    ),
    "pages": ("pages", "pp", "pp."),
    "years": ("years", "year", "yr", "yrs", "years old"),
    "months": ("months", "month"),
    "days": ("days", "day"),
    "hours": ("hours", "hour", "hrs", "h"),
    "minutes": ("minutes", "minute", "min", "mins"),
    "SPF": ("spf",),
    "dollars": ("$", "usd", "us$"),
    "euros": ("€", "eur", "euro"),
    "pounds sterling": ("£", "gbp"),
}
_NAMES = {spelling: unit for unit, spellings in UNITS.items() for spelling in spellings}
_NUMBER = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?"
_BEFORE = re.compile(
    rf"(?P<word>[$£€]|spf|usd|eur|pack of|set of|box of|case of|size|age)?\s*(?P<number>{_NUMBER})"
    r"\s*-?\s*(?P<unit>[^\d\s-].*)?",
    re.IGNORECASE,
)


def read_number(text: str) -> tuple[Decimal, str | None] | None:
    """Returns the number of a value, and its unit's name in questions; None for other values."""
    found = _BEFORE.fullmatch(text.strip())
    if not found:
        return None
    number = Decimal(found["number"].replace(",", ""))
    word, unit = (found["word"] or "").lower(), (found["unit"] or "").lower().strip()
    if unit:
        return (number, _NAMES[unit]) if unit in _NAMES else None
    if word.endswith(" of"):
        return number, "pieces"
    return number, _NAMES.get(word)
