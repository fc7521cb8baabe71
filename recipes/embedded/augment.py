"""Label-preserving changes to annotated titles.

A model memorizes a thousand titles in minutes. It must learn where values begin and end, whatever
they are; so values are replaced, invented and dropped.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from schemax.evaluation.examples import Example, canonical_value

# An attribute is open (any word may be its value) if more than this share of values occurs once.
_OPEN_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class _Piece:
    text: str
    attribute: str | None = None


class Augmenter:
    """A maker of variants of titles from the pieces of all titles."""

    def __init__(
        self, titles: Sequence[Example], varied: float = 0.7, invented: float = 0.45
    ) -> None:
        self._varied = varied
        self._share_invented = invented
        self._by_category: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._by_attribute: dict[str, list[str]] = defaultdict(list)
        words: set[str] = set()
        for title in {title.text: title for title in titles}.values():
            words.update(re.findall(r"[^\W\d_]{3,}", title.text))
            for attribute, value in _stated(title):
                self._by_category[title.category, attribute].append(value)
                self._by_attribute[attribute].append(value)
        self._words = sorted(words)
        self._open = {a for a, values in self._by_attribute.items() if _is_open(values)}

    def __call__(self, title: Example, rng: random.Random) -> Example:
        """Returns a variant of the title; with probability 1 - `varied`, the title itself."""
        pieces = _cut(title)
        if pieces is None or rng.random() >= self._varied:
            return _recase(title, rng)
        rate = rng.choice((0.15, 0.4, 0.8))
        changed = []
        for piece in pieces:
            if piece.attribute is None or rng.random() >= rate:
                changed.append(piece)
            elif rng.random() < 0.12:
                changed.append(_Piece("", None))
            else:
                changed.append(
                    _Piece(
                        self._other_value(title.category, piece.attribute, piece.text, rng),
                        piece.attribute,
                    )
                )
        values = {piece.attribute: piece.text for piece in changed if piece.attribute}
        text = re.sub(r" {2,}", " ", "".join(piece.text for piece in changed))
        text = re.sub(r"^[\s,\-]+|[\s,\-]+$|\s+(?=,)", "", re.sub(r",(\s*,)+", ",", text))
        if any(value not in text for value in values.values()):
            return title
        return _recase(Example(title.category, text, values), rng)

    def _other_value(self, category: str, attribute: str, value: str, rng: random.Random) -> str:
        chance = rng.random()
        if attribute in self._open and chance < self._share_invented:
            return self._invented(rng, max(1, len(value.split()) + rng.choice((-1, 0, 0, 0, 1))))
        chance = rng.random()
        if chance < 0.65:
            return rng.choice(self._by_category[category, attribute])
        if re.search(r"\d", value) and chance < 0.9:
            return re.sub(r"\d", lambda _: str(rng.randrange(1, 10)), value)
        return rng.choice(self._by_attribute[attribute])

    def _invented(self, rng: random.Random, count: int) -> str:
        words = []
        for _ in range(min(count, 5)):
            word = rng.choice(self._words)
            kind = rng.random()
            if kind < 0.1:
                # A model number: random letters and digits.
                code = "".join(str(rng.randrange(10)) for _ in range(rng.randrange(1, 5)))
                words.append(word[: rng.randrange(1, 4)].upper() + rng.choice(("", "-")) + code)
                continue
            if kind < 0.65:
                # Halves of two words: pronounceable, but not in any dictionary.
                other = rng.choice(self._words)
                word = word[: max(2, len(word) // 2)] + other[len(other) // 2 :].lower()
            words.append(word if word.isupper() else word.capitalize())
        joiner = rng.choice((" ", " ", " ", " ", " & ", "-")) if count > 1 else " "
        return " ".join([*words[:-2], joiner.join(words[-2:])])


def _is_open(values: Sequence[str]) -> bool:
    """True if most values are words, and many occur only once."""
    counts = Counter(values)
    once = sum(1 for count in counts.values() if count == 1)
    worded = sum(1 for value in values if not re.search(r"\d", value))
    return once / len(values) > _OPEN_SHARE and worded / len(values) > 0.7


def _stated(title: Example) -> list[tuple[str, str]]:
    values = ((name, canonical_value(label)) for name, label in title.attributes.items())
    return [(name, value) for name, value in values if value is not None]


def _cut(title: Example) -> list[_Piece] | None:
    """Splits the text at its values; None if a value is missing or two values overlap."""
    spans = []
    for attribute, value in _stated(title):
        pattern = r"(?<!\w)" + re.escape(value) + r"(?!\w)"
        found = re.search(pattern, title.text) or re.search(re.escape(value), title.text)
        if not found:
            return None
        spans.append((found.start(), found.end(), attribute))
    spans.sort()
    pieces, at = [], 0
    for start, end, attribute in spans:
        if start < at:
            return None
        pieces += [_Piece(title.text[at:start]), _Piece(title.text[start:end], attribute)]
        at = end
    return [*pieces, _Piece(title.text[at:])]


def _recase(title: Example, rng: random.Random) -> Example:
    chance = rng.random()
    if chance > 0.06:
        return title
    change = str.lower if chance < 0.03 else str.upper
    values = {attribute: change(value) for attribute, value in _stated(title)}
    return Example(title.category, change(title.text), values)
