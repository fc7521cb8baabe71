"""The paper's benchmark of Amazon Reviews 2023, drawn from the metadata of the products.

python -m reproduce.amazon raw/meta_*.jsonl.gz -o amazon --attributes attributes.json

The metadata (Hou et al., 2024; `raw/meta_categories/` of McAuley-Lab/Amazon-Reviews-2023 on the
Hub) are fetched by who uses them. Paper, appendix B.1: 900,000 products of 31 categories; 45,000
of them, drawn uniformly, to train on and 17,905 others to test on; shown are title, description
and bullet points; 16 attributes a category. Which 31 of the 34 files, it does not say: here all
but `Unknown`, `Gift_Cards` and `Subscription_Boxes`. Its attributes and labels are not published:
`schemax discover` finds attributes, and `schemax train --labels teacher` takes a teacher's values.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemax.errors import InputError

LEFT_OUT = ("Unknown", "Gift_Cards", "Subscription_Boxes")
CATEGORIES, ATTRIBUTES = 31, 16


@dataclass(frozen=True, slots=True)
class Sizes:
    """Numbers of products. pool: of all categories, evenly; train, test: drawn from the pool."""

    pool: int = 900_000
    train: int = 45_000
    test: int = 17_905


def category_of(path: Path) -> str:
    """Returns a file's category: `meta_Home_and_Kitchen.jsonl.gz` -> `Home_and_Kitchen`."""
    return path.name.partition(".")[0].removeprefix("meta_")


def products(path: Path) -> Iterator[dict[str, Any]]:
    """Yields products with a title and further text. Raises InputError, naming the line."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as handle:
        for number, line in enumerate(handle, 1):
            try:
                row = json.loads(line)
                title = (row.get("title") or "").strip()
                parts = [*(row.get("description") or ()), *(row.get("features") or ())]
            except (ValueError, AttributeError, TypeError) as error:
                raise InputError(f"{path}, line {number}: not a product ({error})") from error
            text = "\n".join(part.strip() for part in parts if part.strip())
            if title and text:
                name = category_of(path).replace("_", " ")
                identity = {"id": row.get("parent_asin"), "category": name}
                yield {**identity, "text": title, "description": text, "attributes": {}}


def draw(counts: Mapping[Path, int], sizes: Sizes, seed: int) -> dict[tuple[Path, int], str]:
    """Draws the splits: (file, place among its products) -> "train" or "test".

    Raises InputError for too few products.
    """
    rng = random.Random(seed)
    most = sizes.pool // max(1, len(counts))
    pool = [
        (path, place)
        for path, count in counts.items()
        for place in rng.sample(range(count), min(count, most))
    ]
    wanted = sizes.train + sizes.test
    if len(pool) < wanted:
        raise InputError(f"{len(pool):,} products are too few to draw {wanted:,} of")
    chosen = rng.sample(pool, wanted)
    return {key: "train" if n < sizes.train else "test" for n, key in enumerate(chosen)}


def checked_attributes(path: Path, categories: Sequence[str]) -> bytes:
    """Returns the file's content. Raises InputError unless categories have 1 to 16 attributes."""
    content = path.read_bytes()
    declared = json.loads(content).get("categories", {})
    for category in categories:
        count = len(declared.get(category, ()))
        if not 0 < count <= ATTRIBUTES:
            raise InputError(f"{path}: {category!r} has {count} attributes, not 1 to {ATTRIBUTES}")
    return content


def write(
    files: Sequence[Path], out: Path, sizes: Sizes, attributes: Path | None, seed: int
) -> dict[str, int]:
    """Writes train.jsonl, test.jsonl and attributes.json; returns the sizes of the splits."""
    used = [path for path in sorted(files) if category_of(path) not in LEFT_OUT]
    names = [category_of(path).replace("_", " ") for path in used]
    found = None if attributes is None else checked_attributes(attributes, names)
    split_of = draw({path: sum(1 for _ in products(path)) for path in used}, sizes, seed)
    out.mkdir(parents=True, exist_ok=True)
    written = {"train": 0, "test": 0}
    with (out / "train.jsonl").open("w") as train, (out / "test.jsonl").open("w") as test:
        for path in used:
            for place, row in enumerate(products(path)):
                split = split_of.get((path, place))
                if split is not None:
                    handle = train if split == "train" else test
                    handle.write(json.dumps(row) + "\n")
                    written[split] += 1
    if found is not None:
        (out / "attributes.json").write_bytes(found)
    return written


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--attributes", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    for name in ("pool", "train", "test"):
        parser.add_argument(f"--{name}", type=int, default=getattr(Sizes(), name))
    given = parser.parse_args()
    sizes = Sizes(given.pool, given.train, given.test)
    try:
        print(write(given.files, given.out, sizes, given.attributes, given.seed))
    except InputError as error:
        parser.error(str(error))
    used = {category_of(path) for path in given.files} - set(LEFT_OUT)
    if len(used) != CATEGORIES:
        print(f"note: {len(used)} categories; the paper has {CATEGORIES}")


if __name__ == "__main__":
    main()
