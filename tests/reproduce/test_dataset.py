"""`reproduce.dataset`: published files, in all forms that they come in, as annotated products."""

from __future__ import annotations

import functools
import json
import threading
import zipfile
from collections.abc import Iterator, Sequence
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from command_line import jsonl, refused_by, rows
from published_files import write_oa_mine

from reproduce.dataset.__main__ import main
from reproduce.dataset.formats import ae_110k_triples
from reproduce.dataset.write import write_dataset
from schemax.evaluation.examples import read_examples

TRAIN = [
    {
        "input": "Green Tea 20 ct",
        "category": "Tea",
        "target_scores": {"Brand": {"n/a": 1}, "Size": {" 20 ct": 1}, "Cup": {"red": 1}},
    }
]
TEST = [
    {
        "input": "Tazo Zen, 24 ct",
        "category": "Tea",
        "target_scores": {"Brand": {"Tazo": 1}, "Size": {"24 ct": 1, "24": 1}},
    },
    {"input": "Green Tea 20 ct", "category": "Tea", "target_scores": {"Brand": {"Tazo": 1}}},
]


def write_extractgpt(folder: Path, name: str = "oa-mine") -> Path:
    own = folder / "data" / "processed_datasets" / name
    own.mkdir(parents=True)
    jsonl(own / "train.jsonl", TRAIN)
    jsonl(own / "test.jsonl", TEST)
    return folder


def zipped(folder: Path, target: Path) -> Path:
    """As GitHub packs a repository: with a folder of its own around it."""
    with zipfile.ZipFile(target, "w") as packed:
        for path in sorted(folder.rglob("*.*")):
            packed.write(path, f"repository-1/{path.relative_to(folder)}")
    return target


@pytest.fixture
def website(tmp_path: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    handler = functools.partial(Quiet, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["repository", "folder", "zip", "website", "zip on a website"])
def test_the_split_of_extractgpt(kind: str, tmp_path: Path, website: str) -> None:
    repository = write_extractgpt(tmp_path / "repository")
    packed = zipped(repository, tmp_path / "repository.zip")
    place = {
        "repository": str(repository),
        "folder": str(repository / "data" / "processed_datasets" / "oa-mine"),
        "zip": str(packed),
        "website": f"{website}/repository/",
        "zip on a website": f"{website}/repository.zip",
    }[kind]
    about = write_dataset("oa-mine", place, tmp_path / "out")
    assert about["splits"] == {"train": 1, "test": 2}
    assert about["labels_outside_the_schema"] == 1
    assert about["train_texts_in_test"] == 1
    assert "other checksums" in about["split_by"]
    train, test = (read_examples(tmp_path / "out" / f"{s}.jsonl") for s in ("train", "test"))
    assert train[0].attributes == {"Brand": None, "Size": "20 ct"}
    assert test[0].attributes == {"Brand": "Tazo", "Size": ("24 ct", "24")}
    assert test[1].id == "oa-mine-test-0001"
    attributes = json.loads((tmp_path / "out" / "attributes.json").read_text())
    assert attributes == {"categories": {"Tea": ["Brand", "Size"]}}


def test_the_annotations_of_oa_mine_get_a_split(tmp_path: Path) -> None:
    folder = tmp_path / "amazon" / "annotations"
    folder.mkdir(parents=True)
    entities = [{"startOffset": 0, "endOffset": 4, "label": "Brand", "value": "Tide "}]
    titles = [{"asin": f"B{n}", "title": f"Tide {n}", "entities": entities} for n in range(8)]
    jsonl(folder / "laundry_detergent.jsonl", titles)
    place = str(tmp_path / "amazon")
    first, again, other = (
        write_dataset("oa-mine", place, tmp_path / name, seed)
        for name, seed in (("first", 0), ("again", 0), ("other", 1))
    )
    assert first["splits"] == {"train": 6, "test": 2}
    assert first["written"] == again["written"] != other["written"]
    assert "not the paper's split" in first["split_by"]
    row = rows((tmp_path / "first" / "train.jsonl").read_text())[0]
    assert row["category"] == "Laundry Detergent"
    assert row["attributes"] == {"Brand": "Tide"}
    assert row["id"].startswith("B")


def triples(category: str, count: int, values: Sequence[tuple[str, str]]) -> Iterator[str]:
    for n in range(count):
        title = f"{category} {n}"
        for attribute, value in [("item type", category), *values]:
            yield "\u0001".join((title, attribute, value.format(n=n)))


def test_the_triples_of_ae_110k(tmp_path: Path) -> None:
    rods = [("Brand Name", "B{n}"), ("Maerial", "M{n}"), ("Length 1", "{n}m"), ("Color", "NULL")]
    lines = [*triples("fishing rods", 60, rods), *triples("Rare Thing", 5, rods)]
    found = ae_110k_triples("\n".join(lines).encode(), "publish_data.txt")
    assert len(found) == 60
    assert {one.category for one in found} == {"Fishing Rod"}
    # A colour that is never stated is no attribute; a name's digits are none of it.
    assert found[3].attributes == {"Brand Name": "B3", "Material": "M3", "Length": "3m"}
    (tmp_path / "publish_data.txt").write_text("\n".join(lines))
    about = write_dataset("ae-110k", str(tmp_path), tmp_path / "out")
    assert about["splits"] == {"train": 45, "test": 15}
    assert "academic research only" in about["licence"]


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def arguments(name: str, source: Path) -> list[str]:
        return [name, "--source", str(source), "-o", str(tmp_path / "out")]

    def refused(name: str, source: Path, said: str) -> None:
        refused_by(main, arguments(name, source), capsys, said)

    refused("ae-110k", tmp_path / "none", "is no folder")
    (tmp_path / "empty").mkdir()
    refused("ae-110k", tmp_path / "empty", "publish_data.txt")
    broken = write_extractgpt(tmp_path / "broken", "ae-110k")
    (broken / "data/processed_datasets/ae-110k/test.jsonl").write_text('{"input": "x"}\n')
    refused("ae-110k", broken, "test.jsonl, line 1")
    (tmp_path / "text.zip").write_text("no archive")
    refused("ae-110k", tmp_path / "text.zip", "no zip archive")
    assert not (tmp_path / "out").exists()
    good = write_extractgpt(tmp_path / "good")
    main(arguments("oa-mine", good))
    assert "next: schemax evaluate" in capsys.readouterr().out
    refused("oa-mine", good, "not an empty folder")


def test_the_published_files_of_oa_mine(data: Path, tmp_path: Path) -> None:
    """Written as ExtractGPT writes them, the development data are its files, byte for byte."""
    write_oa_mine(data, tmp_path)
    about = write_dataset("oa-mine", str(tmp_path), tmp_path / "out")
    assert about["split_by"] == "ExtractGPT, the split of the paper"
    assert about["splits"] == {"train": 1452, "train_small": 286, "test": 491}
    assert about["train_texts_in_test"] == 3
    assert about["attributes_per_product"] == pytest.approx(10.62, abs=0.005)
