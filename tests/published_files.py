"""The development data of OA-Mine as ExtractGPT publishes them."""

from __future__ import annotations

import json
from pathlib import Path

from command_line import jsonl

_STEMS = {"train": "train", "train_small": "train_0.2", "test": "test"}


def write_oa_mine(data: Path, folder: Path) -> None:
    """Writes the files of ExtractGPT's folder `oa-mine`, byte for byte."""
    for split, stem in _STEMS.items():
        lines = (data / f"oa_mine.{split}.jsonl").read_text("utf-8").splitlines()
        rows = [
            {
                "input": row["text"],
                "category": row["category"],
                "target_scores": {name: {value: 1} for name, value in row["attributes"].items()},
            }
            for row in map(json.loads, lines)
        ]
        jsonl(folder / f"{stem}.jsonl", rows)
