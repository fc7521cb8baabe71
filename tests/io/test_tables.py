"""Tables: typed columns, formats in and out, frames."""

from __future__ import annotations

import gzip
import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import fsspec
import pandas
import polars
import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest
from command_line import process
from pydantic import AwareDatetime, BaseModel, Field, computed_field
from stand_in import StandIn

import schemax
from schemax.attributes import attr, compile_attributes
from schemax.config import DecodingConfig
from schemax.errors import InputError, SchemaError
from schemax.extraction.documents import RecordFields
from schemax.extraction.schema import AttrSchema
from schemax.formats import get_format
from schemax.io.long_documents import Fitted
from schemax.io.readers import InputFiles, Shard, read_file
from schemax.io.table_schema import TableSchema
from schemax.io.writers import open_writer
from schemax.results import SlotText, build, failed


class Class(Enum):
    A = "a"
    B = "b"


class Size(BaseModel):
    width: float | None = None
    unit: Literal["cm", "in"] | None = None


class Goods(AttrSchema):
    name: str | None
    kind: Class | None
    kinds: list[Class] = attr(default_factory=list)
    wheels: Literal[2, 4] | None
    size: Size | None
    price: Annotated[Decimal, Field(max_digits=6, decimal_places=2)] | None
    weight: Decimal | None
    count: int | None
    new: bool | None
    day: date | None
    at: datetime | None
    moment: AwareDatetime | None
    colours: list[str] = attr(default_factory=list)

    @computed_field
    def double(self) -> int:
        return 2 * (self.count or 0)


FULL: dict[str, Any] = {
    "name": "Räder, 車輪",
    "kind": "b",
    "kinds": ["a", "b"],
    "wheels": 4,
    "size": {"width": 1.5, "unit": "cm"},
    "price": "12.5",
    "weight": "0.125",
    "count": 7,
    "new": True,
    "day": "2026-01-02",
    "at": "2026-01-02T03:04:05",
    "moment": "2026-01-02T03:04:05+01:00",
    "colours": ["red", "dark, blue"],
}
TYPED: dict[str, Any] = {
    **FULL,
    "price": Decimal("12.50"),
    "weight": Decimal("0.125"),
    "day": date(2026, 1, 2),
    "at": datetime(2026, 1, 2, 3, 4, 5),
    "moment": datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC),
    "double": 14,
}


def rows() -> list[dict[str, Any]]:
    """One that is full, one that failed, one that does not fit."""
    broken = Goods(weight="1e40", count=2**70)  # type: ignore[arg-type]
    found = [
        schemax.Extraction(Goods(**FULL), 0, "a"),
        failed(1, None, "the text is empty"),
        schemax.Extraction(broken, 2, "\ud800"),
    ]
    return [item.to_row() for item in found]


def zstd(data: bytes) -> bytes:
    packed: bytes = pyarrow.compress(data, "zstd", asbytes=True)
    return packed


def write(name: str) -> None:
    with open_writer(name, TableSchema.of(Goods)) as writer:
        for row in rows():
            writer.write(row)


def test_every_kind_of_field_has_its_type() -> None:
    found = schemax.arrow_schema(Goods)
    text = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    expected = {
        "id": pyarrow.string(),
        "index": pyarrow.int64(),
        "name": pyarrow.string(),
        "kind": text,
        "kinds": pyarrow.list_(text),
        "wheels": pyarrow.int64(),
        "size": pyarrow.struct([("width", pyarrow.float64()), ("unit", text)]),
        "price": pyarrow.decimal128(6, 2),
        "weight": pyarrow.decimal128(38, 9),
        "count": pyarrow.int64(),
        "new": pyarrow.bool_(),
        "day": pyarrow.date32(),
        "at": pyarrow.timestamp("us"),
        "moment": pyarrow.timestamp("us", tz="UTC"),
        "colours": pyarrow.list_(pyarrow.string()),
        "double": pyarrow.int64(),
        "_error": pyarrow.string(),
    }
    assert {name: found.field(name).type for name in expected} == expected
    assert found.names == [*expected, "_field_errors"]


def test_details_stand_beside_the_fields() -> None:
    class One(AttrSchema):
        id: str | None
        size: Size | None

    names = schemax.arrow_schema(One, details=True).names
    assert names[:5] == ["_id", "index", "id", "size", "_error"]
    kinds = ("confidence", "raw", "legal_probability", "span", "note")
    assert names[6:12] == ["_least_confidence", *(f"id__{kind}" for kind in kinds)]
    assert "size__width__span" in names


def test_categories_share_columns_of_one_type() -> None:
    class Shoe(AttrSchema):
        name: str | None
        colour: Literal["red"] | None

    class Tea(AttrSchema):
        name: str | None
        colour: Literal["green"] | None
        grams: float | None

    class Odd(AttrSchema):
        name: float | None

    found = schemax.arrow_schema({"shoe": Shoe, "tea": Tea})
    assert found.names[2:6] == ["_schema", "name", "colour", "grams"]
    with pytest.raises(SchemaError, match=r"Odd\.name: cannot share a column with Shoe\.name"):
        schemax.arrow_schema({"shoe": Shoe, "odd": Odd})


@pytest.mark.parametrize("name", ["out.parquet", "out.arrow", "out.feather"])
def test_values_come_back_from_typed_tables(tmp_path: Path, name: str) -> None:
    place = str(tmp_path / name)
    write(place)
    read: Callable[[str], Any] = (
        pyarrow.parquet.read_table if name == "out.parquet" else pyarrow.feather.read_table
    )
    table = read(place)
    assert table.schema.equals(schemax.arrow_schema(Goods))
    full, lost, odd = table.to_pylist()
    assert full == {"id": "a", "index": 0, **TYPED, "_error": None, "_field_errors": []}
    assert lost["_error"] == "the text is empty"
    assert {lost[key] for key in TYPED if key != "size"} == {None}
    assert odd["id"] == "?"
    assert (odd["weight"], odd["count"]) == (None, None)
    assert [fault["field"] for fault in odd["_field_errors"]] == ["weight", "count", "double"]


def test_cells_of_csv_are_text(tmp_path: Path) -> None:
    place = str(tmp_path / "out.csv")
    write(place)
    full, lost, _ = read_file(place)
    assert isinstance(full, dict)
    assert isinstance(lost, dict)
    assert full["name"] == "Räder, 車輪"
    assert (full["size__width"], full["size__unit"]) == ("1.5", "cm")
    assert (full["price"], full["new"], full["day"]) == ("12.5", "true", "2026-01-02")
    assert json.loads(full["colours"]) == ["red", "dark, blue"]
    assert lost["_error"] == "the text is empty"
    assert lost["name"] is None


@pytest.mark.parametrize("suffix", ["jsonl", "jsonl.gz", "jsonl.zst", "csv.gz", "csv.zst"])
def test_compressed_files_are_equal_for_equal_rows(tmp_path: Path, suffix: str) -> None:
    one, two = (str(tmp_path / f"{name}.{suffix}") for name in ("one", "two"))
    write(one)
    write(two)
    assert Path(one).read_bytes() == Path(two).read_bytes()
    assert len(list(read_file(one))) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"one.{suffix}", f"two.{suffix}"]


def test_several_files_of_any_kind_are_one_input(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"t": "0"}\n{\n')
    (tmp_path / "b.csv").write_text('id,t\n0042,"two\nlines"\n,\n')
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(b'{"t": "4"}\n') * 2)
    (tmp_path / "d.jsonl.zst").write_bytes(zstd(b'{"t": "6"}\n') * 2)
    table = pyarrow.table({"t": ["8"], "day": [date(2026, 1, 2)], "x": [[1, None]]})
    pyarrow.parquet.write_table(table, tmp_path / "e.parquet")
    found = list(InputFiles.of([str(tmp_path / "*")]).rows())
    assert [index for index, _ in found] == list(range(9))
    records = [record for _, record in found]
    assert isinstance(records[1], InputError)
    assert "a.jsonl, line 2" in str(records[1])
    assert records[2:4] == [{"id": "0042", "t": "two\nlines"}, {"id": None, "t": None}]
    assert records[4:8] == [{"t": "4"}, {"t": "4"}, {"t": "6"}, {"t": "6"}]
    assert records[8] == {"t": "8", "day": "2026-01-02", "x": [1, None]}


def test_only_needed_columns_are_read(tmp_path: Path) -> None:
    place = str(tmp_path / "in.parquet")
    pyarrow.parquet.write_table(pyarrow.table({"a": [1], "b": [2], "id": [3]}), place)
    assert list(read_file(place, ["b", "id", "category"])) == [{"b": 2, "id": 3}]
    assert list(read_file(place, ["absent"])) == [{"a": 1, "b": 2, "id": 3}]


@pytest.mark.parametrize("file", ["in.jsonl", "in.csv"])
def test_shards_are_disjoint_and_complete(tmp_path: Path, file: str) -> None:
    header = "t\n" if file == "in.csv" else ""
    (tmp_path / file).write_text(header + "".join(f'"{n}"\n' for n in range(10)))
    place = str(tmp_path / file)
    shards = [InputFiles.of([place], limit=8, shard=Shard(n, 3)) for n in range(3)]
    found = [[index for index, _ in shard.rows()] for shard in shards]
    assert found == [[0, 3, 6], [1, 4, 7], [2, 5]]
    assert [shard.count() for shard in shards] in ([3, 3, 2], [None] * 3)
    for text in ("3/3", "-1/2", "1", "a/b", "0/0"):
        with pytest.raises(ValueError, match="shard must be"):
            Shard.parse(text)


def test_odd_rows_of_csv_cost_themselves(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b'\xef\xbb\xbfid,t\n1,a\n2\n3,caf\xe9\n\n4,"b,""c"""\n')
    one, short, bad, last = read_file(str(tmp_path / "in.csv"))
    assert one == {"id": "1", "t": "a"}
    assert str(short) == "line 3: number of cells 1, but the header has 2"
    assert str(bad) == "line 4: not valid UTF-8"
    assert last == {"id": "4", "t": 'b,"c"'}


@pytest.mark.parametrize("name", ["in.jsonl.gz", "in.jsonl.zst", "in.parquet", "in.arrow"])
def test_a_file_that_breaks_off_says_so(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    text = "".join(f'"{n} {n * 7919 % 10007}"\n' for n in range(50_000)).encode()
    table = pyarrow.table({"t": list(range(50_000))})
    if name.endswith(".gz"):
        place.write_bytes(gzip.compress(text)[:-5000])
    elif name.endswith(".zst"):
        place.write_bytes(zstd(text)[:-5000])
    elif name == "in.parquet":
        pyarrow.parquet.write_table(table, place)
        data = bytearray(place.read_bytes())
        data[1000:2000] = bytes(1000)
        place.write_bytes(data)
    else:
        pyarrow.feather.write_feather(table, str(place))
        place.write_bytes(place.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"cannot read .* any further"):
        for _ in read_file(str(place)):
            pass


def test_remote_files_are_read_and_written() -> None:
    memory = fsspec.filesystem("memory")
    for name in ("memory://t/a.csv", "memory://t/b.parquet", "memory://t/c.jsonl.gz"):
        write(name)
    assert sorted(memory.ls("/t", detail=False)) == ["/t/a.csv", "/t/b.parquet", "/t/c.jsonl.gz"]
    assert len(list(InputFiles.of(["memory://t/*"]).rows())) == 9
    with pytest.raises(InputError, match="cannot reach nowhere://"):
        InputFiles.of(["nowhere://a.jsonl"])
    memory.rm("/t", recursive=True)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file matches"):
        InputFiles.of([str(tmp_path / "*.csv")])
    with pytest.raises(InputError, match="stdin"):
        InputFiles.of(["-", "-"])
    os.mkfifo(tmp_path / "pipe.jsonl")  # like that of <(zcat in.jsonl.gz)
    with pytest.raises(InputError, match=r"pipe\.jsonl: it is a pipe.*name the input -"):
        list(InputFiles.of([str(tmp_path / "pipe.jsonl")]).rows())
    (tmp_path / "in.parquet.gz").touch()
    with pytest.raises(InputError, match=r"compressed inside; leave \.gz out"):
        InputFiles.of([str(tmp_path / "in.parquet.gz")])


def test_a_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, name, None)
    (tmp_path / "in.parquet").touch()
    for place in ("in.parquet", "in.jsonl.zst"):
        (tmp_path / place).touch()
        with pytest.raises(InputError, match=r"pip install '\.\[tables\]'"):
            InputFiles.of([str(tmp_path / place)])


def test_importing_schemax_imports_no_table_package(tmp_path: Path) -> None:
    code = (
        "import sys, schemax, schemax.commands.cli\n"
        "heavy = ('torch', 'pyarrow', 'pandas', 'polars', 'fsspec', 'ray')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    out, err = process("-c", code, cwd=tmp_path).communicate()
    assert (out.strip(), err) == (b"[]", b"")


class Shoe(AttrSchema):
    brand: str | None
    size: int | None
    sold: bool | None
    colour: Literal["red", "blue"] | None


RECORDS = [
    {"id": "a", "t": "Crocs 7 true red", "n": None},
    {"id": "b", "t": None, "n": None},
    {"id": "a", "t": "Vans x false green", "n": 1.5},
]


def check_frame(found: list[dict[str, Any]]) -> None:
    assert [row["brand"] for row in found] == ["Crocs", None, "Vans"]
    assert [row["size"] for row in found] == [7, None, None]
    assert [row["sold"] for row in found] == [True, None, False]
    assert [row["colour"] for row in found] == ["red", None, None]
    assert [row["_error"] for row in found] == [None, "the text is empty", None]


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_frames_give_frames(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    extractor: Any = StandIn()
    if kind == "polars":
        frame = polars.DataFrame(RECORDS)
        found = schemax.extract_frame(frame, Shoe, extractor=extractor, text="t")
        assert isinstance(found, polars.DataFrame)
        assert found.schema["size"] == polars.Int64
        check_frame(found.to_dicts())
        return
    data = pandas.DataFrame(RECORDS, index=["x", "y", "x"])
    found = schemax.extract_frame(data, Shoe, extractor=extractor, text="t", details=True)
    assert list(found.index) == ["x", "y", "x"]
    assert str(found["size"].dtype) == "Int64"
    assert str(found["colour"].dtype) == "category"
    assert found["brand__raw"].tolist()[0].strip() == '"Crocs"'
    plain = found.astype(object).where(found.notna(), None)
    check_frame(plain.to_dict("records"))
    empty = schemax.extract_frame(data[:0], Shoe, extractor=extractor)
    assert len(empty) == 0
    assert list(empty.columns[:2]) == ["brand", "size"]


def arrow_frames() -> dict[str, pyarrow.Table | pyarrow.RecordBatch]:
    table = pyarrow.Table.from_pylist([*RECORDS, {"id": "c", "t": "Vans x false green"}])
    return {"table": table, "batch": table.to_batches()[0]}


@pytest.mark.parametrize("kind", ["table", "batch"])
def test_arrow_gives_arrow(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    extractor: Any = StandIn()
    frame = arrow_frames()[kind].slice(0, 3)
    found = schemax.extract_frame(frame, Shoe, extractor=extractor, text="t", keep=["id", "n"])
    assert type(found) is type(frame)
    assert found.schema.names[:3] == ["id", "n", "brand"]
    of_arrow = schemax.arrow_schema(Shoe)
    assert [found.schema.field(name) for name in found.schema.names[2:]] == [
        of_arrow.field(name) for name in found.schema.names[2:]
    ]
    assert found["id"].to_pylist() == ["a", "b", "a"]
    check_frame(found.to_pylist())
    empty = schemax.extract_frame(frame.slice(0, 0), Shoe, extractor=extractor, text="t")
    assert type(empty) is type(frame)
    assert empty.num_rows == 0
    with pytest.raises(InputError, match="has no column 'T'"):
        schemax.extract_frame(frame, Shoe, extractor=extractor, text="T")
    twice = pyarrow.table({"t": ["x"], "brand": ["y"]})
    with pytest.raises(InputError, match="the frame and the results both have a column 'brand'"):
        schemax.extract_frame(twice, Shoe, extractor=extractor, keep=["t", "brand"])


def test_a_reader_gives_a_reader_that_computes_as_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    extractor: Any = StandIn()
    table = arrow_frames()["table"]
    taken: list[int] = []
    monkeypatch.setattr("schemax.io.dataframes.PART_ROWS", 2)

    def batches() -> Iterator[pyarrow.RecordBatch]:
        for at in (0, 3, 3):
            taken.append(at)
            yield table.slice(at, 3).to_batches()[0]

    reader = pyarrow.RecordBatchReader.from_batches(table.schema, batches())
    given: dict[str, Any] = {"extractor": extractor, "text": "t", "details": True}
    found = schemax.extract_frame(reader, Shoe, keep=["id"], **given)
    assert isinstance(found, pyarrow.RecordBatchReader)
    assert taken == []
    first = found.read_next_batch()
    assert (first.num_rows, taken) == (2, [0])
    rest = found.read_all()
    assert taken == [0, 3, 3]
    whole = pyarrow.concat_tables([table, table.slice(3, 1)])
    assert pyarrow.concat_tables([pyarrow.Table.from_batches([first]), rest]).equals(
        schemax.extract_frame(whole, Shoe, keep=["id"], **given)
    )
    with pytest.raises(InputError, match="has no column 'T'"):  # before anything is read
        schemax.extract_frame(reader, Shoe, extractor=extractor, text="T")


def test_a_relation_of_duckdb_gives_a_table_that_duckdb_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    duckdb = pytest.importorskip("duckdb")
    extractor: Any = StandIn()
    connection = duckdb.connect()
    records = arrow_frames()["table"].slice(0, 3)  # noqa: F841 (read by its name)
    relation = connection.sql("SELECT * FROM records")
    found = schemax.extract_frame(relation, Shoe, extractor=extractor, text="t", keep=["id"])
    check_frame(found.to_pylist())
    rows = connection.sql("SELECT id, brand, colour FROM found").fetchall()
    assert rows == [("a", "Crocs", "red"), ("b", None, None), ("a", "Vans", None)]


def test_only_frames_are_frames() -> None:
    with pytest.raises(InputError, match="not list"):
        schemax.extract_frame([{"t": "x"}], Shoe)


def test_pieces_of_a_long_text_are_put_together() -> None:
    written = get_format("json")
    compiled: Any = {
        "": SimpleNamespace(
            schema=Shoe,
            attributes=compile_attributes(Shoe),
            format=written,
            decoding=DecodingConfig(),
        )
    }

    def extract(records: Any) -> Any:
        """Reads what stands in a piece; a guess, where nothing does."""
        for index, record in reversed(list(enumerate(records))):
            text = record["t"]
            brand = "Crocs" if "Crocs" in text else "so"
            size, colour = (7 if "size 7" in text else None), "red" if "red" in text else None
            slots = [
                SlotText(written.escape(value), "stop", 3, complete=True, confidence=confidence)
                for value, confidence in (
                    (brand, 0.9 if brand == "Crocs" else 0.2),
                    (size, 0.5),
                    (None, 1.0),
                    (colour, 0.7),
                )
            ]
            attributes = compile_attributes(Shoe)
            yield build(
                Shoe,
                attributes,
                slots,
                written,
                index=index,
                document_id=record["id"],
                steps=2,
                texts={"t": text},
            )

    whole = f"Crocs clogs {'and so on ' * 40}size 7, red"
    records = [{"id": "a", "t": whole}, {"id": "b", "t": "Crocs"}]
    made = Fitted(
        extract,
        compiled,
        lambda _, text: len(text) <= 100,
        RecordFields(("t",)),
        "chunk",
    )
    long, short = sorted(made(records), key=lambda item: item.index)
    assert short.value == Shoe(brand="Crocs", size=None, sold=None, colour=None)
    assert long.value == Shoe(brand="Crocs", size=7, sold=None, colour="red")
    assert (long.document_id, long.errors) == ("a", ())
    assert long.texts == {"t": whole}
    spans = [long.fields[name].span for name in ("brand", "size", "colour")]
    assert [whole[span.start : span.end] for span in spans if span] == ["Crocs", "7", "red"]
    assert long.steps > 2
