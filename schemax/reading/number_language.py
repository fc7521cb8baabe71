"""Number words of a language, as one pattern for the letters of a whole number.

A language is data: its words for numbers below 100, hundreds, scales, and conjunctions. All
languages write a number from its highest scale to its lowest, so a pattern for the letters alone,
without spaces and hyphens, decides whether words form one whole number, and which.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property, lru_cache

Words = Mapping[str, int]

_LONG = 6


@dataclass(frozen=True, eq=False)
class NumberLanguage:
    """The number words of a language, all in lower case without accents.

    small: words below 100. hundreds: words for whole hundreds, alone or before `small`; hundred:
    words that multiply by a hundred, or stand alone. scales: words for powers of ten, with their
    exponents, of which a thousand alone may stand without a count. joins: conjunctions between
    parts. halves: words that add a half.
    """

    small: Words
    scales: Words
    joins: Sequence[str]
    points: Sequence[str]
    minus: Sequence[str]
    halves: Sequence[str]
    others: Mapping[str, str]
    hundred: Sequence[str] = ()
    hundreds: Words = field(default_factory=dict)
    pieces: Sequence[str] = ()
    hyphens: bool = False

    @cached_property
    def _group(self) -> str:
        small = _either(self.small)
        below_hundred = _either(word for word, value in self.small.items() if value)
        several = f"(?:{below_hundred})?(?:{_either(self.hundred)})" if self.hundred else "(?!)"
        full = f"(?:{_either(self.hundreds)}|{several})"
        return f"(?:{full}(?:{self._join}(?:{below_hundred}))?|{small})"

    @cached_property
    def _join(self) -> str:
        return f"(?:{_either(self.joins)})?"

    @lru_cache(maxsize=128)  # noqa: B019 -- languages stay for good
    def _whole(self, powers: tuple[int, ...]) -> re.Pattern[str]:
        """The pattern of a whole number that names no scales but `powers`, each at most once.

        The pattern of all scales takes long to compile, and most numbers name no scale.
        """
        parts = []
        for power in sorted(powers, reverse=True):
            thousands = ""
            if power > 3:  # "dos mil millones"
                before = f"(?P<k{power}>{self._group})?"
                thousands = f"(?:{before}(?P<t{power}>{self._scale(3)}){self._join})?"
            group = f"(?P<g{power}>{self._group})?"
            parts.append(f"(?:{thousands}{group}(?P<s{power}>{self._scale(power)}){self._join})?")
        return re.compile(f"(?=.){''.join(parts)}(?P<g0>{self._group})?")

    def _scale(self, power: int) -> str:
        return _either(word for word, exponent in self.scales.items() if exponent == power)

    @cached_property
    def _parts(self) -> re.Pattern[str]:
        """The pattern of letters that consist of number words alone."""
        words = {*self.small, *self.hundreds, *self.hundred, *self.scales}
        words |= {*self.points, *self.others, *self.halves, *self.pieces}
        return re.compile(f"{self._join}(?:(?:{_either(words)}){self._join})+")

    @cached_property
    def _hundreds(self) -> re.Pattern[str]:
        several = f"(?P<n>{_either(self.small)})?(?P<by>{_either(self.hundred)})"
        known = f"(?P<full>{_either(self.hundreds)})"
        front = f"(?:{known}|{several})" if self.hundred else known
        return re.compile(f"{front}{self._join}(?P<rest>{_either(self.small)})?")

    def has(self, word: str) -> bool:
        return self._parts.fullmatch(word) is not None

    def begins(self, word: str) -> bool:
        """True if a word that is no number word begins with a long one."""
        found = self._parts.match(word)
        return found is not None and found.end() > _LONG and not self.has(word)

    def value(self, letters: str) -> Decimal | None:
        """The number that the letters spell; None if they spell no single number."""
        if letters in self.others:
            return Decimal(self.others[letters])
        for half in self.halves:
            if letters.endswith(half) and (found := self._integer(letters.removesuffix(half))):
                return found + Decimal("0.5")
        for point in self.points:
            before, is_there, behind = letters.partition(point)
            if is_there and (front := self._integer(before)) is not None:
                decimals = self._decimals(behind)
                return None if decimals is None else Decimal(f"{front}.{decimals}")
        return self._integer(letters)

    def _integer(self, letters: str) -> Decimal | None:
        powers = tuple(sorted({power for word, power in self.scales.items() if word in letters}))
        found = self._whole(powers).fullmatch(letters)
        if found is None:
            return None
        total = self._of_group(found["g0"]) or 0
        for power in powers:
            if not found[f"s{power}"]:
                continue
            count = self._of_group(found[f"g{power}"])
            if power > 3 and found[f"t{power}"]:
                thousands = self._of_group(found[f"k{power}"])
                count = (1 if thousands is None else thousands) * 1000 + (count or 0)
            if count is None and power > 3:
                return None
            total += (1 if count is None else count) * 10**power
        return Decimal(total)

    def _of_group(self, letters: str | None) -> int | None:
        if not letters:
            return None
        if letters in self.small:
            return self.small[letters]
        found = self._hundreds.fullmatch(letters)
        assert found is not None, letters
        rest = self.small[found["rest"]] if found["rest"] else 0
        if found["full"]:
            return self.hundreds[found["full"]] + rest
        return 100 * (self.small[found["n"]] if found["n"] else 1) + rest

    def _decimals(self, letters: str) -> str | None:
        digit = _either(word for word, value in self.small.items() if value < 10)
        if re.fullmatch(f"(?:{digit})+", letters):
            return "".join(str(self.small[word]) for word in re.findall(digit, letters))
        found = self._integer(letters)
        return None if found is None else str(found)


def _either(words: object) -> str:
    return "|".join(sorted(map(re.escape, words), key=len, reverse=True)) or "(?!)"  # type: ignore[call-overload]
