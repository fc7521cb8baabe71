"""The report without a browser: what the page holds, that data stays data, and what is written."""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from command_line import SCHEMA, Run, jsonl, refused, rows
from report_data import data_of
from report_page import result

import schemax
from schemax import AttrSchema, Extraction, FieldError, FieldResult
from schemax.errors import InputError
from schemax.report import page
from schemax.report.page import Report, open_report
from schemax.report.pages import to_json
from schemax.results import SlotText, Span, failed

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!-- <script> --> ]]>",
    "{{ 7 * 7 }} ${title} $data",
    "\u202eright to left\u202c \u2028 \u2029",
    "null \0 byte, \r\n, \x1b[31m, \ufeff",
    "half a pair \ud83d, the other half \ude00",
    "é 😀 \U0010ffff \uffff",
]


class Shoe(AttrSchema):
    brand: str | None
    size: float | None


class Tea(AttrSchema):
    brand: str | None
    flavour: str | None


def shoe(index: int, brand: Any = "Crocs", size: Any = 8.5, **more: Any) -> Extraction[Any]:
    fields = {"brand": result(f'"{brand}"', brand), "size": result(str(size), size)}
    return Extraction(Shoe.model_construct(), index, None, fields=fields, **more)


@pytest.mark.parametrize("text", HOSTILE)
def test_texts_and_values_come_back_as_they_were(text: str, tmp_path: Path) -> None:
    error = FieldError("brand", text, text)
    item = shoe(0, text, errors=(error,), texts={"title": text, text: "x"})
    html = schemax.report([item], tmp_path / "report.html", title=text)
    assert (tmp_path / "report.html").read_bytes().decode() == html
    assert [tag.lower() for tag in re.findall("<script[^>]*>", html)] == [
        '<script type="application/json" id="data">',
        "<script>",
    ]
    assert html.count("</script>") == 2
    assert html.count("<!--") == 0
    (row,) = data_of(html)["rows"]
    assert row["c"][0]["v"] == text
    assert row["e"] == [["brand", text, text]]
    assert row["t"] == [["title", text], [text, "x"]]


def test_nothing_is_loaded_and_only_its_own_script_runs() -> None:
    html = schemax.report([shoe(0)])
    assert not re.findall(
        r"https?:|//[a-z]+\.|@import|url\(|\bsrc=|<link|\bfetch\(|innerHTML", html
    )
    (policy,) = re.findall('Content-Security-Policy" content="([^"]*)"', html)
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    for kind in ("script", "style"):
        (inline,) = re.findall(f"<{kind}>(.*?)</{kind}>", html, re.S)
        digest = b64encode(sha256(inline.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy


def test_offsets_are_counted_as_javascript_counts() -> None:
    texts = {"title": "👟 Crocs 😀 Clog", "more": "naïve Crocs"}
    spans = (Span(2, 7, "title"), Span(6, 11, "more"), None)
    item = Extraction(None, 0, None, fields={"brand": result("x", "x", spans)}, texts=texts)
    (row,) = data_of(schemax.report([item]))["rows"]
    assert row["c"][0]["s"] == [[3, 8, 0], [6, 11, 1], None]
    assert row["c"][0]["g"] == 0


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (2**60, str(2**60)),
        (float("inf"), "inf"),
        ([1, float("nan"), date(2020, 1, 2)], [1, "nan", "2020-01-02"]),
        ({"a": -(2**70)}, {"a": str(-(2**70))}),
        (True, True),
        (b"\xff", "<bytes>"),
    ],
)
def test_values_that_json_or_javascript_would_change(value: Any, shown: Any) -> None:
    (row,) = data_of(schemax.report([shoe(0, value)]))["rows"]
    assert row["c"][0]["v"] == shown


def test_what_is_usual_is_left_out_and_the_rest_is_there() -> None:
    slot = SlotText(
        "8 ",
        "length",
        5,
        complete=False,
        confidence=0.87654321,
        null_probability=0.0123456,
        left_out=True,
        alternatives={8: 0.8, 9: 0.1, None: 0.0123456, 7: 0.05, 6: 1e-9},
    )
    full = FieldResult(slot, 8, (Span(0, 1, "t"),))
    fields = {"size": full, "brand": result("", None)}
    item = Extraction(Shoe.model_construct(), 3, "B0", fields=fields, steps=6, texts={"t": "8"})
    (row,) = data_of(schemax.report([item]))["rows"]
    cell = {"v": 8, "r": "8 ", "c": 0.8765, "s": [[0, 1, 0]], "g": 1, "o": 1, "f": "length", "t": 5}
    others = [["9", 0.1], ["7", 0.05], ["null", 0.0123]]
    cells = [{**cell, "n": 0.0123, "a": others}, {}]
    assert row == {"i": 3, "id": "B0", "l": 0, "c": cells, "t": [["t", "8"]], "n": 6}


def test_schemas_share_columns_and_failed_rows_find_theirs() -> None:
    tea_fields = {"brand": result("x", "x"), "flavour": result("y", "y")}
    items = [
        Extraction(None, 0, None, fields=tea_fields),  # before any row that tells the schema
        Extraction(Tea.model_construct(), 1, None, fields=tea_fields),
        shoe(2),
        Extraction(None, 3, None, fields=shoe(0).fields),
        failed(4, None, "line 5: broken JSON"),
    ]
    data = data_of(schemax.report(items))
    assert data["fields"] == ["brand", "flavour", "size"]
    assert [{key: one[key] for key in ("name", "fields")} for one in data["layouts"]] == [
        {"name": "tea", "fields": [0, 1]},
        {"name": "shoe", "fields": [0, 2]},
    ]
    assert [row.get("l") for row in data["rows"]] == [0, 0, 1, 1, None]
    assert [row.get("x") for row in data["rows"]] == [1, None, None, 1, 1]


def test_a_page_is_bounded_in_rows_and_in_size(monkeypatch: pytest.MonkeyPatch) -> None:
    data = data_of(schemax.report((shoe(n) for n in range(50)), limit=20))
    assert (data["total"], len(data["rows"])) == (50, 20)
    monkeypatch.setattr(page, "MOST_CHARACTERS", 1000)
    html = schemax.report(shoe(n, texts={"t": "x" * 300}) for n in range(50))
    assert (data_of(html)["total"], len(data_of(html)["rows"])) == (50, 2)


def test_an_empty_page_is_a_page() -> None:
    data = data_of(schemax.report([]))
    assert data.pop("overview")["fields"] == []
    assert data == {"total": 0, "cut": False, "fields": [], "layouts": [], "rows": []}


def test_instances_are_refused_with_what_to_pass_instead() -> None:
    with pytest.raises(TypeError, match=r"Extractor\.stream gives them, not Shoe"):
        schemax.report([Shoe.model_construct()])  # type: ignore[list-item]


def test_a_page_is_replaced_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")
    with monkeypatch.context() as patch:
        patch.setattr(page.os, "replace", _full_disk)
        with pytest.raises(OSError, match="full"):
            schemax.report([shoe(0)], path)
    assert [item.name for item in tmp_path.iterdir()] == ["report.html"]
    assert path.read_text() == "old"
    schemax.report([shoe(0)], str(path))
    assert path.read_text("utf-8").startswith("<!doctype html>")


def _full_disk(*_: Any) -> None:
    raise OSError("the disk is full")


@pytest.mark.parametrize("kind", [KeyboardInterrupt, RuntimeError])
def test_a_run_that_ends_early_leaves_its_page(kind: type[BaseException], tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("old")

    def run(*items: Extraction[Any]) -> None:
        with open_report(str(path), "t") as report:
            for item in items:
                report.add(item)
            raise kind

    with pytest.raises(kind):
        run()
    assert path.read_text() == "old"
    with pytest.raises(kind) as caught:
        run(shoe(0))
    data = data_of(path.read_text("utf-8"))
    assert (data["cut"], data["total"]) == (True, 1)
    assert str(path) in caught.value.__notes__[0]


def test_every_asset_is_well_formed_inside_html() -> None:
    """What would end or hide a script, wherever it stood in one."""
    root = Path(schemax.__file__).parents[1]
    assets = [path for part in ("schemax", "reproduce") for path in (root / part).rglob("*.[jc]s*")]
    assert len({path.parent for path in assets if path.suffix in (".js", ".css")}) == 5
    for path in assets:
        if path.suffix == ".js":
            assert not re.findall("</script|<!--", path.read_text("utf-8"), re.I)
        elif path.suffix == ".css":
            assert "</style" not in path.read_text("utf-8")


def test_json_for_scripts() -> None:
    assert to_json(["<a>", "\ud800", "é"]) == '["\\u003ca>","\\ud800","é"]'


def test_the_command_writes_rows_and_a_page(run: Run, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", [{"id": "a", "title": "LG 😀 OLED"}, 5, "Sony 55"])
    more = ("--report", "report.html", "--max-errors", "1")
    result = run("extract", SCHEMA, source, *more)
    assert result.exit_code == 0, result.output
    assert len(rows(result.stdout)) == 3
    html = (tmp_path / "report.html").read_text("utf-8")
    data = data_of(html)
    assert "<h1>in.jsonl</h1>" in html
    assert (data["total"], len(data["rows"]), data["cut"]) == (3, 3, False)
    first, second, _ = data["rows"]
    assert first["id"] == "a"
    assert first["t"] == [["title", "LG 😀 OLED"]]
    assert len(first["c"]) == 3
    assert second["x"] == 1
    assert [item.name for item in tmp_path.glob("*.partial")] == []


@pytest.mark.parametrize("target", [".", "absent/report.html"])
def test_a_page_that_cannot_be_written_is_refused_at_once(run: Run, target: str) -> None:
    refused(run("extract", SCHEMA, "-", "--report", target, stdin=b'"LG"\n'), "cannot write")
    with pytest.raises(InputError), open_report(target, "t"):
        pass


def test_rows_come_in_any_order() -> None:
    report = Report()
    for index in (3, 1, 2):
        report.add(shoe(index))
    assert [row["i"] for row in data_of(report.html())["rows"]] == [3, 1, 2]  # the page sorts
