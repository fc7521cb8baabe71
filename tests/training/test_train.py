"""`schemax train`: from annotated products to a model that reads them, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from command_line import jsonl, process, refused, save_model
from conftest import slow_but
from safetensors.torch import load_file
from transformers import TrainerCallback
from typer.testing import CliRunner

from schemax.base.trained import TrainedWith
from schemax.commands.cli import app
from schemax.compiler import TextCodec
from schemax.compiler.prompt import template_source
from schemax.config import DecodingConfig
from schemax.errors import InputError, ModelError
from schemax.evaluation.examples import read_examples
from schemax.evaluation.labelled_schemas import annotated_schemas, read_attributes
from schemax.extraction.declarations import read_schema
from schemax.extraction.extractor import Extractor
from schemax.extraction.schema import AttrSchema
from schemax.formats import get_format
from schemax.training.distillation import examples_by_predictions
from schemax.training.features import make_features
from schemax.training.models import add_lora
from schemax.training.run import TrainingJob, TrainingResult, run_training
from schemax.training.settings import TrainingSettings
from schemax.training.trainer import scorer
from schemax.training.training_examples import (
    TrainingExample,
    gold_examples,
    read_training_examples,
    split_examples,
)

Result = Any

TITLES = [
    ("Tazo Zen Tea 24 ct", {"Brand": "Tazo", "Count": "24"}),
    ("Twinings Green 20 ct", {"Brand": "Twinings", "Count": "20"}),
    ("Lipton Black 100 ct", {"Brand": "Lipton", "Count": "100"}),
    ("Numi Organic", {"Brand": "Numi"}),
    ("Rishi Chai 15 ct", {"Brand": "Rishi", "Count": "15"}),
    ("Stash Mint 18 ct", {"Brand": "Stash", "Count": "18"}),
    ("Yogi Detox 16 ct", {"Brand": "Yogi", "Count": "16"}),
    ("Assam loose leaf", {"Brand": None, "Count": None}),
]
ROWS = [
    {"id": f"tea-{place}", "category": "Tea", "text": text, "attributes": attributes}
    for place, (text, attributes) in enumerate(TITLES)
]
SHORT = "{% for d in documents %}{{ d.text }}\n{% endfor %}"


@pytest.fixture(scope="module")
def base(backend: tokenizers.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(backend, tmp_path_factory.mktemp("base"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "short.jinja").write_text(SHORT)
    jsonl(tmp_path / "train.jsonl", ROWS)
    return tmp_path


def invoke(*args: object) -> Result:
    return CliRunner().invoke(app, ["train", *map(str, args)])


def trained(data: Path, base: Path, out: str, *args: object) -> Path:
    done = invoke(
        data / "train.jsonl",
        *("--model", base, "--out", data / out, "--template", data / "short.jinja"),
        *("--device", "cpu", "--learning-rate", "5e-3", *args),
    )
    assert done.exit_code == 0, done.output
    return data / out


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.mark.slow
def test_a_folder_in_two_commands(
    data: Path, base: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """train.jsonl, test.jsonl and attributes.json in, a trained model and a report out."""
    jsonl(data / "test.jsonl", ROWS[:2])
    attributes = [{"name": "Brand", "description": "who makes it"}, {"name": "Count"}, "Origin"]
    (data / "attributes.json").write_text(json.dumps({"categories": {"Tea": attributes}}))
    out = tmp_path_factory.mktemp("tuned") / "model"
    done = invoke(data, "--model", base, "--out", out, "--steps", "2", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert "2 documents of" in done.output
    assert "dropped from training: 2 documents of " in done.output
    assert f"schemax evaluate {data} --model {out}" in done.output
    assert "held-out F1" in done.output
    card = json.loads((out / "training.json").read_text())
    assert card["settings"]["data"].keys() == {"train", "test"}
    assert card["settings"]["schemas"].endswith("attributes.json")
    own = (out / "prompt.jinja").read_text()
    assert own == template_source("verbatim"), "the default template, as it was in training"
    assert Extractor.from_pretrained(out, device="cpu").defaults.template == own
    report = CliRunner().invoke(app, ["evaluate", str(data), "--model", str(out), "--json"])
    assert report.exit_code == 0, report.output
    (run,) = json.loads(report.stdout)
    assert run["products"] == 2
    # Strictly, an attribute counts that is declared and annotated nowhere.
    assert sum(run["strict_counts"].values()) == 6
    odd = {**ROWS[0], "attributes": {"Maker": "Tazo"}}
    jsonl(data / "test.jsonl", [odd])
    refused = CliRunner().invoke(app, ["evaluate", str(data), "--model", str(out)])
    assert refused.exit_code == 2
    assert "document tea-0: the schema of 'Tea' has no attribute 'Maker'" in refused.output
    (data / "test.jsonl").unlink()
    refused = CliRunner().invoke(app, ["evaluate", str(data), "--model", str(out)])
    assert refused.exit_code == 2
    assert "is a folder without test.jsonl" in refused.output


GAPPED = ("--decoding", "isolated:layout=gapped:slots=causal")


@pytest.mark.parametrize(
    ("options", "decoding"),
    [
        ((), DecodingConfig()),
        pytest.param(
            GAPPED, DecodingConfig(layout="gapped", slots="causal"), marks=pytest.mark.slow
        ),
        pytest.param(
            ("--decoding", "autoregressive"),
            DecodingConfig(layout="autoregressive"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["branched", "gapped", "autoregressive"],
)
def test_titles_are_learnt_by_heart(
    data: Path, base: Path, options: tuple[str, ...], decoding: DecodingConfig
) -> None:
    """The whole command, and then the folder it wrote, with nothing said about the prompt."""
    out = trained(
        *(data, base, "out", "--held-out", 0, *options),
        *("--epochs", 150, "--pack", 8, "--check-every", 1000),
    )
    extractor = Extractor.from_pretrained(out, device="cpu")
    schemas = annotated_schemas(read_examples(data / "train.jsonl"))
    titles = [text for text, _ in TITLES]
    found = extractor.extract(titles, schemas["Tea"], decoding=decoding)
    read = [list(item.model_dump().values()) for item in found]
    assert read == [[row.get("Brand"), row.get("Count")] for _, row in TITLES]
    card = json.loads((out / "training.json").read_text())
    assert card["products"] == {"trained": 8, "held_out": 0}
    assert card["settings"]["data"]["train"]["file"] == "train.jsonl"
    assert card["categories"] == {"Tea": ["Brand", "Count"]}
    assert (out / "prompt.jinja").read_text() == SHORT
    written = {file.suffix for file in out.iterdir() if file.is_file()}
    assert written == {".json", ".jinja", ".safetensors", ".npz"}


class Stop(TrainerCallback):
    """Ends a run as Ctrl-C would."""

    def __init__(self, step: int) -> None:
        self._step = step

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self._step:
            raise KeyboardInterrupt


def run(
    base: Path,
    data: Path,
    out: str,
    *,
    resume: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
    **changes: Any,
) -> TrainingResult:
    extractor = Extractor.from_pretrained(base, device="cpu", template=SHORT)
    examples = read_examples(data / "train.jsonl")
    schemas = annotated_schemas(examples)
    settings = TrainingSettings(
        **{"steps": 6, "check_every": 2, "batch_tokens": 400, "pack": 2, "learning_rate": 1e-3}
        | changes
    )
    compiled = {
        name: extractor.compile(schema, decoding=settings.decoding)
        for name, schema in schemas.items()
    }
    examples = gold_examples(examples, schemas, get_format("json"))
    work = TrainingJob(
        extractor, str(base), compiled, examples, SHORT, TrainedWith(), {"data": "tea"}
    )
    return run_training(
        *(work, data / out, settings),
        tell=lambda _: None,
        device="cpu",
        resume=resume,
        keep_checkpoints=True,
        callbacks=callbacks,
    )


@pytest.mark.release
@pytest.mark.parametrize(
    "changes", slow_but([{}], [{}, {"lora": 4}, {"gradient_accumulation": 2}]), ids=str
)
def test_a_resumed_run_ends_with_the_same_weights(
    base: Path, data: Path, changes: dict[str, Any]
) -> None:
    changes = {**changes, "held_out": 0.25, "absent": 0.5}
    whole = run(base, data, "whole", **changes)
    with pytest.raises(KeyboardInterrupt):
        run(base, data, "parts", callbacks=[Stop(5)], **changes)
    assert not (data / "parts" / "model.safetensors").exists()
    parts = run(base, data, "parts", resume=True, **changes)
    assert parts.steps == whole.steps == 6
    assert parts.held_out_loss == pytest.approx(whole.held_out_loss, abs=1e-6)
    one, other = weights(data / "whole"), weights(data / "parts")
    assert one.keys() == other.keys()
    for name, weight in one.items():
        assert torch.equal(weight, other[name]), name
    start = weights(base)
    assert any(not torch.equal(weight, start[name]) for name, weight in one.items())


class Rates(TrainerCallback):
    """The learning rate that every step is taken with."""

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        self.seen[state.global_step] = given["optimizer"].param_groups[0]["lr"]


@pytest.mark.slow
@pytest.mark.parametrize("more", slow_but({4}, [1, 4]))
def test_a_finished_run_goes_on_with_the_rates_of_a_longer_one(
    base: Path, data: Path, more: int
) -> None:
    """The first step too, whose rate the finished run had taken down to 0."""
    whole, parts = Rates(), Rates()
    run(base, data, "whole", steps=6 + more, held_out=0.0, callbacks=[whole])
    run(base, data, "parts", held_out=0.0)
    before = weights(data / "parts")
    run(base, data, "parts", steps=6 + more, held_out=0.0, resume=True, callbacks=[parts])
    assert parts.seen == {step: whole.seen[step] for step in range(6, 6 + more)}
    assert all(rate > 0 for rate in parts.seen.values())
    after = weights(data / "parts")
    assert any(not torch.equal(before[name], after[name]) for name in before)


class Malicious:
    """Unpickled, it would make a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


@pytest.mark.slow
def test_a_checkpoint_cannot_run_code(base: Path, data: Path) -> None:
    run(base, data, "out", steps=2, held_out=0.0)
    proof = data / "it ran"
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth"):
        file = data / "out" / "checkpoints" / "checkpoint-2" / name
        harmless = file.read_bytes()
        torch.save(Malicious(proof), file)
        with pytest.raises(InputError, match="checkpoint-2 holds data that could run code"):
            run(base, data, "out", steps=4, held_out=0.0, resume=True)
        assert not proof.exists(), name
        torch.load(file, weights_only=False)
        proof.unlink()
        file.write_bytes(harmless)


@pytest.mark.slow
def test_an_unfinished_checkpoint_is_passed_over(base: Path, data: Path) -> None:
    run(base, data, "out", steps=4, held_out=0.0)
    folder = data / "out" / "checkpoints"
    (folder / "checkpoint-6").mkdir()
    (folder / "checkpoint-6" / "optimizer.pt").write_bytes(b"half of it")
    again = run(base, data, "out", steps=5, held_out=0.0, resume=True)
    assert [row["step"] for row in again.history] == [1, 2, 3, 4, 5]
    for path in folder.glob("*/trainer_state.json"):
        path.unlink()
    with pytest.raises(InputError, match="no complete checkpoint"):
        run(base, data, "out", steps=6, held_out=0.0, resume=True)


@pytest.mark.slow
def test_one_optimizer_is_kept(base: Path, data: Path) -> None:
    """Of the newest checkpoint; the best one, which may be older, is its weights alone."""
    run(base, data, "out", steps=6, held_out=0.25)
    found = sorted((data / "out" / "checkpoints").glob("checkpoint-*/optimizer.pt"))
    assert [path.parent.name for path in found] == ["checkpoint-6"]
    assert len(list((data / "out" / "checkpoints").glob("checkpoint-*/*.safetensors"))) <= 2


@pytest.mark.slow
def test_a_run_is_resumed_with_its_own_settings_only(base: Path, data: Path) -> None:
    run(base, data, "out", steps=2, held_out=0.0)
    with pytest.raises(InputError, match=r"different settings \(pack, seed\)"):
        run(base, data, "out", steps=2, held_out=0.0, pack=3, seed=5, resume=True)
    with pytest.raises(InputError, match="no run"):
        run(base, data, "new", resume=True)
    longer = run(base, data, "out", steps=4, held_out=0.0, resume=True)
    assert longer.steps == 4


@pytest.mark.slow
def test_accumulated_batches_are_one_large_one(base: Path, data: Path) -> None:
    """The loss is a mean over the labels of a step, however these are cut into batches."""
    one = {"held_out": 0.0, "steps": 1, "pack": 1, "check_every": 1}
    run(base, data, "large", batch_tokens=10_000, **one)
    run(base, data, "small", batch_tokens=1, gradient_accumulation=8, **one)
    run(base, data, "packed", batch_tokens=10_000, **{**one, "pack": 8})
    large = weights(data / "large")
    for name in ("small", "packed"):
        for key, weight in weights(data / name).items():
            torch.testing.assert_close(weight, large[key], rtol=1e-3, atol=2e-4)


@pytest.mark.slow
def test_lora_trains_and_merges(base: Path, data: Path) -> None:
    out = trained(
        *(data, base, "out", "--lora", 8, "--keep-adapter", "--held-out", 0.25),
        *("--epochs", 60, "--pack", 8, "--check-every", 1000),
    )
    merged = Extractor.from_pretrained(out, device="cpu").model.model
    beside = Extractor.from_pretrained(base, adapter=out / "adapter", device="cpu").model.model
    start = weights(base)
    changed = 0
    for name, weight in merged.state_dict().items():
        torch.testing.assert_close(weight, beside.state_dict()[name], rtol=1e-4, atol=1e-5)
        changed += name in start and not torch.equal(weight, start[name])
    assert changed == 2 * 7  # the linear layers of both blocks, and nothing else
    card = json.loads((out / "training.json").read_text())
    losses = [row["loss"] for row in card["history"] if "loss" in row]
    assert losses[-1] < losses[0] / 2
    assert card["merged_f1"] == card["held_out_f1"]  # in float32 nothing is rounded


def test_lora_names_the_extra_it_needs(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemax.runtime.models.loading.refusals.find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"peft.*\.\[train\]"):
        add_lora(None, TrainingSettings(lora=8), "a model")


@pytest.mark.slow
@pytest.mark.parametrize("best_by", ["loss", "f1"])
def test_early_stopping_keeps_the_best_weights(base: Path, data: Path, best_by: str) -> None:
    """A learning rate that ruins the model: the held-out loss soon only grows."""
    changes = {"learning_rate": 0.5, "held_out": 0.4, "check_every": 1, "steps": 30}
    outcome = run(base, data, "out", patience=2, best_by=best_by, **changes)
    assert outcome.steps < 30
    checks = [row[f"held_out_{best_by}"] for row in outcome.history if "held_out_loss" in row]
    best = max(checks) if best_by == "f1" else min(checks)
    assert getattr(outcome, f"held_out_{best_by}") == best
    assert best not in checks[-2:] or best == 0


@pytest.mark.slow
def test_curves(base: Path, data: Path) -> None:
    plot = data / "curves.svg"
    out = trained(
        *(data, base, "out", "--held-out", 0.25, "--steps", 4, "--check-every", 2),
        *("--plot", plot),
    )
    card = json.loads((out / "training.json").read_text())
    logged = [row for row in card["history"] if "loss" in row]
    assert [row["step"] for row in logged] == [1, 2, 3, 4]
    assert all(row["tokens_per_second"] > 0 for row in logged)
    assert logged[-1]["learning_rate"] < logged[0]["learning_rate"]
    checks = [row for row in card["history"] if "held_out_loss" in row]
    assert [row["step"] for row in checks] == [2, 4]
    assert all(0 <= row["held_out_f1"] <= 1 for row in checks)
    assert card["held_out_f1"] in [row["held_out_f1"] for row in checks]
    drawn = plot.read_text()
    assert all(title in drawn for title in ("held out loss", "F1", "tokens per second"))
    assert not (out / "checkpoints").exists()
    again = invoke(data / "train.jsonl", "--model", base, "--out", out, "--resume")
    refused(again, "it is finished, and its checkpoints are gone")


@pytest.mark.slow
def test_f1_is_of_the_weights_as_they_are(base: Path, data: Path) -> None:
    outcome = run(base, data, "out", **{"held_out": 0.25, "steps": 2})
    examples = read_examples(data / "train.jsonl")
    schemas = annotated_schemas(examples)
    extractor = Extractor.from_pretrained(data / "out", device="cpu")
    gold = gold_examples(examples, schemas, get_format("json"))
    _, held_out = split_examples(gold, 0.25, 0)
    f1 = scorer(extractor, held_out, schemas, DecodingConfig(), template=SHORT)()
    assert f1 == pytest.approx(outcome.held_out_f1)


def test_tensorboard_is_told(base: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(data / "runs"))
    trained(data, base, "out", "--steps", 2, "--report-to", "tensorboard")
    assert list((data / "runs").glob("events.*"))


def test_lora_s_settings(base: Path) -> None:
    model = Extractor.from_pretrained(base, device="cpu").model.model
    settings = TrainingSettings(
        lora=4, lora_alpha=4, lora_dropout=0.25, lora_targets=("q_proj", "v_proj")
    )
    tuned = add_lora(model, settings, "a model")
    config = tuned.peft_config["default"]
    assert (config.lora_alpha, config.lora_dropout) == (4, 0.25)
    names = {name.split(".lora_")[0] for name, p in tuned.named_parameters() if p.requires_grad}
    assert {name.rpartition(".")[2] for name in names} == {"q_proj", "v_proj"}
    other = Extractor.from_pretrained(base, device="cpu").model.model
    with pytest.raises(ModelError, match=r"a model cannot be given adapters.*nowhere"):
        add_lora(other, TrainingSettings(lora=4, lora_targets=("nowhere",)), "a model")


@pytest.mark.release
def test_two_processes_are_one_with_twice_the_batches(base: Path, data: Path) -> None:
    """Over gloo, as `accelerate launch` starts them: the same weights, but for rounding."""
    common = (
        *("-m", "schemax", "train", data / "train.jsonl", "--model", base, "--device", "cpu"),
        *("--template", data / "short.jinja", "--steps", 3, "--pack", 2, "--batch-tokens", 200),
        *("--held-out", 0.25, "--learning-rate", "1e-3"),
    )
    two = ("--multi_gpu", "--num_processes", 2, "--num_machines", 1, "--mixed_precision", "no")
    launch = ("-m", "accelerate.commands.launch", *two, "--dynamo_backend", "no", *common)
    for name, args in {
        "two": (*launch, "--out", data / "two"),
        "one": (*common, "--out", data / "one", "--gradient-accumulation", 2),
    }.items():
        done = process(*map(str, args), cwd=data)
        _, stderr = done.communicate(timeout=600)
        assert done.returncode == 0, (name, stderr.decode())
    one, other = weights(data / "one"), weights(data / "two")
    for name, weight in one.items():
        torch.testing.assert_close(weight, other[name], rtol=1e-3, atol=2e-4)
    cards = [json.loads((data / name / "training.json").read_text()) for name in ("one", "two")]
    assert [card["settings"]["devices"] for card in cards] == [1, 2]
    assert cards[0]["held_out_loss"] == pytest.approx(cards[1]["held_out_loss"], rel=1e-3)
    assert cards[0]["held_out_f1"] == cards[1]["held_out_f1"]


@pytest.mark.slow
def test_a_config_with_random_weights(base: Path, data: Path) -> None:
    out = trained(data, base, "out", "--from-scratch", base / "config.json", "--steps", 1)
    start, made = weights(base), weights(out)
    assert {name: w.shape for name, w in made.items()} == {n: w.shape for n, w in start.items()}
    name = "model.layers.0.mlp.up_proj.weight"
    assert not torch.allclose(made[name], start[name], atol=0.05)
    again = trained(data, base, "again", "--from-scratch", base / "config.json", "--steps", 1)
    assert torch.equal(weights(again)[name], made[name])


@pytest.mark.slow
def test_bfloat16(base: Path, data: Path) -> None:
    out = trained(data, base, "out", "--bf16", "--steps", 2, "--held-out", 0)
    assert {weight.dtype for weight in weights(out).values()} == {torch.bfloat16}
    Extractor.from_pretrained(out, device="cpu")


@pytest.mark.slow
def test_documents_are_held_out_of_bfloat16_too(base: Path, data: Path) -> None:
    """Two checks: what accelerate puts around the model must be there again after the first."""
    few = ("--bf16", "--steps", 2, "--check-every", 1, "--decoding", "paper")
    out = trained(data, base, "out", *few, "--held-out", 0.4)
    assert (
        len(
            [
                row
                for row in json.loads((out / "training.json").read_text())["history"]
                if "held_out_f1" in row
            ]
        )
        == 2
    )


@pytest.mark.release
def test_labels_of_teachers_and_of_the_model_itself(base: Path, data: Path) -> None:
    predictions = [
        {"id": row["id"], "index": 0, "attributes": {"brand": "Tea!", "count": None}, "errors": []}
        for row in ROWS[:3]
    ]
    predictions.append({"id": "tea-3", "index": 3, "attributes": None, "errors": []})
    path = jsonl(data / "predictions.jsonl", predictions)
    examples = read_examples(data / "train.jsonl")
    schemas = annotated_schemas(examples)
    examples = examples_by_predictions(Path(path), examples, schemas, get_format("json"))
    assert [example.name for example in examples] == ["tea-0", "tea-1", "tea-2"]
    names = dict(zip(schemas["Tea"].model_fields, ("Tea!", None), strict=True))
    assert all(example.values == names for example in examples)
    common = ("--steps", 1, "--held-out", 0)
    trained(data, base, "taught", *common, "--labels", "teacher", "--teacher", path)
    able = ("--held-out", 0, "--epochs", 80, "--decoding", "autoregressive")
    big = trained(data, base, "big", *able, "--check-every", 1000)
    trained(data, base, "distilled", *common, "--labels", "teacher", "--teacher", big)
    own = trained(data, big, "own", *common, "--labels", "self")
    card = json.loads((own / "training.json").read_text())
    assert card["settings"]["labels"] == "self"


def test_what_is_not_annotated(codec: TextCodec, base: Path) -> None:
    example = TrainingExample("x", "Tea", "Numi", {"brand": "Numi", "count": None}, frozenset())
    bare = TrainingExample("y", "Tea", "Numi", {"brand": "Numi"}, frozenset())
    unknown = TrainingExample("z", "Tea", "Numi", {"brand": "Numi"}, frozenset({"count"}))
    extractor = Extractor.from_pretrained(base, device="cpu")
    document = {"title": "Tea", "type": "object", "properties": {}}
    for name in ("brand", "count"):
        document["properties"][name] = {"type": ["string", "null"]}  # type: ignore[index]
    compiled = {"Tea": extractor.compile(AttrSchema.from_json_schema(document))}

    def chances(absent: float) -> list[tuple[float, ...]]:
        made = make_features([example, bare, unknown], compiled, extractor.model, absent)
        return [one.chances for one in made["Tea"]]

    assert chances(1.0) == [(1, 1), (1, 1), (1, 0)]
    assert chances(0.3) == [(1, 1), (1, 0.3), (1, 0)]
    assert chances(0.0) == [(1, 1), (1, 0), (1, 0)]


SHOP = """
from typing import Literal
from schemax import AttrSchema, attr

class Tea(AttrSchema):
    brand: str | None = None
    count: int | None = attr(title="Count")
    kind: Literal["green", "black"] | None = None
    notes: list[str] = attr(default_factory=list)
    origin: str = attr("Country")
"""


def typed(tmp_path: Path, *rows: dict[str, Any]) -> list[TrainingExample]:
    (tmp_path / "shop.py").write_text(SHOP)
    path = jsonl(tmp_path / "typed.jsonl", [{"category": "Tea", **row} for row in rows])
    schema = read_schema(f"{tmp_path / 'shop.py'}:Tea")
    return gold_examples(read_examples(Path(path)), {"Tea": schema}, get_format("json"))


def test_labels_become_values_of_the_schema_s_types(tmp_path: Path) -> None:
    attributes = {"brand": ["LG", None], "Count": 24, "kind": "Green", "notes": '["a", "b"]'}
    (example,) = typed(tmp_path, {"text": "x", "attributes": attributes, "description": "more"})
    output = get_format("json")
    written = {name: output.escape(value) for name, value in example.values.items()}
    assert written == {
        "brand": ' "LG"',
        "count": " 24",
        "kind": ' "green"',
        "notes": ' ["a", "b"]',
    }
    assert example.text == "text: x\ndescription: more"


@pytest.mark.parametrize("attributes", [{"count": "many"}, {"kind": "white"}, {"origin": None}])
def test_labels_that_do_not_fit_the_schema_are_not_taught(
    tmp_path: Path, attributes: dict[str, Any]
) -> None:
    (example,) = typed(tmp_path, {"text": "x", "attributes": attributes | {"brand": "LG"}})
    assert example.values == {"brand": "LG"}
    assert example.unknown == attributes.keys()


def test_labels_that_the_schema_lacks_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"document t-9.*no attribute 'colour'"):
        typed(tmp_path, {"id": "t-9", "text": "x", "attributes": {"colour": "red"}})


def test_doubled_ids_and_products_of_the_test_set(tmp_path: Path) -> None:
    doubled = jsonl(tmp_path / "train.jsonl", [*ROWS, {**ROWS[0], "text": "another"}])
    test = jsonl(tmp_path / "test.jsonl", [{**ROWS[1], "id": "t"}])
    with pytest.warns(UserWarning, match="more than once: tea-0"):
        assert len(read_training_examples(Path(doubled), None)) == 9
    path = Path(jsonl(tmp_path / "plain.jsonl", ROWS))
    with pytest.warns(UserWarning, match=r"dropped from training: 1 document of .*: tea-1$"):
        kept = read_training_examples(path, Path(test))
    assert [example.id for example in kept] == [row["id"] for row in ROWS if row["id"] != "tea-1"]
    with pytest.warns(UserWarning, match=r"kept in training: 1 document of .*: tea-1$"):
        assert len(read_training_examples(path, Path(test), keep_overlap=True)) == 8
    with pytest.raises(InputError, match="no document is left"), pytest.warns(match="dropped"):
        read_training_examples(path, path)


def test_products_too_long_for_the_model_are_left_out(base: Path, data: Path) -> None:
    extractor = Extractor.from_pretrained(base, device="cpu")
    schemas = annotated_schemas(read_examples(data / "train.jsonl"))
    compiled = {"Tea": extractor.compile(schemas["Tea"])}
    values = {"brand": "Tazo"}
    long = TrainingExample("tea-long", "Tea", "tea " * 5000, values)
    short = TrainingExample("tea-short", "Tea", "tea", values)
    with pytest.warns(UserWarning, match=r"1 left out, too long.*tea-long \(needs"):
        features = make_features([long, short], compiled, extractor.model, 1.0)
    assert [one.name for one in features["Tea"]] == ["tea-short"]
    with pytest.raises(InputError, match="no document is left"), pytest.warns(match="too long"):
        make_features([long], compiled, extractor.model, 1.0)


def test_held_out_texts_are_never_trained_on() -> None:
    examples = [TrainingExample(str(place), "Tea", f"text {place % 20}", {}) for place in range(60)]
    taught, kept_back = split_examples(examples, 0.1, 0)
    assert len(kept_back) == 6
    assert {example.text for example in taught}.isdisjoint(example.text for example in kept_back)
    assert split_examples(examples, 0.1, 0) == (taught, kept_back)
    assert split_examples(examples, 0.1, 1) != (taught, kept_back)
    assert split_examples(examples, 0.0, 0) == (examples, [])
    with pytest.raises(InputError, match="too few"):
        split_examples(examples[:1], 0.1, 0)


def test_attributes_files(tmp_path: Path) -> None:
    path = tmp_path / "attributes.json"
    entries = [{"name": "Brand", "examples": ["LG"], "train_null": 3}, "Net content"]
    path.write_text(json.dumps({"categories": {"Tea": entries}}))
    schemas = read_attributes(path)
    assert schemas is not None
    fields = schemas["Tea"].model_fields.values()
    assert [(field.title, field.examples) for field in fields] == [
        ("Brand", ["LG"]),
        ("Net content", None),
    ]
    path.write_text('{"categories": {"Tea": [3]}}')
    with pytest.raises(InputError, match="'Tea'"):
        read_attributes(path)
    path.write_text('{"type": "object"}')
    assert read_attributes(path) is None


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--labels", "teacher"], "--teacher"),
        (["--decoding", "isolated:slots=causal"], "causal"),
        (["--patience", "2", "--held-out", "0"], "held-out"),
        (["--keep-adapter"], "LoRA"),
        (["--quantization", "nf4"], "quantization requires LoRA"),
        (["--lora", "4", "--quantization", "nf4"], "nf4 needs a CUDA device"),
        (["--best-by", "f1", "--held-out", "0"], "held-out part"),
        (["--report-to", "nothing"], "nothing cannot be used"),
        (["--plot", "curves.txt"], "ends in .svg"),
        (["--epochs", "0"], "epochs"),
        (["--labels", "teacher", "--teacher", "nowhere.jsonl"], "nowhere.jsonl"),
        (["--resume"], "no run"),
    ],
)
def test_options_that_cannot_be_used(base: Path, data: Path, args: list[str], said: str) -> None:
    common = (data / "train.jsonl", "--model", base, "--out", data / "out", "--device", "cpu")
    refused(invoke(*common, *args), said)


@pytest.mark.parametrize(
    ("option", "value", "choices"),
    [("--labels", "silver", "'gold', 'teacher', 'self'"), ("--device", "cuda:3", "'cpu', 'cuda'")],
)
def test_options_with_choices(tmp_path: Path, option: str, value: str, choices: str) -> None:
    done = invoke(tmp_path / "train.jsonl", "--out", tmp_path / "out", option, value)
    assert done.exit_code == 2
    assert choices in " ".join(done.stderr.replace("│", "").split())


def test_files_that_cannot_be_used(base: Path, data: Path) -> None:
    common = ("--model", base, "--out", data / "out")
    refused(invoke(data / "nowhere.jsonl", *common), "nowhere.jsonl")
    (data / "empty.jsonl").write_text("\n")
    refused(invoke(data / "empty.jsonl", *common), "no documents")
    jsonl(data / "bare.jsonl", [{"category": "Tea", "text": "x", "attributes": {}}])
    refused(invoke(data / "bare.jsonl", *common), "nothing is annotated")
    (data / "broken.jsonl").write_text('{"category": "Tea"}\n')
    refused(invoke(data / "broken.jsonl", *common), "line 1")
    (data / "out").mkdir()
    (data / "out" / "file").write_text("")
    refused(invoke(data / "train.jsonl", *common), "--resume")


def test_settings_that_make_no_sense() -> None:
    stacked = DecodingConfig(layout="autoregressive", documents="stacked", max_retries=0)
    with pytest.raises(ValueError, match="isolated"):
        TrainingSettings(decoding=stacked)
    for changes in ({"batch_tokens": 0}, {"absent": 2.0}, {"held_out": 1.0}, {"lora": 0}):
        with pytest.raises(ValueError, match=next(iter(changes))):
            TrainingSettings(**changes)  # type: ignore[arg-type]
    settings = TrainingSettings()
    assert TrainingSettings(lora=4).peak(10**9) > settings.peak(10**9) == settings.peak(8 * 10**9)
    assert settings.peak(10**9) < settings.peak(10**8) < settings.peak(10**6) == settings.peak(10)
    assert TrainingSettings(learning_rate=0.5).peak(10) == 0.5
    # Small data are learnt for longer.
    assert [settings.num_steps(n) for n in (1, 11, 20, 100, 1000)] == [10, 100, 100, 300, 3000]
    assert TrainingSettings(epochs=2).num_steps(11) == 22
    assert TrainingSettings(epochs=2, steps=7).num_steps(11) == 7
    stacked = DecodingConfig(documents="stacked", documents_per_prompt=3)
    assert TrainingSettings(decoding=stacked).documents == 3


@pytest.mark.release
@pytest.mark.parametrize("options", [(), ("--lora", "4")], ids=str)
def test_compiled_layers_learn_the_same(data: Path, base: Path, options: tuple[str, ...]) -> None:
    given = ("--steps", "4", "--check-every", "2", "--held-out", "0.3", *options)
    plain, compiled = (
        trained(data, base, name, *given, *more)
        for name, more in (("plain", ()), ("compiled", ("--compile",)))
    )
    histories = [
        [
            row
            for row in json.loads((folder / "training.json").read_text())["history"]
            if "held_out_loss" in row
        ]
        for folder in (plain, compiled)
    ]
    assert len(histories[0]) == len(histories[1]) > 1
    for one, other in zip(*histories, strict=True):
        assert one["held_out_loss"] == pytest.approx(other["held_out_loss"], rel=1e-3)
        assert one["held_out_f1"] == other["held_out_f1"]
    for name, weight in weights(plain).items():
        torch.testing.assert_close(weights(compiled)[name], weight, rtol=1e-3, atol=1e-4)
