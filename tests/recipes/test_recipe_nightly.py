"""`python -m recipes.nightly`: two nights, of which the second computes what has changed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import jsonl

from recipes.nightly import catalogues, distinct_texts

ROOT = Path(__file__).resolve().parents[2]


def test_the_second_night_has_other_texts_in_a_share_of_the_rows(tmp_path: Path) -> None:
    rows = [{"text": f"Sony {n % 50}"} for n in range(60)] + [{"text": " "}, {"name": "LG"}]
    texts = list(distinct_texts([Path(jsonl(tmp_path / "in.jsonl", rows))]))
    assert texts == [f"Sony {n}" for n in range(50)]
    first, second = catalogues(texts, 40, 0.1)
    assert len(set(first)) == len(set(second)) == 40
    assert sum(one != two for one, two in zip(first, second, strict=True)) == 4
    assert len({*first, *second}) == 44
    with pytest.raises(ValueError, match="55 distinct texts are needed, 50 are there"):
        catalogues(texts, 50, 0.1)


@pytest.mark.release  # loads the model twice
def test_a_night_computes_what_has_changed(tmp_path: Path) -> None:
    rows = [{"text": f"Sony {n} inch TV, black"} for n in range(22)]
    listings = jsonl(tmp_path / "in.jsonl", rows)
    command = [sys.executable, "-m", "recipes.nightly", str(listings), "--rows", "20"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, "--changed", "0.1"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    shown = re.findall(r"^\| ([\w ]+) \| ([\d,]+) \| ([\d,]+) \| [\d.]+% \|$", done.stdout, re.M)
    table = {name: (int(one.replace(",", "")), int(two)) for name, one, two in shown}
    assert table["rows computed"] == (20, 2)
    first, second = table["tokens"]
    assert 0 < second < first / 5
    assert len(table) == 4
