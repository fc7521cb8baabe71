"""Numbers in words, in seven languages: two, fünfundzwanzig, vingt et un, dos mil."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import lru_cache

from schemax.reading.number_language import NumberLanguage
from schemax.reading.number_languages import number_languages

_Placed = Sequence[tuple[tuple[int, int], str]]

_WORD = re.compile(r"[^\W\d_]+")
_GAP = re.compile(r"[\s,‐-―-]+")
_MOST_WORDS = 64
# Words up to this length are ordinary words as well.
_SHORTEST = 3
_FOREIGN = re.compile(
    r"hundr|tus(?:en|ind)|tysi|tisic|ezer|mil+i?j?[oa]|miljard|milliar|bil+i|tril|"
    r"(?:sto|sute?|suta|mie|mii|mil|cents|zece|zeci|tuhat|tuhatta|sata|sataa|syv|fem|sju|ett|en|"
    r"og|och|si|u|cinc|sis|vuit|nou|ting|i)$|"
    # Catalan, Polish, Esperanto, Welsh
    r"(?:(?:dot|tret|cator|quin|set)ze|disset|divuit|dinou|vint|deu|set|(?:quar|cinqu|seix|set|vuit|nor)anta|"
    r"przecinek|dwa|trzy|cztery|piec|szesc|siedem|osiem|dziewiec|\w+(?:nascie|dziesci|dziesiat)|"
    r"(?:du|tri|kvar|kvin|ses|sep|ok|nau)cent|unu|tri|kvar|kvin|ses|nau|dek|\w*(?:du|tri|kvar|kvin|ses|sep|ok|nau)dek|komo|"
    r"ar|ac|pwynt|\w*ugain|d?deg|bymtheg)$"
)
_ORDINAL = re.compile(r".*(?:first|second|third|th|ieth|ieme|iemes|eme)")


def in_digits(text: str) -> str:
    """Writes the number words of a text in digits; returns a text without any unchanged.

    The language that knows most of the words is used. Raises ValueError if number words form no
    number, or if languages disagree on the number.
    """
    words = [(found.span(), _flat(found[0])) for found in _WORD.finditer(text)]
    if not words or len(words) > _MOST_WORDS:
        return text
    by_word = [_languages_of(word) for _, word in words]
    if not any(map(any, by_word)):
        return text
    found: dict[str, int] = {}
    best, failures = 0, 0
    for language, known in zip(number_languages(), zip(*by_word, strict=True), strict=True):
        covered = _covered(words, known, language)
        if not covered or covered < best:
            continue
        if covered > best:
            found, best, failures = {}, covered, 0
        try:
            found.setdefault(_written(text, words, known, language), 0)
        except ValueError:
            failures += 1
    if len(found) > 1:
        said = " or ".join(sorted(found))
        raise ValueError(f"may mean {said}, in different languages")
    if not found and failures:
        raise ValueError("states numbers in words that make no number together")
    return next(iter(found), text)


@lru_cache(maxsize=16_384)
def _languages_of(word: str) -> tuple[bool, ...]:
    """True for each language that has a word as a number word."""
    return tuple(
        language.has(word) and word not in language.joins for language in number_languages()
    )


def _covered(words: _Placed, known: Sequence[bool], language: NumberLanguage) -> int:
    """Counts the letters that a language understands, conjunctions between numbers included."""
    total = 0
    for place, (_, word) in enumerate(words):
        between = 0 < place < len(words) - 1 and known[place - 1] and known[place + 1]
        if known[place] or (between and word in language.joins):
            total += len(word)
    return total


def _flat(word: str) -> str:
    """A word in lower case without accents; "ß" stays."""
    word = word.lower()
    if word.isascii():
        return word
    decomposed = unicodedata.normalize("NFD", word)
    return "".join(char for char in decomposed if not unicodedata.combining(char))


def _written(text: str, words: _Placed, known: Sequence[bool], language: NumberLanguage) -> str:
    pieces, at = [], 0
    for first, last in _runs(text, words, known, language):
        for start, end, value in _values(text, words, first, last, language):
            begin = words[start][0][0]
            sign = ""
            if start and words[start - 1][1] in language.minus and _joined(text, words, start - 1):
                begin, sign = words[start - 1][0][0], "-"
            pieces += [text[at:begin], sign, f"{value:f}"]
            at = words[end - 1][0][1]
    return "".join([*pieces, text[at:]])


def _runs(
    text: str, words: _Placed, known: Sequence[bool], language: NumberLanguage
) -> Iterator[tuple[int, int]]:
    """Yields runs of number words, with the conjunctions between them."""
    first = 0
    while first < len(words):
        if not known[first]:
            first += 1
            continue
        last = end = first + 1
        while end < len(words) and _joined(text, words, end - 1):
            if known[end]:
                last = end = end + 1
            elif words[end][1] in language.joins or words[end][1] == "a":
                end += 1
            else:
                break
        is_led = first and words[first - 1][1] == "a" and _joined(text, words, first - 1)
        yield first - bool(is_led and _is_phrase(words, first - 1, last, language)), last
        first = last


def _is_phrase(words: _Placed, first: int, last: int, language: NumberLanguage) -> bool:
    return language.value("".join(word for _, word in words[first:last])) is not None


def _joined(text: str, words: _Placed, at: int) -> bool:
    """True if only spaces, commas and hyphens stand between a word and the next."""
    return _GAP.fullmatch(text[words[at][0][1] : words[at + 1][0][0]]) is not None


def _values(
    text: str, words: _Placed, first: int, last: int, language: NumberLanguage
) -> Iterator[tuple[int, int, Decimal]]:
    """Yields the number of a run, or the numbers between its commas and conjunctions."""
    _check_neighbours(text, words, first, last, language)
    value = language.value("".join(word for _, word in words[first:last]))
    if value is not None:
        yield first, last, value
        return
    start = first
    for end in range(first + 1, last + 1):
        is_cut = (
            end == last
            or words[end][1] in language.joins
            or "," in text[words[end - 1][0][1] : words[end][0][0]]
        )
        if is_cut:
            value = language.value("".join(word for _, word in words[start:end]))
            if value is None:
                raise ValueError
            yield start, end, value
            start = end + (end < last and words[end][1] in language.joins)


def _check_neighbours(
    text: str, words: _Placed, first: int, last: int, language: NumberLanguage
) -> None:
    """Raises ValueError if words beside a number may belong to it, but not in this language."""
    for place, seam in ((first - 1, first - 1), (last, last - 1)):
        if not 0 <= place < len(words) or not _joined(text, words, seam):
            continue
        word = words[place][1]
        if word not in language.joins and _is_of_another(word, language):
            raise ValueError
        if _FOREIGN.match(word) and word not in (*language.minus, *language.joins):
            raise ValueError
        if place == last and word in language.joins and last + 1 < len(words):
            place, word = last + 1, words[last + 1][1]
        if language.begins(word) or (place >= last and _ORDINAL.fullmatch(word)):
            raise ValueError
        if "-" in text[words[seam][0][1] : words[seam + 1][0][0]] and not language.hyphens:
            raise ValueError


def _is_of_another(word: str, language: NumberLanguage) -> bool:
    """True if a word is a number in another language: "fifty", before a French "cents"."""
    if len(word) <= _SHORTEST or language.has(word):
        return False
    return any(word not in one.joins and one.has(word) for one in number_languages())
