"""The grammar of amounts: what stands around a number in a text, and what is left over.

    text   = { other | amount | "(" amount ")" }
    amount = [minus] [currency] [minus] number [fraction] [factor] [unit ["per" unit] | currency]

A name is as many tokens as CLDR knows together: "fl. oz.", "mil millones". No rule looks inside a
word: "TEUR" is no EUR, and "Cola" ends in no range. Letters before a number that belong to no name
make it part of a code: UN55KU6300.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import gcd
from typing import Any, TypeAlias

from schemax.reading import cldr
from schemax.reading.number_words import MINUS
from schemax.reading.tokens import FRACTIONS, Token, is_glued, tokens_of, value_of
from schemax.reading.units import OTHER_CASE, FieldUnit, units_named, units_of_pint

Units: TypeAlias = tuple[tuple[Any, int], ...]
"""Units that a name stands for, each with the rank of its language."""

DASHES = frozenset("-‐‑‒–—―−﹣－")
_MINUS = frozenset("-−－")
_QUOTES = frozenset('"“„«')
_BOTTOMS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 25, 32, 50, 64, 100)
_ORDINAL = re.compile(r"\d?(?<!1)(?:1st|2nd|3rd)|\d?(?:[04-9]|(?<=1)[1-3])th", re.IGNORECASE)
_DOZEN = {"dozen": (12,)}
# The most tokens of a name: "fl", ".", "oz", ".".
_MOST_TOKENS = 6


@dataclass(frozen=True, slots=True)
class Amount:
    """An amount: the tokens from `first` up to `end`.

    value: with sign and factor; at: the place of its number; digits: how many the text states, 0
    for a fraction. units: that its name stands for, with the ranks of languages; None without a
    name. codes: currencies that it may be in, the likeliest
    first. reasons: how doubtful parts were taken. name: of the unit or currency behind; factor: of
    the word behind the number, which the value includes.
    """

    value: Decimal
    first: int
    at: int
    end: int
    digits: int
    units: Units | None = None
    codes: tuple[str, ...] | None = None
    reasons: tuple[str, ...] = ()
    name: str = ""
    factor: int = 1


@dataclass(frozen=True, slots=True)
class Text:
    """A text cut into tokens, with its amounts in order.

    codes: the places of numbers that are parts of codes.
    """

    source: str
    tokens: Sequence[Token]
    amounts: Sequence[Amount]
    codes: frozenset[int]


class Grammar:
    """Reads the amounts of one text.

    grouped: True if a lone point separates thousands, as in whole numbers. field: the field's unit,
    whose names in pint are known as well. language: of the field.
    """

    def __init__(
        self,
        source: str,
        grouped: bool = False,
        field: FieldUnit | None = None,
        language: str | None = None,
    ) -> None:
        self.source, self.tokens = source, tokens_of(source)
        self._grouped, self._field, self._language = grouped, field, language
        self._signs = cldr.separators(language) if language else None
        self._runs = self._glued_runs()

    def read(self) -> Text:
        amounts: list[Amount] = []
        codes: set[int] = set()
        at = begin = 0
        while at < len(self.tokens):
            if self.tokens[at].kind != "number":
                at += 1
            elif (amount := self.amount(at, begin)) is not None:
                amounts.append(amount)
                at = begin = amount.end
            else:
                code = self._code(at)
                codes.update(code)
                at = begin = code.stop
        return Text(self.source, self.tokens, amounts, frozenset(codes))

    def amount(self, at: int, begin: int = 0) -> Amount | None:
        """The amount whose number is token `at`; None for a part of a code, a power or a version.

        begin: where the amount before ends.
        """
        first, is_negative, codes = self._front(at, begin)
        if self._code(at).start < first:
            return None
        fraction = self._fraction(at)
        end = at + 1 if fraction is None else fraction[1]
        digits = self.tokens[at].text
        has_no_cents = self._text(end, end + 2) in (",-", ",–", ",—")
        end += 2 * has_no_cents
        factor, end, doubts = self._factor(end, codes is not None)
        start = self._behind_hyphen(end)
        is_near = first > 0 and is_glued(self.tokens[first - 1], self.tokens[first])
        is_quoted = is_near and self.tokens[first - 1].text in _QUOTES
        is_order = self._is_ordinal(at, end)
        units, unit_end = (None, end) if is_quoted or is_order else self._unit(start)
        own, code_end = self._currency(start)
        if own is not None and units is not None:
            # "Ft" is money in a field of money alone.
            is_money = self._field is not None and self._field.code is not None
            own, units = (own, None) if is_money and code_end >= unit_end else (None, units)
        if own is not None:
            codes = own if codes is None else tuple(code for code in codes if code in own)
        name_end = max(unit_end, code_end)
        if units is not None:
            units, name_end = self._per(units, name_end)
        # With a factor a lone point is the decimal sign, and with money it separates thousands.
        is_money = codes is not None or has_no_cents
        grouped = factor == 1 and (self._grouped or is_money)
        value, reason = (
            (fraction[0], "fraction") if fraction else value_of(digits, grouped, self._signs)
        )
        if value is None:
            return None
        return Amount(
            value=value * (-factor if is_negative else factor),
            first=first,
            at=at,
            end=name_end if name_end > start else end,
            digits=0 if reason == "fraction" else sum(map(str.isdigit, digits)),
            units=units,
            name=self._text(start, name_end),
            factor=factor,
            codes=codes,
            reasons=((reason,) if reason else ()) + doubts,
        )

    # --- before the number ------------------------------------------------------------------

    def _front(self, at: int, begin: int) -> tuple[int, bool, tuple[str, ...] | None]:
        """Where the amount begins, whether it is negative, and the currencies before its number."""
        first, codes = at, None
        is_negative = self._is_minus(first - 1, begin)
        first -= is_negative
        for _ in range(2):  # "CAD $5"
            places = range(max(begin, first - 4), first)
            start = next((place for place in places if self._codes_of(place, first)), first)
            if start == first:
                break
            said = self._codes_of(start, first)
            if (
                self.tokens[start].kind == "sign"
                and start > begin
                and self._is_glued_word(start - 1)
            ):
                said, start = (), start - 1  # S$, of which nothing is known
            codes = said if codes is None else tuple(code for code in codes if code in said)
            first = start
            if not is_negative and self._is_minus(first - 1, begin):
                is_negative = True
                first -= 1
        return first, is_negative, codes

    def _is_glued_word(self, at: int) -> bool:
        return self.tokens[at].kind == "word" and is_glued(self.tokens[at], self.tokens[at + 1])

    def _is_minus(self, at: int, begin: int) -> bool:
        """True for a minus: it touches the number or its currency, and no word or number before."""
        if at < begin or self.tokens[at].text.casefold() not in (*_MINUS, *MINUS):
            return False
        if self.tokens[at].kind == "word":
            return not is_glued(self.tokens[at], self.tokens[at + 1])
        if self.tokens[at + 1].text[0] in ".,":  # "-,99", which is no minus in German
            return False
        gap = self.tokens[at + 1].start - self.tokens[at].end
        if gap > (self.tokens[at].text == "−"):
            return False
        if at == 0 or not is_glued(self.tokens[at - 1], self.tokens[at]):
            return True
        if at == begin:  # the hyphen of 6'-2"
            return False
        before = self.tokens[at - 1]
        is_code = any(self._codes_of(start, at) for start in range(max(begin, at - 3), at))
        return is_code or (before.kind == "sign" and before.text not in {*DASHES, ")", "]"})

    def _glued_runs(self) -> list[range]:
        """For each token, the run of letters and digits without a gap around it."""
        runs: list[range] = []
        while len(runs) < len(self.tokens):
            first = end = len(runs)
            while end + 1 < len(self.tokens) and self._is_joined(end):
                end += 1
            runs += [range(first, end + 1)] * (end + 1 - first)
        return runs

    def _code(self, at: int) -> range:
        """The run around a number, if it begins with a letter: UN55KU6300."""
        run = self._runs[at]
        return run if self.tokens[run.start].kind == "word" else range(at, at + 1)

    def _is_joined(self, at: int) -> bool:
        left, right = self.tokens[at], self.tokens[at + 1]
        return is_glued(left, right) and "sign" not in (left.kind, right.kind)

    # --- the number -------------------------------------------------------------------------

    def _fraction(self, at: int) -> tuple[Decimal, int] | None:
        """The value of "3/4" or "2 3/4", and its end; None for other pairs of numbers."""
        part = self._proper(at)
        if part is not None:
            return part, at + 3
        whole = self.tokens[at].text
        is_hyphened = self._text(at + 1, at + 2) == "-" and is_glued(
            self.tokens[at], self.tokens[at + 1]
        )
        part = self._proper(at + 1 + is_hyphened)
        if not whole.isdigit() or part is None or (is_hyphened and part * 64 % 1):
            return None
        return Decimal(whole) + part, at + 4 + is_hyphened

    def _proper(self, at: int) -> Decimal | None:
        texts = [token.text for token in self.tokens[at : at + 4]]
        if len(texts) < 3 or texts[1] not in ("/", "⁄") or texts[3:] in (["/"], ["⁄"]):
            return None
        if not (texts[0].isdigit() and texts[2].isdigit()) or self._text(at - 1, at) == "/":
            return None
        top, bottom = int(texts[0]), int(texts[2])
        is_usual = 0 < top < bottom and bottom in _BOTTOMS and gcd(top, bottom) == 1
        return FRACTIONS.divide(Decimal(top), Decimal(bottom)) if is_usual else None

    def _is_ordinal(self, at: int, end: int) -> bool:
        """True for the place in an order: "2nd", whose "nd" is no unit."""
        word = self._text(end, end + 1)
        is_near = end == at + 1 and bool(word) and is_glued(self.tokens[at], self.tokens[end])
        return is_near and _ORDINAL.fullmatch(self.tokens[at].text[-2:] + word) is not None

    # --- behind the number ------------------------------------------------------------------

    def _factor(self, at: int, is_money: bool) -> tuple[int, int, tuple[str, ...]]:
        """The power of ten behind a number, its end, and whether languages disagree on it."""
        start = self._behind_hyphen(at)
        for end in self._ends(start, 3):
            name = cldr.folded_name(self._text(start, end))
            name = name.casefold() if len(name) > 2 else name
            sizes = _DOZEN.get(name) or cldr.factors(self._language).get(name)
            if sizes is None:
                continue
            is_named = is_money or self._currency(end)[0] is not None
            is_named = is_named or self._unit(end)[0] is not None
            if not is_named and self._unit(start)[1] >= end:
                return 1, at, ()  # a unit as well, as "mil" is
            if len(name) > 1 or is_named or not name.isascii():
                is_plain = name in cldr.own_factors(self._language or "en") and len(sizes) == 1
                is_run = self._is_joined(start - 1) and name.isascii() and len(name) > 1
                if is_run and not is_plain:  # "1Mii"
                    return 1, at, ()
                doubt = () if is_plain else (f'"{name}" as {sizes[0]:,}',)
                return sizes[0], end, doubt
        return 1, at, ()

    def _unit(self, at: int) -> tuple[Units | None, int]:
        for end in self._ends(at, _MOST_TOKENS):
            name = self._text(at, end)
            units = units_named(name, self._language)
            if units is not None and self._is_meant(name, at, units):
                return units, end
        field = self._field
        if field is not None and field.unit is not None and self._text(at, at + 1).isalpha():
            name = self.tokens[at].text
            is_own = name.casefold() in field.names and name in (name.lower(), name.upper())
            known = ((field.unit, 0),) if is_own else units_of_pint(name)
            if self._takes(known):
                return known, at + 1
        return None, at

    def _is_meant(self, name: str, at: int, units: Units) -> bool:
        """True for a unit's name that is no ordinary word or letter: "10 D", "21A", "1080p"."""
        if len(name) > 2 or not (name.isalpha() and name.isascii()):
            return True
        if len(name) == 1:
            english = tuple(pair for pair in units if pair[1] % OTHER_CASE <= cldr.ENGLISH)
            is_apart = not is_glued(self.tokens[at - 1], self.tokens[at])
            is_english = any(rank <= cldr.ENGLISH for _, rank in units)
            return self._takes(english) or (is_english and (is_apart or self._field is None))
        is_spelt = any(rank < OTHER_CASE for _, rank in units)
        return not units or is_spelt or self._takes(units)

    def _takes(self, units: Units) -> bool:
        return self._field is not None and any(self._field.takes(unit) for unit, _ in units)

    def _per(self, units: Units, at: int) -> tuple[Units, int]:
        """The units of a rate, "km per h", and its end; the same units for no rate."""
        if at + 1 >= len(self.tokens) or self.tokens[at + 1].kind != "word":
            return units, at
        word = self.tokens[at].text.casefold()
        is_slash = word == "/" and is_glued(self.tokens[at], self.tokens[at + 1])
        if not is_slash and (word == "/" or word not in cldr.per_words(self._language)):
            return units, at
        below, end = self._unit(at + 1)
        rates = ((one / other, max(r, s)) for one, r in units for other, s in below or ())
        return tuple(rates), max(end, at + 2)

    def _currency(self, at: int) -> tuple[tuple[str, ...] | None, int]:
        for end in self._ends(at, _MOST_TOKENS):
            if codes := self._codes_of(at, end):
                return codes, end
        return None, at

    def _codes_of(self, start: int, end: int) -> tuple[str, ...]:
        name = self._text(start, end)
        if not name or self.tokens[start].kind == "number" or self._has_dash(start, end):
            return ()
        name = cldr.folded_name(name)
        known = cldr.currencies(self._language)
        codes = known.get(name) or known.get(name.casefold(), ())
        name = name.casefold()
        own = self._field.code if self._field is not None else None
        if own and not codes and own in cldr.words_of_money(self._language).get(name, ()):
            return (own,)  # dollars, in a field in US dollars
        return codes

    def _ends(self, at: int, most: int) -> Iterator[int]:
        """Yields the ends of names that may begin at a place, the longest first."""
        if at < len(self.tokens) and self.tokens[at].kind != "number":
            for end in range(min(len(self.tokens), at + most), at, -1):
                if not self._has_dash(at, end):
                    yield end

    def _has_dash(self, start: int, end: int) -> bool:
        """True if a name would begin or end with a dash."""
        return not {self.tokens[start].text, self.tokens[end - 1].text}.isdisjoint(DASHES)

    def _behind_hyphen(self, at: int) -> int:
        """The place behind a hyphen between a number and its unit: "55-Inch"."""
        is_hyphen = self._text(at, at + 1) in DASHES and at + 1 < len(self.tokens)
        is_joined = is_hyphen and is_glued(self.tokens[at - 1], self.tokens[at])
        is_word = is_joined and is_glued(self.tokens[at], self.tokens[at + 1])
        return at + 1 if is_word and self.tokens[at + 1].kind == "word" else at

    def _text(self, start: int, end: int) -> str:
        if not 0 <= start < end <= len(self.tokens):
            return ""
        return self.source[self.tokens[start].start : self.tokens[end - 1].end]
