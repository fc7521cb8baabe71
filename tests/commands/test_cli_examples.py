"""`--examples FILE`: annotated products that the prompt shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from command_line import Run, jsonl, refused, rows
from pydantic import create_model

from schemax.errors import InputError
from schemax.extraction.extractor import Extractor
from schemax.extraction.schema import AttrSchema
from schemax.runtime.slots.plan import plan_prompt

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


def test_none_shows_none(run: Run) -> None:
    """Not even the demonstrations of the ready-made schema of the same category."""
    usual = run("explain", "shop.py:Small").stdout
    plain = run("explain", "shop.py:Small", "--examples", "none").stdout
    # Shown as well is the document of a demonstration, for want of another, and never its output.
    assert '"brand": "Vestel"' in usual
    assert '"brand": "Vestel"' not in plain


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


ROWS = [
    ROW | {"id": "lg", "attributes": {"Brand": "LG", "resolution": "4k"}},
    ROW | {"id": "sony", "text": "Sony 4k", "attributes": {"Brand": "Sony", "colour": "black"}},
    ROW | {"id": "old", "text": "Old TV", "attributes": {"smart": "perhaps"}},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("explain", "shop.py:Small", "--examples", "labels.jsonl"),
        ("extract", "shop.py:Small", "in.jsonl", "--examples", "labels.jsonl"),
        ("evaluate", "labels.jsonl", "--schemas", "shop.py:Small"),
        ("fit", "labels.jsonl", "--schemas", "shop.py:Small"),
        ("train", "labels.jsonl", "--schemas", "shop.py:Small", "--out", "tuned", "--steps", "1"),
    ],
    ids=lambda command: command[0],
)
def test_labels_without_an_attribute(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    """Refused with their number, or left out with a note; labels of another type are named, too."""
    jsonl(tmp_path / "in.jsonl", ["LG"])
    jsonl(tmp_path / "labels.jsonl", ROWS[:2] if "--examples" in command else ROWS)
    told = "labels.jsonl: document sony: the schema of", "no attribute 'colour'", "in 1 of "
    refused(run(*command), *told, "--ignore-extra")
    done = run(*command, "--ignore-extra")
    assert "labels.jsonl and not asked for: television > colour" in done.stderr.casefold()
    if command[0] == "fit":
        assert "has 3 different documents" in done.stderr
        return
    assert done.exit_code == 0, done.output
    if command[0] in ("evaluate", "train"):
        assert "no value is right and none is taught: old: smart: " in done.stderr


def test_help_tells_of_examples(run: Run) -> None:
    for command in ("extract", "explain", "evaluate", "train", "calibrate", "trace"):
        assert "--examples" in run(command, "--help").stdout


def test_trace_reads_behind_examples(run: Run, tmp_path: Path) -> None:
    tokens = []
    for count in (1, 3):
        file = jsonl(tmp_path / "shots.jsonl", [OTHER, *[ROW] * count])
        done = run("trace", "shop.py:Small", "Sony", "--examples", file, "--json")
        tokens.append(json.loads(done.stdout)["prompt_tokens"])
    assert tokens[1] > tokens[0] + 40


def test_calibrate_reads_behind_examples(
    run: Run, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a calibration is fitted on is not shown."""
    folder = tmp_path / "own"
    copytree(model, folder)
    gold = jsonl(tmp_path / "gold.jsonl", [TEA, TEAS[0] | {"category": "Tea"}])
    file = jsonl(tmp_path / "shots.jsonl", TEAS)
    command = ("calibrate", gold, "--model", str(folder), "--examples", file, "--shots", "1")
    given: list[Any] = []

    def stream(self: Extractor, *_: Any, **options: Any) -> Any:
        given.append(options["examples"])
        raise InputError("stopped")

    monkeypatch.setattr(Extractor, "stream", stream)
    done = run(*command)
    assert "left out of the examples: 1 document" in done.stderr
    assert [text for text, _ in given[0]["Tea"]] == ["Brand1 Tea"]
    refused(run(*command[:4], "--shots", "1"), "--shots requires --examples")


# `evaluate`: demonstrations, and how many of them

TEA = {"id": "t", "category": "Tea", "text": "Tazo Zen 24 ct", "attributes": {"Brand": "Tazo"}}
SHOE = {"id": "s", "category": "Shoes", "text": "Crocs Clog", "attributes": {"Sole": "rubber"}}
TEAS = [
    {"id": f"tea-{n}", "category": "tea", "text": f"Brand{n} Tea", "attributes": {"Brand": name}}
    for n, name in enumerate(["Numi", ["Rishi", "Rishi Tea"], None])
]


def shown_prompts(
    run: Run, monkeypatch: pytest.MonkeyPatch, *args: str
) -> tuple[Any, list[dict[str, list[tuple[str, Any]]]]]:
    """What a command says, and the examples by category of every reading of documents."""
    given: list[Any] = []
    whole = Extractor.stream

    def stream(self: Extractor, products: Any, schema: Any, **options: Any) -> Any:
        given.append(options["examples"])
        return whole(self, products, schema, **options)

    monkeypatch.setattr(Extractor, "stream", stream)
    done = run(*args)
    assert done.exit_code == 0, done.output
    return done, given


@pytest.mark.slow
def test_evaluate_shows_examples_by_category(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A setting for every number; the examples change what is read, and 0 is none at all."""
    gold = jsonl(tmp_path / "gold.jsonl", [TEA, SHOE])
    leaked = TEA | {"id": "leaked", "attributes": {"Brand": "secret"}}
    file = jsonl(tmp_path / "shots.jsonl", [leaked, *TEAS, OTHER])
    done, given = shown_prompts(
        run, monkeypatch, "evaluate", gold, "--examples", file, "--shots", "0,2", "--json"
    )
    assert f"also in {gold}, left out of the examples: 1 document of {file}: leaked" in done.stderr
    assert "fewer than 2 examples of Shoes (0)" in done.stderr
    texts = [{name: [text for text, _ in some] for name, some in one.items()} for one in given]
    none: dict[str, list[str]] = {"Tea": [], "Shoes": []}
    assert texts[0] == none
    assert texts[-1] == {"Tea": ["Brand0 Tea", "Brand1 Tea"], "Shoes": []}
    assert [value.Brand for _, value in given[-1]["Tea"]] == ["Numi", "Rishi"]
    reports = json.loads(done.stdout)
    assert [(one["decoding"], one["examples"]) for one in reports] == [
        ("isolated", 0),
        ("isolated", 2),
    ]
    assert reports[1]["against"]["examples"] == 0
    done, given = shown_prompts(run, monkeypatch, "evaluate", gold, "--examples", file, "--json")
    assert json.loads(done.stdout)[0]["examples"] == 3
    done, given = shown_prompts(run, monkeypatch, "evaluate", gold, "--json")
    assert given[-1] is None
    assert "examples" not in json.loads(done.stdout)[0]
    _, given = shown_prompts(run, monkeypatch, "evaluate", gold, "--shots", "0")
    assert given[-1] == {"Tea": [], "Shoes": []}


def test_examples_of_fields_that_are_asked_for_alone(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each field is asked for with what the examples state of it."""
    row = TEA | {"attributes": {"Brand": "Tazo", "Count": "24"}}
    gold = jsonl(tmp_path / "gold.jsonl", [row])
    shot = TEAS[0] | {"attributes": {"Brand": "Numi", "Count": "18", "Origin": "Assam"}}
    file = jsonl(tmp_path / "shots.jsonl", [shot])
    done, given = shown_prompts(
        run, monkeypatch, "evaluate", gold, "--examples", file, "--decoding", "isolated+alone"
    )
    assert f"annotated in {file} and not asked for: Tea > Origin" in done.stderr
    assert given[-2:] == [
        {"Tea": [("Brand0 Tea", {"Brand": "Numi"})]},
        {"Tea": [("Brand0 Tea", {"Count": "18"})]},
    ]
    # A narrow table breaks the name of the setting between its parts.
    assert re.search(r"^isolated\+alone,.*\n1 example\b", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    [
        ([TEA], (), ["no example is left", "gold.jsonl"]),
        ([OTHER | {"category": "sock"}], (), ["no example of category 'Tea'", "it has 'sock'"]),
        ([TEAS[0]], ("--shots", "-1"), ["--shots takes numbers", "'-1'"]),
        ([TEAS[0]], ("--shots", "few"), ["--shots takes numbers", "'few'"]),
        ([TEAS[0]], ("--shots", ","), ["--shots takes numbers"]),
        ([{"text": "x"}], (), ["line 1", "category, text and attributes"]),
    ],
    ids=str,
)
def test_examples_that_evaluate_refuses(
    run: Run, tmp_path: Path, lines: list[Any], options: tuple[str, ...], said: list[str]
) -> None:
    gold = jsonl(tmp_path / "gold.jsonl", [TEA])
    file = jsonl(tmp_path / "shots.jsonl", lines)
    done = run("evaluate", gold, "--examples", file, *options)
    assert done.exit_code == 2
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    for words in said:
        assert words in error


def test_labels_that_a_declared_schema_refuses(run: Run, tmp_path: Path) -> None:
    gold = jsonl(tmp_path / "gold.jsonl", [ROW | {"attributes": {"brand": "LG"}}])
    for labels, said in (({"smart": "perhaps"}, "smart: "), ({"brnad": "LG"}, "'brnad'")):
        shot = ROW | {"text": "Sony", "id": "odd", "attributes": labels}
        file = jsonl(tmp_path / "shots.jsonl", [shot])
        command = ("evaluate", gold, "--schemas", "shop.py:Small", "--examples", file)
        refused(run(*command), "shots.jsonl: document odd", said)


def test_shots_require_examples(run: Run, tmp_path: Path) -> None:
    gold = jsonl(tmp_path / "gold.jsonl", [TEA])
    refused(run("evaluate", gold, "--shots", "0,4"), "--shots requires --examples")


@pytest.mark.slow
def test_examples_that_exceed_the_context(model: Path) -> None:
    """The first with which the prompt of an empty document does not fit is named."""
    extractor = Extractor.from_pretrained(model)
    schema = create_model("Tea", __base__=AttrSchema, brand=(str | None, None))
    shots = [(f"Tea number {place} " + "leaf " * 60, {"brand": "Numi"}) for place in range(40)]

    def length(count: int) -> int:
        compiled = extractor.compile(schema, examples=shots[:count])
        (prompt,) = compiled.encode([""])
        return plan_prompt(prompt, compiled.decoding).max_position + 1

    for least in (1, 17, 40):
        extractor.model.max_positions = length(least) - 1
        with pytest.raises(
            InputError, match=rf"Tea: examples\[{least - 1}\]: .*number {least - 1} "
        ):
            extractor.extract(["Rishi"], schema, examples=shots)
        assert extractor.extract(["Rishi"], schema, examples=shots[: least - 1], on_error="null")
    extractor.model.max_positions = length(0) - 1
    (row,) = extractor.stream(["Rishi"], schema, examples=shots)
    assert "positions" in row.errors[0].message, "not the examples' fault"


def test_examples_that_exceed_the_context_are_refused_before_anything_is_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not after hours of the settings that show fewer of them."""
    read: list[Any] = []
    whole = Extractor.stream

    def stream(self: Extractor, products: Any, schema: Any, **options: Any) -> Any:
        read.extend(products)
        return whole(self, products, schema, **options)

    monkeypatch.setattr(Extractor, "stream", stream)
    gold = jsonl(tmp_path / "gold.jsonl", [TEA])
    long = TEAS[1] | {"text": "leaf " * 6000}
    file = jsonl(tmp_path / "shots.jsonl", [TEAS[0], long])
    result = run("evaluate", gold, "--examples", file, "--shots", "0,1,2")
    assert result.exit_code == 2, result.output
    note, error = result.stderr.splitlines()
    assert note.startswith("note: no schema is named")
    assert "examples[1]" in error
    assert "context" in error
    assert not read
    assert run("evaluate", gold, "--examples", file, "--shots", "0,1").exit_code == 0
    assert read
