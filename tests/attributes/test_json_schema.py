"""JSON Schema documents in and out."""

from __future__ import annotations

import enum
import json
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

import pydantic
import pytest
from pydantic import AnyUrl, BaseModel, EmailStr, Field, HttpUrl
from pydantic_extra_types.country import CountryAlpha2, CountryAlpha3
from pydantic_extra_types.currency_code import ISO4217
from pydantic_extra_types.language_code import LanguageAlpha2

from schemax.attributes import attr, compile_attributes, settings_of
from schemax.errors import SchemaError
from schemax.extraction.schema import AttrSchema
from schemax.formats import get_format
from schemax.results import SlotText, build


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


def essence(model: type[BaseModel]) -> list[tuple[Any, ...]]:
    return [
        (
            *(a.path, a.labels, a.description, a.examples, a.kind),
            *(a.choices, a.is_list, a.nullable, a.required, a.k_max),
        )
        for a in compile_attributes(model)
    ]


def test_round_trip() -> None:
    document = Television.model_json_schema()
    model = AttrSchema.from_json_schema(document)
    assert essence(model) == essence(Television)
    assert (model.__name__, model.__doc__) == ("Television", "A television set.")
    assert settings_of(model) == settings_of(Television)
    assert essence(AttrSchema.from_json_schema(model.model_json_schema())) == essence(Television)
    built = model.model_validate({"released": "2024-01-02", "dimensions": {"width": 3}})
    assert built.model_dump()["released"] == date(2024, 1, 2)
    assert built.model_dump()["price"] == Decimal("1.5")
    assert built.model_dump()["ports"] == []


def test_round_trip_of_a_plain_model_as_text() -> None:
    class Phone(BaseModel):
        maker: str = Field(title="Brand name", min_length=2)
        size: Size
        sizes: set[Literal[1, 2]] = {1}
        weight: Decimal | None = Field(None, ge=0)
        seen: list[datetime] | None = Field(None, max_length=3)
        link: HttpUrl | None = None
        one: Literal["only"] = "only"
        number: int | float = 3
        legalName: str | None = None  # noqa: N815

    model = AttrSchema.from_json_schema(json.dumps(Phone.model_json_schema()))
    assert essence(model) == essence(Phone)
    # A document's format says how texts are read; Pydantic rewrites none.
    found = model.model_validate({"maker": "xy", "size": 1, "link": "HTTP://x.org"})
    assert found.model_dump()["link"] == "HTTP://x.org"
    with pytest.raises(pydantic.ValidationError):
        model.model_validate({"maker": "x", "size": 1})
    item = model.model_validate({"maker": "xy", "size": 1, "sizes": [2, 1, 2]})
    assert item.model_dump()["sizes"] == [2, 1]
    written = model.model_json_schema()["properties"]
    assert written["sizes"]["uniqueItems"] is True
    assert written["link"]["anyOf"][0]["format"] == "uri"


@pytest.mark.slow
def test_formats_come_back_as_the_same_kinds() -> None:
    class Visit(AttrSchema):
        stay: timedelta
        stays: list[timedelta] = []  # noqa: RUF012
        day: date | None = None
        home: AnyUrl
        pages: list[HttpUrl] | None = None
        mail: EmailStr = "a@example.com"
        country: CountryAlpha2 | None = None
        origins: list[CountryAlpha3] = []  # noqa: RUF012
        price_in: ISO4217 | None = None
        tongue: LanguageAlpha2 | None = None

    document = Visit.json_schema()
    again = AttrSchema.from_json_schema(document)
    assert again.json_schema() == document
    assert essence(again) == essence(Visit)
    raws = {"stay": "2 hours", "home": "www.example.com", "mail": "mailto:b@x.org"}
    raws |= {"country": "Made in Germany", "price_in": "euros", "tongue": "German"}
    attributes, output = compile_attributes(again), get_format("json")
    slots = [SlotText(output.escape(raws.get(a.name)), "stop", 1, True) for a in attributes]
    item = build(again, attributes, slots, output, index=0, document_id=None)
    assert item.value is not None
    assert item.errors == ()
    assert item.value.model_dump(exclude_defaults=True) == {
        "stay": timedelta(hours=2),
        "home": "https://www.example.com",
        "mail": "b@x.org",
        "country": "DE",
        "price_in": "EUR",
        "tongue": "de",
    }


def test_choices_have_the_type_that_stands_beside_them() -> None:
    model = from_properties(
        ["size"],
        size={"type": "string", "enum": ["S", 5, None]},
        number={"type": "integer", "enum": [1, 2.0, 2.5, True, "1"]},
    )
    assert [a.choices for a in compile_attributes(model)] == [("S",), ("1", "2.0")]
    with pytest.raises(pydantic.ValidationError):
        model.model_validate({"size": None})
    with pytest.raises(SchemaError, match="no value of its enum has the type 'boolean'"):
        from_properties(size={"type": "boolean", "enum": ["yes", 1]})


def test_a_title_is_shown_as_it_stands() -> None:
    brand = {"type": "string", "title": "Brand"}
    document = {"properties": {"brand": brand, "size": {"type": "string"}}}
    shown = compile_attributes(AttrSchema.from_json_schema(document))
    assert tuple(a.label for a in shown) == ("Brand", "size")


def from_properties(required: Sequence[str] = (), **properties: Any) -> type[AttrSchema]:
    document = {"title": "Doc", "type": "object", "properties": properties}
    return AttrSchema.from_json_schema({**document, "required": list(required)})


@pytest.mark.parametrize(
    ("node", "kind", "is_list", "nullable"),
    [
        ({"type": "string"}, "string", False, False),
        ({"type": "string", "format": "date"}, "date", False, False),
        ({"type": "string", "format": "date-time"}, "datetime", False, False),
        ({"type": "string", "format": "uri"}, "url", False, False),
        ({"type": "string", "format": "email", "pattern": "@x"}, "email", False, False),
        ({"type": "string", "format": "duration"}, "duration", False, False),
        ({"type": "string", "format": "hostname"}, "string", False, False),
        ({"type": "array", "items": {"type": "string", "format": "uri"}}, "url", True, False),
        ({"type": ["string", "null"], "format": "email"}, "email", False, True),
        ({"enum": ["a", None], "type": "string"}, "enum", False, False),
        ({"enum": ["a", None], "type": ["string", "null"]}, "enum", False, True),
        ({"enum": ["a", None], "type": "string", "nullable": True}, "enum", False, True),
        ({"type": "integer", "minimum": 1, "multipleOf": 2}, "integer", False, False),
        ({"type": "number", "exclusiveMinimum": 0.5}, "number", False, False),
        ({"type": "boolean"}, "boolean", False, False),
        ({"type": ["string", "null"]}, "string", False, True),
        ({"type": ["integer", "number"]}, "number", False, False),
        ({"type": "string", "nullable": True}, "string", False, True),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer", False, True),
        ({"oneOf": [{"type": "null"}, {"const": "a"}, {"const": "b"}]}, "enum", False, True),
        ({"anyOf": [{"type": "number"}, {"type": "string"}]}, "number", False, False),
        ({"enum": ["a", None]}, "enum", False, True),
        ({"const": 3}, "enum", False, False),
        ({"enum": [1.5, 2.5], "type": "number"}, "enum", False, False),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, "string", True, False),
        ({"type": ["array", "null"], "items": {"enum": ["a"]}}, "enum", True, True),
        ({"type": "array", "items": {"type": ["integer", "null"]}}, "integer", True, False),
        ({"allOf": [{"type": "string"}], "maxLength": 3}, "string", False, False),
        ({"type": "string", "pattern": "^(?=a)"}, "string", False, False),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "pattern": "b"}, "string", False, True),
    ],
)
def test_json_types(node: Any, kind: str, is_list: bool, nullable: bool) -> None:
    (attribute,) = compile_attributes(from_properties(["x"], x=node))
    assert (attribute.kind, attribute.is_list, attribute.nullable) == (kind, is_list, nullable)


@pytest.mark.parametrize(
    ("node", "good", "bad"),
    [
        ({"type": "integer", "minimum": 2, "maximum": 4}, 2, 5),
        ({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, 0.5, 1),
        ({"type": "integer", "multipleOf": 3}, 6, 7),
        ({"type": "string", "minLength": 2, "maxLength": 3}, "ab", "a"),
        ({"type": "string", "pattern": "b$"}, "ab", "ba"),
        ({"type": ["string", "null"], "pattern": "b$"}, None, "ba"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "pattern": "b$"}, "ab", "ba"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 1}, ["a"], ["a", "b"]),
        ({"enum": ["a", "b"]}, "a", "c"),
    ],
)
def test_json_constraints(node: Any, good: Any, bad: Any) -> None:
    model = from_properties(["x"], x=node)
    assert model.model_validate({"x": good}).model_dump() == {"x": good}
    with pytest.raises(pydantic.ValidationError):
        model.model_validate({"x": bad})


def test_json_defaults() -> None:
    model = from_properties(
        ["needed", "maybe"],
        needed={"type": "string"},
        maybe={"type": ["string", "null"]},
        free={"type": "integer"},
        tags={"type": "array", "items": {"type": "string"}},
        some={"type": "array", "items": {"type": "string"}, "minItems": 1},
        day={"type": "string", "format": "date", "default": "2024-01-02"},
        code={"type": "string", "pattern": "(?=a)a", "default": "a"},
        box={"type": "object", "properties": {"w": {"type": "integer"}}, "default": {"w": 3}},
    )
    assert model.model_validate({"needed": "x"}).model_dump() == {
        "needed": "x",
        "maybe": None,
        "free": None,
        "tags": [],
        "some": None,
        "day": date(2024, 1, 2),
        "code": "a",
        "box": {"w": 3},
    }
    assert [a.name for a in compile_attributes(model) if a.required] == ["needed"]
    with pytest.raises(SchemaError, match=r"Doc\.x: default 'a' does not fit"):
        from_properties(x={"type": "integer", "default": "a"})


def test_json_references() -> None:
    model = AttrSchema.from_json_schema(
        {
            "title": "Item",
            "type": "object",
            "definitions": {
                "Money/EUR": {"type": "number", "description": "In euro", "k_max": 7},
                "Box": {
                    "type": "object",
                    "description": "A box",
                    "properties": {"price": {"$ref": "#/definitions/Money~1EUR"}},
                    "required": ["price"],
                },
            },
            "properties": {
                "price": {"$ref": "#/definitions/Money~1EUR", "description": "Net"},
                "box": {"$ref": "#/definitions/Box"},
                "other": {"allOf": [{"$ref": "#/definitions/Box"}], "description": "Another"},
            },
        }
    )
    price, box, other = compile_attributes(model)
    assert (price.description, price.k_max) == ("Net", 7)
    assert (box.name, box.description, box.k_max) == ("box.price", "In euro", 7)
    assert (other.name, other.nullable) == ("other.price", True)


def test_json_names() -> None:
    clean = {
        "Screen Size (in)": "screen_size_in",
        "Screen-Size (in)": "screen_size_in_2",
        "class": "class_",
        "_hidden": "hidden",
        "schema": "schema_",
        "json": "json_",
        "copy": "copy_",
        "extract": "extract_",
        "model_dump": "field_model_dump",
        "model_fields": "model_fields_",
        "4K": "field_4k",
        "%": "field",
        "Größe": "Größe",
        "brand": "brand",
        "hidden_": "hidden_",
    }
    model = from_properties(**{key: {"type": "string"} for key in clean})
    attributes = compile_attributes(model)
    assert [a.name for a in attributes] == list(clean.values())
    labels = [name if name != "hidden_" else "hidden " for name in clean]
    assert [a.label for a in attributes] == [label.strip() for label in labels]
    assert essence(AttrSchema.from_json_schema(model.model_json_schema())) == essence(model)
    by_name = model.model_validate({"screen_size_in": "a"})
    assert by_name == model.model_validate({"Screen Size (in)": "a"})
    assert by_name.model_dump(by_alias=True)["Screen Size (in)"] == "a"


def test_json_names_that_differ_only_for_the_machine() -> None:
    with pytest.raises(SchemaError, match="the same name as 'screen_size'"):
        from_properties(**{"screen_size": {"type": "string"}, "Screen Size": {"type": "string"}})


def test_json_document_settings() -> None:
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Men's running shoes",
        "description": "Shoes to run in.",
        "type": "object",
        "format": "xml",
        "template": "standard",
        "additionalProperties": False,
        "properties": {"size": {"type": "string", "title": "EU size", "x-note": 1}},
    }
    model = AttrSchema.from_json_schema(document)
    assert (model.__name__, model.__doc__) == ("MensRunningShoes", "Shoes to run in.")
    settings = settings_of(model)
    assert settings.category == "men's running shoes"
    assert (settings.format, settings.template) == ("xml", "standard")
    assert compile_attributes(model)[0].label == "EU size"
    named = AttrSchema.from_json_schema({**document, "category": "shoe"}, name="Shoe")
    assert (named.__name__, settings_of(named).category) == ("Shoe", "shoe")
    again = AttrSchema.from_json_schema(model.model_json_schema())
    assert settings_of(again) == settings
    untitled = {"properties": {"x": {"type": "string"}}}
    assert AttrSchema.from_json_schema(untitled).__name__ == "Schema"
    assert settings_of(AttrSchema.from_json_schema(untitled, name="PhoneCase")).category == (
        "phone case"
    )


def test_json_models_can_extend_a_class() -> None:
    class Base(AttrSchema):
        sku: str

    model = Base.from_json_schema({"title": "Shoe", "properties": {"size": {"type": "string"}}})
    assert issubclass(model, Base)
    assert [a.name for a in compile_attributes(model)] == ["sku", "size"]


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (True, "says nothing about the value"),
        ({}, "has no type"),
        ({"type": "text"}, "unknown type 'text'"),
        ({"anyOf": [{"type": "array", "items": {"type": one}} for one in ("string", "integer")]},
         "is a union in which 'list' names two"),
        ({"type": "null"}, "allows nothing but None"),
        ({"type": "array"}, "does not say what it is a list of"),
        ({"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
         "a list of lists"),
        ({"type": "array", "prefixItems": {}}, "prefixItems must be a list"),
        ({"prefixItems": [{"type": "string"}], "items": {"type": "string"}}, "declare an object"),
        ({"prefixItems": [{"type": "string"}], "maxItems": 3}, "declare an object"),
        ({"prefixItems": [{"type": "string"}] * 101}, "at most 100 schemas"),
        ({"type": "object"}, "has no properties"),
        ({"type": "object", "required": ["brnd"], "properties": {"brand": {"type": "string"}}},
         "required names 'brnd', which is none of its properties (brand)"),
        ({"type": "object", "additionalProperties": {"type": "string"},
          "properties": {"a": {"type": "string"}}}, "beside properties have no known keys"),
        ({"type": "object", "patternProperties": {"a": {}}}, "has no type"),
        ({"type": "string", "minLenght": 2}, "unknown keyword 'minLenght'; did you mean 'minLen"),
        ({"type": "string", "allOf": {"minLength": 2}}, "allOf must be a list of schemas"),
        ({"$ref": "https://example.org/x.json"}, "points outside the document"),
        ({"$ref": "#/$defs/missing"}, "points to nothing"),
        ({"$ref": "#"}, "Doc contains itself"),
        ({"$ref": "#/properties/x"}, "refers to itself"),
        ({"type": "object", "$ref": "#/properties/x"}, "refers to itself"),
        ({"type": "string", "format": 3}, "format must be text"),
        ({"enum": []}, "enum must be a list of values"),
        ({"enum": [{"a": 1}]}, "neither text nor a number"),
        ({"enum": [1, "1"]}, "two choices have the same text"),
        ({"type": "string", "pattern": "("}, "pattern '(' cannot be used"),
        ({"type": "integer", "minimum": "a"}, "Pydantic does not accept minimum"),
        ({"type": "integer", "minimum": 1, "exclusiveMinimum": True}, "exclusiveMinimum must be"),
        ({"type": "string", "k_max": 0}, "k_max must be from 1 to 1,000,000, not 0"),
        ({"type": "string", "title": ""}, "one line of visible text"),
        ({"type": "string", "title": 3}, "title must be text"),
        ({"type": "string", "examples": "a"}, "examples must be a list"),
        ({"type": "string", "description": 3}, "description must be text"),
    ],
)  # fmt: skip
def test_json_refusals(node: Any, reason: str) -> None:
    with pytest.raises(SchemaError) as caught:
        from_properties(x=node)
    assert (caught.value.schema, caught.value.field) == ("Doc", "x")
    assert reason in caught.value.reason


def test_json_refusals_deep_inside() -> None:
    inner = {"type": "object", "properties": {"a b": {"type": "array", "prefixItems": []}}}
    with pytest.raises(SchemaError, match=r"Doc\.box\.a b: prefixItems must be a list"):
        from_properties(box=inner)
    tree = {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}}}
    document = {"title": "Doc", "$ref": "#/$defs/tree", "$defs": {"tree": tree}}
    with pytest.raises(SchemaError, match=r"Doc\.next: Doc contains itself"):
        AttrSchema.from_json_schema(document)


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ("{", "is not valid JSON"),
        ("[1]", "must be a JSON object, not list"),
        ({"type": "string"}, 'must have type "object"'),
        ({"type": "object", "properties": {}}, "has no properties"),
        ({"properties": {"x": {"type": "string"}}, "if": 3}, "if: 3 is not of type"),
        ({"properties": {"x": {"type": "string"}}, "required": True}, "required must be a list"),
        ({"properties": {"x": {"type": "string"}}, "category": 3}, "category must be one line"),
    ],
)
def test_json_documents_refused(document: Any, reason: str) -> None:
    with pytest.raises(SchemaError) as caught:
        AttrSchema.from_json_schema(document, name="Doc")
    assert caught.value.schema == "Doc" or reason.startswith(("is not", "must be a JSON"))
    assert caught.value.field is None
    assert reason in caught.value.reason


def test_the_document_of_an_aliased_field_shows_the_same_name() -> None:
    class Product(AttrSchema):
        brand: str | None = attr("Manufacturer", alias="theBrand")
        size_cm: int | None = attr("Size", alias="sizeCm")

    (brand, size) = compile_attributes(AttrSchema.from_json_schema(Product.json_schema()))
    assert [one.labels for one in (brand, size)] == [
        one.labels for one in compile_attributes(Product)
    ]
