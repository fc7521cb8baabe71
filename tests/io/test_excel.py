"""Workbooks as spreadsheet programs write them."""

from __future__ import annotations

import zipfile
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any

import openpyxl
import pytest

from schemax.errors import InputError
from schemax.io.input_columns import kept_columns
from schemax.io.readers import InputFiles, columns_of, read_file


def saved(path: Path, rows: list[list[Any]], *, cells: dict[str, str] | None = None) -> str:
    """A workbook of rows. cells: XML of cells in the place of what openpyxl writes, by name."""
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    sheet = "xl/worksheets/sheet1.xml"
    for name, text in (cells or {}).items():
        before, _, rest = parts[sheet].partition(f'<c r="{name}"'.encode())
        parts[sheet] = before + text.encode() + rest.partition(b"</c>")[2]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return str(path)


def test_whole_numbers_are_integers_however_they_are_written(tmp_path: Path) -> None:
    cells = {
        f"A{row}": f'<c r="A{row}"><v>{text}</v></c>'
        for row, text in enumerate(("1.0", "55.0", "2.5", "1E+3", "1e300"), 2)
    }
    name = saved(tmp_path / "in.xlsx", [["id"], *[[0]] * len(cells)], cells=cells)
    values = [row["id"] for row in read_file(name) if isinstance(row, dict)]
    assert list(map(str, values)) == ["1", "55", "2.5", "1000", "1e+300"]


def test_dates_times_and_durations_are_texts(tmp_path: Path) -> None:
    row = [timedelta(days=1, hours=2, minutes=30), time(9, 30), datetime(2024, 5, 6, 7, 8)]
    name = saved(tmp_path / "in.xlsx", [["a", "b", "c"], row])
    expected = {"a": "P1DT2H30M", "b": "09:30:00", "c": "2024-05-06T07:08:00"}
    assert list(read_file(name)) == [expected]
    columns = kept_columns(InputFiles.of([name]), ("a", "b", "c"))
    assert {column.type for column in columns} == {"string"}


def test_escapes_of_texts_are_read_and_written(tmp_path: Path) -> None:
    text = '<c r="A2" t="inlineStr"><is><t>one_x000D_\ntwo_x005F_x000D_ a_x00</t></is></c>'
    name = saved(tmp_path / "in.xlsx", [["t"], ["x"]], cells={"A2": text})
    assert list(read_file(name)) == [{"t": "one\r\ntwo_x000D_ a_x00"}]


def test_formulas_without_results_fail_their_rows(tmp_path: Path) -> None:
    formula = '<c r="B5" t="str"><f>IF(A5="","",1)</f><v></v></c>'
    rows = [["id", "t"], [1, '=A2&" TV"'], [2, "Radio"], [], [3, "x"]]
    name = saved(tmp_path / "in.xlsx", rows, cells={"B5": formula})
    failed, *rest = read_file(name)
    assert isinstance(failed, InputError)
    assert "column 't' holds a formula without a stored result" in str(failed)
    assert str(failed).endswith("(in B2)")
    assert failed.cells == {"id": 1}  # type: ignore[attr-defined]
    assert rest == [{"id": 2, "t": "Radio"}, {"id": 3, "t": None}]
    name = saved(tmp_path / "header.xlsx", [["id", "=A1"], [1, 2]])
    with pytest.raises(InputError, match=r"its header holds a formula without .* \(in B1\)"):
        columns_of(name)


def test_the_first_visible_sheet_is_read(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    book = openpyxl.Workbook()
    hidden, shown = book.active, book.create_sheet("Products")
    hidden.append(["code"])
    hidden.sheet_state = "hidden"
    for row in (["id"], [1]):
        shown.append(row)
    book.save(tmp_path / "in.xlsx")
    assert list(read_file(str(tmp_path / "in.xlsx"))) == [{"id": 1}]
    assert "only the first visible one of its sheets is read, 'Products'" in caplog.text


def test_rows_that_are_too_long_are_named(tmp_path: Path) -> None:
    name = saved(tmp_path / "in.xlsx", [[], ["a"], [1], [], [1, 2]])
    _, failed = read_file(name)
    assert str(failed) == "row 5 has 2 cells, but the header has 1"


def test_columns_without_a_name_are_called_by_their_place(tmp_path: Path) -> None:
    name = saved(tmp_path / "in.xlsx", [["a", None, None, "b"], [1, 2, None, 3]])
    assert columns_of(name) == ["a", "column 2", "column 3", "b"]
    assert list(read_file(name)) == [{"a": 1, "column 2": 2, "column 3": None, "b": 3}]


def test_broken_xml_is_refused(tmp_path: Path) -> None:
    name = saved(tmp_path / "in.xlsx", [["a"], [1]], cells={"A2": "<c><v>1</c"})
    with pytest.raises(InputError, match=r"any further: not a workbook: .*; open it in a"):
        list(read_file(name))
