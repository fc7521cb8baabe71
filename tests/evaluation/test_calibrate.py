"""Fitting a calibration: maps and thresholds counted by hand, and the commands that make one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import jsonl, refused
from conftest import TITLES
from typer.testing import CliRunner

from schemax.attributes import attr
from schemax.base.calibration import FILE, Calibration, read_calibration
from schemax.base.resources import resource_dir
from schemax.base.trained import SEEN
from schemax.commands.cli import app
from schemax.errors import InputError
from schemax.evaluation.calibrate import (
    FitEntry,
    calibrated,
    entries_of,
    fit_calibration,
    fit_confidence,
    pick_threshold,
    promise_of,
    threshold_curve,
)
from schemax.evaluation.examples import Example
from schemax.evaluation.seen import read_seen
from schemax.extraction.declarations import read_schemas
from schemax.extraction.extractor import Extractor
from schemax.extraction.schema import AttrSchema
from schemax.results import FieldResult, SlotText

# Fits


def test_a_bias_alone_by_hand() -> None:
    """At a raw confidence of 0.5 the slope has no say. Of 400 values 300 are right: the loss is
    least where 400 sigmoid(b) - 300 + b = 0, the last b being the penalty's."""
    temperature, bias = fit_confidence([0.5] * 400, [True] * 300 + [False] * 100)
    assert temperature == 1
    assert 400 / (1 + exp(-bias)) - 300 + bias == pytest.approx(0, abs=0.01)
    assert bias == pytest.approx(log(3), abs=0.02)


def test_a_known_map_is_found_again() -> None:
    rng = np.random.default_rng(0)
    raw = rng.uniform(0.02, 0.98, 20_000)
    truth = Calibration(2.0, -1.0)
    right = rng.uniform(size=raw.size) < [truth.confidence(one) for one in raw]
    temperature, bias = fit_confidence(raw.tolist(), right.tolist())
    assert temperature == pytest.approx(2.0, abs=0.15)
    assert bias == pytest.approx(-1.0, abs=0.1)


@pytest.mark.parametrize(
    ("confidences", "right"),
    [
        ([0.9], [True]),
        ([0.9, 0.99, 1.0] * 50, [True] * 150),
        ([0.0, 0.2, 1.0] * 50, [False] * 150),
        ([0.2, 0.9] * 200, [False, True] * 200),  # told apart without a mistake
        ([0.2, 0.9] * 200, [True, False] * 200),  # the wrong way round
    ],
)
def test_odd_data_gives_a_map_all_the_same(confidences: list[float], right: list[bool]) -> None:
    found = Calibration(*fit_confidence(confidences, right))
    assert 0.05 <= found.temperature <= 20
    assert found.confidence(0.2) < found.confidence(0.8)


def entries(*pairs: tuple[str, str, float | None], products: int = 10) -> list[FitEntry]:
    made: Any = [
        FitEntry(product, True, outcome, without, probability or 0.5, probability)  # type: ignore[arg-type]
        for product in range(products)
        for outcome, without, probability in pairs
    ]
    found: list[FitEntry] = made
    return found


def test_thresholds_by_hand() -> None:
    """A value too many at 0.2, a right one at 0.9: between them nothing is lost and F1 is 1."""
    curve = threshold_curve(entries(("nv", "nn", 0.2), ("vc", "vn", 0.9)))
    f1 = {point.min_probability: point.f1 for point in curve}
    assert f1[0.0] == f1[0.2] == pytest.approx(2 / 3)  # P = 10 / 20, R = 1
    assert f1[0.25] == f1[0.9] == 1
    assert f1[0.95] == 0
    assert [point.min_probability for point in curve if point.alike] == pytest.approx(
        [step / 20 for step in range(5, 19)]
    )
    assert pick_threshold(curve) == pytest.approx(0.575)


def test_nothing_is_left_out_without_need() -> None:
    # Two products of 20 gain from a threshold: no more than noise.
    few = entries(("vc", "vn", 0.9), products=20) + entries(("nv", "nn", 0.2), products=2)
    curve = threshold_curve(few)
    assert curve[0].f1 < max(point.f1 for point in curve)
    assert pick_threshold(curve) == 0
    assert pick_threshold(threshold_curve(entries(("vw", "vn", 0.1)))) == 0  # never right


def test_values_that_must_be_there_stay() -> None:
    curve = threshold_curve(entries(("vw", "vn", None), ("vc", "vn", 0.9)))
    assert {point.f1 for point in curve[:-1]} == {0.5}  # vw counts twice: 2 * 10 / (2 * 20)


def test_strict_f1_counts_what_is_not_annotated() -> None:
    made = [
        *entries(("vc", "vn", 0.9)),
        *(one._replace(annotated=False) for one in entries(("nv", "nn", 0.2))),
    ]
    curve = threshold_curve(made)
    assert (curve[0].f1, curve[0].strict_f1) == (1, pytest.approx(2 / 3))
    assert (curve[5].f1, curve[5].strict_f1) == (1, 1)


def field(
    value: str | None, confidence: float, probability: float, null: float | None
) -> FieldResult:
    slot = SlotText("", "stop", 1, True, confidence, probability, null_probability=null)
    return FieldResult(slot, value)


def test_entries_and_their_fit() -> None:
    examples = [
        Example("Tea", "a", {"Brand": "Tazo", "Flavor": None, "Size": "24"}),
        Example("Tea", "b", {"Brand": "Twinings"}),
    ]
    values = [
        {"Brand": "Tazo", "Flavor": "Zen", "Size": None},
        {"Brand": "Twings", "Flavor": "Mint", "Size": None},
    ]
    # Confidence, probability, and that of null; None for what may not be null.
    sure: dict[str, tuple[float, float, float | None]] = {
        "Brand": (0.9, 0.8, None),
        "Flavor": (0.5, 0.2, 0.3),
        "Size": (0.7, 0.7, 0.3),
    }
    found = entries_of(
        examples,
        [{name: field(value, *sure[name]) for name, value in row.items()} for row in values],
        values,
    )
    assert found == [
        FitEntry(0, True, "vc", "vn", 0.9, None, "Tea", "Brand"),
        FitEntry(0, True, "nv", "nn", 0.5, 0.2, "Tea", "Flavor"),
        FitEntry(0, True, "vn", "vn", None, None, "Tea", "Size"),
        FitEntry(1, True, "vw", "vn", 0.9, None, "Tea", "Brand"),
        FitEntry(1, False, "nv", "nn", 0.5, 0.2, "Tea", "Flavor"),
        FitEntry(1, False, "nn", "nn", None, None, "Tea", "Size"),
    ]
    fit = fit_calibration(found)
    assert (fit.products, fit.before.values) == (2, 3)
    assert fit.before.accuracy == pytest.approx(1 / 3)
    assert fit.after.brier < fit.before.brier


@pytest.mark.parametrize(
    ("bends", "said"),
    [(-3.0, "the temperature is at its bound, 20"), (0.02, "bound"), (0.3, None), (1.0, None)],
)
def test_confidences_that_tell_nothing_are_remarked_on(bends: float, said: str | None) -> None:
    """A model that is the surer the more often it is wrong, or whose values are right by chance."""
    rng = np.random.default_rng(1)
    raw = rng.uniform(0.05, 0.95, 2000)
    right = rng.uniform(size=raw.size) < 1 / (1 + (raw / (1 - raw)) ** -bends)
    pairs = zip(raw.tolist(), right.tolist(), strict=True)
    fit = fit_calibration([FitEntry(0, True, "vc" if ok else "vw", "vn", p, p) for p, ok in pairs])
    assert (fit.remark is None) == (said is None)
    assert said is None or said in str(fit.remark)
    low, high = fit.spread
    shares = [fit.calibration.confidence(one) for one in raw.tolist()]
    assert np.mean([low <= share <= high for share in shares]) == pytest.approx(0.9, abs=0.01)


def test_confidences_that_are_all_alike_are_remarked_on() -> None:
    found = [FitEntry(0, True, "vc" if n % 4 else "vw", "vn", 0.9, 0.9) for n in range(400)]
    fit = fit_calibration(found)
    assert fit.calibration.temperature < 20
    assert "nearly constant (0.75" in str(fit.remark)


class Coffee(AttrSchema):
    brand: str | None = attr(title="Brand")
    roast: str | None = attr(title="Roast")
    weight: str = attr(title="Weight")


def of_coffees(*values: tuple[str, int, int]) -> list[FitEntry]:
    """Entries of (attribute, documents, wrong ones), less and less sure from 0.99 down to 0.50."""
    return [
        FitEntry(n, True, "vw" if n >= count - wrong else "vc", "vn", sure, sure, "Coffee", name)
        for name, count, wrong in values
        for n, sure in enumerate(np.linspace(0.99, 0.5, count).tolist())
    ]


def test_a_promise_by_field() -> None:
    """A field of 200 values has a threshold by itself, above its wrong values; one of 30 shares;
    one that requires a value has none, and keeps its values."""
    made = of_coffees(("Brand", 200, 60), ("Roast", 30, 0), ("Weight", 90, 90))
    promise = promise_of(made, {"Coffee": Coffee}, Calibration(), 0.9)
    brand, roast = promise.fields["coffee"]["brand"], promise.fields["coffee"]["roast"]
    assert promise.fields["coffee"].keys() == {"brand", "roast"}
    assert (brand.by_itself, brand.values, roast.by_itself, roast.values) == (True, 200, False, 30)
    assert brand.precision is not None
    assert brand.precision[0] > 0.9
    assert 0.6 < brand.coverage[0] < 0.8
    assert brand.coverage[1] < brand.coverage[0] < brand.coverage[2]
    assert promise.min_confidence("coffee", "brand") == brand.min_confidence
    assert promise.min_confidence("coffee", "roast") == promise.together.min_confidence
    assert promise.min_confidence("tea", "leaf") == promise.together.min_confidence
    rows = list(promise.rows())
    assert [(row[0], row[-1]) for row in rows] == [
        ("all together", "promised"),
        ("coffee: brand", "promised"),
        ("coffee: roast", "shared threshold: fewer than 60 values"),
    ]


def test_a_precision_that_keeps_nothing_is_refused() -> None:
    made = of_coffees(("Brand", 200, 60), ("Roast", 20, 0))
    with pytest.raises(InputError, match=r"a precision of 0\.99: of the 44 most"):
        promise_of(made, {"Coffee": Coffee}, Calibration(), 0.99)
    with pytest.raises(InputError, match="all annotated fields require a value"):
        promise_of(of_coffees(("Weight", 90, 0)), {"Coffee": Coffee}, Calibration(), 0.9)


def test_what_cannot_be_fitted() -> None:
    unknown = [one._replace(annotated=False) for one in entries(("nv", "nn", 0.2))]
    with pytest.raises(InputError, match="no attribute of the schemas is annotated"):
        fit_calibration(unknown)
    nothing = [FitEntry(0, True, "vn", "vn", None, None), FitEntry(0, True, "nn", "nn", None, None)]
    with pytest.raises(InputError, match="wrote no value"):
        fit_calibration([*nothing, *unknown])


# The command

ROWS: list[dict[str, Any]] = [
    {"category": "Tea", "text": text, "attributes": {"Brand": text.split()[0], "Size": None}}
    for text in TITLES
]


# A random model may say null of anything, but for what has to have a value.
SHOP = """
from typing import Literal
from schemax.attributes import attr
from schemax.extraction.schema import AttrSchema

class Tea(AttrSchema):
    brand: Literal["LG", "Sony"] = attr(title="Brand", k_max=12)
    size: int | None = attr(title="Size", k_max=24, ge=0, le=99)
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    (tmp_path / "shop.py").write_text(SHOP)
    return f"{tmp_path / 'shop.py'}:Tea"


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, ["calibrate", *map(str, arguments)])


@pytest.mark.slow
def test_calibrate(
    folder: Path, tmp_path: Path, spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schemax.extraction.familiarity.FLOOR", -1e9)
    gold = jsonl(tmp_path / "gold.jsonl", ROWS)
    arguments = (gold, "--model", folder, "--schemas", spec, "--format", "json,xml")
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    assert "strict F1" in done.stdout
    assert "0.95" in done.stdout
    assert "a fit to 21 values is noisy" in done.stderr
    assert ("note: the temperature is at its bound" in done.stderr) == (
        "temperature 20.000" in done.stderr
    )
    found = read_calibration(folder / FILE)
    assert f"temperature {found.temperature:.3f}, bias {found.bias:+.3f}" in done.stderr
    assert Extractor.from_pretrained(folder).defaults.calibration == found
    assert found.usual_logprob < 0 < found.usual_deviation
    assert "the earlier calibration" not in done.stderr


@pytest.mark.slow
def test_calibrate_for_a_precision(folder: Path, tmp_path: Path) -> None:
    """A model is right where the labels are what it writes, and wrong where they are not."""
    texts = [f"{brand} TV {n}" for n in range(120) for brand in ("LG", "Sony")]
    declared = SHOP.replace('"Sony"]', '"Sony"] | None').replace("Tea", "Radio")
    (tmp_path / "shop.py").write_text(declared)
    spec = f"{tmp_path / 'shop.py'}:Radio"
    schema: Any = read_schemas(spec)
    extractor = Extractor.from_pretrained(folder)
    items = sorted(extractor.stream(texts, schema), key=lambda item: item.index)
    rows = [
        {"category": "Radio", "text": text, "attributes": {"Brand": item.value.brand}}
        for text, item in zip(texts, items, strict=True)
    ]
    options = ("--model", folder, "--schemas", spec, "--precision", 0.9)
    opposite = {"LG": "Sony", "Sony": "LG", None: "LG"}
    wrong = [
        row | {"attributes": {"Brand": opposite[item.value.brand]}}
        for row, item in zip(rows, items, strict=True)
    ]
    done = run(jsonl(tmp_path / "wrong.jsonl", wrong), *options)
    assert done.exit_code == 2, done.output
    assert "error: no threshold proves a precision of 0.9" in done.stderr
    assert not (folder / FILE).exists()
    done = run(jsonl(tmp_path / "gold.jsonl", rows), *options)
    assert done.exit_code == 0, done.output
    assert "all together" in done.stdout
    found = read_calibration(folder / FILE)
    assert found.promise is not None
    assert found.promise.precision == 0.9
    assert found.promise.together.precision is not None
    assert found.promise.together.precision[0] == 1
    refused(run(tmp_path / "gold.jsonl", *options[:-1], 1), "--precision takes a number")
    promised = calibrated(extractor, tmp_path / "gold.jsonl", schemas=spec, precision=0.9)
    assert promised.defaults.calibration.promise is not None
    for asked, names in ((schema, "size"), (Coffee, "brand, roast")):
        with pytest.warns(UserWarning, match=f"the calibration had no labels of {names}, so"):
            promised.compile(asked)
    out = tmp_path / "out.jsonl"
    for verb in (["extract", spec, jsonl(tmp_path / "in.jsonl", rows), "-o", out], ["report", out]):
        model = ["--model", folder, "--text", "text"] if verb[0] == "extract" else []
        done = CliRunner().invoke(app, [*map(str, verb), *map(str, model)])
        assert done.exit_code == 0, done.output
    assert "all together" in (tmp_path / "out.jsonl.html").read_text("utf-8")


def test_a_folder_of_data(folder: Path, tmp_path: Path, spec: str) -> None:
    data = tmp_path / "shop"
    data.mkdir()
    jsonl(data / "train.jsonl", ROWS)
    assert run(data, "--model", folder, "--schemas", spec).exit_code == 0
    assert (folder / FILE).is_file()


def test_what_calibrate_refuses(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SCHEMAX_MODEL", raising=False)
    gold = jsonl(tmp_path / "gold.jsonl", ROWS)
    refused(run(gold), "--model")
    refused(
        run(gold, "--model", "org/name"), "org/name is not a local folder", "hf download org/name"
    )
    refused(run(gold, "--model", "./nowhere"), "no model folder ./nowhere")
    for ours in (Path("embedded"), resource_dir("embedded")):
        refused(run(gold, "--model", ours), "embedded belongs to schemax", "name the copy")
    refused(run(gold, "--model", folder, "--format", "json,toml"), "toml")
    refused(run(gold, "--model", folder, "--decoding", "autoregressive"), "no confidence")
    refused(run(tmp_path / "absent.jsonl", "--model", folder), "absent.jsonl")
    bare = jsonl(tmp_path / "bare.jsonl", [row | {"attributes": {}} for row in ROWS])
    refused(run(bare, "--model", folder), "nothing is annotated in category 'Tea'")
    declared = tmp_path / "attributes.json"
    declared.write_text(json.dumps({"categories": {"Tea": ["Brand"]}}))
    done = run(bare, "--model", folder, "--schemas", declared)
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith("error: no attribute of the schemas")
    assert not (folder / FILE).exists()


def said(lines: Sequence[str], words: str) -> bool:
    return any(words in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "calibrates"), [(8, False), pytest.param(110, True, marks=pytest.mark.slow)]
)
def test_training_leaves_a_calibration(
    saved_model: Path, tmp_path: Path, count: int, calibrates: bool
) -> None:
    rows = [
        {
            "category": "Tea",
            "text": f"Tazo {number} ct",
            "attributes": {"Brand": "Tazo", "Count": str(number)},
        }
        for number in range(count)
    ]
    data = jsonl(tmp_path / "train.jsonl", rows)
    (tmp_path / "short.jinja").write_text("{% for d in documents %}{{ d.text }}\n{% endfor %}")
    out = tmp_path / "out"
    options = ["--model", saved_model, "--template", tmp_path / "short.jinja"]
    options += ["--out", out, "--steps", 1]
    options += ["--device", "cpu", "--held-out", 0.5]
    done = CliRunner().invoke(app, ["train", data, *map(str, options)])
    assert done.exit_code == 0, done.output
    lines = done.stderr.splitlines()
    assert len(read_seen(out / SEEN)["trained"]) == count
    assert (out / FILE).is_file() is calibrates
    if calibrates:
        found = read_calibration(out / FILE)
        assert said(lines, f"temperature {found.temperature:.3f}")
    else:
        assert said(lines, "not calibrated: 8 held-out labels")
