"""The curve of a cascade says what the models, and the cascade, are measured to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Run, jsonl, refused

ROWS = [
    {"category": "Tea", "text": text, "attributes": {"Brand": brand, "Flavor": flavor}}
    for text, brand, flavor in (
        ("Twinings Earl Grey black tea, 20 bags", "Twinings", "Earl Grey"),
        ("Celestial Seasonings lemon zinger herbal tea", "Celestial Seasonings", "lemon"),
        ("Bigelow green tea with mint", "Bigelow", "mint"),
        ("Loose oolong from Taiwan 100 g", None, None),
    )
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_curve_goes_from_one_model_to_the_next(run: Run, model: Path, tmp_path: Path) -> None:
    file = jsonl(tmp_path / "test.jsonl", ROWS)
    args = ("evaluate", file, "--model", "embedded", "--escalate-to", str(model), "--json")
    marks = "--escalate-below", "0.9", "--read-below", "0.6"
    first, later, cascade = json.loads(run(*args, *marks).stdout)
    assert cascade["model"] == f"{first['model']}, then {later['model']}"
    points = {point["read_below"]: point for point in cascade["curve"]}
    for below, row in ((0.0, first), (0.6, cascade), (None, later)):
        assert points[below]["f1"] == row["f1"]
        assert points[below]["strict_f1"] == row["strict_f1"]
    for shares in zip(
        *((point["documents"], point["fields"]) for point in cascade["curve"]), strict=True
    ):
        assert list(shares) == sorted(shares)
        assert shares[-1] == 1
    assert points[0.0]["fields"] < points[0.6]["fields"] <= points[0.6]["documents"] < 1
    speed = later["products_per_second"] / cascade["products_per_second"]
    assert points[0.6]["cost"] == pytest.approx(speed)


def test_one_setting_at_a_time(run: Run, tmp_path: Path) -> None:
    file = jsonl(tmp_path / "test.jsonl", ROWS)
    args = ("evaluate", file, "--escalate-to", "small", "--decoding", "isolated,paper")
    refused(run(*args), "--escalate-to takes one --model, one --decoding, one of --shots")
