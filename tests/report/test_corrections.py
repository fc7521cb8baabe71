"""Corrections in a report: by the type of a field, and read with the schema that they bring."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from chromium import Browser, find_chromium
from report_page import Page
from typer.testing import CliRunner

from schemax import Extraction, FieldResult
from schemax.attributes import attr, compile_attributes
from schemax.commands.cli import app
from schemax.errors import InputError
from schemax.evaluation.datasets import Dataset
from schemax.evaluation.examples import read_examples
from schemax.evaluation.labelled_schemas import annotated_schemas
from schemax.extraction.prompt_file import read_prompt_file
from schemax.extraction.schema import AttrSchema

PROGRAM = find_chromium()


class Shop(AttrSchema, category="shop item"):
    """A field of every type."""

    name: str | None = None
    count: int | None = None
    weight: float | None = attr(unit="oz")
    vegan: bool | None = None
    size: Literal["S", "M", "L"] | None = None
    best_before: date | None = None
    sold: datetime | None = None
    colors: list[str] | None = None
    doses: list[int] | None = None


def items() -> list[Extraction[Any]]:
    value = Shop(name="Tea", count=2, size="M", colors=["red"])
    fields = {name: FieldResult(None, getattr(value, name)) for name in Shop.model_fields}
    return [Extraction(value, 0, "one", (), fields, texts={"text": "Tea, 2 pieces, M, red"})]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    if PROGRAM is None:
        pytest.skip("no Chromium")
    folder = tmp_path_factory.mktemp("corrections")
    try:
        browser = Browser(PROGRAM, folder / "profile")
    except (OSError, AssertionError):
        pytest.skip("Chromium does not start")
    try:
        yield Page(browser, folder / "report.html")
    finally:
        browser.close()


def corrected(page: Page, field: str, text: str) -> Any:
    """What a reader gets who chooses a field and writes this into its editor: the value, or what
    is said of the text."""
    number = [*Shop.model_fields].index(field)
    script = f"""(() => {{
        rows[0].labels = undefined;
        grid.moveTo(0, grid.columns.findIndex((column) => column.by === {number}));
        panel.document();
        const editor = document.querySelector(".correct :is(input, select, textarea)");
        const problem = document.querySelector(".correct .problem");
        editor.value = {json.dumps(text)};
        editor.dispatchEvent(new Event("change"));
        const made = rows[0].labels?.get({number});
        return JSON.stringify(made === undefined ? {{ said: problem.textContent }} : {{ made }});
    }})()"""
    found = json.loads(page.browser.run(script))
    return found["made"] if "made" in found else str(found["said"])


def test_editors_are_of_the_field_s_type(page: Page) -> None:
    page.open(items())
    cases = {
        "name": [("Green tea", "Green tea"), ("", None)],
        "count": [("12", 12), ("two hundred", "two hundred: expected a whole number")],
        "weight": [
            ("1.50", 1.5),
            ("1,5", "1,5: expected a number, with a point before decimals"),
        ],
        "vegan": [("true", True), ("false", False), ("", None)],
        "size": [("L", "L"), ("", None)],
        "best_before": [("2024-06-09", "2024-06-09")],
        "sold": [
            ("2024-06-09T12:00", "2024-06-09T12:00"),
            ("soon", "soon: expected a date and time such as 2024-06-09T12:00"),
        ],
        "colors": [("red\n dark blue \n", ["red", "dark blue"])],
        "doses": [("1\n2", [1, 2]), ("1\nx", "x: expected a whole number")],
    }
    for field, some in cases.items():
        for text, expected in some:
            assert corrected(page, field, text) == expected, (field, text)
    # A choice offers what the field takes, and no more.
    corrected(page, "vegan", "maybe")
    options = page.texts(".correct option")
    assert options == ["null", "true", "false"]
    corrected(page, "size", "")
    assert page.texts(".correct option") == ["null", "S", "M", "L"]
    corrected(page, "weight", "3")
    assert page.text(".correct .unit") == "oz"
    page.browser.run("unsaved = false")
    assert page.browser.trouble == []


def test_exported_values_have_their_types(page: Page, tmp_path: Path) -> None:
    page.open(items())
    names = [*Shop.model_fields]
    for name, value in (("count", 3), ("colors", ["blue", "green"]), ("vegan", False)):
        page.browser.run(f"label(rows[0], {names.index(name)}, {json.dumps(value)})")
    (row,) = map(json.loads, page.browser.run("rowsAsLines()").splitlines())
    assert row["attributes"]["count"] == 3
    assert row["attributes"]["colors"] == ["blue", "green"]
    assert row["attributes"]["vegan"] is False
    path = tmp_path / "annotated.jsonl"
    path.write_text(page.browser.run("JSON.stringify(annotated(rows[0]))"))
    (example,) = read_examples(path)
    assert example.attributes["count"] == "3"
    assert example.attributes["colors"] == '["blue","green"]'
    (schema,) = annotated_schemas([example]).values()
    kinds = [(a.name, a.kind, a.is_list, a.unit) for a in compile_attributes(schema)]
    assert kinds == [(a.name, a.kind, a.is_list, a.unit) for a in compile_attributes(Shop)]
    page.browser.run("unsaved = false")


def test_what_a_reader_has_corrected_is_fitted(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows as the page exports them, with nothing in between."""
    texts = [f"Tea of {n + 2} pieces, {'vegan' if n % 2 else 'with milk'}" for n in range(8)]
    (item,) = items()
    page.open([replace(item, index=n, texts={"text": text}) for n, text in enumerate(texts)])
    names = [*Shop.model_fields]
    for n in range(len(texts)):
        for name, value in (("count", n + 2), ("vegan", bool(n % 2)), ("size", None)):
            script = f"label(rows[{n}], {names.index(name)}, {json.dumps(value)})"
            page.browser.run(script)
    exported = page.browser.run(
        "labelled().map((row) => JSON.stringify(annotated(row))).join('\\n')"
    )
    page.browser.run("unsaved = false")
    (tmp_path / "corrected.jsonl").write_text(exported)
    monkeypatch.chdir(tmp_path)
    command = ["fit", "corrected.jsonl", "--model", "embedded", "--time", "20s"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "2 documents held out" in done.stdout
    prompt = read_prompt_file(tmp_path / "prompt.json")
    for shown in prompt.demonstrations:
        place = texts.index(shown.text)
        assert shown.attributes["count"] == str(place + 2)
        assert shown.attributes["size"] is None
        assert shown.attributes["colors"] == ["red"]


class Pack(AttrSchema, category="pack"):
    """Fields that texts would not equal."""

    price: float | None = None
    vegan: bool | None = None


ROWS = [
    ("Green tea bags, 12.50 dollars, vegan", {"price": "12.5", "vegan": "true"}),
    ("Black tea, 3 dollars, not vegan", {"price": "3", "vegan": "false"}),
    ("Mint tea, $4.00", {"price": "4", "vegan": None}),
]


def labels(path: Path, **more: Any) -> Path:
    rows = [
        {"category": "pack", "text": text, "attributes": attributes, **more}
        for text, attributes in ROWS
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


@pytest.mark.slow
def test_labels_are_evaluated_by_the_schema_that_they_bring(tmp_path: Path) -> None:
    document = tmp_path / "pack.json"
    document.write_text(json.dumps(Pack.json_schema()))
    bare = labels(tmp_path / "bare.jsonl")
    brought = labels(tmp_path / "brought.jsonl", schema=Pack.json_schema())
    found, said = [], []
    for arguments in ([brought], [bare, "--schemas", document], [bare]):
        done = CliRunner().invoke(app, ["evaluate", *map(str, arguments), "--json"])
        assert done.exit_code == 0, done.output
        found.append(json.loads(done.stdout)[0]["counts"])
        aloud = CliRunner().invoke(app, ["evaluate", *map(str, arguments)])
        said.append("all fields of pack are read as texts" in aloud.stderr)
    assert found[0] == found[1] != found[2]
    assert said == [False, False, True]


def test_two_schemas_of_a_category_are_refused(tmp_path: Path) -> None:
    path = labels(tmp_path / "two.jsonl", schema=Pack.json_schema())
    row = {"category": "pack", "text": "x", "attributes": {}, "schema": Shop.json_schema()}
    with path.open("a") as file:
        file.write(json.dumps(row))
    with pytest.raises(InputError, match="bring 2 different schemas along; name the right one"):
        annotated_schemas(read_examples(path))


def test_labels_are_trained_on_and_fitted_to_by_the_schema_that_they_bring(tmp_path: Path) -> None:
    examples = read_examples(labels(tmp_path / "brought.jsonl", schema=Pack.json_schema()))
    data = Dataset(tmp_path / "brought.jsonl", None, None)
    of_training = data.declared_schemas(examples)["pack"]
    of_fitting = data.schemas_for(examples, [])["pack"]  # of calibrate and evaluate, too
    for schema in (of_training, of_fitting):
        assert [a.kind for a in compile_attributes(schema)] == ["number", "boolean"]
    named = tmp_path / "other.json"
    named.write_text(json.dumps({"categories": {"pack": ["price", "vegan"]}}))
    data = replace(data, schemas=str(named))
    for schema in (data.declared_schemas(examples)["pack"], data.schemas_for(examples, [])["pack"]):
        assert [a.kind for a in compile_attributes(schema)] == ["string", "string"]
