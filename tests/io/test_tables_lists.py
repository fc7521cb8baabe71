"""Lists of nested models, and lists in two phases, in tables."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pandas
import polars
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
import tokenizers
from command_line import jsonl, rows, runner, save_model

import schemax
from schemax.attributes import attr, compile_attributes
from schemax.extraction.schema import AttrSchema
from schemax.formats import get_format
from schemax.io.readers import read_file
from schemax.io.summary import Tally, kind_of
from schemax.io.table_schema import TableSchema
from schemax.io.writers import open_writer
from schemax.results import Extraction, SlotText, build, failed


class Part(AttrSchema):
    name: str
    made: datetime | None


class Line(AttrSchema):
    kind: Literal["goods", "service"] | None
    price: Decimal | None
    count: int | None
    tags: list[str] = attr(long=True, default_factory=list)
    parts: list[Part] = attr(default_factory=list)


class Receipt(AttrSchema):
    shop: str | None
    notes: list[str] = attr(long=True, unique=True, default_factory=list)
    lines: list[Line] = attr(default_factory=list)


LINES: list[dict[str, Any]] = [
    {
        "kind": "goods",
        "price": "12.5",
        "count": 2,
        "tags": ["red", "dark, blue"],
        "parts": [{"name": "車輪", "made": "2026-01-02T03:04:05"}],
    },
    {"kind": None, "price": None, "count": None, "tags": [], "parts": []},
]
TYPED: list[dict[str, Any]] = [
    {
        **LINES[0],
        "price": Decimal("12.5"),
        "parts": [{"name": "車輪", "made": datetime(2026, 1, 2, 3, 4, 5)}],
    },
    LINES[1],
]


def items() -> list[Extraction[Any]]:
    """One that is full, one that failed, one without a line."""
    full: Any = {"shop": "Öl & Co", "notes": ["paid", "late"], "lines": LINES}
    return [
        Extraction(Receipt(**full), 0, "a"),
        failed(1, None, "the text is empty"),
        Extraction(Receipt(), 2, "c"),
    ]


def write(place: str) -> None:
    with open_writer(place, TableSchema.of(Receipt)) as writer:
        for item in items():
            writer.write(item.to_row())


def test_lists_of_nested_models_are_lists_of_structs() -> None:
    text = pyarrow.string()
    part = pyarrow.struct([("name", text), ("made", pyarrow.timestamp("us"))])
    line = pyarrow.struct(
        [
            ("kind", pyarrow.dictionary(pyarrow.int32(), text)),
            ("price", pyarrow.decimal128(38, 9)),
            ("count", pyarrow.int64()),
            ("tags", pyarrow.list_(text)),
            ("parts", pyarrow.list_(part)),
        ]
    )
    found = schemax.arrow_schema(Receipt)
    assert found.field("notes").type == pyarrow.list_(text)
    assert found.field("lines").type == pyarrow.list_(line)


@pytest.mark.parametrize("name", ["out.parquet", "out.arrow"])
def test_items_come_back_from_typed_tables(tmp_path: Path, name: str) -> None:
    place = str(tmp_path / name)
    write(place)
    read: Any = pyarrow.parquet.read_table if name == "out.parquet" else pyarrow.feather.read_table
    table = read(place)
    assert table.schema.equals(schemax.arrow_schema(Receipt))
    full, lost, bare = table.to_pylist()
    assert (full["notes"], full["lines"]) == (["paid", "late"], TYPED)
    assert (lost["notes"], lost["lines"]) == (None, None)
    assert (bare["notes"], bare["lines"]) == ([], [])


def test_items_come_back_from_json(tmp_path: Path) -> None:
    for name in ("out.csv", "out.jsonl"):
        write(str(tmp_path / name))
    full, lost, bare = read_file(str(tmp_path / "out.csv"))
    assert isinstance(full, dict)
    assert json.loads(full["lines"]) == LINES
    assert [row["lines"] for row in (lost, bare) if isinstance(row, dict)] == [None, None]
    full, *_ = read_file(str(tmp_path / "out.jsonl"))
    assert isinstance(full, dict)
    assert full["attributes"]["lines"] == LINES


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_hold_items(kind: str) -> None:
    class Reader:
        def stream(self, products: Iterable[Any], **_: Any) -> Iterator[Extraction[Any]]:
            for _record, item in zip(products, items(), strict=True):
                yield item

    extractor: Any = Reader()
    make: Any = pandas.DataFrame if kind == "pandas" else polars.DataFrame
    found = schemax.extract_frame(make([{"t": "x"}] * 3), Receipt, extractor=extractor)
    full, lost, bare = found["lines"]
    assert [line["count"] for line in full] == [2, None]
    assert list(full[0]["tags"]) == ["red", "dark, blue"]
    assert full[0]["parts"][0]["made"] == datetime(2026, 1, 2, 3, 4, 5)
    assert lost is None
    assert len(bare) == 0


def test_an_item_that_does_not_fit_costs_its_list() -> None:
    large: Any = {"lines": [{"count": 2**70}]}
    row = Extraction(Receipt(shop="x", **large), 0, None).to_row()
    cells = TableSchema.of(Receipt).cells(row)
    assert (cells["shop"], cells["lines"]) == ("x", None)
    (fault,) = cells["_field_errors"]
    assert fault["field"] == "lines"
    assert str(2**70) in fault["raw"]


def read() -> Extraction[Any]:
    """A shop, two notes, and one line with a kind and a price."""

    def slot(raw: str, items: Any = None) -> SlotText:
        return SlotText(raw, "stop", 2, True, 0.5, 0.5, items=items)

    line = (slot(' "goods"'), slot(" 3"), slot(" null"), slot(" null", ()), slot(" null", ()))
    slots = [
        slot(' "Shop"'),
        slot(" 2", ((slot(' "paid"'),), (slot(' "late"'),))),
        slot(" 1", (line,)),
    ]
    return build(
        Receipt,
        compile_attributes(Receipt),
        slots,
        get_format("json"),
        index=0,
        document_id=None,
        steps=3,
        texts={"t": "Shop goods 3"},
    )


def test_details_have_one_set_of_columns_per_list() -> None:
    table = TableSchema.of(Receipt, details=True)
    names = [column.name for column in table.results[6:]]
    fields = ("shop", "notes", "lines")
    kinds = ("confidence", "raw", "legal_probability", "span", "note")
    assert names == [f"{field}__{kind}" for field in fields for kind in kinds]
    item = read()
    assert "lines.0.price" in item.fields
    cells = table.cells(item.to_row(details=True))
    assert list(cells) == [column.name for column in table.columns]
    assert cells["notes__raw"] == '"paid"; "late"'
    assert cells["lines__confidence"] == pytest.approx(0.25)
    assert cells["lines__span"] == {"start": 5, "end": 10, "field": "t"}


def test_tokens_of_items_are_counted_once() -> None:
    tally = Tally()
    tally.add_cost(read())
    assert tally.summary().tokens == 20


def test_errors_of_items_are_of_one_kind() -> None:
    for field in ("lines.0.price", "lines.12.price"):
        assert (
            kind_of({"field": field, "message": "item 3: no 'x'"}) == "lines.….price: item …: no …"
        )
    assert kind_of({"field": "lines.3", "message": "bad"}) == "lines.…: bad"


@pytest.mark.slow
def test_a_table_with_details_beside_a_report(
    backend: tokenizers.Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runner(tmp_path, save_model(backend, tmp_path / "model"), monkeypatch)
    code = """
from typing import Literal
from schemax.attributes import attr
from schemax.extraction.schema import AttrSchema

class Line(AttrSchema):
    kind: Literal["goods", "service"]
    sold: bool | None

class Receipt(AttrSchema):
    new: bool
    lines: list[Line] = attr(min_length=2, max_length=3)
"""
    (tmp_path / "receipts.py").write_text(code)
    source = jsonl(tmp_path / "in.jsonl", ["LG OLED C3", "Sony Bravia", ""])
    args = ("extract", "receipts.py:Receipt", source, "--details", "--max-errors", "1")
    for name in ("out.jsonl", "out.csv", "out.parquet"):
        result = run(*args, "-o", name, "--report", f"{name}.html")
        assert result.exit_code == 0, result.output
        assert "lines.0.kind" not in (tmp_path / f"{name}.html").read_text("utf-8")
    told = rows((tmp_path / "out.jsonl").read_text("utf-8"))
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet").to_pylist()
    cells = list(read_file(str(tmp_path / "out.csv")))
    for one, typed, text in zip(told[:2], table, cells, strict=False):
        assert isinstance(text, dict)
        assert set(one["fields"]["lines.1.kind"]["alternatives"]) == {"goods", "service"}
        assert 2 <= len(typed["lines"]) <= 3
        assert typed["lines"] == one["attributes"]["lines"] == json.loads(text["lines"])
        for field in ("new", "lines"):
            confidence = one["fields"][field]["confidence"]
            assert 0 < confidence <= 1
            assert typed[f"{field.replace('.', '__')}__confidence"] == pytest.approx(
                confidence, rel=1e-4
            )
            assert float(text[f"{field.replace('.', '__')}__confidence"]) == pytest.approx(
                confidence, rel=1e-4
            )
    assert table[2]["_error"] == "the text is empty"
    assert table[2]["lines__confidence"] is None
