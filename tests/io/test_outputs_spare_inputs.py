"""No command replaces a file that it reads, and frames are read as files are."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import schemax
from schemax.base.resources import resource_dir
from schemax.commands.cli import app
from schemax.errors import InputError
from schemax.extraction.extractor import Extractor

SCHEMA = """
from schemax import AttrSchema
class Shoe(AttrSchema):
    brand: str | None = None
    color: str | None = None
"""


class Shoe(schemax.AttrSchema):
    brand: str | None = None
    color: str | None = None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(SCHEMA)
    lines = [json.dumps({"id": n, "title": f"Nike shoe {n}, black"}) for n in range(3)]
    Path("in.jsonl").write_text("\n".join(lines) + "\n")
    label = {"category": "shoe", "text": "Nike, black", "attributes": {"brand": "Nike"}}
    Path("labels.jsonl").write_text((json.dumps(label) + "\n") * 4)
    return tmp_path


EXTRACT = ("extract", "mine.py:Shoe", "in.jsonl", "--text", "title", "-o", "out.csv")


@pytest.mark.parametrize(
    ("command", "spared"),
    [
        ((*EXTRACT, "--report", "in.jsonl"), "in.jsonl"),
        ((*EXTRACT, "--report", "./mine.py"), "mine.py"),
        ((*EXTRACT, "--report", "out.csv"), "out.csv"),
        (("fit", "labels.jsonl", "--time", "1s", "-o", "labels.jsonl"), "labels.jsonl"),
        (("discover", "in.jsonl", "--category", "shoe", "-o", "in.jsonl"), "in.jsonl"),
        (
            ("discover", "in.jsonl", "--category", "shoe", "-o", "a.json", "--report", "in.jsonl"),
            "in.jsonl",
        ),
    ],
    ids=lambda given: given if isinstance(given, str) else given[0],
)
def test_an_input_is_never_replaced(folder: Path, command: tuple[str, ...], spared: str) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2, result.output
    why = "-o writes it" if spared == "out.csv" else "it is an input"
    assert f"{why}; name another file" in result.stderr
    assert spared in result.stderr
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_page_does_not_replace_its_table(folder: Path) -> None:
    run = CliRunner()
    assert run.invoke(app, [*EXTRACT, "-q"]).exit_code == 0
    table = Path("out.csv").read_bytes()
    result = run.invoke(app, ["report", "out.csv", "-o", "out.csv"])
    assert (result.exit_code, "it is an input" in result.stderr) == (2, True)
    assert Path("out.csv").read_bytes() == table


def test_the_name_of_stdout_is_stdout(folder: Path) -> None:
    result = CliRunner().invoke(app, [*EXTRACT[:-1], "/dev/stdout", "-q"])
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["0", "1", "2"]


def test_a_misspelt_word_behind_details_is_no_file(folder: Path) -> None:
    run = CliRunner()
    result = run.invoke(app, ["extract", "mine.py:Shoe", "in.jsonl", "--details", "confidnce"])
    assert (result.exit_code, "nothing or confidence, not 'confidnce'" in result.stderr) == (
        2,
        True,
    )
    result = run.invoke(app, ["extract", "mine.py:Shoe", "-q", "--details", "in.jsonl"])
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 3), result.output


def test_bytes_are_the_text_that_they_hold() -> None:
    pandas = pytest.importorskip("pandas")
    extractor = Extractor.from_pretrained(resource_dir("embedded"))
    (text,) = extractor.stream(["Nike black"], Shoe)
    (found,) = extractor.stream([{"title": b"Nike black"}], Shoe)
    assert found.value == text.value
    frame = pandas.DataFrame({"title": [b"Nike black"]})
    rows = schemax.extract_frame(frame, Shoe, text="title", extractor=extractor)
    (row,) = rows.to_dict("records")
    assert row["brand"] == text.value.brand
    (broken,) = extractor.stream([{"title": b"\xff"}], Shoe)
    assert "not valid UTF-8" in broken.errors[0].message


def test_columns_of_one_name_are_refused(folder: Path) -> None:
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    frame = pandas.DataFrame([["Nike black", "Puma blue"]], columns=["title", "title"])
    table = pyarrow.Table.from_arrays([["Nike black"], ["Puma blue"]], names=["title", "title"])
    for one in (frame, table):
        with pytest.raises(InputError, match=r"the frame: two columns are named 'title'"):
            schemax.extract_frame(one, Shoe, text="title")
    parquet.write_table(table, "in.parquet")
    result = CliRunner().invoke(app, ["extract", "mine.py:Shoe", "in.parquet", "-o", "out.csv"])
    assert (result.exit_code, "two columns are named 'title'" in result.stderr) == (2, True)
