"""The commands of `python -m reproduce`, the sample of Amazon Reviews, and the tables."""

from __future__ import annotations

import gzip
import importlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import jsonl, rows
from typer.testing import CliRunner

import reproduce
from benchmarks.__main__ import app as benchmarks
from benchmarks.rivals import ALL
from reproduce.__main__ import command_of, main, resumed
from reproduce.amazon import Sizes, write
from reproduce.ids import FORMATS
from reproduce.places import places, stacked_in
from reproduce.sample import prompts_of, sample, turn
from reproduce.scales import LAPTOP, SCALES, with_model
from reproduce.shrink import shrink
from reproduce.tables import (
    ablations,
    distillation,
    figure4,
    independence,
    layouts,
    parts,
    table1,
    table3,
    table4,
)
from reproduce.targets import DATASETS, LAYOUTS, TARGETS, Step
from schemax.commands.cli import app
from schemax.config import resolve_decoding
from schemax.errors import InputError
from schemax.evaluation.benchmark.compare import check_engine_names
from schemax.evaluation.examples import Example, read_examples
from schemax.evaluation.runs import SavedRun
from schemax.formats import DocumentKey


@pytest.mark.parametrize("model", [None, "some/Model_1B"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("target", TARGETS)
def test_every_command_is_one_that_is_taken(
    scale: str, target: str, model: str | None, tmp_path: Path
) -> None:
    """By the command line's own parser, with values that it leaves for later."""
    group: Any = typer.main.get_command(app)
    rivals: Any = typer.main.get_command(benchmarks)
    sizes = SCALES[scale] if model is None else with_model(SCALES[scale], model)
    steps = list(TARGETS[target](sizes, tmp_path))
    assert steps
    if model is not None and target != "data":
        asked = [word for step in steps for word in step.arguments]
        assert model in asked
        assert not any("layers-" in word for word in asked)
        assert not any("Model_1B" in step.makes.name for step in steps)  # `_` separates names
    for step in {step.makes: step for step in steps}.values():
        assert command_of(step)[-1] == step.arguments[-1]
        name, *arguments = step.arguments
        if name in ("reproduce.dataset", "reproduce.sample", "reproduce.shrink"):
            module = f"{name}.__main__" if name == "reproduce.dataset" else name
            importlib.import_module(module).parser().parse_args(arguments)
            continue
        if name == "reproduce.ids":  # whose arguments are those of schemax
            name, *arguments = arguments
        if name == "benchmarks":  # whose rivals are not installed
            name, *arguments = arguments
            given = rivals.commands[name].make_context(name, arguments).params
            check_engine_names(given["engines"].split(","), ALL)
            continue
        given = group.commands[name].make_context(name, arguments).params
        for decoding in (given.get("decoding") or "isolated").split(","):
            resolve_decoding(decoding.removesuffix("+alone"))
        if template := given.get("template"):
            assert Path(template).is_file()


@pytest.mark.parametrize("target", [name for name in TARGETS if name not in ("data", "models")])
def test_targets_fetch_only_data_that_they_read(target: str, tmp_path: Path) -> None:
    steps = [*TARGETS[target](LAPTOP, tmp_path)]
    for name in DATASETS:
        is_fetched = any(step.makes.parent == tmp_path / "published" / name for step in steps)
        read = str(tmp_path / "data" / name)
        assert is_fetched == any(
            step.arguments[0] in ("evaluate", "reproduce.ids") and read in "\n".join(step.arguments)
            for step in steps
        )


def test_a_step_that_is_done_is_not_run_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is published is here already, made by hand; only the samples are drawn."""
    for name in ("oa-mine", "ae-110k"):
        folder = tmp_path / "published" / name
        folder.mkdir(parents=True)
        for file in ("dataset.json", "attributes.json", "train.jsonl"):
            (folder / file).write_text("{}\n")
        jsonl(folder / "test.jsonl", [{"n": n} for n in range(1640)])
    main(["data", "--out", str(tmp_path)])
    few = rows((tmp_path / "data" / "oa-mine" / "test.jsonl").read_text())
    assert [row["n"] for row in few] == [n * 1640 // 60 for n in range(60)]
    # Of each command, the command and the time that it took, unless what it makes was here.
    assert capfd.readouterr().out.count("\n") == 4 + 2
    (tmp_path / "data" / "oa-mine" / "test.jsonl").write_text("mine")
    main(["data", "--out", str(tmp_path)])
    assert (tmp_path / "data" / "oa-mine" / "test.jsonl").read_text() == "mine"
    main(["table4", "--out", str(tmp_path), "--dry-run"])
    commands = capfd.readouterr().out
    assert "schemax train" in commands
    assert "--judge" not in commands  # a laptop has none of its own
    main(["table4", "--out", str(tmp_path), "--dry-run", "--judge", "some/model"])
    assert "--judge some/model --judge-form product" in capfd.readouterr().out


def test_a_sample_takes_all_where_there_are_few(tmp_path: Path) -> None:
    (tmp_path / "attributes.json").write_text("{}")
    for split in ("train", "test"):
        jsonl(tmp_path / f"{split}.jsonl", [1, 2, 3])
    sample(tmp_path, tmp_path / "out", {"train": None, "test": 9})
    assert (tmp_path / "out" / "test.jsonl").read_text() == "1\n2\n3\n"
    drawn = [tmp_path / name for name in ("drawn", "again", "other")]
    for folder, seed in zip(drawn, (0, 0, 2), strict=True):
        sample(tmp_path, folder, {"test": 1}, seed)
    one, same, another = ((folder / "test.jsonl").read_text() for folder in drawn)
    assert one == same != another


def test_documents_of_a_prompt_take_turns(tmp_path: Path) -> None:
    categories = ["Tea", "Tea", "Tea", "Shoes", "Tea"]
    jsonl(tmp_path / "test.jsonl", [{"n": n, "category": c} for n, c in enumerate(categories)])
    turn(tmp_path, 3, 1)
    turned = rows((tmp_path / "test.jsonl").read_text())
    assert [row["n"] for row in turned] == [1, 2, 0, 3, 4]


def test_documents_are_named_in_three_more_ways() -> None:
    of = DocumentKey("2")
    keys = [made.key((of, "Color"), (of, "Brand")) for made in FORMATS]
    assert keys == [',\n  "2. Color":', ',\n    "Color":', ',\n  "Color":']
    opened = [made.key((DocumentKey("3"), "Brand"), (of, "Color")) for made in FORMATS]
    assert opened == [',\n  "3. Brand":', '\n  },\n  "three": {\n    "Brand":', ',\n  "Brand":']
    assert [made.key(("Brand",), None) for made in FORMATS] == ['  "Brand":'] * 3


def metadata(folder: Path) -> list[Path]:
    """Rows as Amazon Reviews 2023 has them, all invented."""
    folder.mkdir()
    files = []
    for name in ("Pet_Supplies", "Appliances", "Gift_Cards"):
        lines = [
            {
                "parent_asin": f"{name}-{n}",
                "title": f"{name} {n} ",
                "description": ["Fits all."] if n % 2 else [],
                "features": ["Steel", ""] if n % 4 else [],
                "details": {"Brand": "X"},
            }
            for n in range(40)
        ]
        path = folder / f"meta_{name}.jsonl.gz"
        with gzip.open(path, "wt") as handle:
            handle.write("".join(json.dumps(line) + "\n" for line in lines))
        files.append(path)
    return files


def test_the_sample_of_amazon_reviews(tmp_path: Path) -> None:
    files = metadata(tmp_path / "raw")
    attributes = tmp_path / "attributes.json"
    attributes.write_text(
        json.dumps({"categories": {"Pet Supplies": ["Size"], "Appliances": ["Color", "Volts"]}})
    )
    sizes = Sizes(pool=40, train=20, test=8)
    written = write(files, tmp_path / "out", sizes, attributes, seed=0)
    assert written == {"train": 20, "test": 8}
    train, test = (read_examples(tmp_path / "out" / f"{s}.jsonl") for s in ("train", "test"))
    ids = {one.id for one in (*train, *test)}
    assert len(ids) == 28
    assert {one.category for one in (*train, *test)} == {"Pet Supplies", "Appliances"}
    # Of every category as many are in the pool; products without more than a title are in none.
    assert all(one.description and one.text == one.text.strip() for one in train)
    assert not any(str(one.id).endswith("-0") for one in train)
    write(files, tmp_path / "again", sizes, attributes, seed=0)
    for name in ("train.jsonl", "attributes.json"):
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "again" / name).read_bytes()
    write(files, tmp_path / "other", sizes, attributes, seed=1)
    assert {one.id for one in read_examples(tmp_path / "other" / "test.jsonl")} != {
        one.id for one in test
    }


def test_samples_that_cannot_be_drawn(tmp_path: Path) -> None:
    files = metadata(tmp_path / "raw")
    with pytest.raises(InputError, match="too few to draw 28"):
        write(files, tmp_path / "out", Sizes(pool=20, train=20, test=8), None, 0)
    many = tmp_path / "attributes.json"
    many.write_text(json.dumps({"categories": {"Appliances": [str(n) for n in range(17)]}}))
    with pytest.raises(InputError, match="'Appliances' has 17 attributes"):
        write(files, tmp_path / "out", Sizes(40, 20, 8), many, 0)
    (tmp_path / "meta_X.jsonl").write_text("{}\n[]\n")
    with pytest.raises(InputError, match="line 2"):
        write([tmp_path / "meta_X.jsonl"], tmp_path / "out", Sizes(40, 20, 8), None, 0)


def test_a_smaller_model_is_the_first_layers(saved_model: Path, tmp_path: Path) -> None:
    shrink(saved_model, tmp_path / "small", 1)
    config = json.loads((tmp_path / "small" / "config.json").read_text())
    assert config["num_hidden_layers"] == 1
    assert (tmp_path / "small" / "tokenizer.json").is_file()


def test_a_share_of_the_layers(saved_model: Path, tmp_path: Path) -> None:
    shrink(saved_model, tmp_path / "small", share=0.5)
    whole, small = (
        json.loads((folder / "config.json").read_text())["num_hidden_layers"]
        for folder in (saved_model, tmp_path / "small")
    )
    assert small == round(whole / 2)


def test_a_training_that_broke_off_goes_on(tmp_path: Path) -> None:
    step = Step(("train", "data"), tmp_path / "tuned" / "training.json")
    assert resumed(step) == step
    saved = tmp_path / "tuned" / "checkpoints" / "checkpoint-30"
    saved.mkdir(parents=True)
    assert resumed(step) == step
    assert not (tmp_path / "tuned").exists()  # nothing there to go on from
    saved.mkdir(parents=True)
    (saved / "trainer_state.json").write_text("{}")
    assert resumed(step).arguments == ("train", "data", "--resume")
    assert resumed(Step(("evaluate", "data"), step.makes)).arguments == ("evaluate", "data")


def begun(out: Path) -> Path:
    """What the targets of data would have fetched, made by hand."""
    for name in ("oa-mine", "ae-110k"):
        folder = out / "published" / name
        folder.mkdir(parents=True)
        for split in ("train", "test"):
            teas = [
                {"category": "Tea", "text": f"Tazo {tea} Tea", "attributes": {"Brand": "Tazo"}}
                for tea in ("Zen", "Calm", "Awake", split)
            ]
            jsonl(folder / f"{split}.jsonl", teas)
        attributes = {"categories": {"Tea": [{"name": "Brand"}]}}
        (folder / "attributes.json").write_text(json.dumps(attributes))
        (folder / "dataset.json").write_text("{}")
    return out


QUICK = replace(
    LAPTOP,
    steps=1,
    pretrained=("--learning-rate", "1e-6", "--batch-tokens", "600"),
    test=2,
    train_rows=4,
)


@pytest.mark.release
def test_layouts_of_a_pretrained_model(
    saved_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From end to end, with a tiny random model and one step of training."""
    monkeypatch.setattr("reproduce.__main__.SCALES", {"laptop": QUICK})
    kept = {name: LAYOUTS[name] for name in ("autoregressive", "paper-6")}
    monkeypatch.setattr("reproduce.targets.LAYOUTS", kept)
    out = begun(tmp_path / saved_model.name.replace("_", "-"))
    main(["layouts", "--out", str(tmp_path), "--model", str(saved_model)])
    head, _, *table = layouts(out / "layouts").splitlines()
    assert all(head.count("|") == row.count("|") for row in table)
    # What was trained key by key is decoded in all layouts; weights and adapters.
    assert len(table) == 2 * (2 * len(kept) - 1)


@pytest.mark.release
def test_distillation_of_a_pretrained_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded model, since a random one has no answers that can be learnt."""
    monkeypatch.setattr("reproduce.__main__.SCALES", {"laptop": QUICK})
    out = begun(tmp_path / "embedded")
    model = Path(reproduce.__file__).parents[1] / "schemax" / "weights" / "embedded"
    main(["distillation", "--out", str(tmp_path), "--model", str(model)])
    head, _, *table = distillation(out / "distillation").splitlines()
    assert all(head.count("|") == row.count("|") for row in table)
    assert len(table) == 3


@pytest.mark.slow
def test_tables_of_what_evaluate_wrote(saved_model: Path, tmp_path: Path) -> None:
    brands = {"Brand": "Tazo", "Size": "24 ct"}
    data = [{"category": "Tea", "text": f"Tazo {n}, 24 ct", "attributes": brands} for n in range(3)]
    jsonl(tmp_path / "test.jsonl", data)
    gold = str(tmp_path / "test.jsonl")
    settings = "autoregressive,isolated,isolated:layout=gapped,paper:documents_per_prompt=2"
    arguments = ("--model", str(saved_model), "--json", "--details", "--price-per-hour", "1")
    done = CliRunner().invoke(app, ["evaluate", gold, *arguments, "--decoding", settings])
    assert done.exit_code == 0, done.output
    results = tmp_path / "results"
    results.mkdir()
    (results / "oa-mine_Qwen3-8B_paper.json").write_text(done.stdout)
    head, _, row = table1(results).splitlines()
    assert head.count("|") == row.count("|")
    assert "| 0.878 | 0.069 |" in row
    without, gaps, by_itself = independence(results).splitlines()[2:]
    assert "asked alone | 6 |" in by_itself  # the last setting stands for that
    assert "without earlier values | 6 |" in without
    assert "with gaps | 6 |" in gaps
    (results / "oa-mine_Qwen3-8B_autoregressive.json").write_text(done.stdout)
    first, second = table4(results).splitlines()[2:]
    assert "| autoregressive | " in first
    assert "|  |  | " in first  # nobody judged
    assert first.endswith("| 1.0 | 0.874 | 0.77 |")
    assert second.endswith("| 0.881 | 6.28 |")
    (tmp_path / "data" / "oa-mine_parts").mkdir(parents=True)
    (tmp_path / "test.jsonl").rename(tmp_path / "data" / "oa-mine_parts" / "test.jsonl")
    *_, alone, two = (row.split(" | ") for row in parts(results).splitlines()[2:])
    assert [len(row[3].split()) for row in (alone, two)] == [1, 2]  # places in a prompt


@pytest.mark.slow
def test_tables_of_what_bench_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.compare.GRID_DOCUMENTS", (1, 2))
    monkeypatch.setattr("benchmarks.compare.GRID_BATCHES", (2,))
    sizes = ("--documents", "3", "--document-tokens", "20", "--attributes", "2", "--repeats", "1")
    engines = ("--engines", "generate,paper-1", "--generate-batches", "1", "--sweep")
    measured = ("--json", str(tmp_path / "figure4.json"))
    compared = ("compare", "--shape", "qwen3-tiny", "--device", "cpu", "--quiet", *sizes, *engines)
    done = CliRunner().invoke(benchmarks, [*compared, *measured])
    assert done.exit_code == 0, done.output
    shown = figure4(tmp_path)
    assert "| paper J=2 B=2 |" in shown
    assert "times `generate`; the paper's: 7.55." in shown
    (tmp_path / "figure4.json").rename(tmp_path / "hpd.json")
    assert table3(tmp_path).count("| 10.78 |") == 1
    (tmp_path / "hpd.json").rename(tmp_path / "attributes_16.json")
    shutil.copy(tmp_path / "attributes_16.json", tmp_path / "attributes_4.json")
    runs = [row.split(" | ")[0] for row in ablations(tmp_path).splitlines()[2:]]
    assert runs == ["| attributes 4"] * 2 + ["| attributes 16"] * 2


def test_wrong_values_are_traced_to_their_document() -> None:
    texts = ["Tazo Zen", "Lipton Gold", "Twinings Earl", "Crocs Clog"]
    categories = ["Tea", "Tea", "Tea", "Shoes"]
    examples = [
        Example(category, text, {"Brand": text.split()[0]})
        for category, text in zip(categories, texts, strict=True)
    ]
    assert prompts_of(categories, 2) == [[0, 1], [2], [3]]
    found = [{"Brand": "Tazo"}, {"Brand": "Zen"}, {"Brand": "Earl"}, {"Brand": "Nike"}]
    run = SavedRun("paper:documents_per_prompt=2", examples, found)
    shares, words = places(run, examples)
    assert shares == [1 / 3, 0]
    assert words == {"a neighbour's": 1, "its own": 1, "of neither": 1}
    assert [stacked_in(name) for name in ("paper", "isolated", run.name)] == [6, 1, 2]
