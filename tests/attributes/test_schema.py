"""Declaring: fields, class keywords, optional defaults."""

from __future__ import annotations

import enum
import subprocess
import sys
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, Optional, TypeVar

import pydantic
import pytest
from pydantic import BaseModel

from schemax.attributes import Attribute, attr, compile_attributes, settings_of, words_of
from schemax.errors import SchemaError
from schemax.extraction.schema import AttrSchema


class Color(enum.Enum):
    """Colours of the catalogue."""

    RED = "red"
    BLUE = "blue"


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


def refused(model: Any) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        compile_attributes(model)
    return caught.value


# attr() and AttrSchema


def test_attr_keeps_everything_in_pydantics_json_schema() -> None:
    class Shoe(AttrSchema):
        size: int = attr("EU", examples=(42,), k_max=3, json_schema_extra={"unit": "EU"}, ge=10)

    written = Shoe.model_json_schema()["properties"]["size"]
    expected = {"description": "EU", "examples": [42], "k_max": 3, "unit": "EU", "minimum": 10}
    assert written.items() >= expected.items()
    with pytest.raises(pydantic.ValidationError):
        Shoe(size=3)


def test_attr_refuses_what_cannot_be_meant() -> None:
    with pytest.raises(TypeError, match="no argument 'kmax'; did you mean 'k_max'"):
        attr("Diagonal", kmax=3)
    with pytest.raises(TypeError, match="the description must be text, not 5"):
        attr(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="examples must be a list"):
        attr(examples="Samsung")
    with pytest.raises(TypeError, match="json_schema_extra to be a dict"):
        attr(k_max=3, json_schema_extra=lambda schema: None)


def test_attr_works_inside_annotated() -> None:
    attribute = compiled(Annotated[str, attr("Maker", k_max=4)])
    assert (attribute.description, attribute.k_max) == ("Maker", 4)


def test_optional_fields_without_default_get_none() -> None:
    class Lamp(AttrSchema):
        plain: str | None
        declared: int | None = attr("Watts")
        old: Optional[float]  # noqa: UP045
        annotated: Annotated[str | None, attr("Socket")]
        literal: Literal["a", None]
        kept: str | None = "bulb"
        needed: str

    lamp = Lamp(needed="x")
    assert lamp.model_dump() == {
        "plain": None,
        "declared": None,
        "old": None,
        "annotated": None,
        "literal": None,
        "kept": "bulb",
        "needed": "x",
    }
    assert [a.name for a in compile_attributes(Lamp) if a.required] == ["needed"]
    assert "needed" in Lamp.model_json_schema()["required"]
    with pytest.raises(pydantic.ValidationError):
        Lamp()  # type: ignore[call-arg]


def test_created_models_are_equal_citizens() -> None:
    model = pydantic.create_model(
        "PhoneCase",
        __base__=AttrSchema,
        __cls_kwargs__={"format": "xml"},
        brand=(str | None, attr("Maker", k_max=5)),
        size=(Optional[int], ...),  # noqa: UP045
    )
    assert model().model_dump() == {"brand": None, "size": None}
    assert [a.name for a in compile_attributes(model)] == ["brand", "size"]
    assert settings_of(model).category == "phone case"
    assert settings_of(model).format == "xml"


def test_plain_models_keep_their_required_optionals() -> None:
    class Plain(BaseModel):
        brand: str | None
        size: int = 3

    brand, size = compile_attributes(Plain)
    assert (brand.required, brand.nullable) == (True, True)
    assert (size.required, size.nullable) == (False, False)


def test_validators_do_not_change_the_attributes() -> None:
    class Checked(AttrSchema):
        name: str | None

        @pydantic.field_validator("name")
        @classmethod
        def upper(cls, value: str | None) -> str | None:
            return value and value.upper()

        @pydantic.model_validator(mode="after")
        def check(self) -> Checked:
            return self

    assert Checked(name="a").name == "A"
    assert Checked().name is None
    assert compile_attributes(Checked)[0].kind == "string"


class Early(AttrSchema):
    inner: Late | None
    note: str | None = attr("Remark")


class Late(AttrSchema):
    value: int | None


def test_forward_references_are_resolved_when_they_are_needed() -> None:
    assert Early(inner={"value": 3}).inner == Late(value=3)
    assert Early().inner is None
    assert [a.name for a in compile_attributes(Early)] == ["inner.value", "note"]


def test_optional_default_reaches_a_model_that_waits_for_a_later_class() -> None:
    code = """
from __future__ import annotations
from schemax.attributes import compile_attributes
from schemax.extraction.schema import AttrSchema
class Inner(AttrSchema):
    leaf: Leaf | None
    text: str | None
class Outer(AttrSchema):
    inner: Inner
class Leaf(AttrSchema):
    x: int | None
assert Outer.model_validate({"inner": {}}).inner.text is None
assert [a.name for a in compile_attributes(Outer)] == ["inner.leaf.x", "inner.text"]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_inheritance_adds_fields() -> None:
    class Smart(Television):
        system: str | None

    assert [a.name for a in compile_attributes(Smart)][-1] == "system"
    assert Smart().system is None


# Class keywords


def test_settings_and_their_inheritance() -> None:
    class OledTV(Television, template="standard"):
        pass

    assert settings_of(Television).category == "tv set"
    assert (settings_of(Television).format, settings_of(Television).template) == ("yaml", None)
    settings = settings_of(OledTV)
    assert (settings.category, settings.format, settings.template) == (
        "oled tv",
        "yaml",
        "standard",
    )


def test_settings_of_plain_and_generic_models() -> None:
    item = TypeVar("item")

    class PhoneCase(BaseModel):
        x: int

    class Box(AttrSchema, Generic[item], category="box", format="xml"):
        content: item

    assert settings_of(PhoneCase).category == "phone case"
    assert settings_of(PhoneCase).format is None
    assert (settings_of(Box[int]).category, settings_of(Box[int]).format) == ("box", "xml")
    assert compile_attributes(Box[int])[0].kind == "integer"
    assert "content" in str(refused(Box))
    with pytest.raises(SchemaError, match=r"no class derived from pydantic\.BaseModel"):
        settings_of(int)  # type: ignore[arg-type]


def test_format_may_be_an_object() -> None:
    marker = object()

    class Shoe(AttrSchema, format=marker):
        x: int

    assert settings_of(Shoe).format is marker
    assert "format" not in Shoe.model_json_schema()


def test_unknown_class_keywords_are_named() -> None:
    with pytest.raises(SchemaError, match="Shoe: unknown class keyword 'colour'") as caught:

        class Shoe(AttrSchema, colour="red"):
            x: int

    assert (caught.value.schema, caught.value.field) == ("Shoe", None)


def test_pydantic_configuration_keywords_still_work() -> None:
    class Shoe(AttrSchema, frozen=True, title="A shoe"):
        x: int

    assert Shoe.model_config["frozen"] is True


@pytest.mark.parametrize("category", ["", "  ", "a\nb", 3])
def test_category_must_be_one_line(category: Any) -> None:
    with pytest.raises(SchemaError, match="category must be one line of text"):

        class Shoe(AttrSchema, category=category):
            x: int


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("PhoneCase", "phone case"),
        ("Television", "television"),
        ("TVStand", "tv stand"),
        ("OledTV", "oled tv"),
        ("USB3Hub", "usb3 hub"),
        ("phone_case", "phone case"),
        ("Men's Shoes", "men's shoes"),
    ],
)
def test_words_of(name: str, words: str) -> None:
    assert words_of(name) == words


# Imports


def test_declaring_does_not_import_torch() -> None:
    code = (
        "import sys; from schemax.attributes import compile_attributes\n"
        "from schemax.extraction.schema import AttrSchema\n"
        "M = AttrSchema.from_json_schema({'properties': {'x': {'type': 'string'}}})\n"
        "compile_attributes(M)\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
