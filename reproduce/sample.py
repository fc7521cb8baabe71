"""A folder of data with fewer documents: python -m reproduce.sample FOLDER OUT --test 164."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path


def sample(folder: Path, out: Path, wanted: dict[str, int | None]) -> None:
    """Copies so many lines of every split, evenly spread, since files go by category; None: all."""
    out.mkdir(parents=True, exist_ok=True)
    for split, count in wanted.items():
        lines = (folder / f"{split}.jsonl").read_bytes().splitlines(keepends=True)
        few = min(count or len(lines), len(lines))
        chosen = [lines[place * len(lines) // few] for place in range(few)]
        (out / f"{split}.jsonl").write_bytes(b"".join(chosen))
    shutil.copy(folder / "attributes.json", out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    for split in ("train", "test"):
        parser.add_argument(f"--{split}", type=int)
    given = parser.parse_args()
    sample(given.folder, given.out, {"train": given.train, "test": given.test})


if __name__ == "__main__":
    main()
