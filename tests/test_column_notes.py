"""Nothing of an input is taken silently: names that are not there, columns nobody named."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import SCHEMA, Run, jsonl, refused, rows, stand_in_runner

from schemax.documents import Shown, read_documents
from schemax.errors import InputError


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
    shown = Shown.of(("titel", "note"), "id", None)
    with pytest.raises(InputError, match="no record has the key 'titel', perhaps 'title'"):
        read_documents([{"title": "LG", "note": "x"}, {"title": "LG"}], shown)
    # A key that these records may well go without.
    rest = Shown.of(("title", "note"), "id", None)
    assert [found.text for found in read_documents([{"title": "LG"}], rest)] == ["LG"]


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
