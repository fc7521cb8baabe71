"""python -m recipes.nightly LISTINGS...: what a night costs where few rows have changed.

Two runs of `schemax extract --reuse` over the same listings, of which a share has another text in
the second. It prints a table: rows and tokens that were computed, processor seconds of the whole
process (imports, model and files among them), and the second run's share of the first.
docs/nightly.md shows such a table.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from schemax import AttrSchema, attr
from schemax.io.finished import read_run_record

SEED = 0


class Listing(AttrSchema, category="listing"):
    """What titles in a shop state."""

    brand: str | None = attr("Manufacturer", examples=["Sony", "LEGO"])
    model: str | None = attr("Name or number of the model", examples=["WH-1000XM5"])
    type: str | None = attr("What it is", examples=["running shoe", "monitor"])
    color: str | None = attr("Color", examples=["black"])
    material: str | None = attr("What it is made of", examples=["cotton"])
    size: str | None = attr("Size with its unit", examples=["27 inch", "500 g"])
    quantity: int | None = attr("Number of pieces", k_max=4)
    audience: str | None = attr("For whom", examples=["women", "kids"])


@dataclass(frozen=True, slots=True)
class Night:
    """The cost of a run. processor: processor seconds; seconds: wall-clock seconds."""

    rows: int
    tokens: int
    processor: float
    seconds: float


def distinct_texts(files: Iterable[Path]) -> Iterator[str]:
    """Yields the texts of JSON Lines (key "text"), each once."""
    seen: set[str] = set()
    for file in files:
        for line in file.read_text("utf-8").splitlines():
            text = json.loads(line).get("text")
            if isinstance(text, str) and text.strip() and text not in seen:
                seen.add(text)
                yield text


def catalogues(texts: list[str], rows: int, share: float) -> tuple[list[str], list[str]]:
    """Returns the texts of two nights; in the second, a share is replaced by new texts.

    Raises ValueError for too few texts.
    """
    changed = round(rows * share)
    if len(texts) < rows + changed:
        raise ValueError(f"{rows + changed:,} distinct texts are needed, {len(texts):,} are there")
    chance = random.Random(SEED)
    chance.shuffle(texts)
    first, others = texts[:rows], texts[rows : rows + changed]
    second = first.copy()
    for place, text in zip(chance.sample(range(rows), changed), others, strict=True):
        second[place] = text
    return first, second


def night(texts: list[str], folder: Path, model: str | None) -> Night:
    """Runs over the texts in a new process, which reuses rows of the table in `folder`."""
    source, output = folder / "listings.jsonl", str(folder / "found.parquet")
    lines = (json.dumps({"id": f"{n}", "text": text}) for n, text in enumerate(texts))
    source.write_text("\n".join(lines), "utf-8")
    schema = f"{Path(__file__).resolve()}:Listing"
    command = [sys.executable, "-m", "schemax", "extract", schema, str(source), "--text", "text"]
    command += ["--reuse", output, "-o", output, "--max-errors", "100%"]
    command += [] if model is None else ["--model", model]
    started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True)
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - started
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    summary = read_run_record(output).summary
    return Night(summary.computed, summary.tokens, processor, seconds)


def table(first: Night, second: Night) -> Iterator[str]:
    yield "| | first night | second night | share |"
    yield "| --- | ---: | ---: | ---: |"
    for said, one, two in (
        ("rows computed", first.rows, second.rows),
        ("tokens", first.tokens, second.tokens),
        ("processor seconds", first.processor, second.processor),
        ("seconds on the clock", first.seconds, second.seconds),
    ):
        yield f"| {said} | {one:,.0f} | {two:,.0f} | {two / one:.1%} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.nightly", description=__doc__)
    parser.add_argument("listings", type=Path, nargs="+", help='JSON Lines with the key "text"')
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--changed", type=float, default=0.03, help="share of the rows")
    parser.add_argument("--model", help="a folder or Hub id; default: the embedded model")
    given = parser.parse_args()
    texts = list(distinct_texts(given.listings))
    first, second = catalogues(texts, given.rows, given.changed)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        costs = [night(one, Path(folder), given.model) for one in (first, second)]
    print("\n".join(table(*costs)))


if __name__ == "__main__":
    main()
