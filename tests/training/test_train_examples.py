"""`schemax train` behind examples: prompts that show documents, which are then not trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from command_line import jsonl, refused, rows, save_model
from typer.testing import CliRunner

from schemax.commands.cli import app
from schemax.evaluation.examples import read_examples
from schemax.extraction.extractor import Extractor
from schemax.training import fine_tuning
from schemax.training.run import TrainingJob

TEA: list[dict[str, Any]] = [
    {"id": f"tea-{n}", "category": "Tea", "text": text, "attributes": attributes}
    for n, (text, attributes) in enumerate(
        [
            ("Tazo Zen Tea 24 ct", {"Brand": ["Tazo", "Tazo Tea"], "Count": "24"}),
            ("Twinings Green 20 ct", {"Brand": "Twinings", "Count": "20"}),
            ("Lipton Black 100 ct", {"Brand": "Lipton", "Count": "100"}),
            ("Numi Organic", {"Brand": "Numi", "Count": None}),
            ("Rishi Chai 15 ct", {"Brand": "Rishi", "Count": "15"}),
        ]
    )
]
SHOES: list[dict[str, Any]] = [
    {"id": f"shoe-{n}", "category": "Shoes", "text": text, "attributes": {"Brand": brand}}
    for n, (text, brand) in enumerate([("Crocs Clog", "Crocs"), ("Vans Sneaker", "Vans")])
]


@pytest.fixture(scope="module")
def base(backend: tokenizers.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(backend, tmp_path_factory.mktemp("base"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    jsonl(tmp_path / "train.jsonl", [*TEA, *SHOES])
    return tmp_path


def train(data: Path, base: Path, *args: object) -> Any:
    options = ("--model", base, "--out", data / "out", "--device", "cpu", "--held-out", "0")
    command = ["train", data / "train.jsonl", *options, "--steps", "1", *args]
    return CliRunner().invoke(app, list(map(str, command)))


class Stopped(Exception):
    """What a run that is not to be trained ends with."""


def planned(
    monkeypatch: pytest.MonkeyPatch, data: Path, base: Path, *args: object
) -> tuple[TrainingJob, str]:
    """What would be trained, and what was said."""
    jobs: list[TrainingJob] = []

    def keep(work: TrainingJob, *_: Any, **__: Any) -> Any:
        jobs.append(work)
        raise Stopped

    monkeypatch.setattr(fine_tuning, "run_training", keep)
    done = train(data, base, *args)
    assert isinstance(done.exception, Stopped), done.output
    return jobs[0], done.stderr


@pytest.mark.slow
def test_a_model_trained_behind_examples(data: Path, base: Path) -> None:
    """The first of TRAIN stand in the prompts, are dropped, and lie beside the weights."""
    done = train(data, base, "--shots", "1")
    assert done.exit_code == 0, done.output
    out = data / "out"
    assert "shown as examples, dropped from training: 2 documents of " in done.output
    assert "train.jsonl: tea-0, shoe-0" in done.output
    assert f"--model {out} --examples {out / 'examples.jsonl'}" in done.output
    assert rows((out / "examples.jsonl").read_text()) == [TEA[0], SHOES[0]]
    card = json.loads((out / "training.json").read_text())
    assert card["products"]["trained"] == 5
    assert card["settings"]["examples"] == {"shown": {"Tea": ["tea-0"], "Shoes": ["shoe-0"]}}
    test = jsonl(data / "test.jsonl", [TEA[1]])
    evaluated = ("evaluate", test, "--model", str(out))
    with_them = CliRunner().invoke(app, [*evaluated, "--examples", str(out / "examples.jsonl")])
    without = CliRunner().invoke(app, list(evaluated))
    assert with_them.exit_code == without.exit_code == 0, with_them.output
    said = "was trained behind examples, which --examples "
    assert said in without.stderr
    assert said not in with_them.stderr


def examples_of_streams(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The examples that every stream is given from now on."""
    given: list[Any] = []
    whole = Extractor.stream

    def stream(self: Extractor, *args: Any, **options: Any) -> Any:
        given.append(options["examples"])
        return whole(self, *args, **options)

    monkeypatch.setattr(Extractor, "stream", stream)
    return given


@pytest.mark.slow
def test_held_out_f1_is_of_prompts_with_examples(
    data: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = examples_of_streams(monkeypatch)
    done = train(data, base, "--shots", "1", "--held-out", "0.4")
    assert done.exit_code == 0, done.output
    assert "held-out F1" in done.stderr
    assert [[text for text, _ in one["Tea"]] for one in given] == [["Tazo Zen Tea 24 ct"]]


def test_prompts_show_examples_of_the_first_documents(
    data: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, said = planned(monkeypatch, data, base, "--shots", "1")
    tea, shoes = (job.compiled[name].prompt.instruction for name in ("Tea", "Shoes"))
    assert 'Tazo Zen Tea 24 ct\n</product>\n\nJSON:\n{\n  "Brand": "Tazo",\n' in tea
    assert "Twinings" not in tea
    assert "Crocs Clog" in shoes
    assert [one.name for one in job.examples] == ["tea-1", "tea-2", "tea-3", "tea-4", "shoe-1"]
    given = {name: [text for text, _ in some] for name, some in job.options["examples"].items()}
    assert given == {"Tea": ["Tazo Zen Tea 24 ct"], "Shoes": ["Crocs Clog"]}, "for the held-out F1"
    assert "dropped from training" in said
    plain, said = planned(monkeypatch, data, base)
    assert plain.options["examples"] == ()
    assert len(plain.examples) == 7
    assert "Tazo" not in plain.compiled["Tea"].prompt.instruction


@pytest.mark.slow
def test_examples_of_a_file(data: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the test set are left out; those that are trained on are dropped there."""
    test = jsonl(data / "test.jsonl", [TEA[3]])
    shots = [TEA[3], TEA[2], {**TEA[0], "text": "Stash Mint 18 ct", "id": "new"}]
    file = jsonl(data / "shots.jsonl", shots)
    job, said = planned(monkeypatch, data, base, "--examples", file, "--test", test)
    prompt = job.compiled["Tea"].prompt.instruction
    assert prompt.index("Lipton Black") < prompt.index("Stash Mint")
    assert "Numi" not in prompt
    assert "Crocs" not in job.compiled["Shoes"].prompt.instruction
    assert f"also in {test}, left out of the examples: 1 document of {file}: tea-3" in said
    assert [one.name for one in job.examples] == ["tea-0", "tea-1", "tea-4", "shoe-0", "shoe-1"]
    assert job.card["examples"]["file"] == "shots.jsonl"
    job, said = planned(monkeypatch, data, base, "--examples", file, "--shots", "1")
    assert "Numi" in job.compiled["Tea"].prompt.instruction
    assert "Lipton" not in job.compiled["Tea"].prompt.instruction
    assert "fewer than 1 example of Shoes (0)" in said
    for none in (("--examples", file, "--shots", "0"), ("--examples", "none")):
        job, _ = planned(monkeypatch, data, base, *none)
        assert job.options["examples"] == ()


def test_labels_of_the_model_itself_are_read_behind_examples(
    data: Path, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = examples_of_streams(monkeypatch)
    labels = ("--labels", "self", "--teacher-decoding", "isolated")
    planned(monkeypatch, data, base, "--shots", "1", *labels)
    ((tea, shoe),) = (one.values() for one in given)
    assert [tea[0][0], shoe[0][0]] == ["Tazo Zen Tea 24 ct", "Crocs Clog"]


def test_examples_that_leave_nothing_to_train_on(data: Path, base: Path) -> None:
    done = train(data, base, "--shots", "2")
    assert done.exit_code == 2
    assert "all documents of 'Shoes' in " in done.stderr
    assert "give fewer --shots" in done.stderr
    file = jsonl(data / "odd.jsonl", [{**TEA[0], "category": "Sock"}])
    refused(train(data, base, "--examples", file), "no example of category 'Tea', 'Shoes'")
    odd = jsonl(data / "odd.jsonl", [{**TEA[0], "attributes": {"Maker": "Tazo"}}])
    (data / "attributes.json").write_text(
        json.dumps({"categories": {"Tea": ["Brand", "Count"], "Shoes": ["Brand"]}})
    )
    schemas = ("--schemas", data / "attributes.json")
    refused(train(data, base, "--examples", odd, *schemas), "document tea-0", "'Maker'")


@pytest.mark.slow
def test_a_run_is_resumed_behind_the_same_examples(data: Path, base: Path) -> None:
    kept = ("--keep-checkpoints", "--shots")
    assert train(data, base, *kept, "1").exit_code == 0
    done = train(data, base, "--keep-checkpoints", "--resume", "--steps", "2")
    assert done.exit_code == 2
    assert "had different settings (examples)" in done.stderr


@pytest.mark.slow
def test_what_is_written_is_read_again(data: Path, base: Path) -> None:
    """Labels of every kind, in the same order."""
    labels = {"Brand": None, "Count": ["1", "one"]}
    jsonl(data / "train.jsonl", [{**TEA[0], "description": "mild", "attributes": labels}, *TEA[1:]])
    assert train(data, base, "--shots", "1").exit_code == 0
    (written,) = read_examples(data / "out" / "examples.jsonl")
    assert written == read_examples(data / "train.jsonl")[0]
