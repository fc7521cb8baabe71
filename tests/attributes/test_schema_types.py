"""Which types compile, and into which attributes."""

from __future__ import annotations

import enum
import ipaddress
import uuid
from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, Optional, Union

import pydantic
import pytest
from pydantic import BaseModel, Field, HttpUrl, RootModel
from typing_extensions import TypeAliasType

from schemax.attributes import Attribute, attr, compile_attributes
from schemax.extraction.schema import AttrSchema


class Color(enum.Enum):
    """Colours of the catalogue."""

    RED = "red"
    BLUE = "blue"


class Size(enum.IntEnum):
    SMALL = 1
    LARGE = 2


class Dimensions(AttrSchema):
    width: float | None = attr("Width, cm", k_max=6)
    height: float | None


class Television(AttrSchema, category="tv set", format="yaml"):
    """A television set."""

    brand: str | None = attr("Manufacturer", examples=["Samsung", "LG"])
    screen_size: float | None = attr("Diagonal of the screen, inches", k_max=8, ge=1)
    resolution: Literal["720p", "1080p", "4K", "8K"] | None = attr("Resolution class")
    smart: bool | None = None
    ports: list[str] = attr("Connectors", default_factory=list)
    color: Color | None = attr(title="Colour of the case")
    released: date | None = attr(examples=[date(2024, 3, 1)])
    price: Decimal = attr(default=Decimal("1.5"))
    dimensions: Dimensions | None = attr("Outer dimensions")


def compiled(annotation: Any, field: Any = ...) -> Attribute:
    model = pydantic.create_model("Model", x=(annotation, field))
    (attribute,) = compile_attributes(model)
    return attribute


# Types that compile

Sku = NewType("Sku", str)
Names = TypeAliasType("Names", list[str])
MaybeInt = TypeAliasType("MaybeInt", Optional[int])  # noqa: UP045


@pytest.mark.parametrize(
    ("annotation", "kind", "is_list", "nullable"),
    [
        (str, "string", False, False),
        (int, "integer", False, False),
        (float, "number", False, False),
        (Decimal, "number", False, False),
        (bool, "boolean", False, False),
        (date, "date", False, False),
        (datetime, "datetime", False, False),
        (str | None, "string", False, True),
        (Optional[int], "integer", False, True),  # noqa: UP045
        (Union[None, float], "number", False, True),  # noqa: UP007
        (int | float, "number", False, False),
        (Union[int, float, Decimal, None], "number", False, True),  # noqa: UP007
        (list[str], "string", True, False),
        (list[int] | None, "integer", True, True),
        (list[str | None], "string", True, False),
        (tuple[date, ...], "date", True, False),
        (set[float], "number", True, False),
        (frozenset[bool], "boolean", True, False),
        (Sequence[str], "string", True, False),
        (list[Color], "enum", True, False),
        (list[Literal["a", "b"]], "enum", True, False),
        (Annotated[int, Field(ge=3)], "integer", False, False),
        (Annotated[str, Field(pattern="a+")] | None, "string", False, True),
        (list[Annotated[str, Field(min_length=2)]], "string", True, False),
        (Annotated[list[int], Field(max_length=2)], "integer", True, False),
        (pydantic.conint(ge=2), "integer", False, False),
        (pydantic.StrictBool, "boolean", False, False),
        (pydantic.PastDate, "date", False, False),
        (pydantic.AwareDatetime, "datetime", False, False),
        (HttpUrl, "url", False, False),
        (HttpUrl | str, "string", False, False),
        (uuid.UUID | None, "string", False, True),
        (time, "string", False, False),
        (ipaddress.IPv4Address, "string", False, False),
        (pydantic.SecretStr, "string", False, False),
        (Annotated[Any, pydantic.WithJsonSchema({"type": "number"})], "number", False, False),
        (Sku, "string", False, False),
        (Names, "string", True, False),
        (MaybeInt, "integer", False, True),
        (list[MaybeInt], "integer", True, False),
        (RootModel[list[int]], "integer", True, False),
    ],
)
def test_kinds(annotation: Any, kind: str, is_list: bool, nullable: bool) -> None:
    attribute = compiled(annotation)
    assert (attribute.kind, attribute.is_list, attribute.nullable) == (kind, is_list, nullable)
    assert attribute.choices == () or kind == "enum"


@pytest.mark.parametrize(
    ("annotation", "choices", "values", "nullable"),
    [
        (Literal["a", "b"], ("a", "b"), ("a", "b"), False),
        (Literal["a", None], ("a",), ("a",), True),
        (Literal["a"] | None, ("a",), ("a",), True),
        (Literal[1, True, "x"], ("1", "true", "x"), (1, True, "x"), False),
        (Literal["a"] | Literal["b"], ("a", "b"), ("a", "b"), False),
        (Literal["a", "b"] | Literal["b", "c"], ("a", "b", "c"), ("a", "b", "c"), False),
        (Literal[Color.RED], ("red",), (Color.RED,), False),
        (Color, ("red", "blue"), (Color.RED, Color.BLUE), False),
        (Size | None, ("1", "2"), (Size.SMALL, Size.LARGE), True),
    ],
)
def test_choices(
    annotation: Any, choices: tuple[str, ...], values: tuple[Any, ...], nullable: bool
) -> None:
    attribute = compiled(annotation)
    assert attribute.kind == "enum"
    assert (attribute.choices, attribute.choice_values) == (choices, values)
    assert [type(x) for x in attribute.choice_values] == [type(x) for x in values]
    assert attribute.nullable is nullable


def test_a_none_member_makes_an_enum_nullable() -> None:
    class Power(enum.Enum):
        NONE = None
        MAINS = "mains"

    attribute = compiled(Power)
    assert (attribute.choices, attribute.nullable) == (("mains",), True)


def test_the_whole_of_an_example() -> None:
    attributes = compile_attributes(Television)
    assert [a.name for a in attributes] == [
        *("brand", "screen_size", "resolution", "smart", "ports", "color", "released", "price"),
        *("dimensions.width", "dimensions.height"),
    ]
    by_name = {a.name: a for a in attributes}
    assert by_name["brand"] == Attribute(
        path=("brand",),
        labels=("brand",),
        description="Manufacturer",
        examples=("Samsung", "LG"),
        kind="string",
        choices=(),
        choice_values=(),
        is_list=False,
        nullable=True,
        required=False,
        k_max=None,
        omittable=True,
        constraints=(),
    )
    assert by_name["screen_size"].label == "screen size"
    assert by_name["screen_size"].k_max == 8
    assert by_name["color"].label == "Colour of the case"
    assert by_name["released"].examples == ("2024-03-01",)
    assert by_name["dimensions.width"].labels == ("dimensions", "width")


def test_nested_leaves_take_over_from_the_field_around_them() -> None:
    class Box(BaseModel):
        width: int = attr("Width", k_max=2)
        height: int

    class Item(BaseModel):
        box: Box | None = attr("The box", k_max=9)

    width, height = compile_attributes(Item)
    assert (width.description, width.k_max) == ("Width", 2)
    assert (height.description, height.k_max) == ("The box", 9)
    assert (width.nullable, width.required) == (True, True)


def test_a_model_may_be_nested_twice() -> None:
    class Pair(BaseModel):
        first: Dimensions
        second: Dimensions

    assert len(compile_attributes(Pair)) == 4


def test_examples_become_text() -> None:
    examples = [True, None, 1.5, Color.RED, ["HDMI", "USB"], datetime(2024, 1, 2, 3)]
    attribute = compiled(str, attr(examples=examples))
    assert attribute.examples == ("true", "1.5", "red", "HDMI, USB", "2024-01-02T03:00:00")


def test_computed_and_private_are_no_attributes() -> None:
    class Item(AttrSchema):
        x: int
        _cache: str = "y"

        @pydantic.computed_field
        def double(self) -> int:
            return 2 * self.x

    assert [a.name for a in compile_attributes(Item)] == ["x"]


def test_aliases_do_not_name_attributes() -> None:
    class Inner(BaseModel):
        width: int = Field(alias="w")

    class Item(BaseModel):
        inner: Inner = Field(alias="i")

    (attribute,) = compile_attributes(Item)
    assert (attribute.name, attribute.labels) == ("inner.width", ("inner", "width"))
    item = Item.model_validate({"inner": {"width": 3}}, by_name=True, by_alias=False)
    assert item.inner.width == 3


def test_labels_of_reserved_words() -> None:
    model = pydantic.create_model("Model", class_=(str, ...))
    assert compile_attributes(model)[0].label == "class"


def test_models_whose_build_is_deferred() -> None:
    class Lazy(AttrSchema, defer_build=True):
        x: int | None

    (attribute,) = compile_attributes(Lazy)
    assert not attribute.required
    assert Lazy().x is None
