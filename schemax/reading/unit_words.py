"""Names of units whose meaning depends on their case, or on the quantity of the field.

An F is degrees Fahrenheit in a field of temperatures, "pounds" are money in a field of prices.
"""

from __future__ import annotations

import re

CASED = {
    **dict.fromkeys(("MBps", "MB/s"), "megabyte / second"),
    **dict.fromkeys(("Mb/s", "Mbit/s"), "megabit / second"),
    **dict.fromkeys(("GBps", "GB/s"), "gigabyte / second"),
    **dict.fromkeys(("Gbps", "Gb/s", "Gbit/s"), "gigabit / second"),
    **dict.fromkeys(("KBps", "kBps", "KB/s", "kB/s"), "kilobyte / second"),
    **dict.fromkeys(("Kbps", "kbps", "Kb/s", "kb/s", "kbit/s"), "kilobit / second"),
    **dict.fromkeys(("Calories", "Calorie", "Cal", "Cals"), "kilocalorie"),
}
"""Case-sensitive names -> unit."""

ANY_CASE = {
    **{"kw": "kilowatt", "kwh": "kilowatt_hour", "mah": "milliampere_hour", "wh": "watt_hour"},
    **{"hz": "hertz", "khz": "kilohertz", "mhz": "megahertz", "ghz": "gigahertz"},
    **{"kj": "kilojoule", "kcal": "kilocalorie", "kcals": "kilocalorie", "kpa": "kilopascal"},
    **{"kv": "kilovolt", "db": "decibel", "psi": "pound_force_per_square_inch"},
    **dict.fromkeys(("kmh", "kph", "km/h"), "kilometer_per_hour"),
    **dict.fromkeys(("mo", "mos", "mth", "mths"), "month"),
    **dict.fromkeys(("wk", "wks"), "week"),
    **dict.fromkeys(("tbs", "tbl", "tbls", "tblsp"), "tablespoon"),
    **dict.fromkeys(("lt", "lts", "ltrs"), "liter"),
    **dict.fromkeys(("qm", "sqm"), "meter ** 2"),
    **dict.fromkeys(("cbm", "cum"), "meter ** 3"),
    **dict.fromkeys(("gig", "gigs"), "gigabyte"),
    **{"ps": "metric_horsepower", "mcg": "microgram"},
}
"""Lower-case names -> unit, where pint knows no unit or another."""

AREA = re.compile(r"(?:sq|square|quadrat)\.?\s?(.+)", re.IGNORECASE)
VOLUME = re.compile(r"(?:cu|cubic|kubik)\.?\s?(.+)", re.IGNORECASE)

RAISED = re.compile(r"([^\W\d_]+)([23])")

_DEGREES = re.compile(
    r"(?:°|º|deg|degs|degrees?|grad|degrés?|grados?|graus?|gradi|graden)?\s?"
    r"(?:(c|celsius|centigrade)|(f|fahrenheit)|(k|kelvins?))",
    re.IGNORECASE,
)
_SCALES = ("degree_Celsius", "degree_Fahrenheit", "kelvin")

_OF_KIND: dict[str, dict[str, str]] = {
    "mass": {"st": "stone", "mt": "metric_ton", "#": "pound"},
    "length": {"mt": "meter", "mts": "meter"},
    "volume": {"c": "cup", "C": "cup", "T": "tablespoon", "t": "teaspoon"},
    "energy": {},
}
_MONEY = {
    **dict.fromkeys(("euro", "euros"), "EUR"),
    **dict.fromkeys(("yen",), "JPY"),
    **dict.fromkeys(("rupee", "rupees", "rs", "re"), "INR"),
    **dict.fromkeys(("pound", "pounds", "pound sterling", "pounds sterling", "quid"), "GBP"),
    **dict.fromkeys(("franc", "francs", "franken", "fr", "sfr"), "CHF"),
    **dict.fromkeys(("złoty", "zloty", "złotych", "zlotych"), "PLN"),
    **dict.fromkeys(("real", "reais"), "BRL"),
    **dict.fromkeys(("yuan", "rmb", "renminbi"), "CNY"),
    **dict.fromkeys(("ruble", "rubles", "rub"), "RUB"),
}
_DOLLARS = ("USD", "CAD", "AUD", "NZD", "HKD")
# Names of several currencies: the field's, else the first.
_SHARED = {
    **dict.fromkeys(("dollar", "dollars", "buck", "bucks"), _DOLLARS),
    **dict.fromkeys(("kr", "krona", "kronor", "krone", "kroner"), ("SEK", "NOK", "DKK")),
    **dict.fromkeys(("peso", "pesos"), ("MXN",)),
}
_HUNDREDTHS = {
    **dict.fromkeys(("¢", "c", "cent", "cents"), (*_DOLLARS, "EUR")),
    **dict.fromkeys(("p", "penny", "pence"), ("GBP",)),
    **dict.fromkeys(("centavo", "centavos"), ("BRL", "MXN")),
}


def kind_of(dimensions: dict[str, int]) -> str:
    """The quantity that a unit measures, where names depend on the quantity; else ""."""
    names = {name: int(power) for name, power in dimensions.items()}
    match names:
        case {"[temperature]": 1}:
            return "temperature"
        case {"[mass]": 1} if len(names) == 1:
            return "mass"
        case {"[length]": 1} if len(names) == 1:
            return "length"
        case {"[length]": 3} if len(names) == 1:
            return "volume"
        case {"[mass]": 1, "[length]": 2, "[time]": -2}:
            return "energy"
    return "money" if any(name.startswith("[money_") for name in names) else ""


def meant_by(name: str, kind: str, wanted: str) -> str | None:
    """The unit that a name means in a field; None where the field makes no difference.

    wanted: pint's name of the field's unit.
    """
    short = " ".join(name.replace(".", " ").split())
    if kind == "temperature" and (found := _DEGREES.fullmatch(short)):
        return next(scale for scale, said in zip(_SCALES, found.groups(), strict=True) if said)
    if kind == "energy" and wanted == "kilocalorie" and short.lower() in ("calorie", "calories"):
        return "kilocalorie"  # as food is labelled
    if kind == "money":
        return _money(short.lower(), wanted)
    units = _OF_KIND.get(kind, {})
    return units.get(short) or units.get(short.lower())


def _money(name: str, wanted: str) -> str | None:
    for several, part in ((_SHARED, ""), (_HUNDREDTHS, "centi")):
        if (codes := several.get(name)) is not None:
            return part + (wanted if wanted in codes else codes[0])
    return _MONEY.get(name)
