"""ISO codes that stand for names: countries, languages and currencies, named by CLDR."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from schemax.reading import Reading, cldr, noted
from schemax.reading.amounts import amounts_of
from schemax.reading.booleans import NEGATIONS
from schemax.reading.kinds.base import Scalar
from schemax.reading.tokens import Token, tokens_of

Names: TypeAlias = Mapping[str, tuple[str, ...]]
"""The codes that may be meant by a name in lower case, the likeliest first."""

# Names that are usual and not among CLDR's.
_COUNTRIES = {
    **dict.fromkeys(("uk", "u.k.", "great britain", "england"), "GB"),
    **dict.fromkeys(("usa", "u.s.a."), "US"),
}
# Shorter names are ordinary words as well: "is", "to", "and".
_SHORTEST = 4
# The most characters of a text in which names are looked for.
_LONGEST = 1000
_MOST_TOKENS = 10


class Code(Scalar):
    """An ISO code, which is also read from names in the languages of `cldr.LANGUAGES`.

    table: of pycountry.
    form: the attribute of its entries that holds the codes.
    part: of CLDR's data, with names by codes of two letters.
    also: further names, with such codes.
    """

    table: str
    form = "alpha_2"
    part: str
    also: Mapping[str, str] = {}

    def entries(self) -> list[Any]:
        """The entries of the table that have a code."""
        import pycountry

        return [entry for entry in getattr(pycountry, self.table) if hasattr(entry, self.form)]

    def codes(self, _: str | None = None) -> frozenset[str]:
        return frozenset(getattr(entry, self.form) for entry in self.entries())

    def names(self, language: str | None) -> Names:
        codes = self.codes()
        named = ((_key(name), code) for name, code in self.named(language) if name)
        return cldr.indexed(pair for pair in named if pair[1] in codes)

    def named(self, language: str | None) -> Iterator[tuple[str, str]]:
        """Yields names, the likeliest first, with their codes."""
        entries = self.entries()
        pairs = [*cldr.named(self.part, language)]
        for entry in entries:
            names = (getattr(entry, key, "") for key in ("name", "common_name", "official_name"))
            pairs += [(spelt, entry.alpha_2) for name in names for spelt in _spellings(name)]
            pairs += [(code, entry.alpha_2) for code in (entry.alpha_2, entry.alpha_3)]
        own = {entry.alpha_2: getattr(entry, self.form) for entry in entries}
        yield from ((name, own[code]) for name, code in [*pairs, *self.also.items()] if code in own)

    def read(self, text: str, unit: str | None = None, language: str | None = None) -> Reading:
        """Reads a code or a name. Raises ValueError for a text that names several, or negates."""
        if text in cldr.table(self.codes, None) or len(text) > _LONGEST:
            return Reading(text)
        names = cldr.table(self.names, language)
        tokens = tokens_of(text)
        whole = names.get(_key(text.strip(" .,;:()[]\"'")))
        stated = [whole] if whole else list(self.stated(text, tokens, names))
        words = {token.text.casefold() for token in tokens if token.kind == "word"}
        if stated and (NEGATIONS - {"no"}) & words:  # "no" is "in the" in Portuguese
            raise ValueError("says what is not meant")
        distinct = dict.fromkeys(stated)
        if len(distinct) > 1:
            shown = ", ".join(codes[0] for codes in distinct)
            raise ValueError(f"states several ({shown}); the field takes one")
        if not distinct:
            return Reading(text)
        (codes,) = distinct
        if len(codes) > 1 and not self.is_sign(text):
            raise ValueError(f"may mean {' or '.join(codes)}")
        doubt = "the sign stands for several" if len(codes) > 1 else None
        return noted(text, codes[0], doubt)

    def is_sign(self, text: str) -> bool:
        return False

    def stated(self, text: str, tokens: Sequence[Token], names: Names) -> Iterator[tuple[str, ...]]:
        """Yields the codes of the names within a text, of which the longest count."""
        behind = 0
        for start, token in enumerate(tokens):
            most = start + _MOST_TOKENS if token.kind == "word" and start >= behind else start
            for end in range(min(len(tokens), most), start, -1):
                name = text[token.start : tokens[end - 1].end]
                # Within a text, names begin with a capital: "bone china" is of no country.
                is_long = len(_key(name)) >= _SHORTEST and not name[0].islower()
                is_name = is_long or name.casefold() in _COUNTRIES
                if is_name and (codes := names.get(_key(name))):
                    behind = end
                    if not _goes_on(text, tokens, start, end):
                        yield codes
                    break

    def literal(self, text: str, choices: Any) -> Any:
        if text not in cldr.table(self.codes, None):
            raise ValueError("no code")
        return text

    def compared(self, value: Any) -> Any:
        return str(value)


def _key(name: str) -> str:
    return cldr.folded_name(name).casefold()


def _goes_on(text: str, tokens: Sequence[Token], start: int, end: int) -> bool:
    """True if a word beside a name belongs to a longer one: "New Jersey", "DR Congo"."""
    before = [(token, text[token.end : tokens[start].start]) for token in tokens[:start][-1:]]
    behind = [(token, text[tokens[end - 1].end : token.start]) for token in tokens[end : end + 1]]
    return any(
        gap == " "
        and word.text[0].isupper()
        and (len(word.text) > 2 or word.text.isupper() > text.isupper())
        for word, gap in before + behind
    )


class Country(Code):
    """CountryAlpha2 of pydantic-extra-types: "Made in Germany" is DE."""

    name = "country"
    json_types = (("string", "country"),)
    types = ("pydantic_extra_types.country.CountryAlpha2",)
    shown = "country (code of ISO 3166)"
    word = "country"
    widest = ('"DE"', "United Kingdom of Great Britain and Northern Ireland")
    samples = ("DE",)
    table, part = "countries", "territories"
    also = _COUNTRIES

    def named(self, language: str | None) -> Iterator[tuple[str, str]]:
        yield from super().named(language)
        for entry in self.entries():
            yield f"the {entry.name}", getattr(entry, self.form)


class Country3(Country):
    """CountryAlpha3 of pydantic-extra-types."""

    name = "country3"
    json_types = (("string", "country3"),)
    types = ("pydantic_extra_types.country.CountryAlpha3",)
    shown = "country (code of three letters of ISO 3166)"
    widest = ('"DEU"', Country.widest[1])
    samples = ("DEU",)
    form = "alpha_3"


class Language(Code):
    """LanguageAlpha2 of pydantic-extra-types: "in German" is de."""

    name = "language"
    json_types = (("string", "language"),)
    types = ("pydantic_extra_types.language_code.LanguageAlpha2",)
    shown = "language (code of ISO 639)"
    word = "language"
    widest = ('"de"', "Bokmål, Norwegian; Norwegian Bokmål")
    samples = ("de",)
    table, part = "languages", "languages"


class Currency(Code):
    """Currency and ISO4217 of pydantic-extra-types: "€ 12.50" is EUR."""

    name = "currency"
    json_types = (("string", "currency"),)
    types = (
        "pydantic_extra_types.currency_code.Currency",
        "pydantic_extra_types.currency_code.ISO4217",
    )
    shown = "currency (code of ISO 4217)"
    word = "currency"
    widest = ('"EUR"', "Bosnia and Herzegovina convertible mark")
    samples = ("EUR",)
    table, form = "currencies", "alpha_3"

    def named(self, language: str | None) -> Iterator[tuple[str, str]]:
        for name, codes in cldr.table(cldr.currencies, language).items():
            yield from ((name, code) for code in codes)

    def is_sign(self, text: str) -> bool:
        return any(unicodedata.category(char) == "Sc" for char in text)

    def stated(self, text: str, tokens: Sequence[Token], names: Names) -> Iterator[tuple[str, ...]]:
        """Yields the currencies of the amounts of a text; without any, those that it names."""
        beside = [amount.codes for amount in amounts_of(text).amounts if amount.codes]
        yield from beside or super().stated(text, tokens, names)


def _spellings(name: str) -> Iterator[str]:
    """Yields "Korea, Republic of" also as "Republic of Korea"."""
    yield name
    first, _, last = name.partition(", ")
    yield f"{last} {first}".removeprefix("The ").strip()
