"""How well a model reads the README's television, a schema that it was not made for.

    python -m recipes.embedded.televisions MODEL [DECODING ...]

reads 30 titles with MODEL in JSON, YAML and XML, and prints how many are right, field by field.
With decodings, as `--decoding` names them: in JSON, titles in even and in odd places apart.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Literal

from schemax import AttrSchema, DecodingConfig, Extractor, attr

TITLES = Path(__file__).parents[2] / "tests" / "data" / "televisions.jsonl"


class Television(AttrSchema):
    """A television set."""

    brand: str | None = attr("Manufacturer", examples=["Samsung", "LG"])
    screen_size: float | None = attr("Diagonal of the screen, inches", k_max=8)
    resolution: Literal["720p", "1080p", "4K", "8K"] | None = attr("Resolution class")
    smart: bool | None = None
    ports: list[str] = attr("Connectors", default_factory=list)


def right(
    extractor: Extractor, format: str, decoding: str | DecodingConfig = "isolated"
) -> Counter[str]:
    """Returns field -> the number of titles with the right value; a missing list is empty."""
    even, odd = halves(extractor, format, decoding)
    even.update(odd)
    return even


def halves(extractor: Extractor, format: str, decoding: str | DecodingConfig) -> list[Counter[str]]:
    """Returns the counts of `right` for titles in even places, and in odd places."""
    rows = [json.loads(line) for line in TITLES.read_text("utf-8").splitlines()]
    found = extractor.extract(
        [row["text"] for row in rows], Television, format=format, decoding=decoding
    )
    counts = [Counter(dict.fromkeys(Television.model_fields, 0)) for _ in range(2)]
    for place, (row, television) in enumerate(zip(rows, found, strict=True)):
        values = television.model_dump()
        counts[place % 2].update(name for name in values if values[name] == row[name])
    return counts


def main(folder: str, *decodings: str) -> None:
    extractor = Extractor.from_pretrained(folder, device="cpu")
    for decoding in decodings:
        print(decoding, *map(dict, halves(extractor, "json", decoding)))
    if decodings:
        return
    for format in ("json", "yaml", "xml"):
        for decoding in ("isolated", "isolated:min_probability=0"):
            print(format, decoding, dict(right(extractor, format, decoding)))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
