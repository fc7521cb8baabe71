"""Lists that are written as one text: a faulty item costs itself."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, BaseModel, field_validator

from schemax import AttrSchema, Extraction, attr
from schemax.attributes import compile_attributes
from schemax.formats import Value, get_format
from schemax.results import SlotText, build
from schemax.results.repairs import refusals

JSON = get_format("json")


def read(schema: type[BaseModel], **values: Value) -> Extraction[Any]:
    attributes = compile_attributes(schema)
    slots = [
        SlotText(JSON.escape(values[attribute.name]), "stop", 3, complete=True)
        for attribute in attributes
    ]
    return build(schema, attributes, slots, JSON, index=0, document_id=None)


def told(item: Extraction[Any]) -> list[tuple[str | None, str, str | None]]:
    return [(error.field, error.message.split(":")[0], error.raw) for error in item.errors]


def not_odd(number: int) -> int:
    if number % 2:
        raise ValueError("is odd")
    return number


def test_each_kind_of_item() -> None:
    class Product(AttrSchema):
        numbers: list[int] = [0]  # noqa: RUF012
        weights: tuple[float, ...] = attr(default=(), unit="kg")
        units: set[Literal["cm", "in"]] = set()  # noqa: RUF012
        days: list[date] = []  # noqa: RUF012
        even: list[Annotated[int, AfterValidator(not_odd)]] | None = None
        either: list[int | date] = []  # noqa: RUF012

    item = read(
        Product,
        numbers=["1", "x", "3", "y"],
        weights=["2 kg", "3 cm", "500 g"],
        units=["cm", "kg"],
        days=["2024", "2024-01-31", "x"],
        even=["1", "2", "3"],
        either=["5", "x", "2024-01-31"],
    )
    assert item.value == Product(
        numbers=[1, 3],
        weights=(2, 0.5),
        units={"cm"},
        days=[date(2024, 1, 31)],
        even=[2],
        either=[5, date(2024, 1, 31)],
    )
    assert told(item) == [
        ("weights", "item 2", "3 cm"),
        ("numbers", "item 2", "x"),
        ("numbers", "item 4", "y"),
        ("units", "item 2", "kg"),
        ("days", "item 1", "2024"),
        ("days", "item 3", "x"),
        ("even", "item 1", "1"),
        ("even", "item 3", "3"),
        ("either", "item 2", "x"),
    ]
    assert item.fields["numbers"].raw == ' ["1", "x", "3", "y"]'


def test_no_item_is_left() -> None:
    class Product(AttrSchema):
        numbers: list[int]
        others: list[int] | None = None

    item = read(Product, numbers=["x"], others=["y"])
    assert item.value == Product(numbers=[], others=[])
    assert told(item) == [("numbers", "item 1", "x"), ("others", "item 1", "y")]


def test_too_few_items_that_are_left_cost_the_list() -> None:
    class Product(AttrSchema):
        numbers: list[int] = attr(default=[0], min_length=2)
        pair: tuple[int, int] = (0, 0)
        place: tuple[str, int] = ("", 0)

    item = read(Product, numbers=["1", "x"], pair=["1", "x"], place=["a", "x"])
    assert item.value == Product()
    assert {field for field, _, _ in told(item)} == {"numbers", "pair", "place"}
    assert told(item)[0] == ("numbers", "item 2", "x")


def test_an_error_of_the_list_costs_the_list() -> None:
    class Product(AttrSchema):
        numbers: list[int] = [0]  # noqa: RUF012

        @field_validator("numbers")
        @classmethod
        def short(cls, numbers: list[int]) -> list[int]:
            if len(numbers) > 2:
                raise ValueError("too many")
            return numbers

    item = read(Product, numbers=["1", "x", "3", "4"])
    assert item.value == Product()
    assert [message for _, message, _ in told(item)] == ["item 2", "too many"]


def test_a_list_with_a_faulty_item_is_asked_for_again() -> None:
    class Product(AttrSchema):
        numbers: list[int] = [0]  # noqa: RUF012

    slots = [SlotText(' ["1", "x"]', "stop", 3, complete=True)]
    refused = refusals(Product, compile_attributes(Product), slots, JSON, {})
    assert refused["numbers",].startswith("item 2: Input should be a valid integer")


@pytest.mark.parametrize("text", ["null", "None", "n/a", "not stated"])
def test_a_text_for_no_value_is_no_required_value(text: str) -> None:
    class Product(BaseModel):
        price: float
        day: date
        name: str

    item = read(Product, price=text, day=text, name=text)
    assert item.partial == {"name": text}
    said = "says that there is no value, and the field is required"
    assert {error.field: error.message for error in item.errors} == {"price": said, "day": said}
