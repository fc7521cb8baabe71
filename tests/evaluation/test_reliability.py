"""Whether confidences can be relied on: figures counted by hand, and what `evaluate` shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.dom import minidom

import pytest
from command_line import jsonl, refused, save_model
from tokenizers import Tokenizer
from typer.testing import CliRunner

from schemax.commands.cli import app
from schemax.evaluation.examples import Example
from schemax.evaluation.reliability import (
    Reliability,
    plot_reliability,
    reliability,
    reliability_of,
)
from schemax.evaluation.scores import score_predictions

CONFIDENCES = [0.35, 0.85, 0.15, 0.95, 0.85]
RIGHT = [True, True, False, True, False]

ROWS: list[dict[str, Any]] = [
    {"category": "Tea", "text": "Tazo Zen 24 ct", "attributes": {"Brand": "Tazo"}},
    {"category": "Tea", "text": "Twinings", "attributes": {"Brand": "Twinings", "Size": "20"}},
]


# A random model may say null of anything, but for what has to have a value.
SHOP = """
from typing import Literal
from schemax.attributes import attr
from schemax.extraction.schema import AttrSchema

class Tea(AttrSchema):
    brand: Literal["Tazo", "Twinings"] = attr(title="Brand", k_max=24)
    size: int | None = attr(title="Size", k_max=24, ge=0, le=99)
"""


@pytest.fixture
def found() -> Reliability:
    known = reliability(CONFIDENCES, RIGHT)
    assert known is not None
    return known


@pytest.fixture(scope="module")
def folder(backend: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(backend, tmp_path_factory.mktemp("model"))


@pytest.fixture
def settings(folder: Path, tmp_path: Path) -> tuple[object, ...]:
    (tmp_path / "shop.py").write_text(SHOP)
    schemas = f"{tmp_path / 'shop.py'}:Tea"
    decoding = "isolated,autoregressive"
    return "--model", folder, "--schemas", schemas, "--decoding", decoding


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["evaluate", *map(str, arguments)])


# By hand


def test_calibration_error_and_brier_score(found: Reliability) -> None:
    assert (found.values, found.accuracy) == (5, 0.6)
    assert found.confidence == pytest.approx(0.63)
    # 1 x |0.35 - 1|, 1 x |0.15 - 0|, 2 x |0.85 - 0.5|, 1 x |0.95 - 1|, of 5 values
    assert found.ece == pytest.approx((0.65 + 0.15 + 0.7 + 0.05) / 5)
    assert found.brier == pytest.approx((0.65**2 + 0.15**2 + 0.85**2 + 0.15**2 + 0.05**2) / 5)


def test_bins(found: Reliability) -> None:
    assert [part.count for part in found.bins] == [0, 1, 0, 1, 0, 0, 0, 0, 2, 1]
    assert found.bins[0].accuracy is None
    assert (found.bins[8].low, found.bins[8].high) == (0.8, 0.9)
    assert found.bins[8].confidence == pytest.approx(0.85)
    assert found.bins[8].accuracy == 0.5


def test_intervals_count_values_of_a_document_as_fewer() -> None:
    """90 of 100 right: Wilson's interval; of 10 documents of which 1 is all wrong, a wider one."""
    right = [n >= 10 for n in range(100)]
    apart = reliability([0.95] * 100, right)
    alike = reliability([0.95] * 100, right, [n // 10 for n in range(100)])
    assert apart is not None
    assert alike is not None
    assert apart.bins[9].interval == pytest.approx((0.825, 0.945), abs=0.002)
    assert apart.curve[-1].interval == apart.bins[9].interval
    assert alike.bins[9].interval == pytest.approx((0.59, 0.98), abs=0.02)
    assert apart.bins[0].interval is None


def test_risk_over_coverage(found: Reliability) -> None:
    """By descending confidence: right; one of two wrong, in no order; right; wrong."""
    risks = [0, 0.5 / 2, 1 / 3, 1 / 4, 2 / 5]
    assert found.aurc == pytest.approx(sum(risks) / 5)
    assert [point.risk for point in found.curve] == pytest.approx(
        [risks[place] for place in (0, 0, 1, 1, 2, 2, 3, 3, 4, 4)]
    )
    assert [point.coverage for point in found.curve] == [tenth / 10 for tenth in range(1, 11)]
    assert found.curve[9].confidence == 0.15


def test_the_order_of_values_does_not_matter(found: Reliability) -> None:
    assert reliability(CONFIDENCES[::-1], RIGHT[::-1]) == found


def test_the_ends_of_the_scale() -> None:
    known = reliability([0.0, 1.0], [False, True])
    assert known is not None
    assert (known.ece, known.brier, known.aurc) == (0, 0, 0.25)
    assert [part.count for part in known.bins] == [1, *[0] * 8, 1]
    assert reliability([], []) is None


def test_only_annotated_pairs_with_a_value_count() -> None:
    examples = [
        Example("Tea", "a", {"Brand": "Tazo", "Flavor": None, "Size": "24"}),
        Example("Tea", "b", {"Brand": "Twinings", "Size": "20"}),
    ]
    predictions = [
        {"Brand": "Tazo", "Flavor": "Zen", "Size": None},
        {"Brand": "TWG", "Flavor": "Mint", "Size": "20"},
    ]
    confidences = [
        {"Brand": 0.95, "Flavor": 0.85, "Size": 0.5},
        {"Brand": 0.15, "Flavor": 0.4, "Size": None},
    ]
    scores = score_predictions(examples, predictions)
    assert reliability_of(scores, confidences) == reliability(
        [0.95, 0.85, 0.15], [True, False, False], [0, 0, 1]
    )
    assert reliability_of(scores, [{}, {}]) is None


# The picture


@pytest.mark.slow
def test_the_picture(found: Reliability, tmp_path: Path) -> None:
    runs = [("isolated", found), ('"<$paper$>"', found), ("_odd", found)]
    for name in ("one.svg", "again.svg", "one.png", "one.pdf"):
        plot_reliability(runs, tmp_path / name)
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "again.svg").read_bytes()
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "one.pdf").read_bytes().startswith(b"%PDF")
    page = minidom.parse(str(tmp_path / "one.svg"))
    texts = [item.firstChild.data.strip() for item in page.getElementsByTagName("text")]
    for words in (
        *("Reliability", "Risk over coverage", "confidence", "wrong"),
        "isolated: ECE 0.310, AURC 0.247, 5 values",
        '"<$paper$>": ECE 0.310, AURC 0.247, 5 values',
        "_odd: ECE 0.310, AURC 0.247, 5 values",
    ):
        assert words in texts


def test_a_picture_without_a_mistake(tmp_path: Path) -> None:
    known = reliability([0.9], [True])
    assert known is not None
    plot_reliability([("isolated", known)], tmp_path / "one.svg")
    minidom.parse(str(tmp_path / "one.svg"))


def test_a_picture_needs_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemax.evaluation.reliability.find_spec", lambda _: None)
    gold = jsonl(tmp_path / "gold.jsonl", ROWS)
    refused(run(gold, "--reliability", "drawn.svg"), "--reliability requires matplotlib", "plots")


# The command


@pytest.mark.slow
def test_what_evaluate_shows(settings: tuple[object, ...], tmp_path: Path) -> None:
    gold = jsonl(tmp_path / "gold.jsonl", ROWS)
    drawn = tmp_path / "drawn.svg"
    shown = run(gold, *settings, "--by", "confidence", "--reliability", drawn)
    assert shown.exit_code == 0, shown.output
    for words in (
        "ECE",
        "Brier",
        "AURC",
        "best 50%",
        "Confidence, isolated",
        "0.9 to 1.0",
        "down to",
    ):
        assert words in shown.stdout
    assert "Confidence, autoregressive" not in shown.stdout
    # The last column stands in a table of its own.
    dashes = [line.split() for line in shown.stdout.splitlines() if line.endswith(" -")]
    assert ["autoregressive", *"-------"] in dashes
    assert ["autoregressive", "-"] in dashes
    assert minidom.parse(str(drawn))
    assert "down to" not in run(gold, *settings).stdout


@pytest.mark.slow
def test_figures_as_json(settings: tuple[object, ...], tmp_path: Path) -> None:
    gold = jsonl(tmp_path / "gold.jsonl", ROWS)
    first, second = json.loads(run(gold, *settings, "--json", "--details").stdout)
    known = first["reliability"]
    assert known["values"] == sum(first["counts"][name] for name in ("nv", "vc", "vw")) > 0
    assert sum(part["count"] for part in known["bins"]) == known["values"]
    assert [point["coverage"] for point in known["curve"]][-1] == 1
    assert 0 <= known["ece"] <= 1
    assert second["reliability"] is None
    row, other = first["predictions"][0], second["predictions"][0]
    assert row["confidences"].keys() == row["predicted"].keys()
    assert all(0 <= one <= 1 for one in row["confidences"].values())
    assert set(other["confidences"].values()) == {None}


@pytest.mark.slow
def test_nothing_to_draw(folder: Path, tmp_path: Path) -> None:
    gold = jsonl(tmp_path / "gold.jsonl", ROWS)
    drawn = tmp_path / "drawn.svg"
    done = run(gold, "--model", folder, "--decoding", "autoregressive", "--reliability", drawn)
    assert done.exit_code == 0
    assert "drawn.svg is not written" in done.stderr
    assert not drawn.exists()
    refused(run(gold, "--reliability", "drawn.gif"), "--reliability", ".svg")
