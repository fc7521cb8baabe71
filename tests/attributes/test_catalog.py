"""Ready-made schemas: what they declare, and which of them a shop's category means."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from command_line import Run, jsonl, refused, rows
from conftest import TITLES
from hypothesis import given
from hypothesis import strategies as st
from seams import replaced

from schemax import load_schemas, schema_names
from schemax.attributes.ready_made import document_of, is_task, match_of, names_of
from schemax.base.resources import resource_dir
from schemax.io.columns import columns_of
from schemax.reading.units import check_unit

PRODUCTS = [name for name in schema_names() if not is_task(name)]


def test_large_categories_have_sixteen_attributes() -> None:
    sizes = {name: len(document_of(name)["properties"]) for name in PRODUCTS}
    assert sum(size == 16 for size in sizes.values()) >= 31
    assert min(sizes.values()) >= 8


@pytest.mark.parametrize("name", schema_names())
def test_what_a_document_says(name: str) -> None:
    document = document_of(name)
    assert list(document)[:4] == ["$schema", "title", "description", "category"]
    for key, declared in document["properties"].items():
        assert "title" in declared or is_task(name), key
        if "examples" in declared:
            assert declared["examples"], key
        if "unit" in declared:
            check_unit(declared["unit"])


@pytest.mark.slow
def test_attributes_of_one_name_are_of_one_type_and_unit() -> None:
    """So that categories share a table, with one column a name."""
    units = defaultdict(set)
    for name in PRODUCTS:
        for key, declared in document_of(name)["properties"].items():
            units[key].add(declared.get("unit"))
    assert [key for key, found in units.items() if len(found) > 1 and key != "weight"] == []
    columns = columns_of(load_schemas(PRODUCTS))
    assert len(columns) == len(units)


def test_no_two_schemas_have_the_same_name() -> None:
    found = []
    for name in schema_names():
        for shown in (name, *document_of(name).get("aliases", ())):
            found += names_of([(shown, ())])
    assert len(found) == len(set(found))


@pytest.mark.parametrize(
    ("category", "schema", "how"),
    [
        ("television", "television", "name"),
        ("Electronics > TVs", "television", "other name"),
        ("Home/Furniture/Office Chairs", "office_chair", "name"),
        ("Women's Running Shoes", "shoes", "last words"),
        ("CAMERA_LENSES", "camera_lens", "name"),
        ("Toys & Games", "toy", "other name"),
        ("Shoes & Boots", "shoes", "name"),
        ("Perfume for women", "perfume", "name"),
        ("Batteries (AA)", None, None),
        ("Clothing, Shoes & Jewelry", None, None),
        ("Phone cases", None, None),
        ("", None, None),
        (" > ", None, None),
    ],
)
def test_categories_are_matched(category: str, schema: str | None, how: str | None) -> None:
    assert match_of(category) == (None if schema is None else (schema, how))


@given(st.text(max_size=60))
def test_any_name_of_a_category_is_matched_or_not(category: str) -> None:
    found = match_of(category)
    assert found is None or found[0] in schema_names()


def test_schemas_by_category_share_classes() -> None:
    found = load_schemas(["TVs", "Television", "Submarines", "tea"])
    assert list(found) == ["TVs", "Television", "tea"]
    assert found["TVs"] is found["Television"]


# On the command line


def test_the_list_of_schemas(run: Run) -> None:
    lines = run("schemas").stdout.splitlines()
    assert lines[0].split() == ["name", "category", "of", "attributes"]
    assert len(lines) == 2 + len(schema_names())
    (laptop,) = (line.split() for line in lines if line.startswith("laptop"))
    assert laptop == ["laptop", "laptop", "products", "16"]


@pytest.mark.slow
def test_auto_chooses_by_the_category_of_each_row(run: Run, tmp_path: Path) -> None:
    shelves = ["Electronics > TVs", "Teas", "Submarines", "Submarines", None]
    source = [{"id": n, "shelf": s, "t": TITLES[n]} for n, s in enumerate(shelves)]
    path = jsonl(tmp_path / "in.jsonl", source)
    result = run("extract", "auto", path, "--category", "shelf", "--max-errors", "3")
    assert result.exit_code == 0, result.output
    television, tea, *failed = rows(result.stdout)
    assert "screen_size" in television["attributes"]
    assert "tea_variety" in tea["attributes"]
    assert [row["attributes"] for row in failed] == [None, None, None]
    said = result.stderr.splitlines()
    assert said[0].split() == ["category", "schema", "by", "its", "rows"]
    assert said[2].split() == ["Submarines", "none", "-", "2"]
    assert said[3].split() == ["Electronics", ">", "TVs", "television", "other", "name", "1"]
    assert "note: 2 rows of categories without a schema will fail" in said
    known = "'Electronics > TVs', 'Teas'"
    assert f"failed: 2 times no schema for category 'Submarines'; there are {known}" in said


@pytest.mark.parametrize(
    ("records", "options", "said"),
    [
        ([{"category": "Submarines", "t": "x"}], [], "it holds 'Submarines'"),
        ([{"category": None, "t": "x"}], [], "it holds none"),
        ([{"category": "tea", "t": "x"}], ["--category", "shelf"], "no column 'shelf'"),
        ([{"category": str(n), "t": "x"} for n in range(9)], [], "more than 5 different values"),
    ],
)
def test_columns_that_hold_no_categories_are_refused(
    run: Run,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    records: list[dict[str, str]],
    options: list[str],
    said: str,
) -> None:
    replaced(monkeypatch, "categories of a column", 5)
    path = jsonl(tmp_path / "in.jsonl", records)
    refused(run("extract", "auto", path, *options), said)


def test_stdin_is_refused(run: Run) -> None:
    refused(run("extract", "auto", "-", stdin=b"{}"), "stdin")


def test_documents_are_compact() -> None:
    """They travel with the package: one property a line, and no megabytes."""
    files = list(resource_dir("schemas").glob("**/*.json"))
    assert sum(path.stat().st_size for path in files) < 400_000
    for path in files:
        text = path.read_text("utf-8")
        assert len(text.splitlines()) < 20 + len(json.loads(text)["properties"])
