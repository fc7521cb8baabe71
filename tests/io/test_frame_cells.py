"""Cells of frames become plain values."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pandas
import polars
import pyarrow
import pytest

from schemax import AttrSchema, Extractor, attr, extract_frame
from schemax.compiler import TextCodec
from schemax.io.dataframes import records_of

ID = UUID(int=5)


class Small(AttrSchema):
    brand: str | None = attr("Manufacturer", k_max=6)


def cells(frame: Any, kind: str) -> list[Any]:
    return [row["a"] for row in records_of(frame, kind, None) if isinstance(row, dict)]


def test_integers_beside_missing_values_stay_integers() -> None:
    many = [*range(2000), None]
    assert list(map(str, cells(pandas.DataFrame({"a": many}), "pandas"))) == list(map(str, many))
    for column in ([1.0, 2.0], [1.5, None], [float("inf"), None], [1e300, None]):
        expected = list(map(str, column))
        assert list(map(str, cells(pandas.DataFrame({"a": column}), "pandas"))) == expected
    assert cells(pandas.DataFrame({"a": [None, float("nan")]}), "pandas") == [None, None]


def test_uuids_and_durations_are_texts() -> None:
    frame = pandas.DataFrame({"a": [ID, timedelta(hours=1), None]}, dtype=object)
    assert cells(frame, "pandas") == [str(ID), "PT1H", None]
    table = pyarrow.table({"a": pyarrow.array([ID.bytes, None], pyarrow.uuid())})
    assert cells(table, "pyarrow") == [str(ID), None]
    frame = polars.DataFrame({"a": [ID]}, schema={"a": polars.Object})
    assert cells(frame, "polars") == [str(ID)]


@pytest.mark.parametrize("kind", [polars.Int128, polars.UInt128])
def test_integers_of_128_bits_are_read(kind: Any) -> None:
    frame = polars.DataFrame({"a": [1, 2**100, None]}, schema={"a": kind})
    assert cells(frame, "polars") == [1, 2**100, None]
    frame = polars.DataFrame({"a": [[2**100], None]}, schema={"a": polars.List(kind)})
    assert cells(frame, "polars") == [[2**100], None]


def test_columns_may_have_numbers_for_names(
    codec: TextCodec, decoder_model: Callable[..., Any]
) -> None:
    extractor = Extractor(decoder_model().model, codec)
    frame = pandas.DataFrame({0: [7, 8], 1: ["LG", ""]}, index=["a", "b"])
    results = extract_frame(frame, Small, extractor=extractor, text="1", keep=["0"])
    assert list(results.columns) == ["0", "brand", "_error", "_field_errors"]
    assert (results["0"].tolist(), results.index.tolist()) == ([7, 8], ["a", "b"])
