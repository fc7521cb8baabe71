"""Writes what a model reads of the samples into the pages of `docs/tasks`.

python -m recipes.embedded.pages MODEL
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from schemax import Extraction, Extractor, load_schema

DOCS = Path(__file__).parents[2] / "docs"
_COUNTS = re.compile(
    r"\d+ values that the samples state it reads \d+; of all \d+ fields, null ones among them,"
    r" \d+ are right"
)
_ROWS = re.compile(r"(?<=\| --- \| --- \| --- \| --- \|\n)(?:\| \d \|.*\n)+")
_SHOWN = 3  # texts in the table
_JSON = TypeAdapter(Any)


@dataclass(frozen=True, slots=True)
class Read:
    """A field of a sample: the value read and the right value, as JSON."""

    text: int
    field: str
    found: Any
    right: Any

    @property
    def is_right(self) -> bool:
        return bool(self.found == self.right)

    def row(self) -> str:
        verdict = "yes" if self.is_right else f"no: {_shown(self.right)}"
        return f"| {self.text} | `{self.field}` | {_shown(self.found)} | {verdict} |\n"


def read_samples(extractor: Extractor, name: str) -> list[Read]:
    """Reads all fields of all samples of a ready-made schema."""
    lines = (DOCS / "samples" / f"{name}.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    schema = load_schema(name)
    texts = [row["text"] for row in rows]
    found = sorted(extractor.stream(texts, schema), key=lambda one: one.index)
    return [
        Read(number, field, value, _plain(_at(row["attributes"], field)))
        for number, (row, one) in enumerate(zip(rows, found, strict=True), 1)
        for field, value in _values(one)
    ]


def _values(one: Extraction[Any]) -> Iterator[tuple[str, Any]]:
    for name, field in one.fields.items():
        # Fields of items, `lines.0.price`, are shown with their list.
        if not re.search(r"\.\d", name):
            yield name, _plain(_JSON.dump_python(field.value, mode="json", exclude_none=True))


def _at(values: Mapping[str, Any], path: str) -> Any:
    first, _, rest = path.partition(".")
    value = values.get(first)
    return _at(value, rest) if rest and value is not None else value


def _plain(value: Any) -> Any:
    return None if value == [] else value


def _shown(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.15g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(part)}" for name, part in value.items())
    if isinstance(value, list):
        counts = Counter(map(_shown, value))
        return "; ".join(f"{one} ({n} times)" if n > 1 else one for one, n in counts.items())
    return str(value).replace("|", "\\|").replace("\n", " ")


def rewritten(page: str, reads: Sequence[Read]) -> str:
    """Returns the page with new counts and rows.

    Raises ValueError unless the page has one place for each.
    """
    stated = [read.is_right for read in reads if read.right is not None]
    every = [read.is_right for read in reads]
    counts = (
        f"{len(stated)} values that the samples state it reads {sum(stated)}; of all {len(every)}"
        f" fields, null ones among them, {sum(every)} are right"
    )
    rows = [
        read.row()
        for read in reads
        if read.text <= _SHOWN and (read.found, read.right) != (None, None)
    ]
    page, counted = _COUNTS.subn(lambda _: counts, page)
    page, tables = _ROWS.subn(lambda _: "".join(rows), page)
    if (counted, tables) != (1, 1):
        raise ValueError(f"the page has {counted} sentences with counts and {tables} tables, not 1")
    return page


def main(model: str) -> None:
    extractor = Extractor.from_pretrained(model, device="cpu")
    total = right = 0
    for page in sorted((DOCS / "tasks").glob("*.md")):
        reads = read_samples(extractor, page.stem)
        stated = [read.is_right for read in reads if read.right is not None]
        total, right = total + len(stated), right + sum(stated)
        try:
            page.write_text(rewritten(page.read_text("utf-8"), reads), "utf-8")
        except ValueError as error:
            sys.exit(f"{page}: {error}")
        print(f"{page.stem:16} {sum(stated)} of {len(stated)} stated")
    print(f"{'all':16} {right} of {total} stated")


if __name__ == "__main__":
    try:
        _, model = sys.argv
    except ValueError:
        sys.exit(__doc__)
    main(model)
