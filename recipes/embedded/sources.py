"""Sources: reads annotated rows of public data sets as shelves.

A line is a JSON object: `category`, `text`, `attributes`, and where they apply `description`,
`surface` (attribute -> [[value, its form in the text]]) and `boolean` (attributes that are yes or
no). A missing attribute is null only in completely annotated sources.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recipes.embedded.shelves import About, Document, Shelf, Stated, pieces_of
from schemax.errors import InputError

ATTRIBUTES = Path(__file__).with_name("attributes.txt")
UNSEEN = ".unseen"

_SOURCE = "# source:"
# Kinds of products and places in the unseen listings.
_HELD_BACK = re.compile(
    r"head-?phone|ear-?phone|headset|\bdog|\bpet\b|perfume|fragrance|hotel|hose\b|used car",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Source:
    """The settings of a file of rows.

    group: see `Shelf`. nulls: True if a missing attribute is null.
    most: the most rows that are kept; None for all.
    """

    group: str
    nulls: bool = False
    most: int | None = None


SOURCES: Mapping[str, Source] = {
    "flipkart": Source("goods"),
    "toys": Source("goods"),
    "buildcores": Source("goods"),
    "lenses": Source("goods"),
    "amazon_google": Source("goods"),
    "sgd": Source("requests", nulls=True),
    "snips": Source("requests", nulls=True),
    "nlueval": Source("requests"),
    "addresses": Source("texts", nulls=True),
    "citations": Source("texts", nulls=True),
    "ingredients": Source("texts"),
    "crossner": Source("texts"),
    "e2e": Source("texts", most=600),
}


def read_sources(folder: Path, unwanted: Collection[str]) -> Iterator[Shelf]:
    """Reads the shelves of all sources in a folder, without texts of `unwanted` and rows that
    resemble the unseen categories.

    Raises InputError if a file is missing.
    """
    described = read_descriptions(ATTRIBUTES)
    unseen = {row["text"] for path in folder.glob(f"*{UNSEEN}.jsonl") for row in _rows(path)}
    for name, source in SOURCES.items():
        path = folder / f"{name}.jsonl"
        if not path.is_file():
            raise InputError(f"{path}: no such file")
        rows = [
            row
            for row in _rows(path)
            if row["text"] not in unwanted
            and row["text"] not in unseen
            and not _HELD_BACK.search(f"{row['category']} {row.get('service', '')}")
        ]
        services = folder / f"{name}.schema.json"
        slots = json.loads(services.read_text("utf-8")) if services.is_file() else {}
        yield from _shelves(name, source, rows[: source.most], described.get(name, {}), slots)


def read_descriptions(path: Path) -> dict[str, dict[str, tuple[str, ...]]]:
    """Reads source -> attribute -> descriptions, from lines `NAME: DESCRIPTION; DESCRIPTION`."""
    found: dict[str, dict[str, tuple[str, ...]]] = {}
    source = ""
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if line.startswith(_SOURCE):
            source = line.removeprefix(_SOURCE).strip()
            continue
        name, colon, descriptions = line.partition(":")
        if not colon or not source:
            raise InputError(f"{path}, line {number}: {line!r} is no attribute of a source")
        pieces = tuple(piece.strip() for piece in descriptions.split(";"))
        found.setdefault(source, {})[name.strip()] = pieces
    return found


def _shelves(
    name: str,
    source: Source,
    rows: list[dict[str, Any]],
    described: Mapping[str, tuple[str, ...]],
    slots: Mapping[str, Mapping[str, Any]],
) -> Iterator[Shelf]:
    by_shelf: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        # Requests joined from several turns lack annotations of some stated values.
        joined = "joined" if "-all-" in row.get("id", "") else ""
        by_shelf[row.get("service", row["category"]), joined].append(row)
    for (key, joined), group in by_shelf.items():
        known = slots.get(key, {})
        names = dict.fromkeys(attribute for row in group for attribute in row["attributes"])
        about = {
            attribute: About(
                tuple(
                    dict.fromkeys(
                        [
                            *([known[attribute]["description"]] if attribute in known else []),
                            *described.get(attribute, ()),
                        ]
                    )
                ),
                tuple(known.get(attribute, {}).get("choices", ())),
            )
            for attribute in names
        }
        yield Shelf(
            name=group[0]["category"].removeprefix("References: "),
            documents=[_document(row) for row in group],
            about=about,
            nulls=float(source.nulls and not joined),
            group=source.group,
            source=name,
        )


def _document(row: Mapping[str, Any]) -> Document:
    """Converts a row; values are as the text writes them, others are left out."""
    surface, boolean = row.get("surface", {}), row.get("boolean", [])
    text = row["text"]
    whole = f"{text}\n{row['description']}" if row.get("description") else text
    values: dict[str, Stated] = {}
    for name, value in row["attributes"].items():
        if name in boolean:
            values[name] = value.lower() == "yes"
            continue
        forms = dict(surface.get(name, []))
        pieces = tuple(forms.get(piece, piece) for piece in _pieces(value))
        if all(piece in whole for piece in pieces):
            values[name] = pieces if isinstance(value, list) else pieces[0]
    needs = any(piece not in text for value in values.values() for piece in pieces_of(value))
    return Document(whole if needs or len(whole) < 500 else text, values)


def _pieces(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else [*value]


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]
