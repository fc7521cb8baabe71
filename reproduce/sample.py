"""A folder of data with fewer documents, or in another order.

python -m reproduce.sample FOLDER OUT --test 164
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path


def sample(folder: Path, out: Path, wanted: dict[str, int | None], seed: int | None = None) -> None:
    """Copies a number of lines of every split; None: all.

    Lines are evenly spread, since files are sorted by category; with a seed, drawn at random. Their
    order stays.
    """
    out.mkdir(parents=True, exist_ok=True)
    for split, count in wanted.items():
        lines = (folder / f"{split}.jsonl").read_bytes().splitlines(keepends=True)
        few = min(count or len(lines), len(lines))
        places = [place * len(lines) // few for place in range(few)]
        if seed is not None:
            places = sorted(random.Random(seed).sample(range(len(lines)), few))
        (out / f"{split}.jsonl").write_bytes(b"".join(lines[place] for place in places))
    shutil.copy(folder / "attributes.json", out)


def turn(folder: Path, stacked: int, by: int) -> None:
    """Moves the first `by` documents of every prompt of `stacked` documents to its end."""
    path = folder / "test.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    groups = prompts_of([json.loads(line)["category"] for line in lines], stacked)
    turned = [line for group in groups for line in (*group[by:], *group[:by])]
    path.write_bytes(b"".join(lines[line] for line in turned))


def prompts_of(categories: Sequence[str], stacked: int) -> list[list[int]]:
    """Groups documents into prompts, with their neighbours of the same category."""
    waiting: dict[str, list[int]] = {}
    found: list[list[int]] = []
    for place, category in enumerate(categories):
        group = waiting.setdefault(category, [])
        if not group:
            found.append(group)
        group.append(place)
        if len(group) == stacked:
            del waiting[category]
    return found


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("folder", type=Path)
    options.add_argument("out", type=Path)
    for split in ("train", "test"):
        options.add_argument(f"--{split}", type=int)
    options.add_argument("--seed", type=int, help="drawn at random, instead of evenly spread")
    options.add_argument("--turn", type=int, default=0, help="so many of six documents to the end")
    return options


def main() -> None:
    given = parser().parse_args()
    sample(given.folder, given.out, {"train": given.train, "test": given.test}, given.seed)
    if given.turn:
        turn(given.out, 6, given.turn)


if __name__ == "__main__":
    main()
