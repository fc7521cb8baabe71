"""Documents that a model has seen: what counts as a copy, and what each command makes of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pytest
from command_line import jsonl, refused
from typer.testing import CliRunner

from schemax.base.calibration import FILE as CALIBRATION
from schemax.base.calibration import Calibration, read_calibration, write_calibration
from schemax.base.trained import SEEN
from schemax.commands.cli import app
from schemax.errors import ModelError
from schemax.evaluation.calibrate import FitEntry, fit_calibration
from schemax.evaluation.examples import Example
from schemax.evaluation.seen import add_seen, copies, read_seen, signatures

TEXTS = (
    "Tazo Zen green tea with lemongrass and spearmint, 24 count, 1.5 oz, pack of 6",
    "Twinings English Breakfast black tea bags, 100 count, decaffeinated, 7.05 ounce box",
    "Yogi Bedtime herbal tea with passionflower and chamomile, 16 bags, caffeine free",
)


def examples(*texts: str) -> list[Example]:
    return [Example("Tea", text, {}) for text in texts]


@pytest.mark.parametrize(
    ("text", "is_copy"),
    [
        (TEXTS[0], True),
        (f"  {TEXTS[0].upper()}\n", True),
        (" ".join(reversed(TEXTS[0].split())), True),
        (TEXTS[0].replace("spearmint", "peppermint"), True),
        ("Tazo Zen black tea with honey, 20 count, 1.2 oz, pack of 2", False),
        (TEXTS[1], False),
    ],
)
def test_copies(text: str, is_copy: bool) -> None:
    assert copies(signatures(examples(TEXTS[0])), signatures(examples(text))) == [0] * is_copy


def test_texts_without_words_and_nothing_seen() -> None:
    assert copies(signatures(examples("***")), signatures(examples("---", "***"))) == [1]
    assert copies(signatures([]), signatures(examples("***"))) == copies(None, signatures([])) == []


@pytest.fixture
def folder(saved_model: Path, tmp_path: Path) -> Path:
    return copytree(saved_model, tmp_path / "model")


def test_the_file_grows_and_is_compact(folder: Path) -> None:
    assert read_seen(None) == {}
    add_seen(folder, {}, trained=examples(*TEXTS, TEXTS[0]))
    add_seen(folder, read_seen(folder / SEEN), calibrated=examples("x"))
    add_seen(folder, read_seen(folder / SEEN), trained=examples("y"))
    kept = read_seen(folder / SEEN)
    assert {name: len(rows) for name, rows in kept.items()} == {"trained": 4, "calibrated": 1}
    assert TEXTS[0].encode() not in (folder / SEEN).read_bytes()


def test_broken_and_foreign_files(folder: Path) -> None:
    (folder / SEEN).write_bytes(b"PK nothing")
    with pytest.raises(ModelError, match=f"{SEEN} cannot be used"):
        read_seen(folder / SEEN)
    np.savez(folder / SEEN, version=np.array([None]))  # pickled
    with pytest.raises(ModelError, match=f"{SEEN} cannot be used"):
        read_seen(folder / SEEN)
    np.savez(folder / SEEN, version=np.array(1))
    with pytest.warns(UserWarning, match="another version of rensa"):
        assert read_seen(folder / SEEN) == {}


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)])


def labels(path: Path, texts: Sequence[str] = TEXTS) -> str:
    rows = [{"id": f"t{n}", "category": "Tea", "text": text} for n, text in enumerate(texts)]
    return jsonl(path, [row | {"attributes": {"Brand": "Tazo"}} for row in rows])


def test_evaluating_what_the_model_has_seen(folder: Path, tmp_path: Path) -> None:
    add_seen(folder, {}, trained=examples(TEXTS[0].upper()), calibrated=examples(TEXTS[2]))
    gold = labels(tmp_path / "gold.jsonl")
    done = run("evaluate", gold, "--model", folder, "--json")
    assert done.exit_code == 0, done.output
    assert "trained on 1 of 3 documents or on close copies, so their F1 is too high: t0" in (
        done.stderr
    )
    assert "calibrated on 1 of 3 documents" in done.stderr
    assert "3 of 3 documents, " in done.stderr
    (report,) = json.loads(done.stdout)
    assert report["seen"] == {"trained": 1, "calibrated": 1}
    assert report["seed"] == 0
    origin = report["origin"]
    assert origin["data"]["file"] == "gold.jsonl"
    assert len(origin["data"]["sha256"]) == 64
    assert (origin["model"]["name"], origin["model"]["dtype"]) == (str(folder), "float32")
    assert origin["model"]["weights"]
    assert {"torch", "schemax", "cpu", "accelerator"} <= origin["environment"].keys()


SHOP = """
from typing import Literal
from schemax import AttrSchema, attr

class Tea(AttrSchema):
    brand: Literal["Tazo", "Yogi"] = attr(title="Brand", k_max=12)
"""


@pytest.mark.slow
def test_calibrating_on_what_the_model_has_not_seen(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    arguments = ("--model", folder, "--schemas", tmp_path / "shop.py:Tea")
    add_seen(folder, {}, trained=examples(*TEXTS[:2]))
    trained = labels(tmp_path / "trained.jsonl", [text.lower() for text in TEXTS[:2]])
    refused(run("calibrate", trained, *arguments), "trained on all documents of", "trained.jsonl")
    gold = labels(tmp_path / "gold.jsonl", [*TEXTS, *"abcdefgh"])
    done = run("calibrate", gold, *arguments)
    assert done.exit_code == 0, done.output
    assert "trained on them or on close copies: 2 of 11 documents: t0, t1" in done.stderr
    assert len(read_seen(folder / SEEN)["calibrated"]) == 9
    # The earlier calibration was fitted on these documents, so no new one is better.
    earlier = (folder / CALIBRATION).read_text()
    again = run("calibrate", gold, *arguments)
    assert f"delete {folder / CALIBRATION} to replace it" in again.stderr
    assert (folder / CALIBRATION).read_text() == earlier
    write_calibration(Calibration(temperature=20.0, bias=-8.0), folder)
    worse = run("calibrate", gold, *arguments)
    assert "the earlier calibration is replaced" in worse.stderr
    assert read_calibration(folder / CALIBRATION).bias > -8


def test_the_better_calibration_is_kept() -> None:
    """Of 400 values 300 are right, whatever the raw confidence."""
    entries = [
        FitEntry(n, True, "vc" if n % 4 else "vw", "vn", 0.2 + 0.6 * (n % 2), None)
        for n in range(400)
    ]
    good = fit_calibration(entries).calibration
    assert fit_calibration(entries, good).is_earlier
    poor = fit_calibration(entries, Calibration(bias=5.0))
    assert not poor.is_earlier
    assert poor.calibration == good
    # A fit to a few values is noisy, and does not replace one to many.
    few = fit_calibration([entry._replace(outcome="vw") for entry in entries[:2]], good)
    assert few.calibration.bias < good.bias
