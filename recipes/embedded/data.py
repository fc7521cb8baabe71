"""What is trained on and what is set aside, out of titles, listings and public data sets.

    python -m recipes.embedded.data TITLES EXCLUDED [SOURCES] > held_out.jsonl

writes what is set aside of sources that are trained on, and of categories that are not, as
annotated documents: what confidences and the threshold are fitted to.
"""

from __future__ import annotations

import json
import random
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from recipes.embedded.listings import FOLDER, merged, read_listings, without
from recipes.embedded.mixture import INVENTED, LETTERS, PATTERNS
from recipes.embedded.shelves import Document, Library, Shelf, examples_of, shelf_of
from recipes.embedded.sources import read_sources
from schemax.evaluation.examples import Example, read_examples

# Categories that are never trained on: they measure performance on new categories.
UNSEEN = "unseen.txt"
# Shelves that are held out as a whole, for model selection.
SET_ASIDE = frozenset(
    {
        *("Backpack", "Power Bank", "Museum piece", "Restaurant", "Flight", "Coffee Machine"),
        *("Webcams", "Homes", "weather", "Jigsaws", "Book chapters", "Vinyl Record"),
    }
)
# The share of prompts from each source.
SHARES: Mapping[str, float] = {
    "titles": 0.3,
    "listings": 0.28,
    PATTERNS: 0.32,
    INVENTED: 0.13,
    LETTERS: 0.02,
    "buildcores": 0.05,
    "flipkart": 0.025,
    "toys": 0.02,
    "lenses": 0.01,
    "amazon_google": 0.005,
    "sgd": 0.04,
    "snips": 0.02,
    "nlueval": 0.02,
    "addresses": 0.02,
    "citations": 0.02,
    "ingredients": 0.025,
    "crossner": 0.025,
    "e2e": 0.01,
}
# Files of listings whose categories are goods, or mixed; categories of other files are texts.
_GOODS = {
    *("goods.txt", "tech_home.txt", "electronics.txt", "home.txt", "wear.txt", "food_sport.txt"),
    *("industry.txt", "marketplace.txt"),
}
_MIXED = {"languages.txt", "long.txt", "strings.txt", "forms.txt"}
_MOST_NEW = 40  # documents per held-out category, for calibration


@dataclass(frozen=True, slots=True)
class Data:
    """Training data, and held-out data.

    titles: held-out annotated titles. new: shelves that are held out as a whole.
    rows: shelves with the held-out rows of sources that are trained on.
    """

    collection: Library
    titles: Sequence[Example]
    new: Sequence[Shelf]
    rows: Sequence[Shelf]


def read_data(
    titles: Path,
    excluded: Path | None,
    sources: Path | None,
    *,
    held_out: int,
    titles_times: int,
    seed: int,
) -> Data:
    """Reads annotated titles, the listings beside this module, and the sources of a folder.

    excluded: JSONL whose texts are never trained on, nor listings with an equal text.
    held_out: the number of held-out titles. titles_times: the weight of a title against a listing.
    """
    tests = read_examples(excluded) if excluded else []
    unwanted = {example.text for example in tests}
    known = {e.text: e for e in read_examples(titles) if e.text not in unwanted}
    shuffled = [*known.values()]
    random.Random(seed).shuffle(shuffled)
    aside, kept = shuffled[:held_out], shuffled[held_out:]
    unseen = {category.name for category in read_listings(FOLDER / UNSEEN)}
    files = sorted(file for file in FOLDER.glob("*.txt") if file.name != UNSEEN)
    fresh = {file.name: [*without(read_listings(file), [*tests, *aside])] for file in files}
    named = {title.category for title in kept}
    own = merged(kept, [c for cs in fresh.values() for c in cs if c.name in named], titles_times)
    shelves = [shelf_of(category, 0.5, "goods", "titles") for category in own.values()]
    shelves += [
        shelf_of(category, 1.0, _group_of(name), "listings")
        for name, categories in fresh.items()
        for category in categories
        if category.name not in named
    ]
    assert not {shelf.name for shelf in shelves} & unseen
    if sources is not None:
        shelves += read_sources(sources, {*unwanted, *(title.text for title in aside)})
    new = [shelf for shelf in shelves if shelf.name in SET_ASIDE]
    rest = [shelf for shelf in shelves if shelf.name not in SET_ASIDE]
    trained, rows = zip(*(_split(shelf) for shelf in rest), strict=True)
    return Data(_library(trained), aside, new, [shelf for shelf in rows if shelf.documents])


def _group_of(file: str) -> str:
    return "goods" if file in _GOODS else "mixed" if file in _MIXED else "texts"


def _split(shelf: Shelf) -> tuple[Shelf, Shelf]:
    """Splits a shelf into training rows and, for a large shelf, one held-out row in fifty."""
    if shelf.source in ("titles", "listings") or len(shelf.documents) < 100:
        return shelf, replace(shelf, documents=[])
    aside = [document for document in shelf.documents if _is_aside(document)]
    kept = [document for document in shelf.documents if not _is_aside(document)]
    return replace(shelf, documents=kept), replace(shelf, documents=aside)


def _is_aside(document: Document) -> bool:
    return zlib.crc32(document.text.encode()) % 50 == 0


def _library(shelves: Iterable[Shelf]) -> Library:
    by_source: dict[str, list[Shelf]] = {}
    for shelf in shelves:
        if shelf.documents and shelf.about:
            by_source.setdefault(shelf.source, []).append(shelf)
    invented = {INVENTED, LETTERS, PATTERNS}
    shares = {name: share for name, share in SHARES.items() if name in {*by_source, *invented}}
    return Library(by_source, shares)


def lines_set_aside(data: Data) -> Iterator[str]:
    """Yields the held-out documents as JSONL: of sources that are trained on, and a few of every
    held-out category."""
    new = [replace(shelf, documents=shelf.documents[:_MOST_NEW]) for shelf in data.new]
    for example in (*data.titles, *examples_of([*data.rows, *new])):
        row = {"category": example.category, "text": example.text}
        yield json.dumps(row | {"attributes": dict(example.attributes)}, ensure_ascii=False)


def main(titles: str, excluded: str, sources: str | None = None) -> None:
    folder = None if sources is None else Path(sources)
    data = read_data(Path(titles), Path(excluded), folder, held_out=40, titles_times=1, seed=0)
    for line in lines_set_aside(data):
        print(line)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    main(*sys.argv[1:])
