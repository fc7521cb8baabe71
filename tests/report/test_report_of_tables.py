"""Reports of finished tables: all rows, what they were made with, and labels made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import pytest
from chromium import Browser, find_chromium
from command_line import SCHEMA, Run, jsonl, refused, set_part_rows, stand_in_runner
from report_data import data_of
from report_page import Page

from schemax.attributes import compile_attributes
from schemax.errors import InputError
from schemax.evaluation.examples import read_examples
from schemax.evaluation.labelled_schemas import annotated_schemas

PROGRAM = find_chromium()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    set_part_rows(8, monkeypatch)
    return stand_in_runner(tmp_path, monkeypatch)


def made(tmp_path: Path, count: int = 20) -> str:
    texts = [f"<b>Brand{n}</b> true 4K{' hard' * (n % 5 == 3)}" for n in range(count)]
    return jsonl(tmp_path / "in.jsonl", [{"id": f"r{n % 19}", "t": t} for n, t in enumerate(texts)])


@pytest.mark.parametrize(
    ("name", "details"),
    [("out.csv", False), ("out.parquet", True), ("out.jsonl", True), ("out.jsonl", False)],
)
def test_a_table_tells_all_rows(run: Run, tmp_path: Path, name: str, details: bool) -> None:
    more = ("--details",) if details else ()
    run("extract", SCHEMA, made(tmp_path), "--text", "t", "-o", name, *more)
    assert run("report", name, "--price-per-hour", "2").exit_code == 0
    data = data_of((tmp_path / f"{name}.html").read_text())
    assert [row["i"] for row in data["rows"]] == list(range(20))
    assert data["fields"] == ["brand", "smart", "resolution"]
    assert data["layouts"][0]["name"] == "television"
    row = data["rows"][1]
    assert row["t"] == [["t", "<b>Brand1</b> true 4K"]]
    assert (row["c"][0]["v"], row["c"][0]["s"]) == ("Brand1", [[3, 9, 0]])
    assert data["rows"][3]["e"] == [[None, "too hard", None]]
    overview = data["overview"]
    assert (overview["failed"], overview["failures"]) == (4, [["too hard", 4]])
    assert overview["duplicates"] == [1, ["r0"]]
    assert [one["stated"] for one in overview["fields"]] == [16, 16, 16]
    facts = dict(overview["facts"])
    assert facts["Input"].endswith("in.jsonl")
    assert "at 2 an hour; " in facts["Cost"]
    assert "html strip" in facts["Settings"]


def test_a_changed_input_gives_a_page_without_texts(run: Run, tmp_path: Path) -> None:
    run("extract", SCHEMA, made(tmp_path), "--text", "t", "-o", "out.csv")
    jsonl(tmp_path / "in.jsonl", [{"t": "x"}])
    assert run("report", "out.csv", "-o", "page.html").exit_code == 0
    data = data_of((tmp_path / "page.html").read_text())
    assert "t" not in data["rows"][1]
    assert dict(data["overview"]["facts"])["Texts"] == "not shown: the input has changed"
    refused(run("report", "in.jsonl"), "cannot tell how in.jsonl was made")


def test_a_report_of_a_run_that_went_on_has_all_rows(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = made(tmp_path)
    run("extract", SCHEMA, source, "--text", "t", "-o", "out.jsonl")
    again = ("extract", "--retry-failed", "out.jsonl", "--format", "yaml", "--report", "page.html")
    assert run(*again).exit_code == 0
    data = data_of((tmp_path / "page.html").read_text())
    assert sorted(row["i"] for row in data["rows"]) == list(range(20))
    assert all(row["c"][0]["v"].startswith("Brand") for row in data["rows"])


def test_reports_come_from_addresses_and_go_to_them(run: Run, tmp_path: Path) -> None:
    store = fsspec.filesystem("memory")
    store.pipe_file("/shop/in.jsonl", Path(made(tmp_path)).read_bytes())
    source, out = "memory://shop/in.jsonl", "memory://shop/out.parquet"
    page = "memory://shop/page.html"
    args = ("extract", SCHEMA, source, "--text", "t", "-o", out, "--report", page)
    try:
        assert run(*args).exit_code == 1
        assert run("report", out).exit_code == 0
        for name in ("/shop/page.html", "/shop/out.parquet.html"):
            data = data_of(store.cat_file(name).decode())
            assert sorted(row["i"] for row in data["rows"]) == list(range(20))
            (first,) = [row for row in data["rows"] if row["i"] == 0]
            assert first["t"] == [["t", "<b>Brand0</b> true 4K"]]
        refused(run("report", out, "-o", "nowhere://x/p.html"), "cannot reach nowhere://x/p.html")
    finally:
        store.rm("/shop", recursive=True)


def task(results: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    data = {"category": "tv", "text": "LG or lg, 55", "fields": ["brand", "size", "smart"]}
    return {"id": 7, "data": data, "annotations": [{"result": results, **more}]}


def test_exports_of_label_studio_are_examples(tmp_path: Path) -> None:
    regions = [
        {"type": "labels", "from_name": "label", "value": {"text": text, "labels": ["brand"]}}
        for text in ("LG", "lg")
    ]
    size = {"type": "textarea", "from_name": "size", "value": {"text": ["55"]}}
    path = tmp_path / "tasks.json"
    path.write_text(json.dumps([task([*regions, size]), task([], was_cancelled=True)]))
    (found,) = read_examples(path)
    assert (found.id, found.category, found.text) == ("7", "tv", "LG or lg, 55")
    assert found.attributes == {"brand": ("LG", "lg"), "size": "55", "smart": None}
    for wrong in ('{"a": 1}', "[1]", '[{"data": 1}]', "no"):
        path.write_text(wrong)
        with pytest.raises(InputError, match=r"tasks\.json"):
            read_examples(path)


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium")
def test_a_reader_corrects_and_exports(run: Run, tmp_path: Path) -> None:
    assert PROGRAM is not None
    run("extract", SCHEMA, made(tmp_path), "--text", "t", "-o", "out.parquet")
    assert run("report", "out.parquet").exit_code == 0
    try:
        browser = Browser(PROGRAM, tmp_path / "profile")
    except (OSError, AssertionError):
        pytest.skip("Chromium does not start")
    try:
        page = Page(browser, tmp_path / "out.parquet.html")
        browser.open(page.path)
        overview = page.text("#overview")
        assert "too hard" in overview
        assert "100.0 %" in overview
        assert browser.run("find('overview').open")
        browser.run("label(rows[1], 0, 'Right'); label(rows[1], 1, null); rows[2].checked = true")
        lines = browser.run("labelled().map((row) => JSON.stringify(annotated(row))).join('\\n')")
        (tmp_path / "annotated.jsonl").write_text(lines)
        first, second = read_examples(tmp_path / "annotated.jsonl")
        assert first.schema == second.schema
        (brought,) = annotated_schemas([first, second]).values()
        assert compile_attributes(brought)[1].kind == "boolean"
        assert (first.category, first.id) == ("television", "r1")
        assert first.attributes == {"brand": "Right", "smart": None, "resolution": "4K"}
        assert second.attributes == {"brand": "Brand2", "smart": "true", "resolution": "4K"}
        tasks = json.loads(browser.run("JSON.stringify([rows[1], rows[2]].map(labelStudioTask))"))
        for one in tasks:
            one["annotations"] = one.pop("predictions")
            for result in one["annotations"][0]["result"]:
                if result["type"] == "labels":
                    value = result["value"]
                    assert one["data"]["text"][value["start"] : value["end"]] == value["text"]
        (tmp_path / "tasks.json").write_text(json.dumps(tasks))
        assert [one.attributes for one in read_examples(tmp_path / "tasks.json")] == [
            first.attributes,
            second.attributes,
        ]
        browser.run(
            "find('search').value = 'brand1'; find('search').dispatchEvent(new Event('input'))"
        )
        page.wait("grid.shown.length === 11", 20)
        csv = browser.run("rowsAsCsv()").splitlines()
        assert csv[:2] == ["id,index,brand,smart,resolution", "r1,1,Right,,4K"]
        assert len(browser.run("rowsAsLines()").splitlines()) == 11
        browser.run("unsaved = false")
        assert browser.trouble == []
    finally:
        browser.close()
