"""Names out of Unicode's CLDR: units, money, factors, months, countries.

Babel carries the data. `table(units, "de")` is the table that `units` makes, and is kept. Names are
looked up in `LANGUAGES`, and first of all in the language of the field, if it names one.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar

T = TypeVar("T")
L = TypeVar("L", str, str | None)

LANGUAGES = (
    *("en", "en_GB", "en_IN", "de", "de_CH", "fr", "es", "it", "pt", "nl", "sv", "da", "nb", "fi"),
    *("pl", "cs", "ro", "hu", "tr", "el", "ru", "uk", "ja", "zh", "ko", "ar", "he", "hi", "id"),
    *("vi", "th"),
)
"""CLDR's names of the locales that are read; English comes first where languages disagree."""

ENGLISH = 3
"""The last rank of English, behind the field's language."""

# CLDR's units -> pint's, where the names differ.
_UNITS = {
    **{"foodcalorie": "kilocalorie", "millimeter-ofhg": "mmHg", "newton-meter": "newton * meter"},
    **{"ounce-troy": "troy_ounce", "gallon-imperial": "imperial_gallon"},
    **{"pint-imperial": "imperial_pint", "fluid-ounce-imperial": "imperial_fluid_ounce"},
    "quart-imperial": "imperial_quart",
}
# Units whose CLDR names pint takes for others: quarters of a year, and Japanese measures.
_OTHERS = frozenset({"quarter", "rin", "fun", "pinch", "dram", "decade", "gray", "sievert"})
_PRIMES = re.compile("''|[\"”“]")
_DROPPED = re.compile(r"[.\u200b-\u200f\u061c\u2066-\u2069\ufeff^]|\*\*")
_SPACES = re.compile(r"[\s‐-―-]+")
_PLACE = re.compile(r"[\s\u200e\u200f]*\{\d\}[\s\u200e\u200f]*")
_DIGITS = re.compile("0+")
# Words within a pattern of dates, such as "d 'de' MMMM" and "y年M月d日".
_LITERALS = re.compile(r"'([^']+)'|([^\W\d_a-zA-Z]+)")


def folded_name(text: str) -> str:
    """A name without typographic variants: `fl. oz.` is `fl oz`, `m²` is `m2`, `″` is `''`."""
    if text.isascii() and text.isalpha():
        return text
    text = unicodedata.normalize("NFKC", text).replace("′", "'").replace("’", "'")
    text = _DROPPED.sub("", _PRIMES.sub("''", text))
    return _SPACES.sub(" ", text).strip().replace("° ", "°")


def check_language(name: object) -> None:
    """Raises ValueError for a language without data in CLDR."""
    from babel import localedata

    known = localedata.locale_identifiers()
    if not isinstance(name, str) or name.replace("-", "_") not in known:
        raise ValueError(f"unknown language {name!r}; name one of CLDR's, such as de or pt-BR")


@cache
def _kept(make: Callable[[Any], Any], language: str | None) -> Any:
    return make(language)


def table(make: Callable[[L], T], language: L) -> T:
    """The table that a function makes for a language: made on first use, then kept."""
    kept: T = _kept(make, language)
    return kept


def locale(name: str) -> Mapping[str, Any]:
    from babel import localedata

    data: Any = localedata.load(name.replace("-", "_"))
    return localedata.LocaleDataDict(data)


def _names(language: str | None) -> tuple[str, ...]:
    """The locales by rank: the field's language at 0, English from 1 to `ENGLISH`."""
    return (language or "en", *LANGUAGES)


def _locales(language: str | None) -> Iterator[Mapping[str, Any]]:
    yield from map(locale, _names(language))


def _texts(node: Any) -> Iterator[str]:
    """Yields the texts of a part of a locale's data, whatever their plural or width."""
    if isinstance(node, str):
        yield node
    elif node is not None and hasattr(node, "values"):
        for inner in node.values():
            yield from _texts(inner)
    else:
        yield from filter(None, [getattr(node, "pattern", None)])


def indexed(pairs: Iterable[tuple[str, T]]) -> dict[str, tuple[T, ...]]:
    """All that a name stands for, by name, in the order of the pairs."""
    names: dict[str, dict[T, None]] = {}
    for name, value in pairs:
        names.setdefault(name, {})[value] = None
    return {name: tuple(values) for name, values in names.items()}


def separators(language: str) -> tuple[str, str]:
    """(decimal sign, sign of thousands) of a language."""
    data = locale(language)
    symbols = data["number_symbols"][data["default_numbering_system"]]
    return symbols["decimal"], symbols["group"]


def order_of_dates(language: str) -> str:
    """The order of year, month and day in a language's short dates: "dMy", "Mdy", "yMd"."""
    (pattern,) = _texts(locale(language)["date_formats"]["short"])
    return "".join(sorted("yMd", key=pattern.find))


def units(language: str | None) -> tuple[Mapping[str, dict[str, int]], Mapping[str, set[str]]]:
    """pint's units by name, with their languages' ranks; and the spellings of a name by case.

    A name may have several units. The rank of the field's language, or English, is 0. The unit ""
    stands for one that CLDR names and pint does not know.
    """
    names: dict[str, dict[str, int]] = {}
    for rank, own in enumerate(_names(language)):
        for name, unit in table(_units_of, own):
            names.setdefault(name, {}).setdefault(unit, rank)
    spellings: dict[str, set[str]] = {}
    for name in names:
        spellings.setdefault(name.casefold(), set()).add(name)
    return names, spellings


def _units_of(name: str) -> tuple[tuple[str, str], ...]:
    """The names of units in a locale, with pint's names."""
    pairs: dict[tuple[str, str], None] = {}
    displayed = locale(name)["unit_display_names"]
    for identity, patterns in locale(name)["unit_patterns"].items():
        unit = pint_name(identity)
        shown = (
            text
            for width in patterns.values()
            for plural, text in width.items()
            if plural not in ("per", "gender") and isinstance(text, str)
        )
        for text in {*shown, *_texts(displayed.get(identity))}:
            spelt = folded_name(_PLACE.sub("", text))
            # A degree alone is an angle; Americans leave Fahrenheit out.
            if spelt and not (spelt == "°" and unit != "degree"):
                pairs[spelt, unit] = None
                if spelt[0] == "°" and len(spelt) == 2:
                    pairs[spelt[1], unit] = None
    return tuple(pairs)


def pint_name(identity: str) -> str:
    """pint's name of CLDR's unit, "speed-kilometer-per-hour"; "" if pint lacks the unit."""
    name = identity.partition("-")[2]
    if name in _OTHERS or name.endswith(("-jp", "-person", "-metric")):
        return ""
    parts = []
    for part in _UNITS.get(name, name).split("-per-"):
        power = {"square": "**2", "cubic": "**3"}.get(part.partition("-")[0], "")
        parts.append((part.partition("-")[2] if power else part).replace("-", "_") + power)
    return " / ".join(parts)


def factors(language: str | None) -> Mapping[str, tuple[int, ...]]:
    """Powers of ten by name, "mio" and "lakh"; several if languages disagree, English first.

    Names of up to two letters count as CLDR spells them, so that "CR" is no crore; others are in
    lower case.
    """
    return indexed(pair for own in _names(language) for pair in table(own_factors, own).items())


def own_factors(language: str) -> Mapping[str, int]:
    """The powers of ten of one language."""
    names: dict[str, int] = {}
    for width in locale(language)["compact_decimal_formats"].values():
        for plural in width.values():
            for size, pattern in plural.items():
                text = pattern if isinstance(pattern, str) else pattern.pattern
                digits = _DIGITS.search(text)
                name = folded_name(_DIGITS.sub("", text).replace("'", ""))
                if digits and name:
                    name = name.casefold() if len(name) > 2 else name
                    names.setdefault(name, int(size) // 10 ** (len(digits[0]) - 1))
    return names


def currencies(language: str | None) -> Mapping[str, tuple[str, ...]]:
    """Codes of ISO 4217 by code, and by sign and name in lower case; the likeliest first."""
    named = [pair for own in _names(language) for pair in table(_currencies_of, own)]
    # A "$" may be any of the dollars whose sign ends with it.
    signs = (
        (sign[-1], code) for code, sign in locale("en")["currency_symbols"].items() if sign[1:]
    )
    named += [(sign, code) for sign, code in signs if unicodedata.category(sign) == "Sc"]
    codes = [(code, code) for code in table(currency_codes, None)]
    return indexed((name, code) for name, code in [*named, *codes] if not name.isdigit())


def _currencies_of(name: str) -> tuple[tuple[str, str], ...]:
    """The signs and names of currencies in a locale, with their codes."""
    parts = (locale(name)[f"currency_{part}"] for part in ("symbols", "names", "names_plural"))
    named = ((text, code) for part in parts for code, node in part.items() for text in _texts(node))
    known = table(currency_codes, None)
    spelt = ((text, code) for text, code in named if code in known and text != code)
    pairs = ((folded_name(text).casefold(), code) for text, code in spelt)
    return tuple(dict.fromkeys(pairs))


def currency_codes(_: str | None) -> frozenset[str]:
    """Codes that are or were money somewhere, without metals and codes for tests."""
    from babel.core import get_global

    places = get_global("territory_currencies").values()
    return frozenset(code for spells in places for code, *_, is_tender in spells if is_tender)


def words_of_money(language: str | None) -> Mapping[str, frozenset[str]]:
    """Codes of the currencies that have a word in their name: "dollars", "swiss"."""
    named = table(currencies, language).items()
    words = indexed(
        (word, code) for name, codes in named for word in name.split() for code in codes
    )
    return {word: frozenset(codes) for word, codes in words.items()}


def per_words(language: str | None) -> frozenset[str]:
    patterns = (data["compound_unit_patterns"]["per"]["long"] for data in _locales(language))
    texts = (text for pattern in patterns for text in _texts(pattern))
    return frozenset(folded_name(_PLACE.sub(" ", text)).casefold() for text in texts) | {"/"}


def conjunctions(_: str | None) -> frozenset[str]:
    """The words between the last two items of a list in other languages: "und", "y"."""
    names = (name for name in LANGUAGES if not name.startswith("en"))
    lists = (locale(name)["list_patterns"]["standard"] for name in names)
    texts = {text for patterns in lists for text in (patterns["end"], patterns["2"])}
    return frozenset(_PLACE.sub("", text).strip(" ,").casefold() for text in texts) - {""}


def months(language: str | None) -> Mapping[str, int]:
    """Numbers of months by name in lower case, "mars" and "3月".

    Without the field's language, a name that languages disagree about has no number.
    """
    names: dict[str, int] = {}
    for data in _locales(None):
        for name, number in _numbered(data["months"]):
            names[name] = number if names.get(name, number) == number else 0
    own = table(own_months, language) if language else {}
    return {name: number for name, number in {**names, **own}.items() if number}


def own_months(language: str) -> Mapping[str, int]:
    return dict(_numbered(locale(language)["months"]))


def words_of_dates(language: str | None) -> frozenset[str]:
    """Days of the week, eras, and the words within dates: "de", "г", "年"."""
    words: set[str] = set()
    for data in _locales(language):
        words.update(*(name.split() for name, _ in _numbered(data["days"])))
        words.update(*(text.casefold().split() for text in _eras(data, 1)))
        for width in ("long", "full", "medium", "short"):
            for pattern in _texts(data["date_formats"][width]):
                for quoted, bare in _LITERALS.findall(pattern):
                    words.update((quoted or bare).casefold().split())
    return frozenset(map(folded_name, words))


def parts_of_days(language: str | None) -> frozenset[str]:
    """Names that change a date or a time: "noon", "evening", "BC"."""
    texts = (
        text
        for data in _locales(language)
        for text in (*_texts(data["day_periods"]), *_eras(data, 0))
    )
    names = {folded_name(text).casefold() for text in texts if len(text) > 1}
    return frozenset(names) - table(words_of_dates, language)


def _eras(data: Mapping[str, Any], number: int) -> Iterator[str]:
    """Yields the names of an era: 0 before Christ, 1 after."""
    for width in data["eras"].values():
        yield from _texts(width.get(number))


def halves_of_days(language: str | None) -> Mapping[str, bool]:
    """True for names of the afternoon ("pm"), False for names of the forenoon."""
    names: dict[str, bool] = {}
    for data in _locales(language):
        for width in data["day_periods"]["format"].values():
            for half in ("am", "pm"):
                if half in width:
                    names.setdefault(
                        folded_name(width[half]).casefold().replace(" ", ""), half == "pm"
                    )
    return names


def _numbered(part: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Yields the names of months or days, and their numbers."""
    for context in part.values():
        for width, texts in context.items():
            if width != "narrow":
                yield from ((folded_name(text).casefold(), at) for at, text in texts.items())


def named(part: str, language: str | None) -> Iterator[tuple[str, str]]:
    """Yields names with their codes. part: "territories" or "languages"."""
    for data in _locales(language):
        yield from ((name, code) for code, name in data[part].items())
