"""Where a text states numbers, and which: signs, separators, fractions, factors such as "million".

Of "." and ",", the one further right is the decimal sign and the other one separates thousands;
what stands several times separates thousands. A lone one with exactly three digits behind it does
so too, but for a point in a number that is neither whole nor an amount of money: 1,299 is 1299, and
1.299 is 1.299. Spaces, apostrophes and underscores only ever separate thousands.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal

CURRENCIES = {
    **{"$": "USD", "US$": "USD", "€": "EUR", "£": "GBP", "¥": "JPY", "₹": "INR", "R$": "BRL"},
    **{code: code for code in ("USD", "EUR", "GBP", "JPY", "INR", "BRL", "CHF", "CAD", "AUD")},
    **{"CNY": "CNY", "MXN": "MXN", "SEK": "SEK", "PLN": "PLN"},
}
"""Signs and codes of money -> code."""

_MONEY = "|".join(re.escape(sign) for sign in sorted(CURRENCIES, key=len, reverse=True))
_MONEY_BEFORE = re.compile(rf"(?:^|(?<![^\W\d_]))({_MONEY})\s?$", re.IGNORECASE)
_MONEY_BEHIND = re.compile(rf"(?:,[-–])?\s?({_MONEY})(?![^\W\d_])", re.IGNORECASE)

_SPACES = "\u00a0\u2009\u202f"
_AFTER_CODE = "".join(f"|(?<={code})" for code in CURRENCIES.values())
_AMOUNT = re.compile(
    rf"""(?:(?<![^\W\d_]){_AFTER_CODE})(?<!\d)(?<!\d[.,/⁄])
    (?P<sign>(?<![^\s(\[:=~≈<>{_MONEY[-1]}])[-+−])?
    (?:(?:(?P<units>\d+)[\s-])?(?P<top>\d+)\s?[/⁄]\s?(?P<bottom>\d+)(?![\d/⁄])
      |(?P<above>\d*)\s?(?P<vulgar>[¼-¾⅐-⅞])
      |(?P<digits>\d+(?:[.,_{_SPACES}]\d+|['’]\d{{3}}(?!\d))*|[.,]\d+)(?!\s?[/⁄]\s?\d))""",
    re.VERBOSE,
)
_SPACED = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+([.,]\d{1,2})?(?![\d.,])")
_BY = re.compile(r"(?<=\d)[xX](?=\d)")
_FACTORS = {
    **dict.fromkeys(("thousand", "tausend", "tsd", "mille"), 10**3),
    **dict.fromkeys(("million", "millions", "millionen", "mio", "millones", "milhões"), 10**6),
    **dict.fromkeys(("millón", "milhão"), 10**6),
    **dict.fromkeys(("billion", "billions", "bn", "milliarde", "milliarden", "mrd"), 10**9),
}
_FACTOR = re.compile(rf"(?:\s?({'|'.join(_FACTORS)})\.?|(k))(?![^\W\d_])", re.IGNORECASE)
_PARTS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 25, 32, 50, 64, 100)
# As many as a double keeps.
_FRACTIONS = Context(prec=15)


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of a text: `text[start:end]`.

    digits: how many of them state it, those of a fraction excepted. reason: how it was read.
    """

    value: Decimal
    start: int
    end: int
    digits: int
    reason: str | None = None


def amounts_in(text: str, *, whole: bool, thousands: bool = True) -> list[Amount]:
    """The numbers that a text states, in order; what is no number in any reading is left out.

    whole: of a field that takes whole numbers only. thousands: whether "k" is a factor.
    """
    text = _joined(text)
    return [
        amount
        for match in _AMOUNT.finditer(text)
        for amount in _read(text, match, whole, thousands)
    ]


def currency_beside(text: str, start: int, end: int) -> str | None:
    """The code of the money that `text[start:end]` is an amount of."""
    found = _MONEY_BEFORE.search(text, max(0, start - 4), start) or _MONEY_BEHIND.match(text, end)
    return CURRENCIES[found[1].upper()] if found else None


def plain(value: Decimal) -> str:
    """As digits with at most a point, without zeros at its end."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _joined(text: str) -> str:
    """With thin spaces for those that surely separate thousands, and "×" in "10x20": as long."""
    text = _BY.sub("×", text)
    found = _SPACED.search(text)
    if found is None:
        return text
    is_sure = found[1] or found[0] == text.strip() or currency_beside(text, *found.span())
    return text.replace(found[0], found[0].replace(" ", _SPACES[-1])) if is_sure else text


def _read(text: str, match: re.Match[str], whole: bool, thousands: bool) -> Iterator[Amount]:
    value: Decimal | None
    reason: str | None = "fraction"
    start, end = match.span()
    if match["bottom"]:
        top, bottom = Decimal(match["top"]), Decimal(match["bottom"])
        if bottom not in _PARTS or (match["units"] and top >= bottom):
            return  # "100/240", a pair of numbers
        value = Decimal(match["units"] or 0) + _FRACTIONS.divide(top, bottom)
    elif match["vulgar"]:
        part = Decimal(str(unicodedata.numeric(match["vulgar"])))
        value = Decimal(match["above"] or 0) + _FRACTIONS.plus(part)
    else:
        is_money = currency_beside(text, start, end) is not None
        value, reason = _without_separators(match["digits"], whole or is_money)
        if value is None:
            return
    digits = sum(character.isdigit() for character in match["digits"] or "")
    factor = _FACTOR.match(text, end)
    if factor and (factor[1] or thousands):
        value *= _FACTORS[factor[1].lower()] if factor[1] else 1000
        end = factor.end()
    yield Amount(-value if match["sign"] in ("-", "−") else value, start, end, digits, reason)


def _without_separators(text: str, grouped: bool) -> tuple[Decimal | None, str | None]:
    """A number with separators, and how a doubtful one was read; None for what is no number.

    grouped: whether three digits behind a lone point are thousands.
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
    """Groups of three; behind commas also of two, as in India, but for the last one."""
    first, *groups = digits.split(mark)
    middle = (2, 3) if mark == "," else (3,)
    return (
        1 <= len(first) <= 3
        and all(len(group) in middle for group in groups[:-1])
        and (not groups or len(groups[-1]) == 3)
    )
