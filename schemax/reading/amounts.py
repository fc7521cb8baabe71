"""The amounts of a text: numbers with their signs, factors, units and currencies.

A text is cut into lexemes of a kind each. A name is a lexeme of as many tokens as CLDR knows
together, "fl. oz." or "mil millones". `_AMOUNT` is the grammar, over the string of the kinds. No
rule looks inside a word: "TEUR" is no EUR, and "Cola" ends in no range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from math import gcd
from typing import Any, NamedTuple, TypeAlias

import regex

from schemax.reading import cldr
from schemax.reading.number_words import MINUS
from schemax.reading.tokens import FRACTIONS, Token, is_glued, tokens_of, value_of
from schemax.reading.units import OTHER_CASE, FieldUnit, units_named, units_of_pint

Units: TypeAlias = tuple[tuple[Any, int], ...]
"""Units that a name stands for, each with the rank of its language."""

DASHES = frozenset("-‐‑‒–—―−﹣－")
_MINUS = frozenset("-−－")
_BOTTOMS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 25, 32, 50, 64, 100)
_ORDINAL = regex.compile(r"\d*(?<!1)(?:1st|2nd|3rd)|\d*(?:[04-9]|(?<=1)[1-3])th", regex.IGNORECASE)
_DOZEN = {"dozen": (12,)}
# The most tokens of a name: "fl", ".", "oz", ".".
_MOST_TOKENS = 6

# The kinds of lexemes; " " is a gap:
#   n  a number or fraction        m  a minus            h  the hyphen of "55-Inch"
#   c  a currency, $ its sign      u  a unit             p  "per" or "/" before a word
#   f  a factor, F one or a unit   k  a letter, which is a factor beside money or a unit
#   K  such a letter or a unit     z  ",-" for no cents  q  an opening quotation mark
#   d  another dash                w  another word       s  another sign
_AMOUNT = regex.compile(
    r"""
    (?P<code> (?<!n) [wufFkK] (?:n[wcufFkK]?)+ )                # UN55KU6300
  | (?: m\ ? )? (?P<unknown> w(?=\$) )?                         # S$, an unknown currency
    (?P<before> [c$]\ ? (?: m\ ? )? ){0,2}                      # CAD $
    (?P<number> n ) (?P<no_cents> \ ?z )?
    (?: [\ h]? (?P<factor> (?(before)[fFkK]|(?:f|[FkK](?=\ ?[cuFK$]))) ) )?
    (?: [\ h]? (?: (?P<behind> [c$] ) | (?P<unit> [uFK] ) (?: \ ?p\ ? (?P<per> [cuwfFkK] ) )? ) )?
    """,
    regex.VERBOSE,
)
# A number behind a glued quotation mark, which the next mark closes. Only the last kinds are
# searched, since texts may be long.
_QUOTED = regex.compile("q[^ ]*n$")


class Lexeme(NamedTuple):
    """Tokens `first` up to `end` of a text, which are of one kind.

    units, codes: the units and currencies of a name.
    size, doubt: the power of ten of a factor, and the doubt about it.
    fraction: the value of "3/4".
    """

    kind: str
    first: int
    end: int
    units: Units | None = None
    codes: tuple[str, ...] = ()
    size: int = 1
    doubt: str | None = None
    fraction: Decimal | None = None


class Amount(NamedTuple):
    """An amount: the tokens from `first` up to `end`.

    value: the number with sign and factor.
    at: the place of its token.
    digits: the number of digits in the text; 0 for a fraction.
    units: the units of its name, with the ranks of languages; None without a name.
    codes: possible currencies, the likeliest first; None without a currency.
    reasons: the readings of doubtful parts.
    name: the name of the unit or currency behind the number.
    factor: the power of ten of a word behind the number, which `value` includes.
    """

    value: Decimal
    first: int
    at: int
    end: int
    digits: int
    units: Units | None
    codes: tuple[str, ...] | None
    reasons: tuple[str, ...]
    name: str
    factor: int


class Text(NamedTuple):
    """A text cut into tokens, with its amounts. has_codes: True for codes such as UN55KU6300."""

    source: str
    tokens: Sequence[Token]
    amounts: Sequence[Amount]
    has_codes: bool


def amounts_of(
    source: str,
    grouped: bool = False,
    field: FieldUnit | None = None,
    language: str | None = None,
) -> Text:
    """Reads the amounts of a text.

    grouped: True if a single point separates thousands, as in whole numbers.
    field: the field's unit, whose names in pint are known as well.
    language: the language of the field.
    """
    lexer = _Lexer(source, field, language)
    lexemes = list(lexer.lexemes())
    matches = list(_AMOUNT.finditer(lexer.kinds))
    stated = (_amount(lexer, lexemes, match, grouped) for match in matches if not match["code"])
    amounts = [amount for amount in stated if amount is not None]
    return Text(source, lexer.tokens, amounts, len(amounts) < len(matches))


def _amount(
    lexer: _Lexer, lexemes: Sequence[Lexeme], match: regex.Match[str], grouped: bool
) -> Amount | None:
    """The amount of a match of the grammar; None for a number without a value, such as 1.2.3."""

    def lexeme(group: str) -> Lexeme | None:
        return lexemes[match.start(group)] if match[group] else None

    number, behind, factor = lexemes[match.start("number")], lexeme("behind"), lexeme("factor")
    money = [lexemes[at].codes for at in match.starts("before")]
    money += [behind.codes] if behind else []
    money += [()] if match["unknown"] else []
    shared = set[str]().union(*money).intersection(*money)
    codes = tuple(filter(shared.__contains__, money[0])) if money else None
    size = factor.size if factor else 1
    # A single point is the decimal sign beside a factor, and separates thousands in money.
    is_grouped = size == 1 and (grouped or codes is not None or bool(match["no_cents"]))
    digits = lexer.tokens[number.first].text
    signs = cldr.separators(lexer.language) if lexer.language else None
    stated = (number.fraction, "fraction") if number.fraction else None
    value, reason = stated or value_of(digits, is_grouped, signs)
    if value is None:
        return None
    unit, below = lexeme("unit"), lexeme("per")
    units = unit.units if unit else None
    if units and below:
        units = tuple(
            (over / under, max(rank_over, rank_below))
            for over, rank_over in units
            for under, rank_below in below.units or ()
        )
    end = lexemes[match.end() - 1].end
    name = unit or behind
    return Amount(
        value=value * (-size if "m" in match[0] else size),
        first=lexemes[match.start()].first,
        at=number.first,
        end=end,
        digits=0 if reason == "fraction" else sum(map(str.isdigit, digits)),
        units=units,
        codes=codes,
        reasons=tuple(filter(None, (reason, factor and factor.doubt))),
        name=lexer.text(name.first, end) if name else "",
        factor=size,
    )


class _Lexer:
    """Cuts a text into lexemes. kinds: the kinds of the lexemes so far, a letter each."""

    def __init__(self, source: str, field: FieldUnit | None, language: str | None) -> None:
        self.source, self.tokens, self.kinds = source, tokens_of(source), ""
        self._field, self.language = field, language

    def lexemes(self) -> Iterator[Lexeme]:
        at = 0
        while at < len(self.tokens):
            if at and not self._is_glued(at - 1):
                self.kinds += " "
                yield Lexeme(" ", at, at)
            is_number = self.tokens[at].kind == "number"
            lexeme = self._number(at) if is_number else self._name(at) or self._other(at)
            self.kinds += lexeme.kind
            at = lexeme.end
            yield lexeme

    def text(self, start: int, end: int) -> str:
        """The source of tokens; "" beyond the text."""
        if not 0 <= start < end <= len(self.tokens):
            return ""
        return self.source[self.tokens[start].start : self.tokens[end - 1].end]

    def _is_glued(self, at: int) -> bool:
        """True if a token has another one right behind it."""
        return at + 1 < len(self.tokens) and is_glued(self.tokens[at], self.tokens[at + 1])

    # --- numbers and signs ------------------------------------------------------------------

    def _number(self, at: int) -> Lexeme:
        """A number, or a fraction: "3/4", "2 3/4"."""
        if self.kinds[-1:] == "w":  # of a code
            return Lexeme("n", at, at + 1)
        if (part := self._proper(at)) is not None:
            return Lexeme("n", at, at + 3, fraction=part)
        whole = self.tokens[at].text
        is_hyphened = self._is_glued(at) and self.text(at + 1, at + 2) == "-"
        part = self._proper(at + 1 + is_hyphened)
        if whole.isdigit() and part is not None and not (is_hyphened and part * 64 % 1):
            return Lexeme("n", at, at + 4 + is_hyphened, fraction=Decimal(whole) + part)
        return Lexeme("n", at, at + 1)

    def _proper(self, at: int) -> Decimal | None:
        """The value of a usual fraction in lowest terms; None within "3/4/21"."""
        top, slash, bottom, behind = (self.text(at + n, at + n + 1) for n in range(4))
        is_pair = slash in ("/", "⁄") and top.isdigit() and bottom.isdigit()
        if not is_pair or behind in ("/", "⁄") or self.text(at - 1, at) == "/":
            return None
        is_usual = 0 < int(top) < int(bottom) and int(bottom) in _BOTTOMS
        is_usual = is_usual and gcd(int(top), int(bottom)) == 1
        return FRACTIONS.divide(Decimal(int(top)), Decimal(int(bottom))) if is_usual else None

    def _other(self, at: int) -> Lexeme:
        token = self.tokens[at]
        if token.text in ",/" and self.text(at, at + 2) in (",-", ",–", ",—"):
            return Lexeme("z", at, at + 2)
        if self._is_minus(at):
            return Lexeme("m", at, at + 1)
        kind = "d" if token.text in DASHES else "q" if token.text in '"“„«' else token.kind[0]
        if at + 1 < len(self.tokens) and self.tokens[at + 1].kind == "word":
            is_glued = self._is_glued(at)
            if kind == "d" and self.kinds[-1:] in ("n", "z", "f", "F", "k", "K") and is_glued:
                kind = "h"
            elif self.kinds[-2:].rstrip()[-1:] in ("u", "F", "K") and (
                is_glued or token.text != "/"
            ):
                is_per = token.text.casefold() in cldr.table(cldr.per_words, self.language)
                kind = "p" if is_per else kind
        return Lexeme(kind, at, at + 1)

    def _is_minus(self, at: int) -> bool:
        """True for a minus: a sign at the number or its currency, apart from what precedes it."""
        token, *behind = self.tokens[at : at + 2]
        if not behind or token.kind == "word":
            is_word = token.text.casefold() in MINUS
            return is_word and bool(behind) and not self._is_glued(at)
        # "-,99" is no minus in German, and a dash of mathematics may stand apart.
        gap = behind[0].start - token.end
        if token.text not in _MINUS or behind[0].text[0] in ".," or gap > (token.text == "−"):
            return False
        if self.kinds[-1:] == "s":
            return self.tokens[at - 1].text not in ")]"
        return self.kinds[-1:] in ("", " ", "c", "$", "q")

    # --- names ------------------------------------------------------------------------------

    def _name(self, at: int) -> Lexeme | None:
        """The longest name of a currency, or, behind a number, of a unit or a factor."""
        before = self.kinds[-2:].rstrip()[-1:]
        is_behind = before in ("n", "z", "h", "f", "F", "k", "K", "p")
        for end in range(min(len(self.tokens), at + _MOST_TOKENS), at, -1):
            if not {self.tokens[at].text, self.tokens[end - 1].text}.isdisjoint(DASHES):
                continue
            name = cldr.folded_name(self.text(at, end))
            codes = self._codes(name)
            units = self._units(at, end) if is_behind else None
            factor = self._factor(at, end, name) if is_behind else None
            if codes and units is not None:
                # "Ft" is money in a field of money alone.
                is_money = self._field is not None and self._field.is_money
                codes, units = (codes, None) if is_money else ((), units)
            if factor is not None:
                kind = "k" if len(name) == 1 and name.isascii() else "f"
                kind = kind if units is None else kind.upper()
                return Lexeme(kind, at, end, units, codes, *factor)
            if units is not None:
                return Lexeme("u", at, end, units)
            if codes:
                kind = "$" if self.tokens[at].kind == "sign" else "c"
                return Lexeme(kind, at, end, codes=codes)
        return None

    def _codes(self, name: str) -> tuple[str, ...]:
        known = cldr.table(cldr.currencies, self.language)
        codes = known.get(name) or known.get(name.casefold(), ())
        own = self._field.unit if self._field is not None and self._field.is_money else None
        words = cldr.table(cldr.words_of_money, self.language) if own and not codes else {}
        # Dollars, in a field in US dollars.
        return (own,) if own and own in words.get(name.casefold(), ()) else codes

    def _factor(self, at: int, end: int, name: str) -> tuple[int, str | None] | None:
        """The power of ten of a name, and the doubt if languages disagree on it."""
        name = name.casefold() if len(name) > 2 else name
        sizes = _DOZEN.get(name) or cldr.table(cldr.factors, self.language).get(name)
        if sizes is None:
            return None
        is_plain = name in cldr.table(cldr.own_factors, self.language or "en") and len(sizes) == 1
        is_word = self.tokens[at].kind == "word" and name.isascii() and len(name) > 1
        if self.kinds[-1:] == "n" and is_word and not is_plain:  # "1Mii"
            return None
        return sizes[0], None if is_plain else f'"{name}" as {sizes[0]:,}'

    def _units(self, at: int, end: int) -> Units | None:
        name = self.text(at, end)
        is_number = self.kinds[-1:] == "n"
        if is_number and _ORDINAL.fullmatch(self.tokens[at - 1].text + name):
            return None
        if name in '"”“»' and _QUOTED.search(self.kinds[-6:]):
            return None
        units = units_named(name, self.language)
        if units is not None and self._is_meant(name, units):
            return units
        field = self._field
        if field is None or field.is_money or end > at + 1 or not name.isalpha():
            return None
        is_own = name.casefold() in field.names and name in (name.lower(), name.upper())
        known = ((field.unit, 0),) if is_own else units_of_pint(name)
        return known if self._takes(known) else None

    def _is_meant(self, name: str, units: Units) -> bool:
        """True for a unit's name that is no ordinary word or letter: "10 D", "21A", "1080p"."""
        if len(name) > 2 or not (name.isalpha() and name.isascii()):
            return True
        if len(name) == 1:
            english = tuple(pair for pair in units if pair[1] % OTHER_CASE <= cldr.ENGLISH)
            is_apart = self.kinds[-1:] == " "
            is_english = any(rank <= cldr.ENGLISH for _, rank in units)
            return self._takes(english) or (is_english and (is_apart or self._field is None))
        is_spelt = any(rank < OTHER_CASE for _, rank in units)
        return not units or is_spelt or self._takes(units)

    def _takes(self, units: Units) -> bool:
        return self._field is not None and any(self._field.takes(unit) for unit, _ in units)
