"""How a model is loaded: the same options wherever one is named, once, and without noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas
import pytest
import tokenizers
import typer
from command_line import SCHEMA, Run, jsonl, refused, runner, save_model, stand_in_runner
from typer.testing import CliRunner

import schemax
from schemax import AttrSchema, attr
from schemax.commands import options
from schemax.commands.cli import app
from schemax.extraction.extractor import loaded
from schemax.io.task import Task


class Small(AttrSchema):
    brand: str | None = attr("Manufacturer", k_max=2)


@pytest.mark.parametrize("verb", ["extract", "evaluate", "calibrate", "serve", "trace"])
def test_options_stand_wherever_a_model_is_named(verb: str) -> None:
    command = typer.main.get_command(app).commands[verb].command  # type: ignore[attr-defined]
    names = {option.name for option in command.params}
    assert {"adapter", "revision", "quantization", "device_map", "attn"} <= names


def test_they_reach_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_args: list[dict[str, Any]]
) -> None:
    run = stand_in_runner(tmp_path, monkeypatch)
    made = options.load_extractor

    def load(*args: Any, **loading: Any) -> Any:
        run_args.append(loading)
        return made(*args)

    monkeypatch.setattr(options, "load_extractor", load)
    jsonl(tmp_path / "in.jsonl", [{"t": "LG"}])
    assert run("extract", SCHEMA, "in.jsonl", "--revision", "v2", "--attn", "eager").exit_code == 0
    given = {"compile": False, "revision": "v2", "attn_implementation": "eager", "prompt": None}
    assert run_args == [given]
    refused(
        run("extract", SCHEMA, "in.jsonl", "--server", "http://x/v1", "--adapter", "a"),
        "up to the server",
    )


@pytest.fixture
def run_args() -> list[dict[str, Any]]:
    return []


def test_adapter_and_quantization_are_part_of_what_rows_depend_on(tmp_path: Path) -> None:
    from stand_in import StandIn

    made: Any = StandIn()
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "no/model"}')
    plain, tuned = (
        Task(Small, {}, lambda: made, "no/model", loading=loading).model_fingerprint(made)
        for loading in ({}, {"adapter": str(tmp_path), "quantization": "int8"})
    )
    assert (plain["adapter"], plain["quantization"]) == (None, None)
    assert tuned["adapter"] is not None
    assert tuned["quantization"] == "int8"


def test_frames_and_files_load_a_model_once_and_without_bars(
    tmp_path: Path, backend: tokenizers.Tokenizer, capfd: pytest.CaptureFixture[str]
) -> None:
    model = save_model(backend, tmp_path / "model")
    frame = pandas.DataFrame({"t": ["LG"]})
    schemax.extract_frame(frame, Small, model=model)
    extractor = loaded(str(model))
    schemax.extract_frame(frame, Small, model=model)
    source = jsonl(tmp_path / "in.jsonl", [{"t": "LG"}])
    schemax.extract_files(Small, source, tmp_path / "out.jsonl", model=model)
    assert loaded(str(model)) is extractor
    assert "Loading" not in capfd.readouterr().err


def test_a_model_that_is_not_there_is_one_line(
    tmp_path: Path,
    backend: tokenizers.Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    run: Run = runner(tmp_path, tmp_path, monkeypatch)
    jsonl(tmp_path / "in.jsonl", [{"t": "LG"}])
    result = run("extract", SCHEMA, "in.jsonl", "--model", "nobody/nothing")
    refused(result, "nobody/nothing is neither a folder nor in the Hub's cache", "HF_HUB_OFFLINE")
    args = ["trace", SCHEMA, "LG", "--quantization", "int9"]
    assert CliRunner().invoke(app, args).exit_code == 2
