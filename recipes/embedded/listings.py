"""Listings with their values marked: `{Brand|Crocs} Clog, {Color|Navy}`, one a line.

    python -m recipes.embedded.listings unseen FOLDER

writes the listings of `listings/unseen.txt` as FOLDER/test.jsonl and FOLDER/attributes.json, for
`schemax evaluate FOLDER`.

A category begins with `# category: NAME`, followed, where its attributes have descriptions, by one
line `# ATTRIBUTE: DESCRIPTION` each. Marking in place is the shortest way to write annotated texts
down, and a value cannot be misspelt. What is marked more than once in a text is a list. A value
that follows from words without being written is `{Urgency=high|ASAP}`; yes and no are booleans.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from schemax.errors import InputError
from schemax.evaluation.examples import Example, attribute_names

FOLDER = Path(__file__).with_name("listings")

_CATEGORY = "# category:"
_MARK = re.compile(r"\{([^{}|=]+)(?:=([^{}|]+))?\|([^{}|]+)\}")

Kind = Literal["text", "list", "choice", "boolean"]
"""The kind of an attribute, by how it is marked."""


@dataclass(frozen=True, slots=True)
class Category:
    """Annotated texts of one kind. attributes: name -> description, None without one.

    kinds: of attributes that are not text. Labels of a list are tuples, of a choice its values.
    """

    name: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    kinds: dict[str, Kind] = field(default_factory=dict)
    examples: list[Example] = field(default_factory=list)


def read_listings(path: Path) -> list[Category]:
    """Reads the categories of a file, in order. Raises InputError, naming the line."""
    found: list[Category] = []
    for number, line in enumerate(path.read_text("utf-8").split("\n"), 1):
        try:
            _read_line(line, found)
        except ValueError as error:
            raise InputError(f"{path}, line {number}: {error}") from error
    for category in found:
        for name in attribute_names(category.examples, category.name):
            category.attributes.setdefault(name, None)
        _settle(category)
    return found


def _settle(category: Category) -> None:
    """Turns all labels of a list into tuples, and choices between yes and no into booleans."""
    for name, kind in category.kinds.items():
        labels = [e.attributes[name] for e in category.examples if name in e.attributes]
        if kind == "choice" and {*map(str, labels)} <= {"yes", "no"}:
            category.kinds[name] = "boolean"
    lists = {name for name, kind in category.kinds.items() if kind == "list"}
    for place, example in enumerate(category.examples):
        labels_of = {
            name: (label,) if name in lists and isinstance(label, str) else label
            for name, label in example.attributes.items()
        }
        category.examples[place] = replace(example, attributes=labels_of)


def _read_line(line: str, found: list[Category]) -> None:
    if line.startswith(_CATEGORY):
        found.append(Category(line.removeprefix(_CATEGORY).strip()))
        return
    if not line.strip():
        return
    if not found:
        raise ValueError(f"a category comes first, as {_CATEGORY!r} and its name")
    if line.startswith("# "):
        name, _, description = line.removeprefix("# ").partition(":")
        found[-1].attributes[name.strip()] = description.strip() or None
        return
    found[-1].examples.append(_example(found[-1], line))


def _example(category: Category, line: str) -> Example:
    values: dict[str, Any] = {}
    for name, value, words in _MARK.findall(line):
        kind: Kind = "choice" if value else "list" if name in values else "text"
        if kind == "text":
            values[name] = words.strip()
        elif kind == "list":
            earlier = values[name]
            values[name] = (*([earlier] if isinstance(earlier, str) else earlier), words.strip())
        else:
            if name in values:
                raise ValueError(f"{name!r} follows from two places")
            values[name] = value.strip()
        if kind == "choice" and name not in category.kinds and _is_marked(name, category):
            raise ValueError(f"{name!r} is written elsewhere")
        if kind != "choice" and category.kinds.get(name) == "choice":
            raise ValueError(f"{name!r} follows from words elsewhere")
        if kind != "text":
            category.kinds[name] = kind
    if re.search(r"[{}|]", _MARK.sub("", line)):
        raise ValueError("a brace or bar outside of a mark")
    return Example(category.name, _MARK.sub(r"\3", line), values)


def _is_marked(name: str, category: Category) -> bool:
    return any(name in example.attributes for example in category.examples)


def without(categories: Sequence[Category], unwanted: Sequence[Example]) -> Iterator[Category]:
    """Yields the categories without unwanted texts, compared regardless of case and spacing."""
    keys = {_key(example.text) for example in unwanted}
    for category in categories:
        kept = [example for example in category.examples if _key(example.text) not in keys]
        yield Category(category.name, category.attributes, category.kinds, kept)


def _key(text: str) -> str:
    return re.sub(r"\W+", "", text).casefold()


def merged(
    titles: Sequence[Example], categories: Sequence[Category], times: int
) -> Mapping[str, Category]:
    """Merges annotated titles and listings by category; titles are repeated `times` times."""
    found: dict[str, Category] = {}
    for title in titles:
        own = found.setdefault(title.category, Category(title.category))
        own.examples.extend([title] * times)
    for category in categories:
        own = found.setdefault(category.name, Category(category.name))
        own.attributes.update(category.attributes)
        own.kinds.update(category.kinds)
        own.examples.extend(category.examples)
    for category in found.values():
        for name in attribute_names(category.examples, category.name):
            category.attributes.setdefault(name, None)
    return found


def write_dataset(categories: Sequence[Category], folder: Path) -> None:
    """Writes the listings as annotated products, and their attributes."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {"category": e.category, "text": e.text, "attributes": dict(e.attributes)}
        for category in categories
        for e in category.examples
    ]
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "test.jsonl").write_text("".join(lines), "utf-8")
    attributes = {
        category.name: [
            {"name": name, **({"description": description} if description else {})}
            for name, description in category.attributes.items()
        ]
        for category in categories
    }
    text = json.dumps({"categories": attributes}, ensure_ascii=False, indent=2) + "\n"
    (folder / "attributes.json").write_text(text, "utf-8")


if __name__ == "__main__":
    try:
        _, name, out = sys.argv
    except ValueError:
        sys.exit(__doc__)
    write_dataset(read_listings(FOLDER / f"{name}.txt"), Path(out))
