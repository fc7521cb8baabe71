"""Folders of models that are damaged or hostile: one error, which says what is wrong and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import SCHEMA, jsonl, refused, runner

from schemax import Extractor, ModelError


def change(folder: Path, file: str, **settings: Any) -> None:
    path = folder / file
    written = json.loads(path.read_text("utf-8"))
    path.unlink()  # it is a link to one that others use
    path.write_text(json.dumps({**written, **settings}), "utf-8")


@pytest.mark.parametrize("number", ["x", -1, 10**6, 1.5, True, [0, "x"], [[0]], {"a": 1}])
@pytest.mark.parametrize("verb", ["extract", "explain"])
def test_ends_of_outputs_that_are_no_ids(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: Any, verb: str
) -> None:
    change(folder, "generation_config.json", eos_token_id=number)
    run = runner(tmp_path, folder, monkeypatch)
    if verb == "explain":
        refused(run("explain", SCHEMA, "--model", str(folder)), "eos_token_id is")
    else:
        products = jsonl(tmp_path / "in.jsonl", [{"id": "a", "t": "LG"}])
        refused(run("extract", SCHEMA, products), "eos_token_id")
        with pytest.raises(ModelError, match="eos_token_id"):
            Extractor.from_pretrained(folder)


def test_ids_that_a_caller_names_are_checked(folder: Path) -> None:
    loaded = Extractor.from_pretrained(folder)
    with pytest.raises(ModelError, match="eos_token_id is 1000000, which is no id"):
        Extractor(loaded.model.model, loaded.tokenizer, eos_ids=(10**6,))
