"""Finds the one of several choices that a text names, up to case, spaces and spelling."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

from rapidfuzz import fuzz, process

from schemax.reading import Reading, noted
from schemax.reading.absence import NEGATIONS
from schemax.reading.folding import bare, folded, loose
from schemax.reading.likeness import reads_alike
from schemax.reading.tokens import Token, is_glued, tokens_of, value_of

LEAST_ALIKE = 85.0
"""The least similarity, 0 to 100, of a text to a choice that reads alike word by word."""

# Signs that join words, or stand around a text.
_JOINING = frozenset("-‐‑'’&.,;:!?\"“”„")
# What tells two choices apart although it is no word.
_SIGNS = frozenset("+-−")


class Choices:
    """Recognizes the choices of a field in texts.

    values: text of a choice -> its Python value.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.read = lru_cache(maxsize=4096)(self._read)

    def _read(self, text: str) -> Reading:
        """Reads the choice that a text names, by the first of these rules that finds any:

        equality; the same words, numbers and signs; the words of the choice within the text, if the
        text has no negation; the greatest similarity, from `LEAST_ALIKE` on, with the same numbers
        and signs. A text that names no choice, or several, stays unchanged.
        """
        if text in self.values:
            return Reading(self.values[text])
        words = tuple(words_of_choice(text))
        named, why = self._equal.get(words, []) if words else [], None
        if not named and words:
            named, why = self._joined.get("".join(words), []), None
        if not named:
            named, why = self._contained(words), "its words"
        if not named:
            named, why = self._alike(text, words), "similar spelling"
        if len(named) != 1:
            return Reading(text)
        (choice,) = named
        return noted(text, choice, why)._replace(value=self.values[choice])

    @cached_property
    def _words(self) -> dict[str, tuple[str, ...]]:
        """The words of each choice, the longest choice first."""
        words = {choice: tuple(words_of_choice(choice)) for choice in self.values}
        return dict(sorted(words.items(), key=lambda pair: -sum(map(len, pair[1]))))

    @cached_property
    def _equal(self) -> dict[tuple[str, ...], list[str]]:
        choices: dict[tuple[str, ...], list[str]] = {}
        for choice, words in self._words.items():
            choices.setdefault(words, []).append(choice)
        return choices

    @cached_property
    def _joined(self) -> dict[str, list[str]]:
        """Choices by their words without spaces and hyphens: T-shirt is Tshirt."""
        choices: dict[str, list[str]] = {}
        for choice, words in self._words.items():
            if all(word.isalpha() for word in words):
                choices.setdefault("".join(words), []).append(choice)
        return choices

    def _contained(self, words: Sequence[str]) -> list[str]:
        if NEGATIONS.intersection(words):
            return []
        left, named = list(words), []
        # Longest first: "light blue" names Light Blue, not Blue.
        for choice, known in self._words.items():
            place = _place(known, left)
            if place is not None:
                left[place : place + len(known)] = [""] * len(known)
                named.append(choice)
        return named

    def _alike(self, text: str, words: Sequence[str]) -> list[str]:
        wanted = folded(text, bare)
        similar = process.extract(
            wanted, self._bare, scorer=fuzz.ratio, score_cutoff=LEAST_ALIKE, limit=2
        )
        best = max((score for _, score, _ in similar), default=0.0)
        return [
            choice
            for _, score, choice in similar
            if score == best
            and _others(self._words[choice]) == _others(words)
            and reads_alike(text, choice)
        ]

    @cached_property
    def _bare(self) -> dict[str, str]:
        return {choice: folded(choice, bare) for choice in self.values}


def words_of_choice(text: str) -> Iterator[str]:
    """Yields the words, numbers in plain digits, and signs that tell one choice from another."""
    tokens = tokens_of(folded(text, loose))
    for place, token in enumerate(tokens):
        if token.kind == "number":
            value = value_of(token.text)[0]
            is_alone = len(tokens) == 1 or (len(tokens) == 2 and tokens[0].text in _SIGNS)
            # "1.0" is 1 by itself, but "USB 3.0" is not "USB 3".
            yield token.text if value is None else f"{value.normalize() if is_alone else value:f}"
        elif token.kind == "word":
            yield from () if token.text == "and" else (token.text,)
        elif token.text in _SIGNS:
            if (sign := _sign(tokens, place)) is not None:
                yield sign
        elif token.text not in _JOINING:
            yield token.text


def _sign(tokens: Sequence[Token], at: int) -> str | None:
    """A plus or minus: it leads a number, or ends a text; None for a hyphen or a bullet."""
    is_last = at > 0 and at + 1 == len(tokens) and is_glued(tokens[at - 1], tokens[at])
    is_first = at == 0 and len(tokens) > 1 and tokens[1].kind == "number"
    if tokens[at].text == "+":
        return None if is_first else "+"
    return "-" if is_first or is_last else None


def _place(known: Sequence[str], words: Sequence[str]) -> int | None:
    """Where the words of a choice stand within others, as a whole; None where they do not."""
    size = len(known)
    for place in range(len(words) - size + 1 if size else 0):
        beside = (*words[place - 1 : place], *words[place + size : place + size + 1])
        # "A+" names no "A", "sugar-free" and "zero sugar" no sugar.
        is_other = any(word in ("+", "-", "/", "free", "zero") for word in beside)
        if tuple(words[place : place + size]) == tuple(known) and not is_other:
            return place
    return None


def _others(words: Sequence[str]) -> list[str]:
    return [word for word in words if not word.isalpha()]
