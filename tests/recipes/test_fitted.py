"""What `recipes.fitted` prints, without a pretrained model."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import jsonl

from recipes.fitted import main, verdict
from schemax.evaluation.scores import Interval


def test_a_difference_is_told_by_its_interval() -> None:
    assert verdict(Interval(0.01, 0.2)) == "better"
    assert verdict(Interval(0.0, 0.2)) == verdict(Interval(-0.1, 0.0)) == "equal"
    assert verdict(Interval(-0.2, -0.01)) == "worse"


@pytest.mark.slow
def test_every_category_has_a_row(
    saved_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for part, count in (("train", 10), ("test", 3)):
        rows = [
            {"category": name, "text": f"{part} {name} {n}", "attributes": {"brand": f"{part} {n}"}}
            for name in ("tea", "shoes")
            for n in range(count)
        ]
        jsonl(tmp_path / f"{part}.jsonl", rows)
    main([str(tmp_path), str(saved_model), "--titles", "2", "--seconds", "5"])
    *_, tea, shoes, _, last = capsys.readouterr().out.splitlines()
    assert tea.startswith("| tea | 0.000 | ")
    assert shoes.startswith("| shoes | 0.000 | ")
    assert last == "0 better, 2 equal, 0 worse"
