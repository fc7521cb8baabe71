"""Numbers in a text, with their places: signs, separators, fractions, words such as "million".

Of "." and ",", the rightmost is the decimal separator and the other separates thousands; a sign
that occurs several times separates thousands. So does a lone sign before exactly three digits,
except a point in a number that is neither whole nor an amount of money: 1,299 is 1299, and 1.299 is
1.299. Spaces, apostrophes and underscores separate thousands alone.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from math import gcd

CURRENCIES = {
    **{"$": "USD", "US$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "R$": "BRL"},
    **{code: code for code in ("USD", "EUR", "GBP", "JPY", "INR", "BRL", "CHF", "CAD", "AUD")},
    **{code: code for code in ("DKK", "NOK", "SGD", "ZAR", "HUF", "PKR", "IDR", "MYR")},
    **{"CNY": "CNY", "MXN": "MXN", "SEK": "SEK", "PLN": "PLN", "ZŁ": "PLN", "KČ": "CZK"},
    **{"$US": "USD", "$CA": "CAD", "$AU": "AUD"},
    **{"A$": "AUD", "AU$": "AUD", "C$": "CAD", "CA$": "CAD", "MX$": "MXN", "NZ$": "NZD"},
    **{"HK$": "HKD", "CN¥": "CNY", "₽": "RUB", "₺": "TRY", "₩": "KRW", "₪": "ILS"},
}
"""Currency symbols and codes, in upper case -> code."""

_MONEY = "|".join(re.escape(sign) for sign in sorted(CURRENCIES, key=len, reverse=True))
_MONEY_BEFORE = re.compile(rf"(?:^|(?<![^\W\d_]))({_MONEY})\s?$", re.IGNORECASE)
_MONEY_BEHIND = re.compile(rf"(?:,[-–])?\s?({_MONEY})(?![^\W\d_])", re.IGNORECASE)
_MONEY_SIGNS = "$€£¥₹₽₺₩₪"
_OF_SEVERAL = frozenset("$¥")

_LONGEST_MONEY = 8
_SPACES = "\u00a0\u2009\u202f"
_CODES = tuple(dict.fromkeys(CURRENCIES.values()))
_COUNTRIES = {"US": "USD", "AU": "AUD", "CA": "CAD", "NZ": "NZD", "HK": "HKD", "MX": "MXN"}
_CODE_BEFORE = re.compile(rf"(?<![^\W\d_])({'|'.join((*_CODES, *_COUNTRIES))})\s?$")
_AFTER_CODE = "".join(f"|(?<={code})" for code in _CODES)
_BEFORE_SIGN = rf"(?:(?<![^\s(\[:=~≈<>≤≥\"'“„;|{_MONEY_SIGNS}]){_AFTER_CODE})"
# A minus before money: "-$5", "− € 5".
_MINUS_BEFORE = re.compile(
    rf"(?:^|(?<=[\s(\[:=~≈<>≤≥\"'“„;|]))(?:-|−\s?)(?:[^\W\d_]{{0,3}}[{_MONEY_SIGNS}]|{_MONEY})\s?$",
    re.IGNORECASE,
)
# A run of digits before these is only a part: of a time, a power, a fraction, a code.
_CODE = r"[^\W\d_]++(?!(?<=[mtn])[23](?!\w))\d"
_ENDS = rf"(?![⁰¹²³⁴-⁹¼-¾⅐-⅞]|:\d|\s?[/⁄]\s?\d|\s?\^|\s?\*\*|{_CODE})"
_AMOUNT = re.compile(
    rf"""(?:(?<![^\W\d_]){_AFTER_CODE})(?<!\d)(?<!\d[.,/⁄:^])(?<!\d\*\*)(?<!\d\s[/⁄])(?<!\d[/⁄]\s)(?<!\d\s[/⁄]\s)
    (?P<sign>{_BEFORE_SIGN}(?:[-+]|−\s?))?
    (?:(?:(?P<units>\d+)(?P<gap>[\s-]))?(?P<top>\d++)\s?[/⁄]\s?(?P<bottom>\d++){_ENDS}
      |(?P<above>\d*)\s?(?P<vulgar>[¼-¾⅐-⅞])
      |(?P<digits>(?>\d++(?:[.,_{_SPACES}]\d++|['’]\d{{3}}(?!\d))*|(?<![.,])[.,]\d++)
        (?P<power>[eE](?:[-+]\d{{1,2}}|(?<=[.]\d[eE])\d{{1,2}})(?![^\W_]))?)
       {_ENDS})""",
    re.VERBOSE,
)
_SPACED = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+([.,]\d{1,2})?(?![\d.,])")
_BY = re.compile(r"(?<=\d)[xX](?=\d)")
# Number signs of other scripts -> signs of the same length.
_ALIKE = str.maketrans("٫٬．，￥", ".,.,¥")
_FACTORS = {
    **dict.fromkeys(("dozen", "dutzend", "docena", "docenas", "dúzia", "dúzias", "dozijn"), 12),
    **dict.fromkeys(("douzaine", "douzaines", "dozzina", "dozzine"), 12),
    **dict.fromkeys(("hundred", "hundert", "honderd"), 100),
    **dict.fromkeys(("thousand", "tausend", "tsd", "mille", "mila", "duizend", "tys"), 10**3),
    **dict.fromkeys(("millier", "milliers", "millares", "tusen"), 10**3),
    **dict.fromkeys(("lakh", "lakhs", "lac"), 10**5),
    **dict.fromkeys(("crore", "crores", "cr"), 10**7),
    **dict.fromkeys(("miljoner", "millioner", "miliony", "milionów", "milyon"), 10**6),
    **dict.fromkeys(("miljarder", "milliarder", "mia", "mdr", "milyar"), 10**9),
    **dict.fromkeys(("million", "millions", "millionen", "mio", "millones", "milhões"), 10**6),
    **dict.fromkeys(("millón", "milhão", "milione", "milioni", "miljoen", "mln"), 10**6),
    **dict.fromkeys(("billion", "billions", "bn", "milliarde", "milliarden", "mrd"), 10**9),
    **dict.fromkeys(("milliard", "milliards", "miliardo", "miliardi", "mld", "miljard"), 10**9),
    **dict.fromkeys(("bilhão", "bilhões"), 10**9),
    **dict.fromkeys(("trillion", "trillions", "billionen", "billones", "billón"), 10**12),
}
_OF_MONEY = {"m": 10**6, "b": 10**9, "t": 10**12, "mil": 10**3, "k": 10**3}
_OF_MONEY |= {"md": 10**9, "mn": 10**6, "mi": 10**6, "bi": 10**9}
# Ambiguous before a currency: a "b" is a thousand in Turkish, and a billion in English.
_AFTER_MONEY = frozenset("bt")
_OF_MYRIADS = {"千": 10**3, "万": 10**4, "萬": 10**4, "億": 10**8, "亿": 10**8}
_WORDS = "|".join(sorted(_FACTORS, key=len, reverse=True))
_FACTOR = re.compile(
    rf"(?:[\s-]?({_WORDS})\b\.?|(k)|([{''.join(_OF_MYRIADS)}]))(?(3)|(?![^\W\d_]))",
    re.IGNORECASE,
)
_FACTOR_OF_MONEY = re.compile(r"\s?(mil|md|mn|mi|bi|[mbtk])(?![^\W\d_])", re.IGNORECASE)
_ORDINAL = re.compile(
    r"(?:.?(?<!1)(?:1st|2nd|3rd)|.?(?:(?<=1)[1-3]|[04-9])th)(?![^\W\d_])", re.IGNORECASE | re.DOTALL
)
_HALVED = (2, 3, 4, 8, 16, 32, 64)
_PARTS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 25, 32, 50, 64, 100)
# The precision of a double.
_FRACTIONS = Context(prec=15)


@dataclass(frozen=True, slots=True)
class Amount:
    """A number in a text: `text[start:end]`.

    digits: the number of its digits, 0 for a fraction. reason: the interpretation, if not obvious.
    factor: of the words behind it, which the value includes.
    """

    value: Decimal
    start: int
    end: int
    digits: int
    reason: str | None = None
    factor: int = 1


def amounts_in(text: str, *, whole: bool, thousands: bool = True) -> list[Amount]:
    """Returns the numbers in a text, in order, without runs of digits that are no number.

    whole: True for a field that takes whole numbers only. thousands: True if "k" is a factor.
    """
    text = _joined(text.translate(_ALIKE))
    return [
        amount
        for match in _AMOUNT.finditer(text)
        for amount in _read(text, match, whole, thousands)
    ]


def is_ordinal(text: str, end: int) -> bool:
    """True if the number that ends here is an ordinal: "2nd", "3rd", "11th"."""
    found = _ORDINAL.match(text, max(0, end - 2))
    return found is not None and found.end() == end + 2


def currency_beside(text: str, start: int, end: int) -> str | None:
    """The code of the currency of `text[start:end]`; None for a number without one."""
    before = _MONEY_BEFORE.search(text, max(0, start - 4), start)
    behind = _MONEY_BEHIND.match(text, end)
    if before and before[1] in _OF_SEVERAL:
        # "$5 CAD", "CAD $5": the code names the country of the dollars.
        front = _CODE_BEFORE.search(text, max(0, before.start() - 5), before.start())
        behind = behind or front
        if behind and (code := _COUNTRIES.get(behind[1], behind[1].upper())) in _CODES:
            return code
    found = before or behind
    return CURRENCIES[found[1].upper()] if found else None


def plain(value: Decimal) -> str:
    """Writes a number in digits and at most a point, without trailing zeros behind the point."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _joined(text: str) -> str:
    """The text, equally long, with thin spaces for sure thousands separators, "×" in "10x20"."""
    text = _BY.sub("×", text)

    def joined(found: re.Match[str]) -> str:
        is_sure = found[1] or found[0] == text.strip() or currency_beside(text, *found.span())
        return found[0].replace(" ", _SPACES[-1]) if is_sure else found[0]

    return _SPACED.sub(joined, text)


def _read(text: str, match: re.Match[str], whole: bool, thousands: bool) -> Iterator[Amount]:
    value: Decimal | None
    reason: str | None = "fraction"
    start, end = match.span()
    if match["bottom"]:
        top, bottom = Decimal(match["top"]), Decimal(match["bottom"])
        is_part = bottom in _PARTS and 0 < top < bottom and gcd(int(top), int(bottom)) == 1
        if not is_part or (match["gap"] == "-" and bottom not in _HALVED):
            return  # "100/240", "24/7" or "10/12": a pair of numbers
        value = Decimal(match["units"] or 0) + _FRACTIONS.divide(top, bottom)
    elif match["vulgar"]:
        part = Decimal(str(unicodedata.numeric(match["vulgar"])))
        value = Decimal(match["above"] or 0) + _FRACTIONS.plus(part)
    else:
        is_money = currency_beside(text, start, end) is not None
        mantissa = match["digits"].removesuffix(match["power"] or "")
        value, reason = _without_separators(mantissa, whole or is_money)
        if value is None:
            return
        if match["power"]:
            value = value.scaleb(int(match["power"][1:]))
    digits = sum(character.isdigit() for character in match["digits"] or "")
    factor, end = _factor(text, start, end, thousands)
    minus = _MINUS_BEFORE.search(text, max(0, start - _LONGEST_MONEY), start)
    is_negative = match["sign"][0] in "-−" if match["sign"] else minus is not None
    value = -value * factor if is_negative else value * factor
    yield Amount(value, start, end, digits, reason, factor)


def _factor(text: str, start: int, end: int, thousands: bool) -> tuple[int, int]:
    """The factor that the words behind a number name, and the end of the words."""
    factor = 1
    while (found := _FACTOR.match(text, end)) and (thousands or not found[2]):
        word = found[1] or found[3] or "thousand"
        factor *= _OF_MYRIADS.get(word) or _FACTORS[word.lower()]
        end = found.end()
    found = _FACTOR_OF_MONEY.match(text, end) if factor == 1 else None
    before = _MONEY_BEFORE.search(text, max(0, start - 4), start)
    is_money = found and (before or _MONEY_BEHIND.match(text, found.end()))
    if found and is_money and (before or found[1].lower() not in _AFTER_MONEY):
        return _OF_MONEY[found[1].lower()], found.end()
    return factor, end


def _without_separators(text: str, grouped: bool) -> tuple[Decimal | None, str | None]:
    """The value of a number with separators, or None, and the interpretation if in doubt.

    grouped: True if a lone point before three digits separates thousands.
    """
    digits = re.sub(rf"['’_{_SPACES}]", "", text)
    points, commas = digits.count("."), digits.count(",")
    if not points and not commas:
        return Decimal(digits), None
    mark = max(".,", key=digits.rfind)
    other = "," if mark == "." else "."
    before, _, behind = digits.rpartition(mark)
    if points and commas:
        if digits.count(mark) > 1 or not _are_groups(before, other):
            return None, None
        return Decimal(f"{before.replace(other, '')}.{behind}"), None
    if digits.count(mark) > 1:
        return (
            (Decimal(digits.replace(mark, "")), None) if _are_groups(digits, mark) else (None, None)
        )
    if len(behind) == 3 and 1 <= len(before) <= 3 and before[0] != "0":
        if mark == "," or grouped:
            return Decimal(before + behind), f'"{mark}" for thousands'
        return Decimal(f"{before}.{behind}"), '"." for decimals'
    return Decimal(f"{before or 0}.{behind}"), None


def _are_groups(digits: str, mark: str) -> bool:
    """True for groups of three digits; except the last, also of two behind commas, as in India."""
    first, *groups = digits.split(mark)
    middle = (2, 3) if mark == "," else (3,)
    return (
        1 <= len(first) <= 3
        and all(len(group) in middle for group in groups[:-1])
        and (not groups or len(groups[-1]) == 3)
    )
