"""Rewrites how people spell numbers, signs, halves and times into what amounts are read from."""

from __future__ import annotations

import re

from schemax.reading import units

_PART_BEHIND = re.compile(r"(?<=\d['’′])\s?[-‐–]\s?(?=\d+(?:[.,]\d+)?\s?(?:$|''|[\"”″]|in\b))")
_INVISIBLE = re.compile("[\u200b-\u200f\u061c\u2066-\u2069\ufeff]")
_MINUS = re.compile(
    r"(?<!\d )\b(?:minus|negative|moins|menos|meno)\s+(?=[^\W\d_]{0,3}[$€£¥₹]?\s?[\d.,])",
    re.IGNORECASE,
)
_POWER = re.compile(
    r"(?<=\d)\s?[x×·*]\s?10\s?(?:(?:\^|\*\*)\s?([-−+]?\d{1,2})|([⁻]?[⁰¹²³⁴-⁹]{1,2}))"
)
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻−", "0123456789--")
_HALF = re.compile(
    r"(?<=\d)\s+(?:and an?|and one|and|et|y|und ein|e|en een|en)\s+"
    r"(?:(half|demie?|medi[oa]|mei[oa]|mezz[oa]|halbe?s?|halve)\b|(quarter\b)|(?=\d\s?[/⁄]\s?\d|[¼-¾⅐-⅞]))",
    re.IGNORECASE,
)
_AND_A_HALF = re.compile(
    r"(?:(\d)|\ban?)\s+([^\W\d_]+)\s+(?:and an?|et|und eine?|y|e)\s+"
    r"(?:half|demie?|halbe|medi[oa]|meia)\b",
    re.IGNORECASE,
)
# "a quarter of an hour" arrives as "0.25 of an hour".
_OF_AN = re.compile(r"(?<=\b0\.\d)(\d)?\s+of\s+an?\s+", re.IGNORECASE)
_HYPHENS = str.maketrans("－﹣", "--")
_CENTS_IN_WORDS = re.compile(r"(?<=[^\W\d_])\s+cents?\.?\s*$", re.IGNORECASE)
_HOURS = r"h|hrs?|hours?|std|stunden?|heures?|horas?|ore|uur"
_CLOCK = re.compile(
    rf"(?<![\w:.,])(\d{{1,3}}):([0-5]\d)(?::([0-5]\d))?\s*({_HOURS}|min|minutes?|minuten|minutos)\b\.?",
    re.IGNORECASE,
)
_RUN_TOGETHER = re.compile(
    r"(?<=\d)\s?(h|hrs?|min|ft|feet|lbs?|st|kg)(?=\d{1,3}(?:[.,]\d+)?(?!\d)\s?(?:m|min|mn|s|sec|in|oz|lbs?|g|['\"”″]|$|[\s,;)]))",
    re.IGNORECASE,
)
_MINUTES_TOGETHER = re.compile(r"(?<=\d)\s?m(?=\d{1,2}\s?s)", re.IGNORECASE)
_MINUTES = re.compile(r"(?<=\d)\s?m(?![^\W_])", re.IGNORECASE)


def spelt_usually(text: str, unit: str | None) -> str:
    """The text with signs, powers, halves and times in the spelling that `amounts_in` reads."""
    text = _PART_BEHIND.sub(" ", _INVISIBLE.sub("", text.translate(_HYPHENS)))
    text = _MINUS.sub("-", text)
    if unit is not None:
        text = _OF_AN.sub(r"\1 ", text)
    if unit is not None and units.is_money(unit):
        text = _CENTS_IN_WORDS.sub(" ¢", text)  # no French hundred
    text = _POWER.sub(lambda f: "e" + _signed((f[1] or f[2]).translate(_RAISED)), text)
    text = _AND_A_HALF.sub(lambda found: f"{found[1] or 1} 1/2 {found[2]}", text)
    text = _HALF.sub(lambda f: " 1/2" if f[1] else " 1/4" if f[2] else " ", text)
    if unit is not None and units.converts(units.unit_named("hour"), unit):
        text = _RUN_TOGETHER.sub(r" \1 ", _CLOCK.sub(_in_parts, text))
        return _MINUTES.sub(" min", _MINUTES_TOGETHER.sub(" min ", text))
    if unit is not None and units.is_power(unit):
        return text  # "50 ft2"
    return _RUN_TOGETHER.sub(r" \1 ", text)


def _signed(power: str) -> str:
    return power if power[0] in "+-" else f"+{power}"


def _in_parts(found: re.Match[str]) -> str:
    """Writes "1:30 h" as "1 h 30 min"."""
    is_hours = found[3] or re.fullmatch(_HOURS, found[4], re.IGNORECASE)
    names = ("h", "min", "s") if is_hours else ("min", "s", "")
    parts = zip(found.groups()[:3], names, strict=True)
    return " ".join(f"{number} {name}" for number, name in parts if number)
