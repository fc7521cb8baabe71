"""Currencies, as codes of ISO 4217."""

from __future__ import annotations

import re
from collections.abc import Iterator

from schemax.reading import Reading, noted
from schemax.reading.amounts import CURRENCIES
from schemax.scalars.codes import Code, spellings

_ALSO = {
    **dict.fromkeys(("dollar", "dollars", "us dollars", "bucks"), "USD"),
    **dict.fromkeys(("euros",), "EUR"),
    **dict.fromkeys(("pound", "pounds", "british pounds", "quid"), "GBP"),
    **{"yuan": "CNY", "renminbi": "CNY", "rmb": "CNY", "rupee": "INR", "rupees": "INR"},
    **{"swiss francs": "CHF", "francs": "CHF", "japanese yen": "JPY"},
}
_SIGN = re.compile("|".join(re.escape(one) for one in sorted(CURRENCIES, key=len, reverse=True)))
_DOUBTFUL = frozenset("$¥")


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

    def names(self) -> Iterator[tuple[str, str]]:
        import pycountry

        for currency in pycountry.currencies:
            yield currency.alpha_3, currency.alpha_3
            yield from ((one, currency.alpha_3) for one in spellings(currency.name, "iso4217"))
            yield f"{currency.name}s", currency.alpha_3
        yield from _ALSO.items()

    def read(self, text: str, unit: str | None = None) -> Reading:
        """Reads codes, names and signs. Raises ValueError for a text that names several."""
        reading = super().read(text)
        is_code = reading.note or self.is_code(text)
        signs = [] if is_code else _SIGN.findall(text.upper())
        codes = list(dict.fromkeys(CURRENCIES[sign] for sign in signs))
        if len(codes) > 1:
            raise ValueError(f"states several ({', '.join(codes)}); the field takes one")
        doubt = "the sign stands for several" if {*signs} & _DOUBTFUL else None
        return noted(text, codes[0], doubt) if codes else reading
