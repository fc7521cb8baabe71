"""python -m recipes.other_documents: annotated titles made into longer texts, with N fields.

    python -m recipes.other_documents oa_mine.test.jsonl long.jsonl --fields 16 --titles 10

All documents become one category, whose fields are the N attributes that most documents have.
A text of several titles has the values of the first. For costs, since benchmarks of engines take
any annotated documents; docs/benchmarks.md shows the figures.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any


def other_documents(
    rows: Sequence[Mapping[str, Any]], num_fields: int, num_titles: int
) -> Iterator[dict[str, Any]]:
    """Yields a document for each row. Documents take turns among the rows' categories."""
    common = Counter(name for row in rows for name in row["attributes"])
    names = {name for name, _ in common.most_common(num_fields)}
    by_category: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_category.setdefault(row["category"], []).append(row)
    longest = max(map(len, by_category.values()))
    for number in range(longest):
        for own in by_category.values():
            if number < len(own):
                titles = [own[(number + more) % len(own)]["text"] for more in range(num_titles)]
                values = own[number]["attributes"]
                yield {
                    "category": "Product",
                    "text": ". ".join(titles),
                    "attributes": {name: values[name] for name in values if name in names},
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("labels", type=Path, help="annotated titles")
    parser.add_argument("out", type=Path)
    parser.add_argument("--fields", type=int, default=16)
    parser.add_argument("--titles", type=int, default=1, help="of each text")
    given = parser.parse_args()
    rows = [json.loads(line) for line in given.labels.read_text("utf-8").splitlines()]
    made = other_documents(rows, given.fields, given.titles)
    given.out.write_text("".join(f"{json.dumps(row)}\n" for row in made), "utf-8")


if __name__ == "__main__":
    main()
