"""Invented forms, messages, notices and sentences with typed values, out of `patterns/*.txt`.

    kind: support ticket; customer complaint          what a schema calls such documents
    language: de                                      how dates and amounts are written; default en
    field: order | text | order number; order_no | Number of the order
    field: issue | choice | issue; topic | What it is about | delivery; defect; billing
    where: order = #99-99999; ORD-#9999               how a value is written
    field: lines | items | lines | What was ordered
    part: lines.item | text | item; article | What it is
    part: lines.count | int | quantity | How many of it
    item: lines = {count} x {item}; {item} ({count})
    say: Hello, order {order} <never came~issue=delivery|came broken~issue=defect>.<| Thanks!>

A field has a key, a type, names to ask by, descriptions, and a choice its choices. Types: text,
list, choice, bool, date, time, money, int, number; items, whose parts are fields of each, and whose
items are all written in one of the forms of `item`. A `say` is a whole document; `\\n` is a line
break.

    {key}       the field's value, drawn and written; of a list another item of it each time
    {key*}      of a list: one to four items, joined; of items: one to five
    <a|b|>      one of these, the last of which is nothing; they may be nested
    ~key=value  at the end of one of these: what follows from its words: a choice, yes or no
    @pool       one of a pool: `pool: gadget = kettle; #99 inch lamp`; pools.txt has those of all;
                @@ is an @
    #A9-99      a code: `A` a capital letter, `9` a digit; %1-60 a whole number; %0.5-9.5 a decimal
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from recipes.embedded.invented import Facet, Said
from schemax.errors import InputError

FOLDER = Path(__file__).with_name("patterns")
SHARED = "pools.txt"  # has no kinds
_KINDS: Mapping[str, Mapping[str, float]] = {
    "text": {"text": 1},
    "list": {"list": 1},
    "choice": {"choice": 1},
    "bool": {"boolean": 1},
    "date": {"date": 0.75, "text": 0.25},
    "time": {"text": 1},
    "money": {"number": 0.85, "text": 0.15},
    "int": {"integer": 0.75, "number": 0.25},
    "number": {"number": 1},
    "items": {"items": 1},
}
# Types whose values are drawn as a `where` says.
_DRAWN = {"text", "list", "time", "int", "number", "items"}
# What is not plain text in a form.
TOKEN = re.compile(
    r"\{(?P<blank>\w+)(?P<several>\*?)\}"
    r"|(?P<at>@@)"
    r"|@(?P<pool>[a-z]+(?:_[a-z]+)*)"
    r"|#(?P<code>[A9]+(?:[-/.]?[A9]+)*)"
    r"|%(?P<low>\d+(?:\.\d+)?)-(?P<high>\d+(?:\.\d+)?)"
    r"|~(?P<set>\w+)=(?P<value>[\w /-]+)"
    r"|(?P<open><)"
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A field of a kind: how it is asked for, and how its values are written; of items, one item's
    parts."""

    type: str
    facet: Facet
    forms: list[str] = field(default_factory=list)
    parts: dict[str, Asked] = field(default_factory=dict)


@dataclass(slots=True)
class Pattern:
    """A kind of documents. pools: those of its file, over those of all."""

    names: tuple[str, ...]
    pools: Mapping[str, Sequence[str]]
    fields: dict[str, Asked] = field(default_factory=dict)
    says: list[str] = field(default_factory=list)
    language: str = "en"


@cache
def read_patterns(aside: bool = False) -> tuple[Pattern, ...]:
    """The kinds that are trained on, or the one in twelve that are set aside.

    Raises InputError, naming the line.
    """
    shared = read_pools(FOLDER / SHARED, {})
    files = sorted(file for file in FOLDER.glob("*.txt") if file.name != SHARED)
    every = (pattern for file in files for pattern in read_file(file, shared))
    return tuple(p for p in every if (zlib.crc32(p.names[0].encode()) % 12 == 0) == aside)


def read_file(path: Path, shared: Mapping[str, Sequence[str]]) -> list[Pattern]:
    pools = read_pools(path, shared)
    found: list[Pattern] = []
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        word, _, rest = line.partition(":")
        if not line.strip() or line.startswith("# ") or word == "pool":
            continue
        try:
            if word == "kind":
                found.append(Pattern(_parts(rest), pools))
            elif not found:
                raise ValueError("a kind comes first")
            else:
                _read(word, rest.strip(), found[-1])
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
    for pattern in found:
        parts = [*pattern.fields.items()]
        for key, asked in pattern.fields.items():
            parts += [(f"{key}.{name}", part) for name, part in asked.parts.items()]
        for key, asked in parts:
            if asked.type in _DRAWN and not asked.forms:
                raise InputError(f"{path}, {pattern.names[0]!r}: no `where` of {key!r}")
    return found


def read_pools(path: Path, shared: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
    pools = {name: [*texts] for name, texts in shared.items()}
    for line in path.read_text("utf-8").split("\n"):
        if line.startswith("pool:"):
            name, _, texts = line.removeprefix("pool:").partition("=")
            pools.setdefault(name.strip(), []).extend(_parts(texts))
    return pools


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _read(word: str, rest: str, pattern: Pattern) -> None:
    if word == "language":
        pattern.language = rest
    elif word in ("field", "part"):
        parts = [part.strip() for part in rest.split("|")]
        if len(parts) < 4 or parts[1] not in _KINDS:
            raise ValueError(f"not `key | type | names | descriptions`: {rest!r}")
        key, type, names, descriptions, *choices = parts
        if (type == "choice") != bool(choices):
            raise ValueError(f"a choice has choices, a {type} has none")
        owner, _, key = key.rpartition(".")
        fields = _field(owner, pattern.fields).parts if owner else pattern.fields
        fields[key] = Asked(type, _facet(type, names, descriptions, *choices))
    elif word == "where":
        key, _, forms = rest.partition("=")
        _field(key.strip(), pattern.fields).forms.extend(_parts(forms))
    elif word == "item":
        key, _, forms = rest.partition("=")
        asked = _field(key.strip(), pattern.fields)
        _check(forms, asked.parts, pattern)
        asked.forms.extend(_parts(forms.replace("\\n", "\n")))
    elif word == "say":
        _check(rest, pattern.fields, pattern)
        pattern.says.append(rest.replace("\\n", "\n"))
    else:
        raise ValueError(f"unknown word {word!r}")


def _facet(type: str, names: str, descriptions: str, choices: str = "") -> Facet:
    meanings = _parts(choices)
    tables = tuple(
        {meaning: change(meaning) for meaning in meanings}
        for change in (str, str, str.title, str.upper, lambda text: text.replace(" ", "_"))
    )
    return Facet(_parts(names), _parts(descriptions), _KINDS[type], _nothing, 1, tables)


def _nothing(rng: random.Random) -> Said:
    raise NotImplementedError("a document draws what its blanks say by itself")


def _field(path: str, fields: Mapping[str, Asked]) -> Asked:
    owner, _, key = path.rpartition(".")
    if owner:
        fields = _field(owner, fields).parts
    if key not in fields:
        raise ValueError(f"no field {path!r}")
    return fields[key]


def _check(say: str, fields: Mapping[str, Asked], pattern: Pattern) -> None:
    if say.count("<") != say.count(">"):
        raise ValueError("a `<` without its `>`")
    for token in TOKEN.finditer(say):
        if token["pool"] and token["pool"] not in pattern.pools:
            raise ValueError(f"no pool {token['pool']!r}")
        key: str | None = token["blank"] or token["set"]
        if key is None:
            continue
        if key not in fields:
            raise ValueError(f"no field {key!r}")
        if token["several"] and fields[key].type not in ("list", "items"):
            raise ValueError(f"{key!r} is no list")
        if token["set"] and fields[key].type == "bool" and token["value"] not in ("yes", "no"):
            raise ValueError(f"{key!r} is yes or no")
        choices = fields[key].facet.choices[0] if fields[key].type == "choice" else {}
        if token["set"] and choices and token["value"].strip() not in choices:
            raise ValueError(f"{token['value']!r} is no choice of {key!r}")
