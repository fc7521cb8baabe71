"""What a row keeps that failed, what is said of fields that did, and what is never asked for."""

from __future__ import annotations

import logging
import pickle
from typing import Annotated, Any, Self

import pytest
from pydantic import BaseModel, Field, computed_field, model_validator
from pydantic.json_schema import SkipJsonSchema

from schemax import AttrSchema, Extraction, Extractor, SchemaError, attr
from schemax.attributes import compile_attributes
from schemax.base.resources import resource_dir
from schemax.errors import ExtractionError
from schemax.formats import get_format
from schemax.results import SlotText, build
from schemax.results.extraction import values_of


class Maker(AttrSchema):
    name: str | None = None
    city: str | None = None


class Offer(AttrSchema):
    price: float | None = None
    sizes: list[int] = attr(default_factory=list)
    maker: Maker | None = None
    seller: str
    stock: int | None = attr(ge=1)

    @model_validator(mode="after")
    def is_cheap(self) -> Self:
        if self.price is not None and self.price > 100:
            raise ValueError("offers cost at most 100")
        return self


def read(**texts: Any) -> Extraction[Offer]:
    attributes, output = compile_attributes(Offer), get_format("json")
    slots = [
        SlotText(output.escape(texts.get(item.path[-1])), "stop", 1, True) for item in attributes
    ]
    return build(Offer, attributes, slots, output, index=0, document_id="d")


def test_a_row_that_a_validator_refuses_keeps_its_values() -> None:
    item = read(price="250", sizes=["1", "2"], name="LG", seller="Shop", stock="0")
    assert item.value is None
    assert item.partial == {
        "price": 250.0, "sizes": [1, 2], "maker": {"name": "LG", "city": None}, "seller": "Shop",
    }  # fmt: skip
    assert any(error.message == "offers cost at most 100" for error in item.errors)
    assert item.to_row(details=True)["partial"] == dict(item.partial)
    assert pickle.loads(pickle.dumps(item)).partial == item.partial


def test_a_row_without_what_is_required_keeps_the_rest() -> None:
    item = read(price="50", city="Oslo")
    assert (item.value, item.partial) == (
        None,
        {"price": 50.0, "maker": {"name": None, "city": "Oslo"}},
    )
    assert read(price="50", seller="Shop").partial == {}


def test_extract_warns_of_fields_that_lost_their_values(caplog: pytest.LogCaptureFixture) -> None:
    good, bad = read(seller="a"), read(seller="a", stock="0", price="cheap")
    with caplog.at_level(logging.WARNING):
        assert values_of([good], "raise") == [good.value]
        assert caplog.messages == []
        values_of([good, bad], "raise")
    (message,) = caplog.messages
    assert message.startswith("fields of 1 of 2 documents have values that could not be used: ")
    assert "price 1" in message
    assert "stock 1" in message
    with pytest.raises(ExtractionError):
        values_of([good, read()], "raise")


class Record(AttrSchema):
    brand: str | None = None
    source: Annotated[dict[str, object], "anything"] = attr(skip=True, default_factory=dict)
    secret: SkipJsonSchema[str] = "x"
    inner: str = Field("y", exclude=True)
    _cache: int = 3

    @computed_field  # type: ignore[prop-decorator]
    @property
    def shout(self) -> str:
        return (self.brand or "").upper()


def test_fields_that_are_not_the_model_s_business_are_not_asked_for() -> None:
    assert [item.name for item in compile_attributes(Record)] == ["brand"]
    extractor = Extractor.from_pretrained(resource_dir("embedded"))
    (record,) = extractor.extract(["Sony TV"], Record)
    assert (record.source, record.secret, record.inner) == ({}, "x", "y")
    again = AttrSchema.from_json_schema(Record.json_schema())
    assert [item.name for item in compile_attributes(again)] == ["brand"]


def test_a_field_that_is_skipped_needs_a_default() -> None:
    class Bad(BaseModel):
        a: str | None = None
        b: int = attr(skip=True)

    with pytest.raises(SchemaError, match=r"Bad\.b: is not asked for and required; give it a def"):
        compile_attributes(Bad)
