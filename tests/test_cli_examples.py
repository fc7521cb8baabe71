"""`--examples FILE`: annotated products that the prompt shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tokenizers
from command_line import Run, jsonl, refused, rows, runner, save_model


@pytest.fixture(scope="module")
def model(backend: tokenizers.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(backend, tmp_path_factory.mktemp("model"))


@pytest.fixture
def run(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(tmp_path, model, monkeypatch)


ROW = {"category": "Television", "text": "LG 4k", "attributes": {"Brand": "LG", "resolution": "4k"}}
OTHER = {"category": "shoe", "text": "Crocs", "attributes": {"sole": "rubber"}}


def test_a_file_of_examples(run: Run, tmp_path: Path) -> None:
    described = ROW | {"description": "smart", "attributes": {"smart": [True, "yes"]}}
    file = jsonl(tmp_path / "shots.jsonl", [OTHER, ROW, described])
    shown = run("explain", "shop.py:Small", "--examples", file)
    assert shown.exit_code == 0, shown.output
    assert '<product>\nLG 4k\n</product>\n\nJSON:\n{\n  "brand": "LG",\n' in shown.stdout
    assert '"resolution": "4K"\n}' in shown.stdout
    assert "text: LG 4k\ndescription: smart\n</product>" in shown.stdout
    assert '"smart": true,' in shown.stdout
    assert "Crocs" not in shown.stdout
    source = jsonl(tmp_path / "in.jsonl", [{"t": "Sony", "category": "television"}])
    for schema in ("shop.py:Small", "shop.py:Small,shop.py:Strict"):
        result = run("extract", schema, source, "--examples", file, "--max-errors", "1")
        assert result.exit_code == 0, result.output
        assert set(rows(result.stdout)[0]["attributes"]) == {"brand", "smart", "resolution"}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([OTHER], ["no example of category 'television'", "it has 'shoe'"]),
        ([OTHER, ROW | {"attributes": {"brnad": "LG"}}], ["document #2", "no attribute 'brnad'"]),
        ([ROW | {"attributes": {"smart": "perhaps"}}], ["document #1: smart", "boolean"]),
        ([ROW, {"text": "LG"}], ["line 2", "category, text and attributes"]),
        ([], ["contains no documents"]),
    ],
    ids=str,
)
def test_files_that_hold_no_such_examples(
    run: Run, tmp_path: Path, lines: list[Any], said: list[str]
) -> None:
    file = jsonl(tmp_path / "shots.jsonl", lines)
    source = jsonl(tmp_path / "in.jsonl", ["LG"])
    for command in (("explain", "shop.py:Small"), ("extract", "shop.py:Small", source)):
        refused(run(*command, "--examples", file), "shots.jsonl", *said)
    refused(run("explain", "shop.py:Small", "--examples", "nowhere.jsonl"), "cannot read nowhere")


def test_help_tells_of_examples(run: Run) -> None:
    for command in ("extract", "explain"):
        assert "--examples" in run(command, "--help").stdout
