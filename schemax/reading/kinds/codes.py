"""ISO codes that stand for names: countries, languages and currencies, named by CLDR."""

from __future__ import annotations

import unicodedata
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from schemax.reading import Reading, cldr, noted
from schemax.reading.absence import NEGATIONS
from schemax.reading.amounts import amounts_of
from schemax.reading.kinds.base import Scalar, Writing
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
    """An ISO code, which is also read from names in the languages of `cldr.LANGUAGES`."""

    @abstractmethod
    def codes(self) -> Iterable[str]:
        """All codes."""

    @abstractmethod
    def names(self, language: str | None) -> Names:
        """All names."""

    def is_code(self, text: str) -> bool:
        return text in _codes(self)

    def read(self, text: str, unit: str | None = None, language: str | None = None) -> Reading:
        """Reads a code or a name. Raises ValueError for a text that names several, or negates."""
        if self.is_code(text) or len(text) > _LONGEST:
            return Reading(text)
        names = self.names(language)
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
        if not self.is_code(text):
            raise ValueError("no code")
        return text

    def terminals(self, writing: Writing) -> Iterator[str]:
        yield writing.around(self.samples[0], f"/{'|'.join(sorted(self.codes()))}/")

    def compared(self, value: Any) -> Any:
        return str(value)


def _key(name: str) -> str:
    return cldr.folded_name(name).casefold()


def _goes_on(text: str, tokens: Sequence[Token], start: int, end: int) -> bool:
    """True if a word beside a name belongs to a longer one: "New Jersey", "DR Congo"."""
    gaps = [
        text[tokens[at - 1].end : tokens[at].start] for at in (start, end) if 0 < at < len(tokens)
    ]
    before, behind = tokens[max(0, start - 1) : start], tokens[end : end + 1]
    return any(
        gap == " "
        and word.text[0].isupper()
        and (len(word.text) > 2 or word.text.isupper() > text.isupper())
        for gap, word in zip(gaps, (*before, *behind), strict=True)
    )


@lru_cache
def _codes(kind: Code) -> frozenset[str]:
    return frozenset(kind.codes())


class Country(Code):
    """CountryAlpha2 of pydantic-extra-types: "Made in Germany" is DE."""

    name = "country"
    types = ("pydantic_extra_types.country.CountryAlpha2",)
    shown = "country (code of ISO 3166)"
    word = "country"
    widest = ('"DE"', "United Kingdom of Great Britain and Northern Ireland")
    samples = ("DE",)

    def codes(self) -> Iterator[str]:
        import pycountry

        for country in pycountry.countries:
            yield country.alpha_2 if self.name == "country" else country.alpha_3

    @lru_cache  # noqa: B019 -- kinds stay for good
    def names(self, language: str | None) -> Names:
        import pycountry

        countries = {country.alpha_2: country for country in pycountry.countries}
        pairs = [*cldr.named("territories", language)]
        for code, country in countries.items():
            given = (getattr(country, key, "") for key in ("name", "common_name", "official_name"))
            pairs += [(spelt, code) for name in given for spelt in _spellings(name)]
            pairs += [(code, code), (country.alpha_3, code), (f"the {country.name}", code)]
        pairs += _COUNTRIES.items()
        own = {
            code: code if self.name == "country" else one.alpha_3 for code, one in countries.items()
        }
        return cldr.indexed((_key(name), own[code]) for name, code in pairs if name and code in own)


class Country3(Country):
    """CountryAlpha3 of pydantic-extra-types."""

    name = "country3"
    types = ("pydantic_extra_types.country.CountryAlpha3",)
    shown = "country (code of three letters of ISO 3166)"
    widest = ('"DEU"', Country.widest[1])
    samples = ("DEU",)


class Language(Code):
    """LanguageAlpha2 of pydantic-extra-types: "in German" is de."""

    name = "language"
    types = ("pydantic_extra_types.language_code.LanguageAlpha2",)
    shown = "language (code of ISO 639)"
    word = "language"
    widest = ('"de"', "Bokmål, Norwegian; Norwegian Bokmål")
    samples = ("de",)

    def codes(self) -> Iterator[str]:
        import pycountry

        yield from filter(None, (getattr(one, "alpha_2", "") for one in pycountry.languages))

    @lru_cache  # noqa: B019 -- kinds stay for good
    def names(self, language: str | None) -> Names:
        import pycountry

        pairs = [*cldr.named("languages", language)]
        for one in pycountry.languages:
            if code := getattr(one, "alpha_2", ""):
                pairs += [(spelt, code) for spelt in (code, one.alpha_3, *_spellings(one.name))]
        return cldr.indexed((_key(name), code) for name, code in pairs if self.is_code(code))


class Currency(Code):
    """Currency and ISO4217 of pydantic-extra-types: "€ 12.50" is EUR."""

    name = "currency"
    types = (
        "pydantic_extra_types.currency_code.Currency",
        "pydantic_extra_types.currency_code.ISO4217",
    )
    shown = "currency (code of ISO 4217)"
    word = "currency"
    widest = ('"EUR"', "Bosnia and Herzegovina convertible mark")
    samples = ("EUR",)

    def codes(self) -> Iterator[str]:
        import pycountry

        yield from (one.alpha_3 for one in pycountry.currencies)

    @lru_cache  # noqa: B019 -- kinds stay for good
    def names(self, language: str | None) -> Names:
        pairs = cldr.currencies(language).items()
        codes = ((name, code) for name, codes in pairs for code in codes)
        return cldr.indexed((_key(name), code) for name, code in codes if self.is_code(code))

    def is_sign(self, text: str) -> bool:
        return any(unicodedata.category(char) == "Sc" for char in text)

    def stated(self, text: str, tokens: Sequence[Token], names: Names) -> Iterator[tuple[str, ...]]:
        """Yields the currencies of the amounts of a text; without any, those that it names."""
        beside = [amount.codes for amount in amounts_of(text).amounts if amount.codes]
        yield from beside or super().stated(text, tokens, names)


def _spellings(name: str) -> Iterator[str]:
    """Yields "Korea, Republic of" also as "Republic of Korea"."""
    yield name
    first, _, rest = name.partition(", ")
    yield f"{rest} {first}".removeprefix("The ").strip()
