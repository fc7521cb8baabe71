"""Nothing of an input is taken silently: names that are not there, columns nobody named."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest
from command_line import SCHEMA, Run, jsonl, refused, rows, stand_in_runner

from schemax import extract_files, extract_frame, load_schema
from schemax.errors import InputError
from schemax.extraction.documents import RecordFields, read_documents


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return stand_in_runner(tmp_path, monkeypatch)


@pytest.mark.parametrize("name", ["in.csv", "in.jsonl"])
def test_one_mistyped_name_among_several_is_refused(run: Run, tmp_path: Path, name: str) -> None:
    jsonl(tmp_path / "in.jsonl", [{"title": "LG"}, {"title": "LG", "description": "TV"}])
    (tmp_path / "in.csv").write_text("title,description\nLG,TV\n")
    said = "no column is called 'descripton', perhaps 'description'; there are title, description"
    refused(run("extract", SCHEMA, name, "--text", "title,descripton"), said)
    assert run("extract", SCHEMA, name, "--text", "title,description").exit_code == 0


def test_of_a_list_a_name_like_another_is_refused() -> None:
    shown = RecordFields.of(("titel", "note"), "id", None)
    with pytest.raises(InputError, match="no record has the key 'titel', perhaps 'title'"):
        read_documents([{"title": "LG", "note": "x"}, {"title": "LG"}], shown)
    # A key that these records may well go without.
    rest = RecordFields.of(("title", "note"), "id", None)
    assert [found.text for found in read_documents([{"title": "LG"}], rest)] == ["LG"]


@pytest.mark.parametrize("option", ["id", "category"])
def test_an_id_or_category_that_no_record_has_is_refused(run: Run, option: str) -> None:
    named = {"id": "id", "category": None, option: "skus"}
    shown = RecordFields.of(None, **named)
    said = "'skus', perhaps 'sku'; there are sku, t"
    with pytest.raises(InputError, match=f"no record has the key {said}"):
        read_documents([{"sku": 1, "t": "LG"}], shown)
    with pytest.raises(InputError, match="no record has the key 'skus'; there are t"):
        read_documents([{"t": "LG"}, {"t": "LG"}], shown)
    for records in ([{"skus": 1, "t": "LG"}, {"t": "LG"}], [{"t": "LG"}], ["LG"], []):
        assert len(list(read_documents(records, shown))) == len(records)
    frame = pandas.DataFrame({"sku": [1], "t": ["LG"]})
    with pytest.raises(InputError, match=f"the frame has no column {said}"):
        extract_frame(frame, load_schema("tea"), **{option: "skus"})
    with pytest.raises(InputError, match="keep names 'skus', perhaps 'sku', but the frame has"):
        extract_frame(frame, load_schema("tea"), keep=["skus"])
    frame.to_csv("in.csv")
    with pytest.raises(InputError, match="it has no column 'skus', perhaps 'sku'; it has"):
        extract_files(load_schema("tea"), "in.csv", "out.csv", **{option: "skus"})


def test_columns_that_nobody_named_are_listed_once(run: Run, tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl", [{"id": 1, "t": "LG", "url": "x", "category": "tv"}] * 3)
    args = ("extract", SCHEMA, "in.jsonl", "-o", "out.jsonl")
    said = run(*args).stderr
    assert said.count("the model is shown all of these columns: t, url; name") == 1
    assert said.count("the column 'category' selects no schema") == 1
    assert "the model is not shown it" in said
    assert "all of these columns" not in run(*args, "--text", "t").stderr
    assert "note:" not in run(*args, "--quiet").stderr


def test_failures_are_grouped(run: Run, tmp_path: Path) -> None:
    made = [{"t": "LG", "category": "Garden"}] * 9 + [{"t": "LG", "category": "Toys 7"}] * 2
    jsonl(tmp_path / "in.jsonl", [*made, {"t": "LG", "category": "tv"}])
    said = run("extract", f"tv={SCHEMA}", "in.jsonl", "-o", "out.jsonl").stderr
    assert "failed: 9 times no schema for category 'Garden'" in said
    assert "failed: 2 times no schema for category 'Toys …'" in said
    assert said.count("failed: record") == 2


def test_html_is_left_out_unless_it_is_kept(run: Run, tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl", [{"t": "<p><b>LG</b> true 4K</p>"}])
    args = ("extract", SCHEMA, "in.jsonl", "-o", "out.jsonl", "--details")
    assert run(*args).exit_code == 0
    (row,) = rows((tmp_path / "out.jsonl").read_text())
    assert row["attributes"]["brand"] == "LG"
    assert row["fields"]["brand"]["span"] == {"start": 6, "end": 8, "field": "t"}
    assert run(*args, "--html", "keep").exit_code == 0
    (row,) = rows((tmp_path / "out.jsonl").read_text())
    assert row["attributes"]["brand"] != "LG"
