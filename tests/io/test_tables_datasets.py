"""Data sets of Hugging Face in and out, with the real package."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any, Literal

import datasets
import pyarrow
import pytest
from pydantic import BaseModel
from stand_in import StandIn

import schemax
from schemax.attributes import attr
from schemax.errors import InputError
from schemax.extraction.schema import AttrSchema
from schemax.io.dataframes import records_of_dataset

pytestmark = pytest.mark.filterwarnings("ignore")  # of the package, about itself


class Size(BaseModel):
    unit: Literal["cm", "in"] | None = None


class Shoe(AttrSchema):
    brand: str | None
    size: int | None
    sold: bool | None
    colour: Literal["red", "blue"] | None
    tags: list[str] = attr(default_factory=list)
    box: Size | None


FEATURES = {
    "id": datasets.Value("int64"),
    "t": datasets.Value("string"),
    "words": datasets.List(datasets.Value("string")),
    "days": datasets.List(datasets.Value("date32")),
    "kind": datasets.ClassLabel(names=["shoe", "tea"]),
    "kinds": datasets.List(datasets.ClassLabel(names=["shoe", "tea"])),
    "at": datasets.Value("timestamp[s]"),
    "nested": {"x": datasets.Value("float32")},
}
RECORDS = [
    {
        "id": 1,
        "t": "Crocs 7 true red x cm",
        "words": ["a", None],
        "days": [date(2026, 1, 2)],
        "kind": 1,
        "kinds": [0, 1],
        "at": datetime(2026, 1, 2, 3),
        "nested": {"x": 1.5},
    },
    {key: 2 if key == "id" else None for key in FEATURES},
    {key: "Vans x false green y in" if key == "t" else None for key in FEATURES},
]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    return datasets.Dataset.from_list(RECORDS, features=datasets.Features(FEATURES))


def read(data: Any, text: Any = "t", **options: Any) -> Any:
    extractor: Any = StandIn()
    return schemax.extract_frame(data, Shoe, extractor=extractor, text=text, **options)


def test_a_data_set_gives_a_data_set(data: Any, tmp_path: Path) -> None:
    found = read(data)
    assert isinstance(found, datasets.Dataset)
    text = datasets.Value("string")
    assert found.features["colour"] == text
    assert found.features["tags"] == datasets.List(text)
    assert found.features["box"] == {"unit": text}
    assert found.data.table.schema.field("colour").type == pyarrow.string()
    assert found["brand"][:] == ["Crocs", None, "Vans"]
    assert found["size"][:] == [7, None, None]
    assert found["sold"][:] == [True, None, False]
    assert found["colour"][:] == ["red", None, None]
    assert found["tags"][:] == [["x"], None, ["y"]]
    assert found["_error"][:] == [None, "the text is empty", None]
    both = datasets.concatenate_datasets([data, found], axis=1)
    assert both[2]["t"].startswith(both[2]["brand"])
    assert datasets.concatenate_datasets([found, found]).num_rows == 6
    found.save_to_disk(tmp_path / "found")
    assert datasets.load_from_disk(tmp_path / "found")[:] == found[:]


def test_every_type_is_shown_as_text(data: Any) -> None:
    names = ("t", "words", "days", "kind", "kinds", "at")
    first = next(iter(records_of_dataset(data, list(names))))
    assert first == {
        "t": "Crocs 7 true red x cm",
        "words": ["a", None],
        "days": ["2026-01-02"],
        "kind": "tea",
        "kinds": ["shoe", "tea"],
        "at": "2026-01-02T03:00:00",
    }
    assert read(data, names)["_error"][:] == [None, "the text is empty", None]
    assert "nested" in read(data, None)["_error"][0]


@pytest.mark.parametrize("format", ["numpy", "torch", "pandas", "polars", "arrow"])
def test_the_format_of_a_data_set_does_not_matter(data: Any, format: str) -> None:
    assert read(data.with_format(format), ("t", "at"))[:] == read(data, ("t", "at"))[:]
    shown = data.with_format(format, columns=["t"])
    assert read(shown, None)["brand"][:] == ["Crocs", None, "Vans"]


def test_a_transform_is_what_is_read(data: Any) -> None:
    changed = data.with_transform(lambda rows: {"t": [f"Asics {text}" for text in rows["t"]]})
    assert read(changed)["brand"][:] == ["Asics"] * 3


def test_rows_that_were_selected_are_read_in_their_order(data: Any) -> None:
    assert read(data.select([2, 0]))["brand"][:] == ["Vans", "Crocs"]
    empty = read(data.select([]))
    assert (empty.num_rows, empty.features) == (0, read(data).features)


def test_what_has_no_rows_in_order_is_refused(data: Any) -> None:
    with pytest.raises(InputError, match=r"not IterableDataset.*Extractor\.stream"):
        read(data.to_iterable_dataset())
    with pytest.raises(InputError, match="DatasetDict, choose a split"):
        read(datasets.DatasetDict(train=data))
