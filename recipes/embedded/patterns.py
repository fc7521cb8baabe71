"""Invented forms, messages, notices and sentences with typed values, read from `patterns/*.txt`.

    kind: support ticket; customer complaint          categories of such documents in a schema
    language: de                                      of dates and amounts; default en
    field: order | text | order number; order_no | Number of the order
    field: issue | choice | issue; topic | What it is about | delivery; defect; billing
    where: order = #99-99999; ORD-#9999               forms of a value
    field: lines | items | lines | What was ordered
    part: lines.item | text | item; article | What it is
    part: lines.count | int | quantity | How many of it
    item: lines = {count} x {item}; {item} ({count})
    say: Hello, order {order} <never came~issue=delivery|came broken~issue=defect>.<| Thanks!>

A field has a key, a type, names for questions, descriptions, and, for a choice, choices. Types:
text, list, choice, bool, date, time, money, int, number; items, whose parts are fields of each
item, and which are all written in one of the forms of `item`. A `say` is a whole document; `\\n` is
a line break.

    {key}       the field's value, drawn and written; for a list, another item each time
    {key*}      for a list, one to four items, joined; for items, one to five
    <a|b|>      one of the alternatives, the last of which is empty; they may be nested
    ~key=value  a value that follows from the words before: a choice, yes or no
    @pool       one of a pool: `pool: gadget = kettle; #99 inch lamp`; pools.txt has shared pools;
                @@ is an @; a file's pool may hold {key}, too, if all kinds that use it have the key
    #A9-99      a code: `A` a capital letter, `9` a digit
    %1-60       an integer; %0.5-9.5 a decimal; %9-22.30 an integer with `.30` behind it

Entries of a line are separated by `;`, within `<>`, too; a `say` is a single entry. Dates and
amounts need no `where`; the `where` of a date gives ISO dates.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from recipes.embedded.invented import Facet, not_drawn
from recipes.embedded.letters import languages
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
# Types whose values are drawn from a `where`.
_DRAWN = {"text", "list", "time", "int", "number", "items"}
# Tokens: the parts of a form that are not plain text.
TOKEN = re.compile(
    r"\{(?P<blank>\w+)(?P<several>\*?)\}"
    r"|(?P<at>@@)"
    r"|@(?P<pool>[a-z]+(?:_[a-z]+)*)"
    r"|#(?P<code>[A9]+(?:[-/.]?[A9]+)*)"
    r"|%(?P<low>\d+(?:\.\d+)?)-(?P<high>\d+(?:\.\d+)?)"
    r"|~(?P<set>\w+)=(?P<value>[\w /-]+)"
    r"|(?P<open><)"
)
# Text that looks like a token, but is none.
_BROKEN = re.compile(r"\{[\w. ]*\*?\}|~|@\w")


@dataclass(frozen=True, slots=True)
class Asked:
    """A field of a kind: the facet to ask for, the forms of its values, and, for items, the parts
    of an item."""

    type: str
    facet: Facet
    forms: list[str] = field(default_factory=list)
    parts: dict[str, Asked] = field(default_factory=dict)


@dataclass(slots=True)
class Pattern:
    """A kind of documents. file: its file's name; pools: of the file, and shared ones."""

    file: str
    names: tuple[str, ...]
    pools: Mapping[str, Sequence[str]]
    fields: dict[str, Asked] = field(default_factory=dict)
    says: list[str] = field(default_factory=list)
    language: str = "en"


def read_patterns(*, aside: bool) -> tuple[Pattern, ...]:
    """Returns the kinds that are trained on, or the held-out kinds, one in twelve.

    Raises InputError, naming the line.
    """
    return tuple(pattern for pattern in _every_pattern() if _is_aside(pattern) == aside)


@cache
def _every_pattern() -> tuple[Pattern, ...]:
    shared = read_pools(FOLDER / SHARED, {})
    files = sorted(file for file in FOLDER.glob("*.txt") if file.name != SHARED)
    return tuple(pattern for file in files for pattern in read_file(file, shared))


def _is_aside(pattern: Pattern) -> bool:
    return zlib.crc32(f"{pattern.file} {pattern.names}".encode()) % 12 == 0


@contextmanager
def _located(path: Path, line: int) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise InputError(f"{path}, line {line}: {error}") from error


def read_file(path: Path, shared: Mapping[str, Sequence[str]]) -> list[Pattern]:
    """Reads the kinds of a file. shared: shared pools. Raises InputError, naming the line."""
    pools = read_pools(path, shared)
    found: list[Pattern] = []
    begun = 0
    for number, line in enumerate([*path.read_text("utf-8").split("\n"), "kind: end"], 1):
        word, _, rest = line.partition(":")
        if not line.strip() or line.startswith("# ") or word == "pool":
            continue
        if word == "kind":
            if found:
                with _located(path, begun):
                    _finish(found[-1])
            begun = number
            with _located(path, number):
                found.append(Pattern(path.name, _entries(rest), pools))
            continue
        with _located(path, number):
            if not found:
                raise ValueError("a kind comes first")
            _read(word, rest.strip(), found[-1])
    return found[:-1]


def read_pools(path: Path, shared: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
    """Reads the pools of a file, and adds shared ones. Raises InputError, naming the line."""
    pools = {name: [*texts] for name, texts in shared.items()}
    own: list[tuple[int, tuple[str, ...]]] = []
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        word, _, rest = line.partition(":")
        if word == "pool":
            name, _, texts = rest.partition("=")
            with _located(path, number):
                own.append((number, _entries(texts)))
            pools.setdefault(name.strip(), []).extend(own[-1][1])
    for number, entries in own:
        with _located(path, number):
            for entry in entries:
                _check(entry, None, pools)
    return pools


def _entries(text: str = "") -> tuple[str, ...]:
    entries = tuple(part.strip() for part in text.split(";") if part.strip())
    if not entries:
        raise ValueError("nothing is named")
    return entries


def _read(word: str, rest: str, pattern: Pattern) -> None:
    if word == "language":
        if rest not in languages():
            raise ValueError(f"unknown language {rest!r}")
        pattern.language = rest
    elif word in ("field", "part"):
        _declare(rest, pattern)
    elif word == "where":
        path, _, forms = rest.partition("=")
        asked = _field(path.strip(), pattern.fields)
        for form in _entries(forms):
            _check(form, {}, pattern.pools)
            asked.forms.append(form)
    elif word == "item":
        path, _, forms = rest.partition("=")
        asked = _field(path.strip(), pattern.fields)
        for form in _entries(forms):
            _check(form, asked.parts, pattern.pools)
            asked.forms.append(form.replace("\\n", "\n"))
    elif word == "say":
        _check(rest, pattern.fields, pattern.pools)
        pattern.says.append(rest.replace("\\n", "\n"))
    else:
        raise ValueError(f"unknown word {word!r}")


def _declare(text: str, pattern: Pattern) -> None:
    columns = [part.strip() for part in text.split("|")]
    if len(columns) < 4 or columns[1] not in _KINDS:
        raise ValueError(f"not `key | type | names | descriptions`: {text!r}")
    path, type, names, descriptions, *choices = columns
    if (type == "choice") != bool(choices):
        raise ValueError(f"a choice has choices, a {type} has none")
    owner, _, key = path.rpartition(".")
    fields = _field(owner, pattern.fields).parts if owner else pattern.fields
    if key in fields:
        raise ValueError(f"{path!r} is declared twice")
    fields[key] = Asked(type, _facet(type, names, descriptions, *choices))


def _facet(type: str, names: str, descriptions: str, choices: str = "") -> Facet:
    meanings = _entries(choices) if choices else ()
    # The original spelling twice, so that it is drawn twice as often.
    spellings = (str, str, str.title, str.upper, lambda text: text.replace(" ", "_"))
    tables = tuple({meaning: spell(meaning) for meaning in meanings} for spell in spellings)
    return Facet(_entries(names), _entries(descriptions), _KINDS[type], not_drawn, 1, tables)


def _field(path: str, fields: Mapping[str, Asked]) -> Asked:
    owner, _, key = path.rpartition(".")
    if owner:
        fields = _field(owner, fields).parts
    if key not in fields:
        raise ValueError(f"no field {path!r}")
    return fields[key]


def _finish(pattern: Pattern) -> None:
    """Raises ValueError if a kind is incomplete or ambiguous."""
    if not pattern.says:
        raise ValueError("no `say`")
    phrases = (text for texts in pattern.pools.values() for text in texts)
    _check_fields(pattern.fields, [*pattern.says, *phrases])
    for asked in pattern.fields.values():
        if asked.type == "items":
            _check_fields(asked.parts, asked.forms)


def _check_fields(fields: Mapping[str, Asked], forms: Sequence[str]) -> None:
    said = {token["blank"] or token["set"] for form in forms for token in TOKEN.finditer(form)}
    owners: dict[str, str] = {}
    for key, asked in fields.items():
        if asked.type in _DRAWN and not asked.forms:
            raise ValueError(f"no `where` of {key!r}")
        if key not in said:
            raise ValueError(f"{key!r} is never said")
        for name in {re.sub(r"\W|_", "", name.casefold()) for name in asked.facet.names}:
            if owners.setdefault(name, key) != key:
                raise ValueError(f"{key!r} and {owners[name]!r} are both called {name!r}")


def _check(
    form: str, fields: Mapping[str, Asked] | None, pools: Mapping[str, Sequence[str]]
) -> None:
    """Raises ValueError for a form that cannot be drawn. fields: None for forms of pools."""
    depth = 0
    for sign in form:
        depth += (sign == "<") - (sign == ">")
        if depth < 0:
            break
    if depth:
        raise ValueError("a `<` without its `>`, or the other way round")
    for token in TOKEN.finditer(form):
        if token["pool"] and token["pool"] not in pools:
            raise ValueError(f"no pool {token['pool']!r}")
        if token["low"] and float(token["low"]) > float(token["high"]):
            raise ValueError(f"{token[0]!r} begins behind its end")
        key = token["blank"] or token["set"]
        if key and fields is not None:
            _check_said(token, _field(key, fields))
    if broken := _BROKEN.search(TOKEN.sub("", form)):
        raise ValueError(f"{broken[0]!r} is neither text nor a token")


def _check_said(token: re.Match[str], asked: Asked) -> None:
    key, value = token["blank"] or token["set"], token["value"]
    if token["several"] and asked.type not in ("list", "items"):
        raise ValueError(f"{key!r} is no list")
    if token["blank"] and asked.type == "items" and not token["several"]:
        raise ValueError(f"items are written as {{{key}*}}")
    if token["blank"] and asked.type == "bool":
        raise ValueError(f"{key!r} is yes or no, and follows from words")
    if token["set"]:
        meanings = {"bool": ("yes", "no"), "choice": (*asked.facet.choices[0],)}.get(asked.type)
        if meanings is None:
            raise ValueError(f"{key!r} is no choice, nor yes or no")
        if value.strip() not in meanings:
            raise ValueError(f"{value.strip()!r} is none of {', '.join(meanings)}")
