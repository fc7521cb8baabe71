"""Finds the choice that a text names, up to case, spaces and spelling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import regex
from rapidfuzz import fuzz, process

from schemax.reading import Reading, noted
from schemax.reading.booleans import NEGATIONS
from schemax.reading.folding import bare, folded, loose, reads_alike
from schemax.reading.tokens import is_glued, tokens_of, value_of

LEAST_ALIKE = 85.0
"""The least similarity, 0 to 100, of a text to a choice that reads alike word by word."""

# Words beside a choice that lead to another choice.
_ELSEWHERE = frozenset({"or", "/", "zero"})
# A word, over kinds of tokens: w a word or number, s a sign, "," punctuation, " " a gap. Hyphens
# and apostrophes join the tokens around them.
_WORD = regex.compile(
    r"""
    (?P<part> (?<![^ ])- )? (?P<part> w ) (?: ['-]? (?P<part> w ) )* (?P<part> [+-](?!w) )*
  | (?P<part> (?<=[^ ])\+ | \+(?!w) | s )
    """,
    regex.VERBOSE,
)
_PUNCTUATION = frozenset("-‐‑–—'’&.,;:!?\"“”„()[]{}")


class ChoiceReader:
    """Recognizes the choices of a field in texts.

    values: text of a choice -> its Python value.
    """

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.read = lru_cache(maxsize=4096)(self._read)

    def _read(self, text: str) -> Reading:
        """Reads the choice that a text names, by the first of these rules that finds a choice:

        equality; the same letters, numbers and signs; the words of the choice within the text, if
        the text has no negation; the greatest similarity, from `LEAST_ALIKE` on, with the same
        numbers and signs. A text that names no choice, or several, stays unchanged.
        """
        if text in self.values:
            return Reading(self.values[text])
        words = words_of_choice(text)
        named, why = self._index[1].get("".join(words), []), None
        if not named:
            named, why = self._contained(words), "its words"
        if not named:
            named, why = self._alike(text, words), "similar spelling"
        if len(named) != 1:
            return Reading(text)
        (choice,) = named
        return noted(text, choice, why)._replace(value=self.values[choice])

    @cached_property
    def _index(self) -> tuple[dict[str, list[str]], dict[str, list[str]], dict[str, str]]:
        """The words of each choice, the longest choice first; the choices by their words without
        spaces (T-shirt is Tshirt, and 1080 P is 1080p); the bare text of each choice."""
        words = {choice: words_of_choice(choice) for choice in self.values}
        words = dict(sorted(words.items(), key=lambda pair: -sum(map(len, pair[1]))))
        by_letters: dict[str, list[str]] = {}
        for choice, known in words.items():
            if letters := "".join(known):
                by_letters.setdefault(letters, []).append(choice)
        return words, by_letters, {choice: folded(choice, bare) for choice in self.values}

    def _contained(self, words: Sequence[str]) -> list[str]:
        if NEGATIONS.intersection(words):
            return []
        left, named = f" {' '.join(words)} ", []
        # Longest first: "light blue" names Light Blue, not Blue.
        for choice, known in self._index[0].items():
            for spelt in dict.fromkeys((" ".join(known), "".join(known))):
                at = left.find(f" {spelt} ") if spelt else -1
                # A letter is often an ordinary word; "or" and "/" lead to another choice.
                is_letter = len(spelt) == 1 and spelt.isalpha()
                beside = {
                    left[:at].rpartition(" ")[2],
                    left[at + len(spelt) + 2 :].partition(" ")[0],
                }
                if at >= 0 and not is_letter and _ELSEWHERE.isdisjoint(beside):
                    left = left.replace(f" {spelt} ", "  |  ")
                    named.append(choice)
        return named

    def _alike(self, text: str, words: Sequence[str]) -> list[str]:
        wanted, (known, _, bare_texts) = folded(text, bare), self._index
        similar = process.extract(
            wanted, bare_texts, scorer=fuzz.ratio, score_cutoff=LEAST_ALIKE, limit=2
        )
        best = max((score for _, score, _ in similar), default=0.0)
        return [
            choice
            for _, score, choice in similar
            if score == best
            and _others(known[choice]) == _others(words)
            and reads_alike(text, choice)
        ]


def words_of_choice(text: str) -> list[str]:
    """The words of a text in lower case, with what is glued to them: 1080p, pre-diabetes.

    Numbers are in plain digits; a sign leads a number, or ends a word: A+.
    """
    tokens = tokens_of(folded(text, loose))
    is_alone = [token.kind for token in tokens] in (["number"], ["sign", "number"])
    kinds = ""
    pieces: list[str] = []
    for place, token in enumerate(tokens):
        if place and not is_glued(tokens[place - 1], token):
            kinds += " "
            pieces.append("")
        sign = token.text if token.text in "+-'" else "," if token.text in _PUNCTUATION else "s"
        kinds += sign if token.kind == "sign" else "w"
        pieces.append(_number(token.text, is_alone) if token.kind == "number" else token.text)
    matches = _WORD.finditer(kinds)
    words = ("".join(pieces[at] for at in match.starts("part")) for match in matches)
    return [word for word in words if word != "and"]


def _number(text: str, is_alone: bool) -> str:
    """A number in plain digits. "1.0" is 1 by itself, but "USB 3.0" is not "USB 3"."""
    value = value_of(text)[0]
    return text if value is None else f"{value.normalize() if is_alone else value:f}"


def _others(words: Sequence[str]) -> list[str]:
    return [word for word in words if not word.isalpha()]
