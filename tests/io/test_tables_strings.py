"""Texts of every kind in tables come back equal; neither spreadsheets nor terminals obey them."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pyarrow.csv
import pytest
from command_line import SCHEMA, Run, jsonl, refused, stand_in_runner
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from stand_in import StandIn

import schemax
from schemax.attributes import attr
from schemax.base.messages import say
from schemax.extraction.schema import AttrSchema
from schemax.io.readers import columns_of, read_file
from schemax.io.table_schema import TableSchema
from schemax.io.writers import Formulas, escaped, open_writer


class Named(AttrSchema):
    name: str | None
    names: list[str] = attr(default_factory=list)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return stand_in_runner(tmp_path, monkeypatch)


# What breaks readers, often; and whatever else there is. No text and null are the same cell.
HOSTILE = st.text("\r\n\t\",;'\\=+-@# ab\ufeff\x00\x0b\x1c\x85\u2028", min_size=1, max_size=6)
TEXTS = st.lists(HOSTILE | st.text(min_size=1), min_size=1, max_size=20)


def write(
    place: Path, texts: Sequence[str], formulas: Formulas = "keep", schema: Any = Named
) -> None:
    with open_writer(str(place), TableSchema.of(schema), csv_formulas=formulas) as writer:
        for index, text in enumerate(texts):
            value = schema(name=text, names=[text])
            writer.write(schemax.Extraction(value, index, text).to_row())


@pytest.mark.slow
@given(texts=TEXTS)
@pytest.mark.parametrize("suffix", [".csv", ".tsv"])
def test_every_text_comes_back_from_csv(tmp_path: Path, suffix: str, texts: list[str]) -> None:
    place = tmp_path / f"out{suffix}"
    write(place, texts)
    delimiter = "\t" if suffix == ".tsv" else ","
    with open(place, encoding="utf-8", newline="") as handle:
        plain: list[Any] = list(csv.DictReader(handle, delimiter=delimiter))
    frame = pandas.read_csv(place, sep=delimiter, dtype=str, keep_default_na=False, engine="python")
    strings = dict.fromkeys(("id", "name", "names"), pyarrow.string())
    table = pyarrow.csv.read_csv(
        place,
        parse_options=pyarrow.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(column_types=strings),
    )
    for rows in (plain, frame.to_dict("records"), table.to_pylist(), list(read_file(str(place)))):
        assert [row["id"] for row in rows] == texts
        assert [row["name"] for row in rows] == texts
        assert [json.loads(row["names"]) for row in rows] == [[text] for text in texts]


@pytest.mark.slow
@given(texts=TEXTS)
def test_pandas_quick_reader_reads_all_but_nul(tmp_path: Path, texts: list[str]) -> None:
    texts = [text.replace("\0", "0") for text in texts]
    write(tmp_path / "out.csv", texts)
    frame = pandas.read_csv(tmp_path / "out.csv", dtype=str, keep_default_na=False)
    assert list(frame["id"]) == list(frame["name"]) == texts


@pytest.mark.slow
@given(texts=TEXTS)
@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".jsonl"])
def test_every_text_comes_back_from_other_tables(
    tmp_path: Path, suffix: str, texts: list[str]
) -> None:
    write(tmp_path / f"out{suffix}", texts)
    rows: list[Any] = list(read_file(str(tmp_path / f"out{suffix}")))
    assert [row["id"] for row in rows] == texts
    found = [row["attributes"] if suffix == ".jsonl" else row for row in rows]
    assert [row["name"] for row in found] == texts
    assert [row["names"] for row in found] == [[text] for text in texts]


@given(text=st.text('\r\n\t",;| ab\x85') | st.text(st.characters(exclude_characters="\\")))
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_rows_are_cut_as_the_csv_module_cuts_them(
    tmp_path: Path, text: str, delimiter: str
) -> None:
    text = f"x{delimiter}y\n{text}"
    (tmp_path / "in.csv").write_bytes(text.encode())
    records = list(read_file(str(tmp_path / "in.csv")))
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        rows = [row for row in reader if row]
    except csv.Error:
        assert any("a cell in quotes does not end" in str(record) for record in records)
        return
    for record, (x, *rest) in zip(records, rows[1:], strict=True):
        if rest and not any(rest[1:]):
            assert record == {"x": x or None, "y": rest[0] or None}
        else:
            assert f"number of cells {1 + len(rest)}, but the header has 2" in str(record)


@pytest.mark.parametrize("line", ['a"b,c', 'a"b",c', '"a""b",c', '"a"" ,""b",c', ' "a",c'])
def test_quotes_within_cells_are_read_as_the_csv_module_reads_them(
    tmp_path: Path, line: str
) -> None:
    (tmp_path / "in.csv").write_text(f'x,y\n{line}\n"1","2"\n')
    _, expected, _ = csv.reader((tmp_path / "in.csv").read_text().splitlines(keepends=True))
    first, second = read_file(str(tmp_path / "in.csv"))
    assert list(first.values()) == expected  # type: ignore[union-attr]
    assert second == {"x": "1", "y": "2"}


@pytest.mark.parametrize("suffix", [".csv", ".xlsx"])
def test_decimals_keep_all_digits(tmp_path: Path, suffix: str) -> None:
    class Priced(BaseModel):
        name: str
        names: list[str]
        price: Decimal

    prices = ["12345678901234567890123456789.123456789", "-0.5", "1000", "1" + "0" * 27 + "1"]
    with open_writer(str(tmp_path / f"out{suffix}"), TableSchema.of(Priced)) as writer:
        for index, price in enumerate(prices):
            value = Priced(name="a", names=[], price=Decimal(price))
            writer.write(schemax.Extraction(value, index, None).to_row())
    rows: list[Any] = list(read_file(str(tmp_path / f"out{suffix}")))
    assert [str(row["price"]) for row in rows] == prices


def test_columns_with_other_delimiters_in_their_names_come_back(tmp_path: Path) -> None:
    class Odd(BaseModel):
        model_config = {"serialize_by_alias": True, "populate_by_name": True}
        name: str = Field(alias="a;b;c;d;e;f;g;h\ti")
        names: list[str]

    write(tmp_path / "out.csv", ["x"], schema=Odd)
    names = [column.name for column in TableSchema.of(Odd).columns]
    assert columns_of(str(tmp_path / "out.csv")) == names
    (row,) = read_file(str(tmp_path / "out.csv"))
    assert row["a;b;c;d;e;f;g;h\ti"] == "x"  # type: ignore[call-overload, index]


# Spreadsheets


FORMULAS = ["=1+1", "+1-1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1", "＝1+1", "-", "+x"]
HARMLESS = ["LG", "-5", "+3.5", "-1,234.5", "a=b", "'=1", "3-5", "e-mail@x", "[=1]"]


def test_formulas_are_escaped_where_that_is_asked_for(tmp_path: Path) -> None:
    assert [escaped(text) for text in FORMULAS] == [f"'{text}" for text in FORMULAS]
    assert [escaped(text) for text in HARMLESS] == HARMLESS
    texts = [*FORMULAS, *HARMLESS]
    for formulas, expected in (("keep", texts), ("escape", [escaped(text) for text in texts])):
        write(tmp_path / "out.csv", texts, formulas)  # type: ignore[arg-type]
        rows: list[Any] = list(read_file(str(tmp_path / "out.csv")))
        assert [row["id"] for row in rows] == expected
        assert [row["name"] for row in rows] == expected
        assert [json.loads(row["names"]) for row in rows] == [[text] for text in texts]


def test_numbers_are_no_formulas(tmp_path: Path) -> None:
    class Cold(BaseModel):
        name: str
        names: list[str]
        degrees: float = -4.5

    write(tmp_path / "out.csv", ["x"], "escape", Cold)
    (row,) = read_file(str(tmp_path / "out.csv"))
    assert row["degrees"] == "-4.5"  # type: ignore[call-overload, index]


def test_a_command_says_what_becomes_of_formulas(run: Run, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", [{"id": "=1+1", "t": "@LG true 4K"}])
    args = ("extract", SCHEMA, source, "-q", "-o")
    for more, id in (((), "=1+1"), (("--csv-formulas", "escape"), "'=1+1")):
        assert run(*args, "out.csv", *more).exit_code == 0
        assert (tmp_path / "out.csv").read_text().splitlines()[1].startswith(f"{id},0,")
    refused(
        run(*args, "out.jsonl", "--csv-formulas", "escape"),
        "--csv-formulas requires -o with a .csv or .tsv file",
    )
    extractor: Any = StandIn()
    with pytest.raises(ValueError, match='csv_formulas must be "keep" or "escape"'):
        schemax.extract_files(
            Named,
            source,
            "out.csv",
            extractor=extractor,
            csv_formulas="no",  # type: ignore[arg-type]
        )


# Terminals


CONTROLS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def test_nothing_in_an_input_commands_a_terminal(run: Run, tmp_path: Path) -> None:
    ids = ["\x1b[2J", "\x9b31m", "a\x07b", "\u202eevil", "\x1b[2J"]
    made = [{"id": id, "t": "" if n < 4 else f"{id} true 4K"} for n, id in enumerate(ids)]
    source = jsonl(tmp_path / "in.jsonl", made)
    result = run("extract", SCHEMA, source)
    assert result.exit_code == 1
    assert r"failed: record 0 (\x1b[2J): " in result.stderr
    assert r"earlier row has: \x1b[2J" in result.stderr
    assert not CONTROLS.search(result.stderr)
    assert not CONTROLS.search(result.stdout.replace("\u202e", ""))  # text, to be kept as it is
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ids


@given(st.text())
def test_what_is_said_is_one_harmless_line(text: str) -> None:
    with contextlib.redirect_stderr(io.StringIO()) as said:
        say(text)
    assert said.getvalue().endswith("\n")
    assert not CONTROLS.search(said.getvalue())
    assert said.getvalue().count("\n") == 1


@pytest.mark.slow
def test_messages_name_some_of_many_keys(run: Run, tmp_path: Path) -> None:
    many: dict[str, Any] = {f"key {n}": 1 for n in range(100_000)}
    made = [{"id": "a", "t": "LG true 4K"}, {"id": "b" * 100_000, **many}, {"x" * 100_000: {}}]
    source = jsonl(tmp_path / "in.jsonl", made)
    result = run("extract", SCHEMA, source, "-o", "out.jsonl", "--text", "t")
    assert result.exit_code == 1
    assert "the record has no t; it has id, key 0, key 1" in result.stderr
    assert max(map(len, result.stderr.splitlines())) < 1000
    packed = gzip.compress(",".join(many).encode() + b"\n")
    (tmp_path / "in.csv.gz").write_bytes(packed)
    refusal = run("extract", SCHEMA, "in.csv.gz", "-o", "out.jsonl", "--text", "t")
    refused(refusal, "it has no column 't'; it has key 0, key 1", "key 39, ...")
    assert len(refusal.stderr) < 1000
