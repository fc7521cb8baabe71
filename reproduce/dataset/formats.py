"""Reads the published formats of the data sets as annotated examples."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from schemax.base.messages import counted
from schemax.errors import InputError
from schemax.evaluation.examples import Example
from schemax.evaluation.scores import is_null
from schemax.extraction.stated import Label

Labels = dict[str, list[str | None]]

# The rules of ExtractGPT's version of AE-110k (its `preprocess_ae_110k`).
_NAMES_CATEGORY = ("Type", "Category", "Item Type")
_RENAMED = {
    "Maerial": "Material",
    "Model Number/ Sku": "Model Number",
    "Features": "Feature",
    "Pattern Type": "Pattern",
}
# The first key that occurs in a category's name gives the category.
_MERGED = {
    "Guitar": "Guitar",
    "Stove": "Stove",
    "Bikini": "Swimwear",
    "One Piece": "Swimwear",
    "Rod": "Fishing Rod",
    "Shorts": "Shorts",
    "Jerseys": "Shirts",
}
_ALIKE = {
    **dict.fromkeys(("Two Pieces", "Briefs"), "Swimwear"),
    **dict.fromkeys(("Monocular", "Binoculars"), "Optics & Binoculars"),
}
_FEWEST_PRODUCTS, _FEWEST_SEEN, _FEWEST_ATTRIBUTES = 51, 6, 3


def extractgpt(content: bytes, name: str) -> list[Example]:
    """Reads ExtractGPT's lines {"input", "category", "target_scores": {attribute: {value: 1}}}.

    Values are stripped, and "n/a" is null, as in ExtractGPT's scores.
    Raises InputError, naming the line, for anything else.
    """

    def example(row: Any) -> Example:
        labels = {
            attribute: _label([None if is_null(v) else v for v in map(str.strip, values)])
            for attribute, values in row["target_scores"].items()
        }
        return Example(str(row["category"]), str(row["input"]), labels)

    return list(_lines(content, name, example))


def oa_mine_annotations(content: bytes, name: str) -> list[Example]:
    """Reads OA-Mine's `annotations`: lines {"asin", "title", "entities": [{"label", "value"}]}.

    The file's name gives the category: `laundry_detergent.jsonl`. Of several values of an attribute
    the last counts, as in ExtractGPT. Raises InputError, naming the line, for anything else.
    """
    category = " ".join(map(str.capitalize, PurePosixPath(name).stem.split("_")))

    def example(row: Any) -> Example:
        labels = {entity["label"]: entity["value"].strip() for entity in row["entities"]}
        return Example(category, str(row["title"]), labels, id=row.get("asin"))

    return list(_lines(content, name, example))


def ae_110k_triples(content: bytes, name: str) -> list[Example]:
    """Reads AE-110k's `publish_data.txt`: lines of title, attribute, value, separated by U+0001.

    Categories, attributes' names and filters follow ExtractGPT, except for its sample of 400
    products of each large category, which cannot be reproduced: all are kept.

    Raises InputError, naming the line, for another file.
    """
    products: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for number, line in enumerate(content.decode(errors="replace").split("\n"), 1):
        parts = line.rstrip("\r").split("\u0001")
        if len(parts) == 3:
            attribute = " ".join(map(str.capitalize, parts[1].strip().split(" ")))
            products[parts[0]].append((attribute, parts[2]))
        elif line.strip():
            raise InputError(
                f"{name}, line {number}: {counted(len(parts), 'part')} instead of three"
            )
    found = [row for title, pairs in products.items() if (row := _sorted_in(title, pairs))]
    return list(_frequent(found))


def _sorted_in(title: str, pairs: Sequence[tuple[str, str]]) -> tuple[str, str, Labels] | None:
    """Returns title, category, labels; None for a product without category or with one label."""
    category, labels = "", Labels()
    for attribute, value in pairs:
        if attribute in _NAMES_CATEGORY and value != "NULL":
            category = category or _category(" ".join(map(str.capitalize, value.split(" "))))
        elif attribute != "Description":
            name = _RENAMED.get(attribute, attribute)
            name = "".join(c for c in name if c not in "012345678").strip()
            name = _RENAMED.get(name, name)
            values = labels.setdefault(name, [])
            values.append(None if value == "NULL" else value.strip())
    return (title, category, labels) if category and len(labels) > 1 else None


def _category(name: str) -> str:
    merged = next((to for part, to in _MERGED.items() if part in name), name)
    return _ALIKE.get(merged, merged)


def _frequent(products: Sequence[tuple[str, str, Labels]]) -> Iterator[Example]:
    """Yields products with frequent attributes of several values, in large enough categories."""
    seen: Counter[tuple[str, str]] = Counter()
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    for _, category, labels in products:
        for name, given in labels.items():
            seen[category, name] += 1
            values[category, name] |= {value for value in given if value is not None}
    kept = {key for key, n in seen.items() if n >= _FEWEST_SEEN and len(values[key]) > 1}
    enough = Counter(category for category, _ in kept)
    chosen = [
        (title, category, {name: v for name, v in labels.items() if (category, name) in kept})
        for title, category, labels in products
        if enough[category] >= _FEWEST_ATTRIBUTES
    ]
    chosen = [row for row in chosen if len(row[2]) > 1]
    sizes = Counter(category for _, category, _ in chosen)
    for title, category, labels in chosen:
        if sizes[category] >= _FEWEST_PRODUCTS:
            yield Example(category, title, {name: _label(v) for name, v in labels.items()})


def _label(values: Sequence[str | None]) -> Label:
    unique = tuple(dict.fromkeys(values))
    return unique if len(unique) > 1 else unique[0]


def _lines(content: bytes, name: str, read: Callable[[Any], Example]) -> Iterator[Example]:
    for number, line in enumerate(content.split(b"\n"), 1):
        if line.strip():
            try:
                yield read(json.loads(line))
            except (ValueError, TypeError, LookupError, AttributeError) as error:
                raise InputError(f"{name}, line {number}: not of the published form") from error


FORMATS: Mapping[str, tuple[str, Callable[[bytes, str], list[Example]]]] = {
    "oa-mine": ("annotations/*.jsonl", oa_mine_annotations),
    "ae-110k": ("publish_data.txt", ae_110k_triples),
}
"""Data set -> its authors' published files, and their reader."""
