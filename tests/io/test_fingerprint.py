"""What the rows of an unfinished run depend on: whoever changes it is told so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Run, jsonl, refused, runner
from pydantic import BaseModel, create_model, field_validator

from schemax.attributes import attr
from schemax.base.calibration import FILE, Calibration, write_calibration
from schemax.extraction.prompt_file import Demonstration, PromptFile, write_prompt_file
from schemax.extraction.schema import AttrSchema
from schemax.io import checkpoint
from schemax.io.fingerprint import of_schemas

OTHER = (
    "{% for example in examples %}{{ example.text }}: {{ example.output }}{% endfor %}"
    "{{ documents[0].text }}\n"
)
SHOWN = {"category": "television", "text": "LG 4K", "attributes": {"brand": "LG"}}


@pytest.fixture
def run(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(tmp_path, folder, monkeypatch)


@pytest.fixture
def begun(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Begins a run that is interrupted when its first row is kept."""

    add = checkpoint.Checkpoint.add

    def interrupt(kept: checkpoint.Checkpoint, part: int, lines: Sequence[bytes]) -> None:
        add(kept, part, lines)
        if lines:
            raise KeyboardInterrupt

    def begin(*args: str) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(checkpoint.Checkpoint, "add", interrupt)
            assert run(*args).exit_code == 130
        assert (tmp_path / "_out.jsonl.parts" / "manifest.json").is_file()

    return begin


@pytest.mark.slow
def test_another_calibration_is_refused(
    run: Run, begun: Callable[..., None], folder: Path, tmp_path: Path
) -> None:
    source = jsonl(tmp_path / "in.jsonl", ["LG"])
    # Named, and so loaded anew for every run.
    args = ("extract", "shop.py:Small", source, "-o", "out.jsonl", "--model", str(folder))
    begun(*args)
    for changed, said in (
        (Calibration(temperature=1.5), "calibration temperature was 1.0, is 1.5"),
        (Calibration(bias=-0.25), "calibration bias was 0.0, is -0.25"),
        (Calibration(min_probability=0.5), "calibration min_probability was 0.0, is 0.5"),
    ):
        write_calibration(changed, folder)
        result = run(*args)
        refused(result, "_out.jsonl.parts", said, "--overwrite")
        assert "model" not in result.stderr
    write_calibration(Calibration(), folder)  # says what there was without it
    assert run(*args).exit_code == 0
    begun(*args)
    (folder / FILE).unlink()
    assert run(*args).exit_code == 0


def test_other_examples_are_refused(run: Run, begun: Callable[..., None], tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", ["LG"])
    args = ("extract", "shop.py:Small", source, "-o", "out.jsonl")
    file = jsonl(tmp_path / "shots.jsonl", [SHOWN])
    begun(*args, "--examples", file)
    refused(run(*args), "examples changed")
    jsonl(tmp_path / "shots.jsonl", [SHOWN | {"text": "LG 720p"}])
    refused(run(*args, "--examples", file), "examples changed")
    moved = jsonl(tmp_path / "moved.jsonl", [SHOWN])
    assert run(*args, "--examples", moved).exit_code == 0


def test_another_prompt_file_is_refused(
    run: Run, begun: Callable[..., None], tmp_path: Path
) -> None:
    source, file = jsonl(tmp_path / "in.jsonl", ["LG"]), tmp_path / "prompt.json"
    args = ("extract", "shop.py:Small", source, "-o", "out.jsonl")
    prompt = PromptFile(demonstrations=(Demonstration("Television", "LG 4K", {"brand": "LG"}),))
    write_prompt_file(prompt, file)
    begun(*args, "--prompt", str(file))
    refused(run(*args), "prompt changed")
    write_prompt_file(replace(prompt, template=OTHER), file)
    refused(run(*args, "--prompt", str(file)), "template changed")
    write_prompt_file(replace(prompt, calibration=Calibration(bias=0.5)), file)
    refused(run(*args, "--prompt", str(file)), "calibration bias was 0.0, is 0.5")
    moved = tmp_path / "moved.json"
    write_prompt_file(prompt, moved)
    assert run(*args, "--prompt", str(moved)).exit_code == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("constrain=nothing", "decoding constrain was"),
        ("min_probability=0.5", "decoding min_probability was None, is 0.5"),
        ("temperature=0.5", "decoding temperature was 0.0, is 0.5"),
        ("max_retries=0", "decoding max_retries was 1, is 0"),
    ],
)
def test_another_decoding_is_refused(
    run: Run, begun: Callable[..., None], tmp_path: Path, change: str, said: str
) -> None:
    source = jsonl(tmp_path / "in.jsonl", ["LG"])
    args = ("extract", "shop.py:Small", source, "-o", "out.jsonl")
    begun(*args)
    refused(run(*args, "--decoding", f"isolated:{change}"), said)


class Line(BaseModel):
    name: str


class Checked(BaseModel):
    name: str

    @field_validator("name")
    @classmethod
    def upper(cls, name: str) -> str:
        return name.upper()


def made(item: type[BaseModel] = Line, **settings: bool) -> type[BaseModel]:
    fields: dict[str, Any] = {"notes": (list[str], attr(**settings)), "lines": (list[item], ...)}
    return create_model("Receipt", __base__=AttrSchema, **fields)


def test_lists_are_a_part_of_the_schema() -> None:
    Checked.__name__ = Checked.__qualname__ = "Line"  # all that differs is a validator
    schemas = [made(), made(long=True), made(unique=True), made(Checked)]
    digests = [of_schemas(schema)["schema"] for schema in schemas]
    assert len(set(digests)) == len(digests)
    assert of_schemas(made()) == of_schemas(made())
