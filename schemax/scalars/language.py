"""Languages, as codes of ISO 639."""

from __future__ import annotations

from collections.abc import Iterator

from schemax.scalars.codes import Code, spellings

_ALSO = {
    **{"mandarin": "zh", "farsi": "fa", "castilian": "es", "castellano": "es", "flemish": "nl"},
    **{"greek": "el", "griechisch": "el", "grec": "el", "griego": "el", "grego": "el"},
    **{"malay": "ms", "swahili": "sw", "nepali": "ne"},
}


class Language(Code):
    """LanguageAlpha2 of pydantic-extra-types: "in German" is de."""

    name = "language"
    types = ("pydantic_extra_types.language_code.LanguageAlpha2",)
    shown = "language (code of ISO 639)"
    word = "language"
    widest = ('"de"', "Bokmål, Norwegian; Norwegian Bokmål")
    samples = ("de",)

    def names(self) -> Iterator[tuple[str, str]]:
        import pycountry

        for language in pycountry.languages:
            if code := getattr(language, "alpha_2", None):
                yield from ((one, code) for one in (code, language.alpha_3))
                yield from ((one, code) for one in spellings(language.name, "iso639-3"))
        yield from _ALSO.items()
