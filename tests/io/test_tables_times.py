"""Dates and times of Arrow and Parquet as the model is shown them; cells that cannot be read."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any

import datasets
import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest
from command_line import SCHEMA, Run, process, rows, stand_in_runner
from hypothesis import given
from hypothesis import strategies as st
from stand_in import StandIn

import schemax
from schemax.errors import InputError
from schemax.extraction.schema import AttrSchema
from schemax.io.arrow import batch_records
from schemax.io.readers import read_file


class Brand(AttrSchema):
    brand: str | None


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return stand_in_runner(tmp_path, monkeypatch)


def shown(array: Any) -> list[Any]:
    """What records have of an array: values, or why there is none."""
    records = batch_records(pyarrow.table({"t": array}))
    return [str(one) if isinstance(one, InputError) else one["t"] for one in records]  # type: ignore[index, call-overload]


def raw(values: list[int], kind: Any) -> Any:
    width = pyarrow.int32() if kind.bit_width == 32 else pyarrow.int64()
    return pyarrow.array(values, width).view(kind)


@given(st.lists(st.datetimes(), min_size=1), st.sampled_from(["s", "ms", "us"]))
def test_timestamps_are_iso_8601(moments: list[datetime], unit: str) -> None:
    step = {"s": 1_000_000, "ms": 1000, "us": 1}[unit]
    moments = [moment.replace(microsecond=moment.microsecond // step * step) for moment in moments]
    kind = pyarrow.timestamp(unit)
    expected = [moment.isoformat() for moment in moments]
    assert shown(pyarrow.array(moments, kind)) == expected
    nested = pyarrow.array([[moment, None] for moment in moments], pyarrow.list_(kind))
    assert shown(nested) == [[text, None] for text in expected]
    struct = pyarrow.array([{"at": moment} for moment in moments], pyarrow.struct([("at", kind)]))
    assert shown(struct) == [{"at": text} for text in expected]
    assert shown(pyarrow.array(moments, kind).dictionary_encode()) == expected


@given(
    st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31)),
    st.timezone_keys(allow_prefix=False),
)
def test_time_zones_are_kept(moment: datetime, zone: str) -> None:
    from zoneinfo import ZoneInfo

    array = pyarrow.array([moment], pyarrow.timestamp("us")).view(pyarrow.timestamp("us", tz=zone))
    local = moment.replace(tzinfo=UTC).astimezone(ZoneInfo(zone))
    assert shown(array) == [local.isoformat()]


@given(st.lists(st.integers(-(2**63) + 1, 2**63 - 1), min_size=1))
def test_nanoseconds_are_kept(values: list[int]) -> None:
    expected = [pandas.Timestamp(value).isoformat() for value in values]
    assert shown(raw(values, pyarrow.timestamp("ns"))) == expected


@given(st.dates(), st.times())
def test_dates_and_times_of_day(day: date, clock: time) -> None:
    assert shown(pyarrow.array([day], pyarrow.date32())) == [day.isoformat()]
    assert shown(pyarrow.array([day], pyarrow.date64())) == [day.isoformat()]
    assert shown(pyarrow.array([clock], pyarrow.time64("us"))) == [clock.isoformat()]
    nanoseconds = (datetime.combine(day, clock) - datetime.combine(day, time())) / timedelta(
        microseconds=1
    ) * 1000 + 1
    (text,) = shown(raw([int(nanoseconds)], pyarrow.time64("ns")))
    assert text == f"{clock.isoformat(timespec='microseconds')}001"


FAR = [
    (pyarrow.date32(), [2**31 - 1, -(2**31), 2_932_897, -719_163]),
    (pyarrow.date64(), [2**63 - 1, -(2**63), 2_932_897 * 86_400_000]),
    (pyarrow.timestamp("s"), [2**63 - 1, -(2**63), 253_402_300_800, -62_135_596_801]),
    (pyarrow.timestamp("ms"), [2**63 - 1, -(2**63)]),
    (pyarrow.timestamp("us"), [2**63 - 1, -(2**63)]),
    (pyarrow.timestamp("s", tz="Asia/Tokyo"), [2**63 - 1, 253_402_300_799]),
    (pyarrow.time32("s"), [86_400, -1]),
    (pyarrow.time64("ns"), [2**63 - 1]),
    (pyarrow.timestamp("us", tz="Nowhere/Land"), [0]),
]


@pytest.mark.parametrize(("kind", "values"), FAR, ids=str)
def test_what_no_calendar_has_costs_its_row(kind: Any, values: list[int]) -> None:
    for value in values:
        first, far, last = shown(pyarrow.array([None, *raw([value], kind), None], kind))
        assert (first, last) == (None, None)
        assert far.startswith("column 't' holds a value that cannot be read: ")


def test_a_bad_cell_costs_its_row_only(run: Run, tmp_path: Path) -> None:
    days = raw([0, 2**31 - 1, 20_000], pyarrow.date32())
    broken = pyarrow.StringArray.from_buffers(
        3, pyarrow.array([0, 2, 3, 5], pyarrow.int32()).buffers()[1], pyarrow.py_buffer(b"LG\xffTV")
    )
    spans = raw([1, 2**63 - 1, 1], pyarrow.duration("s"))
    table = pyarrow.table({"id": ["a", "b", "c"], "day": days, "t": ["LG true 4K"] * 3})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    result = run("extract", SCHEMA, "in.parquet", "-o", "out.jsonl")
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    found = rows((tmp_path / "out.jsonl").read_text())
    assert [row["attributes"] is None for row in found] == [False, True, False]
    assert "outside the years 1 to 9999" in found[1]["errors"][0]["message"]
    assert shown(broken) == ["LG", "column 't' holds bytes that are not valid UTF-8", "TV"]
    # Followed, these offsets lead out of the memory of the process.
    for offsets in ([0, 2, 2**30, 5], [0, -(2**30), 3, 5], [2, 1, 3, 5]):
        buffers = [None, pyarrow.array(offsets, pyarrow.int32()).buffers()[1], broken.buffers()[2]]
        for kind in (pyarrow.string(), pyarrow.list_(pyarrow.binary())):
            inner = [pyarrow.array([b"x"] * 5)] if kind != pyarrow.string() else []
            damaged = pyarrow.Array.from_buffers(kind, 3, buffers[: 3 - len(inner)], children=inner)
            assert any("holds a value that is damaged" in str(cell) for cell in shown(damaged))
    assert shown(spans) == ["PT1S", f"PT{2**63 - 1}S", "PT1S"]


def test_a_bad_cell_of_polars_costs_its_row_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    days = polars.Series([0, 2**31 - 1, None], dtype=polars.Int32).cast(polars.Date)
    frame = polars.DataFrame({"t": ["LG", "Sony", "TCL"], "day": days, "days": [[0], [1], None]})
    frame = frame.with_columns(polars.col("days").cast(polars.List(polars.Date)))
    extractor: Any = StandIn()
    found = schemax.extract_frame(frame, Brand, extractor=extractor).to_dicts()
    assert [row["brand"] for row in found] == ["t:", None, "TCL"]
    assert "outside the years 1 to 9999" in found[1]["_error"]


@pytest.mark.filterwarnings("ignore")  # of the package datasets, about itself
@pytest.mark.parametrize("text", [("t", "day"), "day"])
@pytest.mark.parametrize("kind", ["pandas", "datasets"])
def test_a_bad_cell_of_an_arrow_frame_costs_its_row_only(
    kind: str, text: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    days = raw([0, 2**31 - 1, 1], pyarrow.date32())
    table = pyarrow.table({"day": days, "t": ["LG"] * 3})
    frame: Any = table.to_pandas(types_mapper=pandas.ArrowDtype)
    if kind == "datasets":
        frame = datasets.Dataset(table)
    extractor: Any = StandIn()
    found = schemax.extract_frame(frame, Brand, extractor=extractor, text=text)
    rows: Any = found.to_dict("records") if kind == "pandas" else found.to_list()
    days_shown = ["1970-01-01", "1970-01-02"]
    assert [row["brand"] for row in rows[::2]] == (days_shown if text == "day" else ["t:", "t:"])
    assert "outside the years 1 to 9999" in rows[1]["_error"]


@pytest.mark.slow
def test_nanoseconds_do_not_need_pandas(tmp_path: Path) -> None:
    table = pyarrow.table({"t": raw([1_767_322_245_000_000_001], pyarrow.timestamp("ns"))})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    expected = list(read_file(str(tmp_path / "in.parquet")))
    code = (
        "import sys; sys.modules['pandas'] = None\n"
        "from schemax.io.readers import read_file\n"
        "print(list(read_file('in.parquet')))"
    )
    out, err = process("-c", code, cwd=tmp_path).communicate()
    assert (out.decode().strip(), err) == (str(expected), b"")
    assert expected == [{"t": "2026-01-02T02:50:45.000000001"}]
