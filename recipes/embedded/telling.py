"""Documents that are drawn out of patterns, with what they state.

    python -m recipes.embedded.telling NAME.txt...

shows three documents of every kind in these files of the folder `patterns`, and checks many more.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from recipes.embedded.invented import Said
from recipes.embedded.letters import draw_amount, draw_day
from recipes.embedded.patterns import FOLDER, SHARED, TOKEN, Asked, Pattern, read_file, read_pools

_AND = " and "
_JOINTS = (", ", ", ", ", ", _AND, " & ", "; ", " / ", "\n- ")
_LINES = ("\n", "\n", "; ", "; ", ", ", "\n- ", " / ")
_WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True, slots=True)
class Told:
    """A document and its words and values, by the key of a field."""

    text: str
    said: Mapping[str, Said]


def draw_document(pattern: Pattern, rng: random.Random) -> Told:
    """Draws a document of a kind."""
    telling = _Telling(pattern, pattern.fields, rng)
    text = telling.write(rng.choice(pattern.says)).strip()
    return Told(text, telling.said)


class _Telling:
    """A writer of a document, with the fields that it has stated so far."""

    def __init__(self, pattern: Pattern, fields: Mapping[str, Asked], rng: random.Random) -> None:
        self._pattern, self._fields, self._rng = pattern, fields, rng
        self.said: dict[str, Said] = {}

    def write(self, form: str) -> str:
        parts, at = [], 0
        while token := TOKEN.search(form, at):
            parts.append(form[at : token.start()])
            at = token.end()
            if token["open"]:
                branches, at = _branches(form, at)
                parts.append(self.write(self._rng.choice(branches)))
            elif token["blank"]:
                around = form[: token.start()][-1:] + form[at:][:1]
                is_word = not any(map(str.isalnum, around))
                parts.append(self._blank(token["blank"], bool(token["several"]), is_word))
            else:
                parts.append(self._written(token))
        return "".join([*parts, form[at:]])

    def _written(self, token: re.Match[str]) -> str:
        rng = self._rng
        if token["at"]:
            return "@"
        if token["pool"]:
            return self.write(rng.choice(self._pattern.pools[token["pool"]]))
        if token["code"]:
            return "".join(_sign(sign, rng) for sign in str(token["code"]))
        if token["low"]:
            return _between(token["low"], token["high"], rng)
        self._follow(token["set"], token["value"].strip())
        return ""

    def _follow(self, key: str, value: str) -> None:
        """Sets the value that words imply. Raises ValueError if another value was set before."""
        boolean = self._fields[key].type == "bool"
        said = Said(value, {"boolean": value == "yes"} if boolean else {"choice": value})
        if self.said.setdefault(key, said).values != said.values:
            raise ValueError(f"{key!r} is {value!r} after it was {self.said[key].text!r}")

    def _blank(self, key: str, several: bool, is_word: bool) -> str:
        """Writes a field's value. is_word: True between spaces or punctuation."""
        asked = self._fields[key]
        if asked.type == "list":
            return self._list(key, asked, several)
        if asked.type == "items":
            return self._items(key, asked)
        if key not in self.said:
            self.said[key] = self._drawn(asked, is_word)
        return self.said[key].text

    def _list(self, key: str, asked: Asked, several: bool) -> str:
        """Writes some items of a list that were not written before."""
        rng, new = self._rng, list[str]()
        items: Any = self.said.setdefault(key, Said("", {"list": []})).values["list"]
        form = rng.choice(asked.forms)
        # All items that are drawn, such as names of people, have the same form.
        drawn = TOKEN.search(form) is not None
        forms = [form] if drawn else [form for form in asked.forms if not TOKEN.search(form)]
        for _ in range(rng.choice((1, 2, 2, 3, 3, 4)) if several else 1):
            item = self.write(rng.choice(forms)).strip()
            if item not in items:
                items.append(item)
                new.append(item)
        # The separator must not occur within an item.
        joints = [
            joint
            for joint in _JOINTS
            if not any((joint if joint == _AND else joint.strip()) in item for item in new)
        ]
        joint = rng.choice(joints or ["\n- "])
        shown = joint.join(new) if new else str(items[-1])
        return joint + shown if several and "\n" in joint else shown

    def _items(self, key: str, asked: Asked) -> str:
        """Writes some items, all in the same form, in a row or in lines."""
        form, shown = self._rng.choice(asked.forms), []
        items: Any = self.said.setdefault(key, Said("", {"items": []})).values["items"]
        for _ in range(self._rng.choice((1, 2, 2, 3, 3, 4, 5))):
            telling = _Telling(self._pattern, asked.parts, self._rng)
            shown.append(telling.write(form).strip())
            items.append(telling.said)
        return self._rng.choice(_LINES).join(shown)

    def _drawn(self, asked: Asked, is_word: bool) -> Said:
        rng, language = self._rng, self._pattern.language
        if asked.type == "date" and not asked.forms:
            return draw_day(language, rng)
        if asked.type == "money" and not asked.forms:
            return draw_amount(language, rng)
        if asked.type == "choice":
            meaning = rng.choice([*asked.facet.choices[0]])
            return Said(rng.choice((meaning, meaning, meaning.capitalize())), {"choice": meaning})
        text = self.write(rng.choice(asked.forms)).strip()
        if asked.type in ("int", "number", "money"):
            value = Decimal(text.replace(",", ""))
            if language != "en":
                text = text.translate(str.maketrans(".,", ",."))
            elif asked.type == "int" and value < len(_WORDS) and is_word and rng.random() < 0.2:
                text = _WORDS[int(value)]
            return Said(text, {"number": value, "integer": int(value), "text": text})
        if asked.type == "date":
            return Said(text, {"text": text, "date": date.fromisoformat(text)})
        return Said(text, {"text": text})


def _branches(form: str, at: int) -> tuple[list[str], int]:
    """Returns the alternatives behind a `<`, and the place behind their `>`."""
    branches, depth, begin = [], 0, at
    while depth or form[at] != ">":
        depth += (form[at] == "<") - (form[at] == ">")
        if form[at] == "|" and not depth:
            branches.append(form[begin:at])
            begin = at + 1
        at += 1
    return [*branches, form[begin:at]], at + 1


def _sign(sign: str, rng: random.Random) -> str:
    if sign == "A":
        return rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ")
    return str(rng.randrange(10)) if sign == "9" else sign


def _between(low: str, high: str, rng: random.Random) -> str:
    if "." not in low:
        # `%9-22.30` is an integer with `.30` behind it.
        high, point, rest = high.partition(".")
        return f"{rng.randint(int(low), int(high))}{point}{rest}"
    places = len(low.partition(".")[2])
    scale = 10**places
    return (
        f"{rng.randint(int(Decimal(low) * scale), int(Decimal(high) * scale)) / scale:.{places}f}"
    )


def texts_of(told: Mapping[str, Said]) -> Iterator[str]:
    """Yields all values that a document writes unchanged."""
    for said in told.values():
        values: Any = said.values
        yield from (values["text"],) if "text" in values else ()
        yield from values.get("list", ())
        for item in values.get("items", ()):
            yield from texts_of(item)


def main(names: Sequence[str]) -> None:
    if not names:
        sys.exit(__doc__)
    shared = read_pools(FOLDER / SHARED, {})
    for name in names:
        for pattern in read_file(FOLDER / name, shared):
            rng = random.Random(pattern.names[0])
            for place in range(300):
                told = draw_document(pattern, rng)
                for text in texts_of(told.said):
                    if text not in told.text:
                        sys.exit(f"{name}: {text!r} is not in {told.text!r}")
                if place < 3:
                    values = {key: dict(said.values) for key, said in told.said.items()}
                    print(f"--- {pattern.names[0]}\n{told.text}\n    {values}")


if __name__ == "__main__":
    main(sys.argv[1:])
