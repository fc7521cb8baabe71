"""Countries, as codes of ISO 3166."""

from __future__ import annotations

from collections.abc import Iterator

from schemax.scalars.codes import Code, spellings

_ALSO = {
    **dict.fromkeys(("uk", "u.k.", "great britain", "britain", "england", "scotland"), "GB"),
    **dict.fromkeys(("wales", "northern ireland", "großbritannien"), "GB"),
    **dict.fromkeys(("u.s.", "u.s.a.", "united states of america", "america"), "US"),
    **dict.fromkeys(("holland", "the netherlands"), "NL"),
    **dict.fromkeys(("prc", "p.r.c.", "mainland china"), "CN"),
    **dict.fromkeys(("dr congo", "d.r. congo", "drc"), "CD"),
    **dict.fromkeys((f"democratic republic of {one}" for one in ("congo", "the congo")), "CD"),
    **{"south korea": "KR", "north korea": "KP", "czech republic": "CZ", "turkey": "TR"},
    **{"russia": "RU", "ivory coast": "CI", "cape verde": "CV", "uae": "AE", "macedonia": "MK"},
}


class Country(Code):
    """CountryAlpha2 of pydantic-extra-types: "Made in Germany" is DE."""

    name = "country"
    types = ("pydantic_extra_types.country.CountryAlpha2",)
    shown = "country (code of ISO 3166)"
    word = "country"
    widest = ('"DE"', "United Kingdom of Great Britain and Northern Ireland")
    samples = ("DE",)

    def names(self) -> Iterator[tuple[str, str]]:
        import pycountry

        for country in pycountry.countries:
            code = country.alpha_2 if self.name == "country" else country.alpha_3
            yield from ((one, code) for one in (country.alpha_2, country.alpha_3))
            for key in ("name", "common_name", "official_name"):
                if name := getattr(country, key, None):
                    yield from ((one, code) for one in spellings(name, "iso3166-1"))
            yield from ((one, code) for one, owner in _ALSO.items() if owner == country.alpha_2)


class Country3(Country):
    """CountryAlpha3 of pydantic-extra-types."""

    name = "country3"
    types = ("pydantic_extra_types.country.CountryAlpha3",)
    shown = "country (code of three letters of ISO 3166)"
    widest = ('"DEU"', Country.widest[1])
    samples = ("DEU",)
