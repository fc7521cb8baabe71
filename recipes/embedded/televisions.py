"""How well a model reads the README's television, a schema that it was not made for.

    python -m recipes.embedded.televisions MODEL

reads 30 titles with MODEL in JSON, YAML and XML, and prints how many are right, field by field.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Literal

from schemax import AttrSchema, Extractor, attr

TITLES = Path(__file__).parents[2] / "tests" / "data" / "televisions.jsonl"


class Television(AttrSchema):
    """A television set."""

    brand: str | None = attr("Manufacturer", examples=["Samsung", "LG"])
    screen_size: float | None = attr("Diagonal of the screen, inches", k_max=8)
    resolution: Literal["720p", "1080p", "4K", "8K"] | None = attr("Resolution class")
    smart: bool | None = None
    ports: list[str] = attr("Connectors", default_factory=list)


def right(extractor: Extractor, format: str, decoding: str = "isolated") -> Counter[str]:
    """Field -> titles of which it is read as written down; a missing list is an empty one."""
    rows = [json.loads(line) for line in TITLES.read_text("utf-8").splitlines()]
    found = extractor.extract(
        [row["text"] for row in rows], Television, format=format, decoding=decoding
    )
    counts = Counter(dict.fromkeys(Television.model_fields, 0))
    for row, television in zip(rows, found, strict=True):
        values = television.model_dump()
        counts.update(name for name in values if values[name] == row[name])
    return counts


def main(folder: str) -> None:
    extractor = Extractor.from_pretrained(folder, device="cpu")
    for format in ("json", "yaml", "xml"):
        for decoding in ("isolated", "isolated:min_probability=0"):
            print(format, decoding, dict(right(extractor, format, decoding)))


if __name__ == "__main__":
    try:
        _, folder = sys.argv
    except ValueError:
        sys.exit(__doc__)
    main(folder)
