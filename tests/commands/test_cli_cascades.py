"""Cascades on the command line: which fields are asked again, and runs that are killed."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet
import pytest
from command_line import SCHEMA, Run, jsonl, process, refused, rows, save_model

from schemax import Extractor
from schemax.base.calibration import Calibration, FieldPromise, Promise, write_calibration
from schemax.base.resources import resource_dir

COFFEES = [
    "Maxwell House International Coffee French Vanilla Iced Latte Singles, 3.42-Ounce 2 Boxes",
    "Lavazza Super Crema whole bean, medium roast, 2.2 lb bag",
    "Green Mountain decaf K-Cups, dark roast, 24 ct (Pack of 4)",
]
RECORDS = [{"id": f"r{n}", "t": title} for n, title in enumerate(COFFEES)]


@pytest.fixture
def larger(tmp_path: Path) -> Path:
    """The embedded model by another name, so that all answers are those of the model alone."""
    return shutil.copytree(resource_dir("embedded"), tmp_path / "larger")


def calibrated(folder: Path, least: float) -> str:
    """The embedded model with a promise of 0.9 for values of that confidence."""
    share = (0.5, 0.4, 0.6)
    promise = Promise(0.9, FieldPromise(least, False, 100, share, share))
    copy = shutil.copytree(resource_dir("embedded"), folder / "calibrated")
    write_calibration(Calibration(promise=promise), copy)
    return str(copy)


def details(run: Run, *args: str) -> list[Any]:
    result = run("extract", "coffee", "in.jsonl", "--details", "-q", *args)
    assert result.exit_code == 0, result.output
    return rows(result.stdout)


def test_a_precision_asks_again_for_values_that_are_not_promised(
    run: Run, larger: Path, tmp_path: Path
) -> None:
    jsonl(tmp_path / "in.jsonl", RECORDS)
    write_calibration(Calibration(), larger)
    alone = details(run, "--model", str(larger))
    fields = [field for row in alone for field in row["fields"].values()]
    least = median(field["confidence"] for field in fields if field["value"])
    cascade = ("--model", calibrated(tmp_path, least), "--escalate-to", str(larger))
    together = details(run, *cascade, "--precision", "0.9")
    answering = set()
    for before, row in zip(alone, together, strict=True):
        assert row["attributes"] == before["attributes"]
        for name, field in before["fields"].items():
            if field["value"]:
                later = row["fields"][name].get("model")
                assert later == (None if field["confidence"] >= least else "larger"), name
                answering.add(later)
    assert answering == {None, "larger"}
    refused(
        run("extract", "coffee", "in.jsonl", *cascade, "--precision", "0.95"),
        "the calibration of calibrated promises no precision of 0.95",
    )


def test_thresholds_that_cannot_be_used_are_refused(run: Run, larger: Path, tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl", RECORDS)
    command = ("extract", "coffee", "in.jsonl")
    for option in ("--precision", "--escalate-below"):
        refused(run(*command, option, "0.9"), "say when --escalate-to is asked")
    both = ("--precision", "0.9", "--escalate-below", "0.8")
    refused(run(*command, "--escalate-to", str(larger), *both), "not both")
    refused(run("serve", "--escalate-to", str(larger), *both), "not both")
    stacked = ("--escalate-to", str(larger), "--decoding", "paper")
    for verb in (command, ("serve", "--port", "0")):
        refused(run(*verb, *stacked), "which cannot be stacked")


def test_no_curve_where_a_precision_decides(run: Run, larger: Path, tmp_path: Path) -> None:
    label = {"category": "Coffee", "text": COFFEES[1], "attributes": {"Brand": "Lavazza"}}
    file = jsonl(tmp_path / "labels.jsonl", [label])
    cascade = ("--model", calibrated(tmp_path, 0.01), "--escalate-to", str(larger))
    result = run("evaluate", file, *cascade, "--precision", "0.9", "--json")
    first, later, together = json.loads(result.stdout)
    assert together["model"] == f"{first['model']}, then {later['model']}"
    assert "curve" not in together


@contextmanager
def counted(folder: Path) -> Iterator[tuple[str, list[Any]]]:
    """(address, texts that were asked for) of a server of a larger model."""
    from serving import served

    extractor = Extractor.from_pretrained(folder)
    asked: list[Any] = []
    plain = extractor.extractions

    def extractions(documents: Any, *args: Any, **options: Any) -> Any:
        asked.extend(str(document) for document in documents)
        return plain(documents, *args, **options)

    extractor.extractions = extractions  # type: ignore[method-assign]
    with served(extractor, name="larger") as address:
        yield f"{address}/v1#larger", asked


def kept(folder: Path) -> list[Any]:
    """The rows of an unfinished run."""
    texts = [part.read_text("utf-8") for part in sorted(folder.glob("_out*.parts/*.jsonl"))]
    lines = [line for text in texts for line in text.splitlines(keepends=True)]
    return [json.loads(line)[1] for line in lines if line.endswith("\n")]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_killed_run_goes_on_and_asks_for_no_kept_row_again(
    run: Run, backend: Any, tmp_path: Path, kind: str
) -> None:
    titles = [f"Brand{n} television, 4K, smart, {n} inch" for n in range(80)]
    jsonl(tmp_path / "in.jsonl", [{"id": f"r{n}", "t": title} for n, title in enumerate(titles)])
    with counted(save_model(backend, tmp_path / "larger")) as (address, asked):
        command = ("extract", SCHEMA, "in.jsonl", "--model", "embedded", "--details", "-q")
        command += ("--escalate-to", address, "--escalate-below", "0.6")
        assert run(*command, "-o", f"whole.{kind}").exit_code == 0
        of_whole = len(asked)
        assert 0 < of_whole <= len(titles)
        asked.clear()
        with process("-m", "schemax", *command, "-o", f"out.{kind}", cwd=tmp_path) as job:
            while len(kept(tmp_path)) < 20:
                assert job.poll() is None
                time.sleep(0.01)
            job.kill()
            job.communicate()
        known = {row["id"] for row in kept(tmp_path)}
        assert 20 <= len(known) < len(titles)
        before, asked[:] = len(asked), []
        assert run(*command, "-o", f"out.{kind}").exit_code == 0
    assert not [n for n, title in enumerate(titles) if f"r{n}" in known and title in str(asked)]
    assert before + len(asked) >= of_whole
    whole, out = (told(tmp_path / f"{name}.{kind}") for name in ("whole", "out"))
    assert out == whole
    assert {"r0", "answered by larger"} <= {str(cell) for row in out for cell in row.values()}


def told(path: Path) -> list[dict[str, Any]]:
    """Values and notes of rows; probabilities differ by what is read beside a row."""
    if path.suffix == ".parquet":
        found = pyarrow.parquet.read_table(path).to_pylist()
    else:
        lines = rows(path.read_text("utf-8"))
        assert {f.get("model") for row in lines for f in row["fields"].values()} == {None, "larger"}
        found = [
            row["attributes"]
            | {"id": row["id"], "errors": row["errors"]}
            | {f"{name}__note": field["note"] for name, field in row["fields"].items()}
            for row in lines
        ]
    ends = ("confidence", "probability")
    return [{key: row[key] for key in row if not key.endswith(ends)} for row in found]
