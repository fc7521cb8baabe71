"""Writes a published data set: train.jsonl, test.jsonl, attributes.json, dataset.json."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any, Literal

from reproduce.dataset.formats import FORMATS, extractgpt
from reproduce.dataset.source import PublishedFiles, open_files
from schemax.errors import InputError
from schemax.evaluation.examples import Example, attribute_names, overlap
from schemax.io.storage import writing

DatasetName = Literal["oa-mine", "ae-110k"]

_COMMIT = "3f96461b28bd3f0c8ac7c479d595969a9b77d0ab"
EXTRACTGPT = f"https://raw.githubusercontent.com/wbsg-uni-mannheim/ExtractGPT/{_COMMIT}"
"""The repository whose splits the paper uses, at a fixed commit."""

_SPLITS = {"train": "train", "train_small": "train_0.2", "test": "test"}
_TEST_SHARE = 0.25

LICENCES: Mapping[str, str] = {
    "oa-mine": "Apache-2.0, copyright 2021 Amazon.com (xinyangz/OAMine, data/LICENSE.md); "
    "ExtractGPT's version Apache-2.0 as well.",
    "ae-110k": "Its authors release it for academic research only "
    "(lanmanok/ACL19_Scaling_Up_Open_Tagging); do not pass it on. ExtractGPT's version is in a "
    "repository under Apache-2.0.",
}
# SHA-256 of ExtractGPT's files at that commit.
_PUBLISHED: Mapping[tuple[str, str], str] = {
    ("oa-mine", "train"): "df04c9ac98e7a15776fa37aff1c486cba4a299d510e0d597d88a3e3df862279e",
    ("oa-mine", "train_small"): "5bf8e4d7fb510296e5e380d05e71075df87bdfaf47464696a855cde92b99d951",
    ("oa-mine", "test"): "36fa25fae436de9b36e41203aca1162e0b062d8da489045e60459877deb74f29",
    ("ae-110k", "train"): "17b3cf2e9bd31a21426b8889a55b5c76173c14a92480f970566d657ca53cce95",
    ("ae-110k", "train_small"): "3bc0ced5e151c7bc0de13268d7fa528ab53c02ccda03a5b021f8237160a6dacc",
    ("ae-110k", "test"): "2172561fc99390619b5b7455c3d1aa866dd648a2c01eab4ae53ae0c054e8eb2a",
}


@dataclass(frozen=True, slots=True)
class Found:
    """The data set read. splits: name -> examples. files: name -> SHA-256. note: on the splits."""

    splits: Mapping[str, Sequence[Example]]
    files: Mapping[str, str]
    note: str


def write_dataset(name: DatasetName, place: str, out: Path, seed: int = 0) -> dict[str, Any]:
    """Reads the published files and writes the folder; returns the content of dataset.json.

    place: a folder, a .zip file or an address with ExtractGPT's files (its repository, or the
        folder of this data set in it), or with the files of the data set's authors.
    seed: of the split, if the source has none.

    Raises InputError for files that are missing or not in the published format, and for a folder
    that is not empty.
    """
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise InputError(f"{out} is not an empty folder; name another one")
    source = open_files(place)
    found = _with_splits(name, source) or _without(name, source, seed)
    if found is None:
        raise InputError(
            f"{place} has neither ExtractGPT's files of {name} (test.jsonl and train.jsonl) nor "
            f"{FORMATS[name][0]}"
        )
    # The schema is all attributes in the test split, as in table 2 of the paper.
    test = found.splits["test"]
    schema = {c: attribute_names(test, c) for c in dict.fromkeys(e.category for e in test)}
    splits, dropped = _within(found.splits, schema)
    out.mkdir(parents=True, exist_ok=True)
    contents = {f"{split}.jsonl": _rows(name, split, rows) for split, rows in splits.items()}
    contents["attributes.json"] = _document({"categories": schema})
    about = {
        "dataset": name,
        "source": place,
        "licence": LICENCES[name],
        "splits": {split: len(rows) for split, rows in splits.items()},
        "split_by": found.note,
        "attributes_per_product": mean(len(schema[e.category]) for e in splits["test"]),
        "train_texts_in_test": len(overlap(splits["train"], splits["test"])),
        "labels_outside_the_schema": dropped,
        "read": dict(found.files),
        "written": {
            file: hashlib.sha256(content).hexdigest() for file, content in contents.items()
        },
    }
    for file, content in (contents | {"dataset.json": _document(about)}).items():
        with writing(str(out / file)) as handle:
            handle.write(content)
    return about


def _with_splits(name: DatasetName, source: PublishedFiles) -> Found | None:
    """Reads ExtractGPT's files, anywhere in the source; None without both splits."""
    splits, files, differing = {}, {}, []
    for split, stem in _SPLITS.items():
        folders = (f"data/processed_datasets/{name}/", f"{name}/", "")
        names = [f"{folder}{stem}.jsonl" for folder in folders]
        known = {one: content for one in names if (content := source.read(one)) is not None}
        if not known:
            continue
        (file, content), *_ = known.items()
        splits[split] = extractgpt(content, file)
        files[file] = hashlib.sha256(content).hexdigest()
        if files[file] != _PUBLISHED[name, split]:
            differing.append(file)
    if not {"train", "test"} <= splits.keys():
        return None
    note = "ExtractGPT, the split of the paper"
    if differing:
        note += f"; other checksums than at commit {_COMMIT[:7]}: {', '.join(differing)}"
    return Found(splits, files, note)


def _without(name: DatasetName, source: PublishedFiles, seed: int) -> Found | None:
    """Reads the files of the data set's authors, and splits them; None without any."""
    pattern, read = FORMATS[name]
    contents = {file: source.read(file) for file in source.matching(pattern)}
    if not contents and (content := source.read(pattern)) is not None:
        contents = {pattern: content}
    if not contents:
        return None
    examples = [one for file, content in contents.items() for one in read(content or b"", file)]
    if not examples:
        raise InputError(f"{', '.join(contents)}: no category has enough products")
    splits: dict[str, list[Example]] = {"train": [], "test": []}
    rng = random.Random(seed)
    for category in sorted({example.category for example in examples}):
        own = [example for example in examples if example.category == category]
        rng.shuffle(own)
        cut = int(len(own) * (1 - _TEST_SHARE))
        splits["train"] += own[:cut]
        splits["test"] += own[cut:]
    files = {f: hashlib.sha256(content or b"").hexdigest() for f, content in contents.items()}
    note = (
        f"schemax, seed {seed}: a quarter of every category is the test part; not the paper's "
        "split, whose shuffling had no seed"
    )
    return Found(splits, files, note)


def _within(
    splits: Mapping[str, Sequence[Example]], schema: Mapping[str, Sequence[str]]
) -> tuple[dict[str, list[Example]], int]:
    """Returns examples with labels of the schema alone, and the number of dropped labels."""
    kept: dict[str, list[Example]] = {}
    dropped = 0
    for split, rows in splits.items():
        kept[split] = []
        for row in rows:
            asked = schema.get(row.category, ())
            labels = {name: label for name, label in row.attributes.items() if name in asked}
            dropped += len(row.attributes) - len(labels)
            if asked:
                kept[split].append(replace(row, attributes=labels))
    return kept, dropped


def _rows(name: str, split: str, examples: Sequence[Example]) -> bytes:
    rows = (
        {
            "id": example.id or f"{name}-{split}-{place:04}",
            "category": example.category,
            "text": example.text,
            "attributes": example.attributes,
        }
        for place, example in enumerate(examples)
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _document(data: Any) -> bytes:
    return (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode()
