"""Columns beside the fields: kept ones, the schema of a row, confidences; and sheets of Excel."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import openpyxl
import pandas
import polars
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
from command_line import SCHEMA, Run, jsonl, refused, rows, stand_in_runner
from pydantic import AwareDatetime

import schemax
from schemax import AttrSchema, Extractor, attr
from schemax.compiler import TextCodec
from schemax.io import excel
from schemax.io.columns import Column
from schemax.io.readers import columns_of, read_file
from schemax.io.table_schema import TableSchema
from schemax.io.writers import open_writer


class Small(AttrSchema):
    brand: str | None = attr("Manufacturer", k_max=6)


class Dated(AttrSchema):
    name: str | None
    on: date | None
    at: datetime | None
    zoned: AwareDatetime | None
    price: Decimal | None
    number: int | None
    good: bool | None
    tags: list[str]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return stand_in_runner(tmp_path, monkeypatch)


def table(path: Path) -> Any:
    return pyarrow.parquet.read_table(path)


def test_kept_columns_have_their_types(run: Run, tmp_path: Path) -> None:
    made = pyarrow.table(
        {
            "sku": ["0042", None],
            "price": pyarrow.array([Decimal("1.50"), None], pyarrow.decimal128(8, 2)),
            "on": pyarrow.array([date(2026, 1, 2), None]),
            "t": ["LG true 4K", "x"],
        }
    )
    pyarrow.parquet.write_table(made, tmp_path / "in.parquet")
    args = ("extract", SCHEMA, "in.parquet", "--text", "t", "-o")
    assert run(*args, "out.parquet", "--keep", "sku,price,on").exit_code == 0
    found = table(tmp_path / "out.parquet")
    assert found.column_names[:5] == ["id", "index", "sku", "price", "on"]
    for name in ("sku", "price", "on"):
        assert found[name].combine_chunks() == made[name].combine_chunks()
    assert run(*args, "out.jsonl", "--keep", "sku, on").exit_code == 0
    first = rows((tmp_path / "out.jsonl").read_text())[0]
    assert list(first)[:4] == ["id", "index", "kept", "attributes"]
    assert first["kept"] == {"sku": "0042", "on": "2026-01-02"}
    refused(
        run(*args, "no.csv", "--keep", "sku,prize"),
        "keep names 'prize', perhaps 'price', but the input has",
    )
    made = made.rename_columns(["sku", "price", "brand", "t"])
    pyarrow.parquet.write_table(made, tmp_path / "in.parquet")
    refused(run(*args, "no.csv", "--keep", "brand"), "two columns would be called 'brand'")


def test_kept_columns_of_every_type_are_kept_as_they_are(run: Run, tmp_path: Path) -> None:
    nanoseconds = 1_700_000_000_123_456_789
    columns = {
        "uint64": pyarrow.array([2**64 - 1, None], pyarrow.uint64()),
        "double": pyarrow.array([math.inf, -math.inf]),
        "ns": pyarrow.array([nanoseconds, -1], pyarrow.timestamp("ns")),
        "s": pyarrow.array([1, None], pyarrow.timestamp("s")),
        "zoned": pyarrow.array([nanoseconds, None], pyarrow.timestamp("ns", "Europe/Berlin")),
        "list": pyarrow.array([[1, None], []], pyarrow.list_(pyarrow.int64())),
        "struct": pyarrow.array([{"a": 1.5, "b": ["x"]}, None]),
        "map": pyarrow.array([[("k", 1)], None], pyarrow.map_("string", pyarrow.int32())),
        "decimal256": pyarrow.array([Decimal(10**50), None], pyarrow.decimal256(60, 2)),
        "time": pyarrow.array([1, 86_399_999_999_999], pyarrow.time64("ns")),
        "duration": pyarrow.array([-nanoseconds, 1], pyarrow.duration("ns")),
        "bytes": pyarrow.array([b"\xff\x00", b"text"], pyarrow.binary()),
        "deep": pyarrow.array([[{"t": nanoseconds, "b": b"\xfe"}], None],
                              pyarrow.list_(pyarrow.struct([("t", pyarrow.timestamp("ns")),
                                                            ("b", pyarrow.binary())]))),
    }  # fmt: skip
    made = pyarrow.table({**columns, "t": ["LG true 4K", "x"]})
    pyarrow.parquet.write_table(made, tmp_path / "in.parquet", version="2.6")
    args = ("extract", SCHEMA, "in.parquet", "--text", "t", "--keep", ",".join(columns), "-o")
    for output in ("out.parquet", "out.csv", "out.jsonl", "out.xlsx"):
        result = run(*args, output)
        assert result.exit_code == 0, result.output
    found = table(tmp_path / "out.parquet")
    known = table(tmp_path / "in.parquet")
    for name in columns:
        assert found[name].type == known[name].type, name
        assert found[name].to_pylist() == known[name].to_pylist() or name == "double", name
    assert found["double"].to_pylist() == [math.inf, -math.inf]
    kept = rows((tmp_path / "out.jsonl").read_text())[0]["kept"]
    assert kept["uint64"] == 2**64 - 1
    assert kept["double"] == "Infinity"
    assert kept["ns"] == "2023-11-14T22:13:20.123456789"
    assert kept["bytes"] == {"base64": "/wA="}


def test_kept_columns_stay_as_they_are_when_shards_are_merged_and_rows_retried(
    run: Run, tmp_path: Path
) -> None:
    columns = {
        "list": pyarrow.array([[1], [2, None], [], None], pyarrow.list_(pyarrow.int64())),
        "ns": pyarrow.array([1, 2, None, 4], pyarrow.timestamp("ns", "Europe/Berlin")),
        "bytes": pyarrow.array([b"\xff\x00", b"text", None, b""], pyarrow.binary()),
        "double": pyarrow.array([math.inf, 1.5, None, 0.0]),
        "map": pyarrow.array([[("k", 1)], None, [], []], pyarrow.map_("string", pyarrow.int32())),
    }
    texts = ["LG true 4K", "LG hard true 4K", "Sony true 4K", "TCL true 4K"]
    pyarrow.parquet.write_table(pyarrow.table({**columns, "t": texts}), tmp_path / "in.parquet")
    args = ("extract", SCHEMA, "in.parquet", "--text", "t", "--keep", ",".join(columns))
    for shard in range(2):
        run(*args, "-o", f"s{shard}.parquet", "--shard", f"{shard}/2")
    result = run("merge", "s0.parquet", "s1.parquet", "-o", "out.parquet")
    assert "4 rows, 1 failed" in result.stderr, result.output
    result = run("extract", "--retry-failed", "out.parquet", "--format", "yaml")
    assert "4 rows, 0 failed" in result.stderr, result.output
    found = table(tmp_path / "out.parquet")
    for name, column in columns.items():
        assert found[name].combine_chunks() == column, name


def test_kept_values_of_several_types_are_texts_and_none_is_changed(
    run: Run, tmp_path: Path
) -> None:
    late = {"n": "00123", "f": 2**53 + 1, "b": True}
    made = [{"t": "LG", "n": 1, "f": 2.5, "b": 1}] * 1200 + [{"t": "LG", **late}]
    jsonl(tmp_path / "in.jsonl", made)
    for output in ("out.parquet", "out.csv"):
        args = ("extract", SCHEMA, "in.jsonl", "-o", output, "--text", "t", "--keep", "n,f,b")
        assert run(*args).exit_code == 0
    found = table(tmp_path / "out.parquet").select(["n", "f", "b"]).to_pylist()
    assert found[0] == {"n": "1", "f": "2.5", "b": "1"}
    assert found[-1] == {"n": "00123", "f": "9007199254740993", "b": "true"}
    assert ",00123,9007199254740993,true," in (tmp_path / "out.csv").read_text().splitlines()[-1]


def test_a_row_that_cannot_be_read_keeps_its_other_values(run: Run, tmp_path: Path) -> None:
    texts = pyarrow.array([b"LG", b"\xff"]).cast(pyarrow.binary())
    broken = pyarrow.StringArray.from_buffers(2, *texts.buffers()[1:])
    pyarrow.feather.write_feather(
        pyarrow.table({"t": broken, "sku": ["a", "b"]}), tmp_path / "in.arrow"
    )
    args = ("extract", SCHEMA, "in.arrow", "-o", "out.parquet", "--text", "t", "--keep", "sku")
    assert run(*args, "--max-errors", "1").exit_code == 0
    found = table(tmp_path / "out.parquet")
    assert found["sku"].to_pylist() == ["a", "b"]
    assert "not valid UTF-8" in found["_error"].to_pylist()[1]


def test_kept_values_of_json_lines_and_csv(run: Run, tmp_path: Path) -> None:
    made = [{"t": "LG", "n": 1, "m": 1, "o": {"a": 1}}, {"t": "LG", "n": 2, "m": 2.5}, 5]
    jsonl(tmp_path / "in.jsonl", made)
    assert run("extract", SCHEMA, "in.jsonl", "-o", "out.parquet", "--text", "t",
               "--keep", "n,m,o").exit_code == 1  # fmt: skip
    found = table(tmp_path / "out.parquet")
    assert found.select(["n", "m", "o"]).to_pydict() == {
        "n": [1, 2, None],
        "m": [1.0, 2.5, None],
        "o": ['{"a": 1}', None, None],
    }
    (tmp_path / "in.csv").write_text("t,sku\nLG,0042\n")
    result = run("extract", SCHEMA, "in.csv", "--text", "t", "--keep", "sku")
    assert rows(result.stdout)[0]["kept"] == {"sku": "0042"}


def test_rows_tell_their_schema_where_there_are_several(run: Run, tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl", [{"t": "LG", "category": name} for name in ("tv", "no")])
    args = ("extract", f"tv={SCHEMA},film=shop.py:Small", "in.jsonl", "-o")
    assert run(*args, "out.parquet", "--max-errors", "1").exit_code == 0
    assert table(tmp_path / "out.parquet")["_schema"].to_pylist() == ["tv", None]
    assert run(*args, "out.jsonl", "--max-errors", "1").exit_code == 0
    assert [row["schema"] for row in rows((tmp_path / "out.jsonl").read_text())] == ["tv", None]


def test_confidences_alone(
    tmp_path: Path, codec: TextCodec, decoder_model: Callable[..., Any]
) -> None:
    extractor = Extractor(decoder_model().model, codec)
    source = jsonl(tmp_path / "in.jsonl", [{"t": "LG"}, 5])
    given: Any = {"extractor": extractor, "details": "confidence"}
    schemax.extract_files(Small, source, tmp_path / "out.jsonl", **given)
    first, failed = rows((tmp_path / "out.jsonl").read_text())
    assert "fields" not in first
    assert first["confidences"] == {"brand": first["least_confidence"]}
    assert 0 < first["least_confidence"] < 1
    assert (failed["confidences"], failed["least_confidence"]) == ({}, None)
    schemax.extract_files(Small, source, tmp_path / "out.parquet", **given)
    names = table(tmp_path / "out.parquet").column_names
    assert names[-2:] == ["_least_confidence", "brand__confidence"]
    assert not any("." in name for name in names)
    with pytest.raises(
        ValueError, match='True, False or "confidence", not "all"'.replace('"all"', "'all'")
    ):
        schemax.extract_files(Small, source, tmp_path / "no.jsonl", **{**given, "details": "all"})


def test_details_of_the_command_line(run: Run, tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl", [{"t": "LG"}])
    for args in (("--details", SCHEMA), (SCHEMA, "--details")):
        assert "fields" in rows(run("extract", *args, "in.jsonl").stdout)[0]
    row = rows(run("extract", "--details", "confidence", SCHEMA, "in.jsonl").stdout)[0]
    assert set(row) >= {"confidences", "least_confidence"}
    refused(run("extract", "--details=all of it", SCHEMA, "in.jsonl"), "nothing or confidence")


def test_frames_keep_columns(codec: TextCodec, decoder_model: Callable[..., Any]) -> None:
    extractor = Extractor(decoder_model().model, codec)
    given: Any = {"extractor": extractor, "text": "t", "keep": ["sku"]}
    columns = {"t": ["LG", ""], "sku": [7, 8]}
    pandas_frame = pandas.DataFrame(columns, index=["a", "b"])
    found = schemax.extract_frame(pandas_frame, Small, **given)
    assert list(found.columns) == ["sku", "brand", "_error", "_field_errors"]
    assert (found["sku"].tolist(), found.index.tolist()) == ([7, 8], ["a", "b"])
    found = schemax.extract_frame(polars.DataFrame(columns), {"tv": Small}, **given)
    assert found.columns == ["sku", "_schema", "brand", "_error", "_field_errors"]
    assert found["sku"].to_list() == [7, 8]
    with pytest.raises(schemax.InputError, match="no column 'T'"):
        schemax.extract_frame(pandas_frame, Small, extractor=extractor, text=["t", "T"])


def test_sheets_are_written_and_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values: list[dict[str, Any]] = [
        {
            "name": "=1+1\x01",
            "on": "2026-01-02",
            "at": "2026-01-02T03:04:05",
            "zoned": "2026-01-02T03:04:05+01:00",
            "price": "12345678901234567.5",
            "number": 2**60,
            "good": True,
            "tags": ["a", "b"],
        },
        {"name": "#N/A", "on": "1800-01-01", "price": "1.5", "number": 7, "good": False},
        {"name": "x" * 40_000},
    ]
    monkeypatch.setattr(excel, "MOST_ROWS", 3)
    name = str(tmp_path / "out.xlsx")
    with open_writer(name, TableSchema.of(Dated, keep=[Column("sku", "string")])) as writer:
        for index, attributes in enumerate(values):
            writer.write({"id": "0", "index": index, "attributes": attributes, "errors": []})
    found = list(read_file(name))
    assert columns_of(name) == [
        *("id", "index", "sku", "name", "on", "at", "zoned", "price", "number", "good", "tags"),
        *("_error", "_field_errors"),
    ]
    assert found[0] == {
        **dict.fromkeys(("sku", "_error", "_field_errors")),
        **{"id": "0", "index": 0, "name": "=1+1\x01", "on": "2026-01-02T00:00:00"},
        **{"at": "2026-01-02T03:04:05", "zoned": "2026-01-02T02:04:05+00:00"},
        **{"price": "12345678901234567.5", "number": str(2**60), "good": True},
        "tags": '["a", "b"]',
    }
    assert isinstance(found[1], dict)
    assert [found[1][key] for key in ("name", "on", "price", "number")] == [
        *("#N/A", "1800-01-01", 1.5, 7)
    ]
    assert len(found) == 2
    second = openpyxl.load_workbook(name).worksheets[1]
    assert second["B2"].value == 2
    assert len(second["D2"].value) == 32_767


def test_sheets_as_people_have_them(run: Run, tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    for row in (
        [],
        ["sku", "t", None],
        [42, "LG true 4K"],
        [None, None],
        [43.5, "Sony"],
        [1, 2, 3],
    ):
        book.active.append(row)
    book.save(tmp_path / "in.xlsx")
    args = ("extract", SCHEMA, "in.xlsx", "--id", "sku", "--text", "t", "-o", "out.csv", "--keep")
    assert run(*args, "sku", "--max-errors", "1").exit_code == 0
    assert (tmp_path / "out.csv").read_text().splitlines()[1].startswith("42,0,42.0,LG,")
    assert "row 6 has 3 cells, but the header has 2" in (tmp_path / "out.csv").read_text()
    (tmp_path / "in.xlsx").write_bytes(b"PK no book")
    refused(run(*args, "sku"), "cannot read in.xlsx at all: not a workbook")


def test_a_row_of_cells_leads_back_to_its_cells() -> None:
    for schemas in (Small, {"tv": Small}):
        for details in (False, True, "confidence"):
            known = TableSchema.of(schemas, details=details, keep=[Column("n", "integer")])
            row: dict[str, Any] = {"id": "a", "index": 3, "kept": {"n": 4}, "schema": "tv"}
            row |= {
                "attributes": {"brand": "LG"},
                "errors": [{"field": "b", "message": "m", "raw": "r"}],
            }
            row |= {"least_confidence": 0.5, "confidences": {"brand": 0.5}}
            row |= {"fields": {"brand": {"confidence": 0.5, "raw": '"LG"', "note": None}}}
            for one in (row, {**row, "attributes": None}):
                cells = known.cells(one)
                assert known.cells(known.row(cells)) == cells
