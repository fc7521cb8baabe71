"""Predictions of other systems beside our own: the same protocol, seeds, corrected p values."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import jsonl, refused
from typer.testing import CliRunner

from schemax.commands.cli import app
from schemax.evaluation.comparison import holm

LABELS: list[dict[str, Any]] = [
    {"Brand": "Tazo", "Count": "20", "Organic": "yes", "Flavors": ["mint", "lemon"]},
    {"Brand": "Yogi", "Count": None, "Organic": None, "Flavors": None},
    {"Brand": ["Twinings", "TWG"], "Count": "100", "Organic": None, "Flavors": ["bergamot"]},
]
RIGHT: list[dict[str, Any]] = [
    {"brand": "Tazo", "Count": 20.0, "Organic": True, "Flavors": ["mint", "lemon"]},
    {"Brand": "Yogi", "Flavors": []},
    {"Brand": "TWG", "Count": "100", "Organic": None, "Flavors": ["bergamot"]},
]
SHOP = """
from schemax import AttrSchema, attr

class Tea(AttrSchema):
    brand: str | None = attr(title="Brand")
    count: int | None = attr(title="Count")
    organic: bool | None = attr(title="Organic")
    flavors: list[str] = attr(title="Flavors", default_factory=list)
"""


@pytest.fixture
def arguments(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "shop.py").write_text(SHOP)
    rows = [
        {"id": str(n), "category": "Tea", "text": f"Tea {n}", "attributes": own}
        for n, own in enumerate(LABELS)
    ]
    gold = jsonl(tmp_path / "gold.jsonl", rows)
    return "evaluate", str(gold), "--schemas", f"{tmp_path / 'shop.py'}:Tea"


def predicted(path: Path, rows: list[dict[str, Any]], key: str = "attributes") -> str:
    return str(jsonl(path, [{"id": n, key: row} for n, row in enumerate(rows)]))


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def reports(*arguments: str) -> list[dict[str, Any]]:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    written: list[dict[str, Any]] = json.loads(done.stdout)
    return written


def test_values_count_as_those_of_a_model(arguments: tuple[str, ...], tmp_path: Path) -> None:
    rival = predicted(tmp_path / "rival.jsonl", RIGHT)
    worse = predicted(
        tmp_path / "worse.jsonl", [RIGHT[0], {"Brand": "x", "Age": "7"}, {}], "predicted"
    )
    right, wrong = reports(*arguments, "--predictions", f"{rival},{worse}")
    assert (right["decoding"], right["f1"], right["strict_f1"]) == ("rival", 1, 1)
    assert right["counts"] == {"nn": 4, "nv": 0, "vn": 0, "vc": 8, "vw": 0}
    assert wrong["counts"] == {"nn": 4, "nv": 0, "vn": 3, "vc": 4, "vw": 1}
    assert right["seconds"] is right["reliability"] is None
    assert right["origin"]["predictions"]["file"] == "rival.jsonl"
    assert wrong["against"]["protocol"]["right_only_in_first"] == 4
    shown = run(*arguments, "--predictions", rival, "--predictions", worse)
    assert f"predicted in {worse} and not asked for: Age" in shown.stderr
    assert "documents/s" not in shown.stdout


def test_rows_without_ids_are_in_order(arguments: tuple[str, ...], tmp_path: Path) -> None:
    rows = [{"index": n, "attributes": RIGHT[n]} for n in (2, 0, 1)]
    (by_index,) = reports(*arguments, "--predictions", jsonl(tmp_path / "a.jsonl", rows))
    assert by_index["f1"] == 1
    failed = [{"attributes": row} for row in (*RIGHT[:2], None)]
    failing = jsonl(tmp_path / "b.jsonl", failed)
    (in_order,) = reports(*arguments, "--predictions", failing)
    assert (in_order["counts"]["vn"], in_order["invalid"]["failed_rows"]) == (3, 1)
    assert reports(*arguments, "--limit", "2", "--predictions", failing)[0]["f1"] == 1


def test_what_is_no_file_of_predictions(arguments: tuple[str, ...], tmp_path: Path) -> None:
    few = predicted(tmp_path / "few.jsonl", RIGHT[:2])
    refused(run(*arguments, "--predictions", few), "few.jsonl has no row for 1 of 3 documents: 2")
    other = jsonl(tmp_path / "other.jsonl", [{"brand": "Tazo"}])
    refused(run(*arguments, "--predictions", other), "line 1: not a row of predictions")
    refused(run(*arguments, "--predictions", few, "--table", "csv", "--json"), "not both")
    refused(run(*arguments, "--predictions", ","), "--predictions names no file")
    refused(run(*arguments, "--predictions", f"{few},absent.jsonl"), "few.jsonl has no row")
    row = {"id": 7, "category": "Tea", "text": "Tea", "attributes": {"Brand": "Tazo"}}
    alone = ("evaluate", str(jsonl(tmp_path / "alone.jsonl", [row])), *arguments[2:])
    refused(run(*alone, "--predictions", few), "few.jsonl has no row for 1 of 1 document: 7")


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([]) == []


def test_tables_have_means_over_seeds(arguments: tuple[str, ...], tmp_path: Path) -> None:
    files = {
        "base_1": RIGHT,
        "rival-seed1": RIGHT,
        "rival-seed2": [{}, *RIGHT[1:]],
        "none": [{}] * 3,
    }
    names = [predicted(tmp_path / f"{name}.jsonl", rows) for name, rows in files.items()]
    given = [word for name in names for word in ("--predictions", name)]
    table = run(*arguments, *given, "--table", "csv")
    assert table.exit_code == 0, table.output
    base, rival, none = csv.DictReader(table.stdout.splitlines())
    assert (base["setting"], base["seeds"], base["F1"], base["sd"]) == ("base_1", "1", "1.000", "")
    assert (rival["setting"], rival["seeds"], rival["F1"]) == ("rival", "2", "0.833")
    assert rival["sd"] == "0.236"  # of 1 and 2/3
    assert float(rival["from"]) <= float(rival["difference"]) == -0.167 <= float(rival["to"])
    assert (rival["p (Holm)"], none["p (Holm)"]) == ("", "0.023")  # three times 2 / 2 ** 8
    latex = run(*arguments, *given, "--table", "latex").stdout
    assert r"\begin{tabular}{lrr" in latex
    assert r"base\_1 & 1 & 1.000" in latex
    markdown = run(*arguments, *given, "--table", "markdown").stdout.splitlines()
    assert markdown[0].startswith("| setting | seeds | F1 |")
    assert markdown[1].startswith("| --- | ---: |")
    shown = run(*arguments, *given).stdout
    assert re.search(r"rival +2 +0\.833 +0\.236", shown)
    assert "McNemar p = 0.00781, 0.0234 after Holm" in shown


def test_names_of_settings_are_broken_between_their_parts(
    arguments: tuple[str, ...], tmp_path: Path
) -> None:
    name = "isolated:constrain=document:min_probability=0.25"
    shown = run(*arguments, "--predictions", predicted(tmp_path / f"{name}.jsonl", RIGHT)).stdout
    assert {"isolated:", "constrain=document:", "min_probability=0.25"} <= set(shown.split())
