"""Calibrations: their file, and what they do to results."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from importlib import import_module
from math import log
from pathlib import Path
from typing import Any, Literal

import pytest
from conftest import TITLES
from pydantic import BaseModel
from seams import calibration_of

from schemax.attributes import attr
from schemax.base.calibration import (
    FILE,
    Calibration,
    FieldPromise,
    Promise,
    logit,
    read_calibration,
    write_calibration,
)
from schemax.compiler import TextCodec, compile_schema
from schemax.config import DecodingConfig, resolve_decoding
from schemax.errors import ModelError
from schemax.extraction.documents import RecordFields, read_documents
from schemax.extraction.extractor import Extractor
from schemax.extraction.readout import read_out
from schemax.extraction.schema import AttrSchema
from schemax.runtime.models.loading.model_files import ModelFiles
from schemax.runtime.slots.outputs import DocumentOutput
from schemax.tokens import SlotOutput

# The package has a function of that name.
loading = import_module("schemax.runtime.models.loading.load")


@pytest.fixture(scope="module")
def extractor(saved_model: Path) -> Extractor:
    return Extractor.from_pretrained(saved_model)


# What it does to one number


def test_confidence_by_hand() -> None:
    assert Calibration().confidence(0.3) == 0.3
    assert Calibration().confidence(1.0) == 1.0
    # logit(0.8) = log 4; half of it is log 2, of which the sigmoid is 2 / 3.
    assert Calibration(temperature=2).confidence(0.8) == pytest.approx(2 / 3)
    assert Calibration(bias=log(3)).confidence(0.5) == pytest.approx(0.75)
    assert Calibration(0.5, -log(4)).confidence(2 / 3) == pytest.approx(0.5)
    assert logit(0.8) == pytest.approx(log(4))


def test_confidence_is_finite_and_keeps_the_order() -> None:
    for calibration in (Calibration(0.01, 800.0), Calibration(0.01, -800.0), Calibration(9, -3)):
        found = [calibration.confidence(raw) for raw in (0.0, 1e-9, 0.2, 0.9, 1.0)]
        assert found == sorted(found)
        assert all(0 <= one <= 1 for one in found)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"temperature": 0}, "temperature must be above 0"),
        ({"temperature": -1.0}, "temperature must be above 0"),
        ({"temperature": float("inf")}, "temperature must be a finite number"),
        ({"temperature": "1"}, "temperature must be a finite number"),
        ({"bias": None}, "bias must be a finite number"),
        ({"bias": True}, "bias must be a finite number"),
        ({"min_probability": 1.5}, "min_probability must be from 0 to 1"),
        ({"min_probability": [0.4]}, "min_probability must be a finite number"),
    ],
)
def test_what_is_no_calibration(settings: Any, said: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=said):
        Calibration(**settings)
    (folder / FILE).write_text(json.dumps(settings))
    with pytest.raises(ModelError, match=rf"calibration\.json cannot be used: {said}"):
        Extractor.from_pretrained(folder)


# Its file


def test_the_file_there_and_back(folder: Path) -> None:
    assert Extractor.from_pretrained(folder).defaults.calibration == Calibration()
    calibration = Calibration(1.25, -0.5, 0.4, -0.25, 0.125)
    write_calibration(calibration, folder)
    assert json.loads((folder / FILE).read_text()) == {
        "temperature": 1.25,
        "bias": -0.5,
        "min_probability": 0.4,
        "usual_logprob": -0.25,
        "usual_deviation": 0.125,
    }
    assert read_calibration(folder / FILE) == calibration
    assert Extractor.from_pretrained(folder).defaults.calibration == calibration


def promised(least: float | None, **fields: float | None) -> Promise:
    """A promise of 0.9 with a shared threshold, and thresholds of fields of `Small`."""
    kept = {
        name: FieldPromise(own, True, 80, (0.5, 0.4, 0.6), (0.95, 0.9, 0.99))
        for name, own in {"": least, **fields}.items()
    }
    return Promise(0.9, kept.pop(""), {"small": kept})


def test_a_promise_there_and_back(folder: Path) -> None:
    calibration = Calibration(1.25, promise=promised(None, smart=0.75))
    write_calibration(calibration, folder)
    assert Extractor.from_pretrained(folder).defaults.calibration == calibration
    (folder / FILE).write_text('{"promise": {"precision": 0.9}}')
    with pytest.raises(ModelError, match=r"calibration\.json cannot be used"):
        read_calibration(folder / FILE)


def test_other_keys_are_ignored_and_missing_ones_usual(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"bias": 1, "fitted": "today"}')
    assert read_calibration(tmp_path / FILE) == Calibration(bias=1)


@pytest.mark.parametrize("text", ["", "[]", "{", "null", '{"bias": 1e999}', "\xff"])
def test_broken_files_are_named(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_bytes(text.encode("latin-1"))
    with pytest.raises(ModelError, match=r"calibration\.json cannot be used"):
        read_calibration(tmp_path / FILE)


def test_an_adapter_brings_its_own(tmp_path: Path) -> None:
    base, adapter = tmp_path / "base", tmp_path / "adapter"
    for place in (base, adapter):
        place.mkdir()
    write_calibration(Calibration(bias=1), base)
    assert calibration_of(ModelFiles(str(base), base)) == Calibration(bias=1)
    assert calibration_of(ModelFiles(str(base), base, adapter)) is None
    write_calibration(Calibration(bias=2), adapter)
    assert calibration_of(ModelFiles(str(base), base, adapter)) == Calibration(bias=2)


# What it does to results


Colour = Literal["red", "green", "blue"]


class Small(AttrSchema):
    """Some values and some nulls, none of which runs out of its budget."""

    smart: bool | None = attr(k_max=12, strict=True)
    resolution: Literal["720p", "4K", "8K"] | None = attr(k_max=16, strict=True)
    colour: Colour | None = attr(k_max=16, strict=True)
    size: int | None = attr(k_max=24, ge=0, le=99, strict=True)


class Place(BaseModel):
    number: int = attr("Number", k_max=24, ge=0, le=99, strict=True)
    floor: int | None = attr("Floor", k_max=24, ge=0, le=99, strict=True)


class Shop(AttrSchema):
    number: int = attr("Number", k_max=24, ge=0, le=99, strict=True)
    colour: Colour = attr("Colour", k_max=16, default="red", strict=True)
    size: int = attr("Size", k_max=24, ge=0, le=99, strict=True, default=99)
    place: Place | None = attr("Place", default=None)


def read(extractor: Extractor, schema: type[Any], **changes: Any) -> Any:
    decoding = DecodingConfig(max_retries=0, **changes)
    items = extractor.stream(TITLES, schema, format="yaml", decoding=decoding)
    return sorted(items, key=lambda item: item.index)


def calibrated(extractor: Extractor, calibration: Calibration) -> Extractor:
    other = copy(extractor)
    other.defaults = replace(other.defaults, calibration=calibration)
    return other


def test_confidence_is_calibrated_and_all_else_raw(extractor: Extractor) -> None:
    calibration = Calibration(2.0, -0.5)
    plain = read(extractor, Small)
    changed = read(calibrated(extractor, calibration), Small)
    kinds = set()
    for one, other in zip(plain, changed, strict=True):
        assert one.value == other.value
        for name, before in one.fields.items():
            after = other.fields[name]
            is_null = before.raw.strip() == "null"
            kinds.add(is_null)
            expected = before.confidence if is_null else calibration.confidence(before.confidence)
            assert after.confidence == pytest.approx(expected)
            assert after.probability == before.probability
            assert after.null_probability == before.null_probability
            assert after.alternatives == before.alternatives
    assert kinds == {True, False}


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
def test_the_confidence_of_null_stays(extractor: Extractor, format: str) -> None:
    low = calibrated(extractor, Calibration(bias=-5))
    found = [
        sorted(
            one.stream(TITLES, Small, format=format),
            key=lambda item: item.index,
        )
        for one in (extractor, low)
    ]
    for one, other in zip(*found, strict=True):
        for name, before in one.fields.items():
            assert (before.confidence == other.fields[name].confidence) is (before.value is None)


def test_values_below_min_probability_are_null(extractor: Extractor) -> None:
    kept = read(extractor, Small)
    dropped = read(extractor, Small, min_probability=1.0)
    for one, other in zip(kept, dropped, strict=True):
        assert not other.errors
        for name, field in one.fields.items():
            left = other.fields[name]
            assert left.value is None
            assert left.spans == ()
            assert (left.raw, left.confidence) == (field.raw, field.confidence)
            assert left.probability == field.probability
    assert any(field.value is not None for item in kept for field in item.fields.values())


def test_values_below_a_promise_are_null_with_the_reason(extractor: Extractor) -> None:
    """Fields have their own thresholds, or the shared one; values that have to be there stay."""
    kept = read(extractor, Small)
    sure = [item.fields["size"].confidence for item in kept if item.value.size is not None]
    least = sorted(sure)[len(sure) // 2]
    own = calibrated(extractor, Calibration(promise=promised(None, size=least, colour=0.0)))
    with pytest.warns(UserWarning, match="no labels of smart, resolution"):
        found = read(own, Small)
    for one, other in zip(kept, found, strict=True):
        assert not other.errors
        assert other.fields["colour"] == one.fields["colour"]
        for name, low in (("size", least), ("smart", 2.0)):
            before, after = one.fields[name], other.fields[name]
            is_kept = before.value is None or before.confidence >= low
            assert after.value == (before.value if is_kept else None)
            assert after.left_out is not is_kept
            assert (after.raw, after.confidence) == (before.raw, before.confidence)
            assert is_kept or "for a precision of 0.9" in str(after.note)
    with pytest.warns(UserWarning, match="shop: the calibration had no labels of"):
        required = read(own, Shop)
    plain = read(extractor, Shop)
    assert [item.value.number for item in required] == [item.value.number for item in plain]


def test_the_model_s_own_threshold_and_none(extractor: Extractor) -> None:
    own = calibrated(extractor, Calibration(min_probability=1.0))
    values = [[item.value for item in read(own, Small, **given)] for given in ({}, {"k_max": 4})]
    assert all(not any(value.model_dump().values()) for found in values for value in found)
    plain = [item.value for item in read(extractor, Small)]
    assert [item.value for item in read(own, Small, min_probability=0)] == plain


def test_only_the_less_probable_are_left_out(extractor: Extractor) -> None:
    kept = read(extractor, Small)
    probabilities = sorted(
        field.probability
        for item in kept
        for field in item.fields.values()
        if field.value is not None
    )
    least = probabilities[len(probabilities) // 2]
    for one, other in zip(kept, read(extractor, Small, min_probability=least), strict=True):
        for name, field in one.fields.items():
            expected = field.value if field.probability >= least else None
            assert other.fields[name].value == expected
            written = field.raw.strip() != "null"
            assert other.fields[name].left_out == (written and field.probability < least)
            assert other.fields[name].raw == field.raw


class Ports(AttrSchema):
    brand: str | None = None
    ports: list[str] = attr(default_factory=list)


@pytest.mark.parametrize(
    ("least", "kept"), [(0.2, [True, True]), (0.4, [False, True]), (0.6, [False, False])]
)
def test_a_list_is_judged_by_its_items_on_average(
    codec: TextCodec, least: float, kept: list[bool]
) -> None:
    """0.25 is 0.5 for each of two items; one value of that probability is less probable."""
    compiled = compile_schema(Ports, codec, decoding=DecodingConfig(min_probability=least))
    written = ' "LG"', ' ["HDMI", "USB"]'
    slots = [SlotOutput(tuple(codec.encode(text)), "stop", (log(0.25),)) for text in written]
    (document,) = read_documents(["LG with HDMI and USB"], RecordFields.of(None, "id", "category"))
    item = read_out(document, DocumentOutput(tuple(slots), 1), compiled, Calibration())
    found = [not item.fields[name].left_out for name in ("brand", "ports")]
    assert found == kept
    assert item.value == Ports(brand="LG" if found[0] else None, ports=["HDMI", "USB"] * found[1])


def test_what_has_to_have_a_value_keeps_it(extractor: Extractor) -> None:
    """A default takes the place of a value; a leaf that a nested model requires stays, since its
    null would be an error."""
    kept = read(extractor, Shop)
    for one, other in zip(kept, read(extractor, Shop, min_probability=1.0), strict=True):
        assert other.errors == one.errors
        assert (other.value.colour, other.value.size) == ("red", 99)
        assert other.value.number == one.value.number
        assert (other.value.place is None) == (one.value.place is None)
        if other.value.place is not None:
            assert other.value.place == one.value.place.model_copy(update={"floor": None})
    assert any(item.value.place is not None for item in kept)
    assert any(item.value.size != 99 for item in kept)


@pytest.mark.slow
def test_the_autoregressive_layout_knows_no_probability(extractor: Extractor) -> None:
    strict = calibrated(extractor, Calibration(2.0, 1.0, 1.0))
    found = read(strict, Small, layout="autoregressive", min_probability=1.0)
    plain = read(extractor, Small, layout="autoregressive")
    assert [item.value for item in found] == [item.value for item in plain]
    assert all(field.confidence is None for item in found for field in item.fields.values())


def test_the_setting() -> None:
    assert resolve_decoding("isolated").min_probability is None
    assert resolve_decoding("isolated:min_probability=0.4").min_probability == 0.4
    assert resolve_decoding("isolated:min_probability=0").min_probability == 0
    assert resolve_decoding("paper").min_probability == 0
    for wrong in (-0.1, 1.1, float("nan"), "x", True):
        with pytest.raises(ValueError, match="min_probability"):
            DecodingConfig(min_probability=wrong)  # type: ignore[arg-type]
