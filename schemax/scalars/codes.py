"""ISO codes that stand for names: the base of countries, languages and currencies."""

from __future__ import annotations

import gettext
import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from schemax.reading import Reading, noted
from schemax.scalars.base import Scalar, Writing

_LANGUAGES = ("de", "fr", "es", "pt", "it", "nl")


class Code(Scalar):
    """An ISO code, which is also read from names in seven languages."""

    @abstractmethod
    def names(self) -> Iterable[tuple[str, str]]:
        """Yields (name, code) pairs, in any case; a code may have several names."""

    def is_code(self, text: str) -> bool:
        return _names(self)[0].get(text.casefold()) == text

    def read(self, text: str, unit: str | None = None) -> Reading:
        """Reads a code or a name. Raises ValueError for a text that names several."""
        if self.is_code(text):
            return Reading(text)
        names, named = _names(self)
        stripped = text.strip(" .,;:()[]\"'")
        if whole := names.get(stripped.casefold()):
            return noted(text, whole)
        spelt = dict.fromkeys(match[0].casefold() for match in named.finditer(text))
        found = list(dict.fromkeys(names[name] for name in spelt))
        if len(found) > 1:
            raise ValueError(f"states several ({', '.join(found)}); the field takes one")
        return noted(text, found[0]) if found else Reading(text)

    def literal(self, text: str, choices: Any) -> Any:
        if not self.is_code(text):
            raise ValueError("no code")
        return text

    def terminals(self, writing: Writing) -> Iterator[str]:
        yield writing.around(self.samples[0], f"/{'|'.join(sorted({*_names(self)[0].values()}))}/")

    def compared(self, value: Any) -> Any:
        return str(value)


@lru_cache
def _names(kind: Code) -> tuple[Mapping[str, str], re.Pattern[str]]:
    """Codes by name in lower case, and the pattern that finds names in texts, longest first.

    Words within a text are looked up as names alone, since "is" and "to" are codes, too.
    """
    names: dict[str, str] = {}
    for name, code in kind.names():
        names.setdefault(name.casefold(), code)
    long = sorted((name for name in names if len(name) > 3), key=len, reverse=True)
    pattern = "|".join(map(re.escape, long))
    # "New Jersey" is no Jersey; names such as New Zealand begin with the word themselves.
    return names, re.compile(rf"(?<!\w)(?<!\bnew )(?:{pattern})(?!\w)", re.IGNORECASE)


def spellings(name: str, domain: str) -> Iterator[str]:
    """Yields a name of pycountry's in seven languages; "Korea, Republic of" also reordered."""
    for found in dict.fromkeys((name, *(one.gettext(name) for one in _translations(domain)))):
        plain = re.sub(r"\s*\([^()]*\)", "", found)
        yield from dict.fromkeys((found, plain))
        first, _, rest = plain.partition(", ")
        if rest:
            yield f"{rest} {first}"


@lru_cache
def _translations(domain: str) -> tuple[gettext.NullTranslations, ...]:
    import pycountry

    folder = pycountry.LOCALES_DIR
    return tuple(gettext.translation(domain, folder, languages=[one]) for one in _LANGUAGES)
