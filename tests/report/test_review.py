"""The documents to correct first: unsure ones, none of which is much like another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import Run, jsonl, refused
from report_data import data_of

from schemax import AttrSchema, Extraction, FieldError, FieldResult
from schemax.report.page import Report
from schemax.report.review import Review
from schemax.results import SlotText, failed


class Shoe(AttrSchema):
    brand: str | None
    size: str | None


def read(index: int, text: str, *confidences: float | None, **more: Any) -> Extraction[Any]:
    fields = {
        name: FieldResult(SlotText('"x"', "stop", 1, complete=True, confidence=confidence), "x")
        for name, confidence in zip(("brand", "size"), confidences, strict=True)
    }
    texts = {"title": text}
    return Extraction(Shoe.model_construct(), index, None, fields=fields, texts=texts, **more)


def reviewed(items: list[Extraction[Any]], count: int) -> list[int]:
    """The indexes of the rows on the page, in order."""
    page = Report(is_ranked=True)
    review = Review(page, count)
    for item in items:
        review.add(item)
    review.show()
    data = data_of(page.html())
    assert (data["total"], data["ranked"]) == (len(items), True)
    return [row["i"] for row in data["rows"]]


def test_of_near_copies_one_is_chosen() -> None:
    items = [
        read(0, "Nike Air Zoom Pegasus 40 road running shoe, black, size 9", 0.2, 0.2),
        read(1, "Nike Air Zoom Pegasus 40 road running shoe, black, size 10", 0.1, 0.2),
        read(2, "Nike Air Zoom Pegasus 40 road running shoe, black, size 11", 0.2, 0.3),
        read(3, "Ballet slippers in pink satin", 0.8, 0.7),
        read(4, "Waders for anglers, 44 EU", 0.9, 0.9),
    ]
    assert reviewed(items, 3) == [1, 3, 4]
    assert reviewed(items, 5) == [1, 3, 4]  # a copy teaches nothing


def test_what_is_less_alike_comes_first() -> None:
    items = [
        read(0, "red wool coat long sleeve", 0.1, 0.1),
        read(1, "red wool coat short buttons", 0.2, 0.2),
        read(2, "steel kettle with a whistle", 0.4, 0.4),
    ]
    assert reviewed(items, 3) == [0, 2, 1]


def test_mistakes_are_summed_and_errors_count() -> None:
    error = FieldError("size", "is no size", "x")
    items = [
        read(0, "one", 0.9, 0.1),
        read(1, "two", 0.4, 0.4),
        read(2, "three", 0.95, 0.95, errors=(error,)),
        read(3, "four", None, None),
        failed(4, None, "too long"),
    ]
    assert reviewed(items, 5) == [1, 2, 0]


def test_the_least_sure_of_many_are_kept() -> None:
    items = [read(n, f"word{n}", n / 1000, 1.0) for n in range(1000)]
    assert reviewed(items[::-1], 3) == [0, 1, 2]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_table_is_reviewed(run: Run, tmp_path: Path) -> None:
    texts = [
        *(f"Lavazza Super Crema whole bean coffee, medium roast, 2.2 lb bag {n}" for n in range(4)),
        "Kettle of iron",
        "Green Mountain decaf K-Cups, dark roast, 24 ct",
    ]
    file = jsonl(tmp_path / "in.jsonl", [{"id": str(n), "t": t} for n, t in enumerate(texts)])
    command = ("extract", "coffee", file, "--model", "embedded", "-q", "-o", "out.jsonl")
    assert run(*command).exit_code == 0
    refused(run("report", "out.jsonl", "--review", "3"), "extract with --details confidence")
    assert run(*command, "--details", "confidence").exit_code == 0
    assert run("report", "out.jsonl", "--review", "3").exit_code == 0
    data = data_of((tmp_path / "out.jsonl.html").read_text())
    assert data["total"] == data["overview"]["fields"][0]["rows"] == 6
    shown = [texts[row["i"]][:4] for row in data["rows"]]
    assert sorted(shown) == ["Gree", "Kett", "Lava"]
