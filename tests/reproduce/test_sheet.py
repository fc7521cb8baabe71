"""`reproduce.sheet`: a blind sheet, and what becomes of its answers."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from chromium import Browser, find_chromium
from command_line import jsonl, refused_by

from reproduce.sheet import WinRecord, tally, write_sheet
from reproduce.sheet.__main__ import main
from schemax.evaluation.examples import Example

EXAMPLES = [
    Example("Tea", f"Tazo <b>{n}</b>, 24 ct", {"Brand": "Tazo"}, id=str(n)) for n in range(9)
]
RUNS: dict[str, list[dict[str, str | None]]] = {
    "one": [{"Brand": "Tazo", "Size": "=1+1"} for _ in EXAMPLES],
    "two": [{"Brand": None, "Size": "24 ct"} for _ in EXAMPLES],
    "three": [{"Brand": "Tazo", "Size": "=1+1"} for _ in EXAMPLES],
}


def answer(folder: Path, name: str, prefers: str) -> Path:
    """One annotator, who always takes that run, and ties between others."""
    asked = json.loads((folder / "key.json").read_text())["asked"]
    path = folder / name
    with path.open("w", newline="") as handle:
        writer = csv.writer(handle)
        writer.writerow(["item", "answer"])
        for item, sides in asked.items():
            side = next((side for side in ("left", "right") if sides[side] == prefers), "tie")
            writer.writerow([item, side])
    return path


def test_a_sheet_says_nothing_of_whose_outputs_it_shows(tmp_path: Path) -> None:
    asked, equal = write_sheet(EXAMPLES, RUNS, tmp_path, seed=3)
    assert asked + equal == 9
    assert equal, "no draw took the two runs that are equal"
    for name in ("index.html", "sheet.csv"):
        text = (tmp_path / name).read_text()
        assert not any(run in text for run in ('"one"', "one,", "two", "three"))
    with (tmp_path / "sheet.csv").open() as handle:
        rows = list(csv.DictReader(handle))
    assert {row["attribute"] for row in rows} == {"Brand", "Size"}
    # What a spreadsheet would compute stays text.
    assert {"'=1+1", "24 ct", "Tazo", ""} >= {row["left"] for row in rows}
    key = json.loads((tmp_path / "key.json").read_text())["asked"]
    assert {sides["left"] for sides in key.values()} > {"two"}
    again = tmp_path / "again"
    write_sheet(EXAMPLES, RUNS, again, seed=3)
    assert (again / "sheet.csv").read_bytes() == (tmp_path / "sheet.csv").read_bytes()
    assert write_sheet(EXAMPLES, RUNS, tmp_path / "few", limit=2)[0] <= 2


def test_answers_become_wins_ties_and_losses(tmp_path: Path) -> None:
    asked, equal = write_sheet(EXAMPLES, RUNS, tmp_path, seed=3)
    found = tally(tmp_path, [answer(tmp_path, "a.csv", "two")])
    assert (found.answered, found.unanswered, found.equal) == (asked, 0, equal)
    assert found.overall["two"] == WinRecord(wins=asked)
    assert found.overall["two"].ratio is None
    assert found.overall["two"].score == 100
    assert found.matrix["one", "three"] == WinRecord(ties=equal) == found.matrix["three", "one"]
    first, other = found.matrix["one", "two"], found.matrix["two", "one"]
    assert (first.losses, first.wins) == (other.wins, other.losses)
    both = tally(tmp_path, [tmp_path / "a.csv", answer(tmp_path, "b.csv", "one")])
    assert both.agreement is not None
    assert 0 <= both.agreement < 1
    assert tally(tmp_path).unanswered == asked


def test_the_score_of_the_paper() -> None:
    """Figure 8: 26.7 % won, 54.5 % tied, 18.8 % lost."""
    record = WinRecord(wins=267, ties=545, losses=188)
    assert record.ratio == pytest.approx(812 / 733)
    assert record.score == pytest.approx(100 * 812 / (812 + 733))
    assert WinRecord(1, 5, 1).score == 50


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [
        {"id": e.id, "category": "Tea", "text": e.text, "attributes": {"Brand": "Tazo"}}
        for e in EXAMPLES
    ]
    jsonl(tmp_path / "gold.jsonl", lines)
    for name, predictions in RUNS.items():
        rows = [
            {"id": e.id, "category": "Tea", "labels": e.attributes, "predicted": one}
            for e, one in zip(EXAMPLES, predictions, strict=True)
        ]
        Path(f"{name}.json").write_text(json.dumps([{"decoding": "x", "predictions": rows}]))

    def run(*arguments: str) -> str:
        main(arguments)
        return capsys.readouterr().out

    def refused(arguments: Sequence[str], *said: str) -> None:
        refused_by(main, arguments, capsys, *said)

    made = run("sheet", "one.json", "two.json", "--data", "gold.jsonl", "--limit", "5")
    assert "5 questions" in made
    refused(["sheet", "one.json", "two.json", "--data", "gold.jsonl"], "has a sheet already")
    answers = str(answer(tmp_path / "sheet", "a.csv", "one"))
    shown = run("sheet", "--answers", answers)
    assert "100.0%" in shown
    assert "5 questions answered, 0 not" in shown
    counted = json.loads(run("sheet", "--answers", answers, "--json"))
    assert counted["overall"]["one"]["wins"] == 5
    refused(["other", "one.json"], "two results or more")
    several = ["other", "one.json", "two.json", "--data", "gold.jsonl"]
    refused([*several, "--limit", "0"], "--limit must be at least 1")
    refused(["other", "one.json", "absent.json", "--data", "gold.jsonl"], "absent.json")
    refused(["nowhere"], "key.json cannot be read")
    (tmp_path / "bad.csv").write_text("item,answer\n1,maybe\n")
    refused(["sheet", "--answers", "bad.csv"], "bad.csv, row 2", "left, tie or right")
    (tmp_path / "bad.csv").write_text("item,answer\n99,left\n")
    refused(["sheet", "--answers", "bad.csv"], "no item '99'")


@pytest.mark.slow
@pytest.mark.skipif(find_chromium() is None, reason="no Chromium")
def test_the_page_keeps_answers(tmp_path: Path) -> None:
    write_sheet(EXAMPLES, RUNS, tmp_path, seed=3)
    browser = Browser(str(find_chromium()), tmp_path / "profile")
    try:
        browser.open(tmp_path / "index.html")
        asked = browser.run("document.querySelectorAll('section').length")
        browser.run("document.querySelector('input[value=tie]').click()")
        assert (
            browser.run("document.getElementById('count').textContent") == f"1 of {asked} answered"
        )
        time.sleep(2)  # until a busy browser has stored the answer
        browser.open(tmp_path / "index.html")
        assert browser.run("document.querySelector('input[value=tie]').checked") is True
        assert browser.run("document.querySelector('.text').textContent").startswith("Tazo <b>")
        assert not browser.trouble
        assert not [one for one in browser.requests if not one.startswith("file:")]
    finally:
        browser.close()
