"""`schemax evaluate`, on annotated products and on broken ones."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from shutil import copytree
from typing import Any, Literal

import pytest
from command_line import jsonl, refused, save_model
from pydantic import BaseModel, create_model
from tokenizers import Tokenizer
from typer.testing import CliRunner

from schemax.attributes import attr, compile_attributes, settings_of
from schemax.base.resources import resource_dir
from schemax.base.trained import TrainedWith, write_trained
from schemax.commands.cli import app
from schemax.errors import InputError
from schemax.evaluation.examples import (
    Example,
    Label,
    accepted,
    canonical_value,
    duplicated_ids,
    overlap,
    read_examples,
    row_ids,
    shown_record,
)
from schemax.evaluation.labelled_schemas import annotated_schemas, parts_of
from schemax.evaluation.scores import labelled_texts, score_predictions
from schemax.extraction.extractor import Extractor
from schemax.extraction.schema import AttrSchema

ROWS: list[dict[str, Any]] = [
    {"id": "1", "category": "Tea", "text": "Tazo Zen 24 ct", "attributes": {"Brand": "Tazo"}},
    {"id": "2", "category": "Tea", "text": "Twinings", "attributes": {"Net content": ["20", 20.5]}},
    {"id": "3", "category": "Shoes", "text": "Crocs Clog", "attributes": {"Brand": None}},
]
TEXTS = ("isolated", "paper", "autoregressive")


@pytest.fixture(scope="module")
def folder(backend: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(backend, tmp_path_factory.mktemp("model"))


@pytest.fixture
def gold(tmp_path: Path) -> str:
    return jsonl(tmp_path / "gold.jsonl", ROWS)


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["evaluate", *arguments])


def figures(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def read(tmp_path: Path, *rows: Any) -> list[Example]:
    jsonl(tmp_path / "read.jsonl", rows)
    return read_examples(tmp_path / "read.jsonl")


# Reading


def test_labels_of_every_kind(tmp_path: Path) -> None:
    row = (
        '{"id": 7, "category": "Tea", "text": "Zen", "description": "24 bags", "price": [1], '
        '"attributes": {"a": "x", "b": null, "c": ["y", 2, "y"], "d": 1.50, "e": true, "f": ["z"], '
        '"g": ["w", null], "h": [null, 3], "i": [null]}}'
    )
    (tmp_path / "gold.jsonl").write_text(f"\n{row}\n\n")
    (example,) = read_examples(tmp_path / "gold.jsonl")
    labels: dict[str, Label] = {"a": "x", "b": None, "c": ("y", "2"), "d": "1.50", "e": "true"}
    labels |= {"f": "z", "g": ("w", None), "h": (None, "3"), "i": None}
    assert example == Example("Tea", "Zen", labels, "24 bags", "7")
    assert [type(example.attributes[name]) for name in "ad"] == [str, str]
    assert [canonical_value(labels[name]) for name in "abcde"] == ["x", None, "y", "1.50", "true"]
    assert [canonical_value(labels[name]) for name in "fghi"] == ["z", "w", None, None]
    assert accepted(labels["c"]) == ("y", "2")
    assert accepted(None) == (None,)
    record = {"category": "Tea", "text": "Zen", "description": "24 bags"}
    assert shown_record(example) == record
    assert "description" not in shown_record(Example("Tea", "Zen", {}))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"attributes": {"Brand": [["Tazo"]]}}, "'Brand': expected a value, got a list"),
        ({"attributes": {"Brand": []}}, "'Brand': an empty list"),
        ({"attributes": {"Brand": float("nan")}}, "NaN"),
        ({"attributes": ["Brand"]}, "attributes: expected an object, got a list"),
        ({"attributes": None}, "attributes: expected an object, got nothing"),
        ({"category": 3}, "category: expected text, got a number"),
        ({"text": None}, "text: expected text, got nothing"),
        ({"description": 4}, "description: expected text, got a number"),
        ({"id": True}, "id: expected text or a number, got a boolean"),
    ],
)
def test_rows_that_are_not_annotated_products(tmp_path: Path, changed: Any, said: str) -> None:
    with pytest.raises(InputError, match=r"read\.jsonl, line 2: ") as error:
        read(tmp_path, ROWS[0], ROWS[1] | changed)
    assert said in str(error.value)


def test_broken_lines_are_named(tmp_path: Path) -> None:
    data = tmp_path / "gold.jsonl"
    for line in (b'{"text": 3}', b"[]", b"{", b"\xe9"):
        data.write_bytes(json.dumps(ROWS[0]).encode() + b"\n" + line + b"\n")
        with pytest.raises(InputError, match=r"line 2.*needs category"):
            read_examples(data)
        refused(run(str(data)), "gold.jsonl, line 2")


def test_a_file_without_products(tmp_path: Path) -> None:
    data = tmp_path / "gold.jsonl"
    data.write_text("\n \n")
    refused(run(str(data)), "gold.jsonl contains no documents")


def test_names_duplicates_and_overlap(tmp_path: Path) -> None:
    nameless = {key: value for key, value in ROWS[2].items() if key != "id"}
    examples = read(tmp_path, ROWS[0], ROWS[1], nameless, ROWS[0] | {"text": "other"}, nameless)
    assert row_ids(examples) == ("1", "2", "#3", "1", "#5")
    assert duplicated_ids(examples) == ("1",)
    assert overlap(examples[:1], examples) == ("1",)
    assert overlap(examples[2:3], examples) == ("#3", "#5")
    assert overlap([], examples) == ()


def test_schemas_hold_every_annotated_attribute(gold: str) -> None:
    schemas = annotated_schemas(read_examples(Path(gold)))
    assert [f.title for f in schemas["Tea"].model_fields.values()] == ["Brand", "Net content"]


# The command


def test_typed_predictions_are_compared_as_texts() -> None:
    class Kind(Enum):
        TEA = "tea"

    class Box(AttrSchema):
        kind: Kind | None
        count: int | None = attr(title="Count")
        organic: bool | None
        weight: float | None
        notes: list[str]

    labels = {"kind": "tea", "Count": "20", "organic": "true", "weight": "1.5", "notes": None}
    example = Example("Box", "text", labels)
    predicted = {"kind": Kind.TEA, "count": 20, "organic": True, "weight": 1.5, "notes": ["ä", "b"]}
    (found,) = labelled_texts([example], [predicted], {"Box": Box})
    assert found == {**labels, "notes": '["ä", "b"]'}


@pytest.mark.parametrize(
    ("annotation", "predicted", "label", "outcome"),
    [
        (float, 55.0, "55", "vc"),
        (float, 1299.0, "1,299.00", "vc"),
        (Decimal, Decimal("1.50"), ("2", "1.5"), "vc"),
        (float, 55.5, "55", "vw"),
        (float, 55.0, "none", "nv"),
        (int, 2, "two", "vc"),
        (bool, True, "yes", "vc"),
        (bool, True, "TRUE", "vc"),
        (bool, False, "yes", "vw"),
        (bool, False, "none", "nv"),
        (date, date(2021, 3, 3), "March 3, 2021", "vc"),
        (date, date(2021, 3, 3), "2021-03-04", "vw"),
        (str, "55.0", "55", "vw"),
        (str, "True", "true", "vw"),
        (Literal["2", "2.0"], "2.0", "2", "vw"),
        (float, None, "55", "vn"),
    ],
)
def test_typed_predictions_are_right_by_value(
    annotation: Any, predicted: Any, label: Any, outcome: str
) -> None:
    schema = create_model("Box", __base__=AttrSchema, size=(annotation | None, None))
    example = Example("Box", "text", {"size": label})
    found = labelled_texts([example], [{"size": predicted}], {"Box": schema})
    (pair,) = score_predictions([example], found).pairs
    assert pair.outcome == outcome


@pytest.mark.slow
def test_every_field_by_itself(folder: Path, gold: str) -> None:
    """A prompt of one field each; what a product costs is the sum over its fields."""
    settings = "autoregressive,autoregressive+alone,isolated+alone"
    arguments = ("--model", str(folder), "--decoding", settings, "--details")
    together, alone, branches = figures(gold, *arguments)
    assert alone["decoding"] == "autoregressive+alone"
    for found in (together, alone, branches):
        assert [set(row["predicted"]) for row in found["predictions"]] == [
            {"Brand", "Net content"},
            {"Brand", "Net content"},
            {"Brand"},
        ]
    fields = [sum(one["finish_reasons"].values()) for one in (together, alone, branches)]
    assert fields == [5, 5, 5]
    # One field of one product is the same prompt either way.
    shoes = [one["predictions"][2]["predicted"] for one in (together, alone)]
    assert shoes[0] == shoes[1]


def test_a_field_by_itself_keeps_what_was_declared() -> None:
    class Nested(BaseModel):
        width: float | None = None

    class Box(AttrSchema, category="crate", format="yaml"):
        count: int = attr("how many", title="Count", ge=1)
        size: Nested | None = None

    first, second = parts_of({"crate": Box})
    assert settings_of(first["crate"]) == settings_of(Box)
    whole = compile_attributes(Box)
    assert compile_attributes(first["crate"]) + compile_attributes(second["crate"]) == whole
    assert parts_of({"a": Box, "b": Nested})[1].keys() == {"a"}


@pytest.mark.slow
def test_all_settings_in_one_run(folder: Path, gold: str) -> None:
    command = [gold, "--model", str(folder), "--decoding", ",".join(TEXTS)]
    reports = figures(*command, "--details")
    assert [report["decoding"] for report in reports] == list(TEXTS)
    for report in reports:
        assert report["products"] == 3
        assert report["passes_per_product"] >= 1
        assert set(report["f1_by_category"]) == {"Tea", "Shoes"}
        assert set(report["by_attribute"]["Tea"]) == {"Brand", "Net content"}
        assert sum(report["counts"].values()) == 3
        assert sum(report["strict_counts"].values()) == 5
        assert sum(report["finish_reasons"].values()) == 5
        written = report["decoding"].startswith("autoregressive")
        assert report["legal_mass"] is None if written else 0 < report["legal_mass"] <= 1
        low, high = report["f1_interval"]
        assert 0 <= low <= report["f1"] <= high <= 1
        assert [row["id"] for row in report["predictions"]] == ["1", "2", "3"]
        assert report["predictions"][1]["labels"] == {"Net content": ["20", "20.5"]}
        assert set(report["predictions"][1]["predicted"]) == {"Brand", "Net content"}
    assert "against" not in reports[0]
    assert all(report["against"]["decoding"] == "isolated" for report in reports[1:])
    shown = run(*command, "--by", "attribute")
    assert shown.exit_code == 0, shown.output
    assert "3 documents; Qwen3ForCausalLM" in shown.stdout
    for words in (*TEXTS, "strict F1", "Attributes, paper", "Net content", "NN", "McNemar p"):
        assert words in shown.stdout


@pytest.mark.release
def test_the_embedded_model_end_to_end(tmp_path: Path) -> None:
    rows = [
        {"id": "t", "category": "Tea", "text": "Twinings Green Tea, 20 Count"},
        {"id": "s", "category": "Shoes", "text": "Crocs Unisex Clog, Navy"},
    ]
    labels = [{"Brand": "Twinings", "Item form": None}, {"Brand": ["Crocs", "Crocs Inc."]}]
    made = [row | {"attributes": own} for row, own in zip(rows, labels, strict=True)]
    gold, embedded = jsonl(tmp_path / "gold.jsonl", made), str(resource_dir("embedded"))
    judged = ("--judge", embedded, "--judge-form", "both")
    (report,) = figures(gold, "--model", embedded, *judged, "--details")
    counted = report["counts"]
    predicted = {row["id"]: row["predicted"] for row in report["predictions"]}
    right = (predicted["t"]["Brand"] == "Twinings") + (predicted["s"]["Brand"] == "Crocs")
    assert counted["vc"] == right
    assert counted["vc"] > 0, "the embedded model knows neither of two brands"
    assert report["judge"]["model"] == embedded
    verdicts = [v for row in report["predictions"] for v in row["verdicts"].values()]
    assert len(verdicts) == sum(report["judge"]["verdicts"].values()) == 3
    assert report["judge"]["verdicts"]["unparseable"] == verdicts.count(None)
    assert report["judge"]["agreement"]["pairs"] == 3 - verdicts.count(None)
    at_once = [v for row in report["predictions"] for v in row["verdicts_by_product"].values()]
    assert len(at_once) == sum(report["judge_by_product"]["verdicts"].values()) == 3
    shown = run(gold, "--model", embedded, *judged, "--limit", "1")
    assert "LLM-F1" in shown.stdout
    assert "unparseable" in shown.stdout
    assert "a product" in shown.stdout


@pytest.mark.slow
def test_ids_that_occur_twice_are_reported(folder: Path, tmp_path: Path) -> None:
    gold = jsonl(tmp_path / "gold.jsonl", [ROWS[0], ROWS[1] | {"id": "1"}, ROWS[2]])
    done = run(gold, "--model", str(folder), "--json")
    assert done.exit_code == 0
    assert "several documents have the same id: 1\n" in done.stderr
    assert len(json.loads(done.stdout)) == 1
    assert "same id" not in run(gold, "--model", str(folder), "--limit", "1").stderr


def test_names_are_no_markup(folder: Path, tmp_path: Path) -> None:
    rows = [{"category": c, "text": "x", "attributes": {"[bold]": "y"}} for c in ("[red]", "b")]
    done = run(jsonl(tmp_path / "g.jsonl", rows), "--model", str(folder), "--by", "attribute")
    assert "[red]" in done.stdout
    assert "[bold]" in done.stdout


# Saved results


def saved(path: Path, *predicted: dict[str, str | None], **changes: Any) -> str:
    labels: list[Any] = [{"Brand": "Tazo"}, {"Brand": ["Twinings", "TWG"]}, {"Brand": None}]
    rows = [
        {"id": str(place), "category": "Tea", "labels": own, "predicted": found}
        for place, (own, found) in enumerate(zip(labels, predicted, strict=True))
    ]
    path.write_text(json.dumps([{"decoding": "isolated", "predictions": rows} | changes]))
    return str(path)


def test_two_saved_results(tmp_path: Path) -> None:
    first = saved(tmp_path / "a.json", {"Brand": "x"}, {"Brand": None}, {"Brand": None})
    second = saved(tmp_path / "b.json", {"Brand": "Tazo"}, {"Brand": "TWG"}, {"Brand": None})
    found = figures("--compare", first, second)
    assert found["first"] == {"file": first, "decoding": "isolated"}
    assert found["differing_products"] == ["0", "1"]
    assert (found["differing_pairs"], found["pairs"]) == (2, 3)
    assert found["protocol"]["f1"] == [0, 1]
    assert found["protocol"]["right_only_in_second"] == 2
    assert found["protocol"]["mcnemar_p"] == 0.5
    shown = run("--compare", first, second)
    assert "2 of 3 pairs differ, in 2 of 3 documents" in shown.stdout.replace("\n", " ")
    assert "documents: 0, 1" in shown.stdout


@pytest.mark.slow
def test_what_was_saved_compares_as_in_the_run(folder: Path, gold: str, tmp_path: Path) -> None:
    model = ("--model", str(folder), "--details")
    both = figures(gold, *model, "--decoding", "isolated,paper")
    for name, report in zip("ab", both, strict=True):
        (tmp_path / f"{name}.json").write_text(json.dumps([report]))
    found = figures("--compare", str(tmp_path / "a.json"), str(tmp_path / "b.json"))
    in_run = both[1]["against"]
    assert {key: found[key] for key in in_run if key != "decoding"} == {
        key: value for key, value in in_run.items() if key != "decoding"
    }


def test_null_among_accepted_values(folder: Path, tmp_path: Path) -> None:
    """Both are right, in a run and in what was saved of it; the first says what the label is."""
    rows = [
        {"category": "Tea", "text": "Tazo", "attributes": {"Brand": label}}
        for label in (["x", None], [None, "x"])
    ]
    (report,) = figures(jsonl(tmp_path / "g.jsonl", rows), "--model", str(folder), "--details")
    saved_rows = report["predictions"]
    assert [row["labels"]["Brand"] for row in saved_rows] == [["x", None], [None, "x"]]
    files = []
    for name, value in (("null", None), ("x", "x"), ("y", "y")):
        for row in saved_rows:
            row["predicted"]["Brand"] = value
        (tmp_path / name).write_text(json.dumps([report]))
        files.append(str(tmp_path / name))
    both_right = figures("--compare", files[0], files[1])["protocol"]
    assert (both_right["right_only_in_first"], both_right["right_only_in_second"]) == (0, 0)
    assert both_right["f1"] == [0, 1]
    wrong = figures("--compare", files[1], files[2])["protocol"]
    assert (wrong["right_only_in_first"], wrong["f1"]) == (2, [1, 0])


def test_results_that_cannot_be_compared(tmp_path: Path, gold: str) -> None:
    none: dict[str, str | None] = {"Brand": None}
    good = saved(tmp_path / "good.json", none, none, none)
    others = {
        "no.json": ("{}", "no list of settings"),
        "text.json": ("x", "not a result"),
        "plain.json": ('[{"decoding": "paper"}]', "--details"),
        "odd.json": ('[{"decoding": "a", "predictions": ["x"]}]', "not a result"),
        "two.json": (
            '[{"decoding": "a", "predictions": []}, {"decoding": "b", "predictions": []}]',
            "2 settings (a, b)",
        ),
        "short.json": ('[{"decoding": "a", "predictions": []}]', "0 documents"),
    }
    for name, (text, said) in others.items():
        (tmp_path / name).write_text(text)
        refused(run("--compare", good, str(tmp_path / name)), name, said)
    number: Any = {"Brand": 4}
    refused(run("--compare", good, saved(tmp_path / "n.json", none, none, number)), "document 2")
    wider = saved(tmp_path / "w.json", none, none, none | {"Size": None})
    refused(run("--compare", good, wider), "only one has Size")
    refused(run("--compare", good, str(tmp_path / "absent.json")), "absent.json")
    refused(run(gold, "--compare", good, good), "not both")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "INPUT is missing"),
        (("gold.jsonl", "--details"), "--details requires --json"),
        (("gold.jsonl", "--decoding", "fast"), "fast"),
    ],
)
def test_usage(arguments: tuple[str, ...], said: str) -> None:
    refused(run(*arguments), said)


@pytest.mark.slow
def test_what_a_thousand_documents_cost_stands_beside_f1(folder: Path, gold: str) -> None:
    priced = (gold, "--model", str(folder), "--limit", "1", "--price-per-hour", "30.13")
    (report,) = figures(*priced)
    hours = report["seconds"] / report["products"] / 3600
    assert report["dollars_per_1000"] == pytest.approx(1000 * 30.13 * hours)
    shown = run(*priced).stdout
    assert "$ per" in shown
    assert "$ per" not in run(*priced[:-2]).stdout
    assert figures(*priced[:-2])[0]["dollars_per_1000"] is None


# The example values of a data set's attributes


VALUES: dict[str, Any] = {
    "categories": {
        "Tea": [{"name": "Brand", "description": "who makes it", "examples": ["Zealong"]}]
    }
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A folder with example values beside its documents."""
    jsonl(tmp_path / "test.jsonl", [ROWS[0]])
    (tmp_path / "attributes.json").write_text(json.dumps(VALUES))
    return tmp_path


def prompt_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[str, str]:
    """The instruction that documents are read behind, and what is said on stderr."""
    found: list[str] = []
    whole = Extractor.extractions

    def extractions(self: Extractor, *given: Any, **options: Any) -> Any:
        made = whole(self, *given, **options)
        found.extend(one.prompt.instruction for one in made.compiled.values())
        return made

    with monkeypatch.context() as patched:
        patched.setattr(Extractor, "extractions", extractions)
        done = run(*arguments)
    assert done.exit_code == 0, done.output
    assert len(set(found)) == 1
    return found[0], done.stderr


@pytest.mark.slow
def test_example_values_are_shown_to_trained_models_alone(
    folder: Path, shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others copy the values of a data set's attributes.json into their answers."""
    plain, said = prompt_of(monkeypatch, str(shop), "--model", str(folder))
    assert "who makes it" in plain
    assert "Zealong" not in plain
    assert "attributes.json are not shown to a model that schemax did not train" in said
    for options, shows in (("--schema-examples", True), ("--no-schema-examples", False)):
        shown, said = prompt_of(monkeypatch, str(shop), "--model", str(folder), options)
        assert ("Zealong" in shown) == shows
        assert "are not shown" not in said
    tuned = tmp_path / "tuned"
    copytree(folder, tuned)
    write_trained(TrainedWith("json"), tuned)
    shown, said = prompt_of(monkeypatch, str(shop), "--model", str(tuned))
    assert "Zealong" in shown
    assert "are not shown" not in said
    shown, _ = prompt_of(monkeypatch, str(shop), "--model", str(tuned), "--no-schema-examples")
    assert "Zealong" not in shown


def test_examples_of_a_declaration_are_shown_as_extract_shows_them(
    folder: Path, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = {"title": "Tea", "type": "object", "properties": {}}
    declared["properties"] = {"Brand": {"type": ["string", "null"], "examples": ["Zealong"]}}
    (shop / "tea.json").write_text(json.dumps(declared))
    command = (str(shop), "--model", str(folder), "--schemas", str(shop / "tea.json"))
    shown, said = prompt_of(monkeypatch, *command)
    assert "Zealong" in shown
    assert "are not shown" not in said
    refused(run(*command, "--no-schema-examples"), "tea.json declares its examples")
