"""Tables in: files as people really have them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from command_line import SCHEMA, Run, jsonl, refused, rows, stand_in_runner
from seams import replaced

from schemax.errors import InputError
from schemax.extraction.documents import RecordFields, read_documents
from schemax.io.readers import columns_of, read_file
from schemax.io.summary import Duplicates, Tally


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return stand_in_runner(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "text",
    [
        '\ufeffid,t\r\n1,"a, b"\r\n2,c\r\n',
        'id;t\r\n1;"a, b"\r\n2;c\r\n',
        "id\tt\n1\ta, b\n2\tc",
        '\n\nid,t\n\n1,"a, b"\n2,c\n\n',
        'id,t\r1,"a, b"\r2,c\r',
    ],
)
def test_csv_of_any_spreadsheet_is_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "in.csv").write_bytes(text.encode())
    found = list(read_file(str(tmp_path / "in.csv")))
    assert found == [{"id": "1", "t": "a, b"}, {"id": "2", "t": "c"}]


@pytest.mark.parametrize(
    ("name", "header", "columns"),
    [
        ("in.tsv", "name\tprice, EUR", ["name", "price, EUR"]),
        ("in.TSV", "a, b, c", ["a, b, c"]),
        ("in.csv", '"Preis, EUR";Name', ["Preis, EUR", "Name"]),
        ("in.csv", 'Name;"Preis, EUR, netto"', ["Name", "Preis, EUR, netto"]),
        ("in.csv", '"Preis,\n""EUR"", netto";Name', ['Preis,\n"EUR", netto', "Name"]),
        ("in.csv", 'name,"a;b;c"', ["name", "a;b;c"]),
        ("in.csv", "Name;Preis, EUR;Ort", ["Name", "Preis, EUR", "Ort"]),
        ("in.csv", 'pipe 5",length', ['pipe 5"', "length"]),
        ("in.csv", "name,price;EUR\nTV,499", ["name", "price;EUR"]),
        ("in.csv", "name|price, EUR|size", ["name", "price, EUR", "size"]),
        ("in.csv", "name", ["name"]),
    ],
)
def test_what_divides_cells_is_told_by_suffix_and_header(
    tmp_path: Path, name: str, header: str, columns: list[str]
) -> None:
    (tmp_path / name).write_text(f"\n\n{header}\n")
    assert columns_of(str(tmp_path / name)) == columns
    (tmp_path / name).write_text(header)
    assert columns_of(str(tmp_path / name)) == columns


QUOTES = "a cell in quotes does not end with a quote before ',' or the end of a line"


def told(path: Path) -> list[Any]:
    """The records of a file as lists of cells; the messages of failed rows."""
    records = read_file(str(path))
    return [list(row.values()) if isinstance(row, dict) else str(row) for row in records]


@pytest.mark.parametrize("end", ["", "\n", "\n4,e"])
def test_a_quote_that_nobody_closes_costs_its_row(tmp_path: Path, end: str) -> None:
    (tmp_path / "in.csv").write_text(f'id,t\n1,"a\nb"\n2,"c\n3,d{end}')
    rest = [["4", "e"]] if "4" in end else []
    assert told(tmp_path / "in.csv") == [["1", "a\nb"], f"line 4: {QUOTES}", ["3", "d"], *rest]


def test_a_quote_that_opens_nothing_swallows_no_rows(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('id,t\n1,"TV\n2,Radio\n3,"Lamp"\n4,"a" b\n5,5" pipe\n')
    lines = [f"line {line}: {QUOTES}" for line in (2, 5)]
    expected = [lines[0], ["2", "Radio"], ["3", "Lamp"], lines[1], ["5", '5" pipe']]
    assert told(tmp_path / "in.csv") == expected
    (tmp_path / "in.csv").write_text('id,"t" x\n1,a\n')
    with pytest.raises(InputError, match=r"in.csv: its header is in line 1: a cell in quotes"):
        columns_of(str(tmp_path / "in.csv"))


def test_wrong_quotes_cost_linear_time(tmp_path: Path) -> None:
    """Every line would be read again for each line in front, were lines of one row to span."""
    count = 20_000
    (tmp_path / "in.csv").write_text("a,b\n" + 'x","y\n' * count + '"z" z\n')
    assert told(tmp_path / "in.csv") == [f"line {line}: {QUOTES}" for line in range(2, count + 3)]


def test_lines_that_would_be_rows_in_quotes_are_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in.csv").write_text('id,t\n1,"TV\n2,Radio\n3,Lamp"\n4,"a\nb"\n')
    assert told(tmp_path / "in.csv") == [["1", "TV\n2,Radio\n3,Lamp"], ["4", "a\nb"]]
    assert "in.csv: 3 lines up to line 4 are one row" in caplog.text
    assert caplog.text.count("one row") == 1


def test_backslashes_before_quotes_are_found(tmp_path: Path) -> None:
    text = 'id,t\n1,"a \\" b, c"\n2,C:\\new\n3,"\\"d\\" \\\\"\n4,5\\" pipe\n'
    (tmp_path / "in.csv").write_text(text)
    expected = [["1", 'a " b, c'], ["2", "C:\\new"], ["3", '"d" \\'], ["4", '5" pipe']]
    assert told(tmp_path / "in.csv") == expected
    (tmp_path / "in.csv").write_text('id,t\n1,"a \\" b"\n2,Doe\\, Jane\n')
    assert told(tmp_path / "in.csv") == [["1", 'a " b'], ["2", "Doe, Jane"]]
    (tmp_path / "in.csv").write_text('id,t\n1,"C:\\"\n2,"a\\"" b"\n')
    assert told(tmp_path / "in.csv") == [["1", "C:\\"], ["2", 'a\\" b']]


def test_quotes_of_tsv_are_quotes_where_they_enclose_cells(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stray = 'id\tt\n1\t"test\n2\t"te"st"\n3\t5"\n4\tfoo"\n'
    (tmp_path / "in.tsv").write_text(stray)
    expected = [["1", '"test'], ["2", '"te"st"'], ["3", '5"'], ["4", 'foo"']]
    assert told(tmp_path / "in.tsv") == expected
    assert "quotes enclose no cells in it" in caplog.text
    (tmp_path / "in.tsv").write_text('id\tt\n1\t"test\n2\tfoo"\n')
    assert told(tmp_path / "in.tsv") == [["1", '"test'], ["2", 'foo"']]
    (tmp_path / "in.tsv").write_text('id\tt\n1\t"a\nb"\n2\t"55"" TV"\n')
    assert told(tmp_path / "in.tsv") == [["1", "a\nb"], ["2", '55" TV']]
    (tmp_path / "in.csv").write_text(stray.replace("\t", "|"))
    assert told(tmp_path / "in.csv") == expected
    (tmp_path / "in.tsv").write_text(stray.replace("id\tt", '"id"\t"t"'))
    assert "line 2: a cell in quotes" in told(tmp_path / "in.tsv")[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Produkt;Preis, EUR\nTV;499,00\nRadio;29,90\n", [["TV", "499,00"], ["Radio", "29,90"]]),
        ("id,t;u\n1,a\n2,b; c\n", [["1", "a"], ["2", "b; c"]]),
        ("id|t\n1|a, b\n", [["1", "a, b"]]),
        ("sep=;\r\nid;t\r\n1;a, b\r\n", [["1", "a, b"]]),
        (
            "sep=^\nid^t\n1^a, b\n2\n",
            [["1", "a, b"], "line 4: number of cells 1, but the header has 2"],
        ),
    ],
)
def test_delimiters_are_found_by_the_rows(tmp_path: Path, text: str, expected: list[Any]) -> None:
    (tmp_path / "in.csv").write_bytes(text.encode())
    assert told(tmp_path / "in.csv") == expected


def test_columns_without_a_name_are_called_by_their_place(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(",t,,\n1,TV,,\n")
    assert list(read_file(str(tmp_path / "in.csv"))) == [
        {"column 1": "1", "t": "TV", "column 3": None, "column 4": None}
    ]


def test_a_single_column_is_told_of_where_its_name_has_another_delimiter(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "plain.csv").write_text("Product title\nTV\n")
    (tmp_path / "in.csv").write_text("id^t\n1^a\n")
    assert told(tmp_path / "plain.csv") == [["TV"]]
    assert not caplog.text
    assert told(tmp_path / "in.csv") == [["1^a"]]
    assert "in.csv: it has one column, 'id^t'" in caplog.text


def test_the_last_cell_may_be_quoted(tmp_path: Path) -> None:
    for end in ("", "\n"):
        (tmp_path / "in.csv").write_text(f'id,t\n1,"a"{end}')
        assert list(read_file(str(tmp_path / "in.csv"))) == [{"id": "1", "t": "a"}]


def test_bytes_are_text(tmp_path: Path) -> None:
    table = pyarrow.table({"id": [b"a", b"b", None], "t": ["Größe".encode(), b"\xff", None]})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    first, broken, empty = read_file(str(tmp_path / "in.parquet"))
    assert first == {"id": "a", "t": "Größe"}
    assert broken == {"id": "b", "t": b"\xff"}  # which may be kept
    (document,) = read_documents([broken], RecordFields.of("t", "id", None, "strip"))
    assert document.problem == "column 't' holds bytes that are not valid UTF-8"
    assert empty == {"id": None, "t": None}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("name", ["in.csv", "in.csv.gz"])
def test_csv_is_read_by_its_byte_order_mark(tmp_path: Path, encoding: str, name: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    content = f'{mark}id,t\r\n1,é 5 €\r\n2\r\n3,"x\ny"\r\n4,a,b\r\n'.encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert columns_of(str(tmp_path / name)) == ["id", "t"]
    first, short, third, long = read_file(str(tmp_path / name))
    assert (first, third) == ({"id": "1", "t": "é 5 €"}, {"id": "3", "t": "x\ny"})
    assert str(short) == "line 3: number of cells 1, but the header has 2"
    assert str(long) == "line 6: number of cells 3, but the header has 2"


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("in.csv", b"id,title\n1,a\n", "it has no column 't'; it has id, title"),
        (
            "in.jsonl",
            b'{"id": 1, "title": "a"}\n"b"\n{"x": 2}\n',
            "no column 't'; it has id, title, x",
        ),
        ("in.csv", "id,t\n1,a\n".encode("utf-16-le"), "its header is not UTF-8"),
        ("in.csv", "id,größe\n1,a\n".encode("latin-1"), "its header is not UTF-8"),
        ("in.csv", b"t,t\n1,a\n", "two columns are named 't'"),
        ("in.csv.gz", b"id,t\n", "at all: Not a gzipped file"),
        ("in.parquet", b"", "in.parquet at all"),
        ("in.arrow", b"id,t\n1,a\n", "in.arrow at all"),
        ("in.json", b'[\n{"t": "a"}\n]\n', "expected JSON Lines"),
        ("in.json", b'{\n"t": "a"\n}\n', "expected JSON Lines"),
        ("in.xls", b"PK", "unknown format .xls"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_at_once(
    run: Run, tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    good = jsonl(tmp_path / "good.jsonl", ["LG true 4K"])
    for inputs in ((name,), (good, name)):
        refused(run("extract", SCHEMA, *inputs, "--text", "t", "-o", "out.csv"), name, said)
        assert not list(tmp_path.glob("*out*"))


def test_columns_that_are_named_must_be_there(run: Run, tmp_path: Path) -> None:
    table = pyarrow.table({"sku": ["1"], "t": ["LG true 4K"]})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    args = ("extract", SCHEMA, "in.parquet", "-o", "out.jsonl", "--text")
    refused(run(*args, "t", "--id", "no"), "it has no column 'no'; it has sku, t")
    refused(run(*args, "text,title"), "it has no column 'text' or 'title'")
    refused(run(*args, "title,t"), "no column is called 'title'; there are sku, t")
    assert run(*args, "t", "--id", "sku").exit_code == 0
    assert rows((tmp_path / "out.jsonl").read_text())[0]["id"] == "1"


def test_files_without_rows_give_tables_without_rows(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,t\n")
    (tmp_path / "b.csv").touch()
    (tmp_path / "c.jsonl").touch()
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(b"\n"))
    for inputs in (("a.csv",), ("c.jsonl",), ("a.csv", "b.csv", "c.jsonl", "d.jsonl.gz")):
        result = run("extract", SCHEMA, *inputs, "--text", "t", "-o", "out.parquet")
        assert result.exit_code == 0, result.output
        table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
        assert (table.num_rows, table.column_names[:3]) == (0, ["id", "index", "brand"])


def test_ids_of_any_type_are_text(run: Run, tmp_path: Path) -> None:
    ids = [1, 2.5, None, float("nan"), "0042"]
    source = jsonl(tmp_path / "in.jsonl", [{"id": id, "t": "LG true 4K"} for id in ids])
    assert run("extract", SCHEMA, source, "-o", "out.jsonl").exit_code == 0
    found = [row["id"] for row in rows((tmp_path / "out.jsonl").read_text())]
    assert found == ["1", "2.5", None, None, "0042"]


@pytest.mark.slow
def test_a_broken_first_try_leaves_nothing_in_the_way(run: Run, tmp_path: Path) -> None:
    packed = gzip.compress(b"".join(b'{"t": "LG true %d"}\n' % n for n in range(3000)))
    (tmp_path / "in.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    args = ("extract", SCHEMA, "in.jsonl.gz", "-o", "out.jsonl", "-q")
    result = run(*args)
    refused(result, "cannot read in.jsonl.gz any further")
    assert "kept" not in result.stderr
    assert not list(tmp_path.glob("*out*"))
    (tmp_path / "in.jsonl.gz").write_bytes(packed)
    assert run(*args).exit_code == 0


def test_a_folder_of_somebody_else_is_left_alone(run: Run, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", ["LG true 4K"])
    own = tmp_path / "_out.jsonl.parts" / "diary.txt"
    own.parent.mkdir()
    own.write_text("dear diary")
    for more in ((), ("--overwrite",)):
        refused(run("extract", SCHEMA, source, "-o", "out.jsonl", *more), "diary.txt")
        assert own.read_text() == "dear diary"


def test_duplicates_are_found_by_hashes_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, "ids that are known", 3)
    ids = Duplicates()
    for id in ("a", "b", None, "a", "c", "d", "d", "b", None, "a"):
        ids.add(id)
    assert ids.rows == 3  # d came when there was no room
    warning = ids.note()
    assert warning is not None
    assert warning.endswith("3 rows with an id that an earlier row has: a, b")


def test_kinds_of_errors_are_counted_in_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced(monkeypatch, "kinds of errors that are counted", 2)
    tally = Tally()
    for message in ("one", "two", "one", "three", "four", "one"):
        error = {"field": None, "message": message, "raw": None}
        tally.add_row({"attributes": {}, "errors": [error], "id": None})
    summary = tally.summary()
    assert summary.field_errors == 6
    assert summary.error_kinds == (("one", 3), ("of other kinds", 2), ("two", 1))
