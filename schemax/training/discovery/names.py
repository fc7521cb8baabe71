"""Names of attributes: recognizes names, merges synonymous ones, counts their sources."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from schemax.attributes.ready_made import words_of

_MOST_WORDS, _LONGEST = 4, 40
_LONGEST_VALUE = 100
_WORD = re.compile(r"[^\W\d_]{2,}")
# `Weight: 2 kg`: a line, an item of a list, or a part between bars.
_LINE = re.compile(
    rf"[ \t]*[-*•·]?[ \t]*([^\W\d_][^:=\n|]{{0,{_LONGEST}}}?)[ \t]*[:=][ \t]+"
    rf"(\S[^\n|]{{0,{_LONGEST_VALUE}}})"
)
# Names that tell nothing about the product, in the form that words are compared in.
_NOTHING = [words_of(name) for name in ("price", "cost", "name value", "note", "attribute")]
_SPELLINGS = {"colour": "color", "fibre": "fiber", "flavour": "flavor", "metre": "meter"}
_EMPTY = frozenset({"product", "item", "the"})


@dataclass(slots=True)
class AttributeName:
    """A name that may become an attribute.

    spellings: counts of each; lists: the number of the model's lists with the name; documents:
    place of a document with a line of the name -> the value there.
    """

    spellings: Counter[str] = field(default_factory=Counter)
    lists: int = 0
    documents: dict[int, str] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The most common spelling, of several the first."""
        text = self.spellings.most_common(1)[0][0]
        return text[:1].upper() + text[1:]


def candidates(lists: Iterable[Sequence[str]], texts: Sequence[str]) -> list[AttributeName]:
    """Returns the names in the model's lists and in lines of the texts, most frequent first."""
    found: dict[tuple[str, ...], AttributeName] = {}
    total = 0
    for names in lists:
        total += 1
        of_list: dict[tuple[str, ...], str] = {}
        for name in names:
            if (key := _key(name)) is not None:
                of_list.setdefault(key, _plain(name))
        for key, name in of_list.items():
            candidate = found.setdefault(key, AttributeName())
            candidate.spellings[name] += 1
            candidate.lists += 1
    lines = _stated_in_lines(texts)
    for key, stated in lines.items():
        if key in found or len(stated) > 1:  # a single line is not enough
            candidate = found.setdefault(key, AttributeName())
            candidate.spellings.update(name for name, _ in stated.values())
            candidate.documents = {place: value for place, (_, value) in stated.items()}
    shares = {
        id(item): item.lists / max(1, total) + len(item.documents) / max(1, len(texts))
        for item in found.values()
    }
    return sorted(found.values(), key=lambda item: -shares[id(item)])


def _stated_in_lines(texts: Sequence[str]) -> dict[tuple[str, ...], dict[int, tuple[str, str]]]:
    """Returns key of a name -> document -> (name, value), from lines `name: value`."""
    found: dict[tuple[str, ...], dict[int, tuple[str, str]]] = {}
    for place, text in enumerate(texts):
        for part in re.split(r"[\n|]", text):
            match = _LINE.fullmatch(part.rstrip())
            if match and (key := _key(match[1])) is not None:
                found.setdefault(key, {}).setdefault(place, (_plain(match[1]), match[2]))
    return found


def _key(name: str) -> tuple[str, ...] | None:
    """Returns a key, equal for names that surely mean the same; None if the text is no name."""
    name = _plain(name)
    if len(name) > _LONGEST or not _WORD.search(name) or len(name.split()) > _MOST_WORDS:
        return None
    words = words_of(" ".join(_SPELLINGS.get(word, word) for word in name.casefold().split()))
    bare = tuple(word for word in words if word not in _EMPTY) or words
    return None if not bare or bare in _NOTHING else bare


def _plain(name: str) -> str:
    return " ".join(re.sub(r"[\"“”<>{}\[\]]|[:.;,]+$", " ", name).replace("_", " ").split())
