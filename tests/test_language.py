"""The language of documents: declared by a class, a field or an option, and carried to readings."""

from __future__ import annotations

import json
import pickle
from datetime import date
from typing import Any

import pytest
from pydantic import BaseModel, RootModel

from schemax import AttrSchema, SchemaError, attr
from schemax.attributes import Attribute, compile_attributes
from schemax.attributes.json_writer import declaration_of
from schemax.compiler import compile_schema, load_codec
from schemax.formats import get_format
from schemax.labels import labelled_instance
from schemax.resources import resource_dir
from schemax.results import SlotText, build
from schemax.results.fields import part_of


class Size(AttrSchema):
    width: float | None = None
    height: float | None = attr(language="en", default=None)


class French(AttrSchema, language="fr"):
    first: date | None = None


class Offer(AttrSchema, language="de"):
    price: float | None = None
    size: Size | None = None
    sold: French | None = None
    boxes: list[Size] = attr(language="fr", default_factory=list)
    weights: dict[str, float] = attr(default_factory=dict)


LANGUAGES = {
    "price": "de",
    "size.width": "de",
    "size.height": "en",
    "sold.first": "fr",
    "boxes": "fr",
    "boxes.width": "fr",
    "boxes.height": "en",
    "weights": "de",
    "weights.key": "de",
    "weights.value": "de",
}


def languages_of(schema: Any) -> dict[str, str | None]:
    """The language of every leaf, and of the leaves of items."""

    def below(attributes: tuple[Attribute, ...], around: str = "") -> dict[str, str | None]:
        found = {}
        for item in attributes:
            found[around + item.name] = item.language
            found |= below(item.fields, f"{around}{item.name}.")
        return found

    return below(compile_attributes(schema))


def read(schema: Any, document: str | None, **raws: str) -> Any:
    """The instance of slots of JSON. document: None if unknown."""
    attributes = compile_attributes(schema)
    slots = [SlotText(raws.get(item.name, "null"), "stop", 1, True) for item in attributes]
    texts = None if document is None else {"text": document}
    output = get_format("json")
    item = build(schema, attributes, slots, output, index=0, document_id=None, texts=texts)
    assert item.errors == ()
    return item.value


# --- declarations --------------------------------------------------------------------------------


def test_the_closest_declaration_counts() -> None:
    assert languages_of(Offer) == LANGUAGES


def test_subclasses_inherit_the_language_and_may_change_it() -> None:
    class Sale(Offer):
        until: date | None = None

    class Austrian(Sale, language="de-AT"):
        pass

    assert languages_of(Sale) == LANGUAGES | {"until": "de"}
    assert {languages_of(Austrian)[name] for name in ("price", "until")} == {"de-AT"}
    assert languages_of(Austrian)["sold.first"] == "fr"


def test_a_class_without_a_language_has_none() -> None:
    assert languages_of(Size) == {"width": None, "height": "en"}


def test_a_nested_field_passes_its_language_on() -> None:
    class Plain(BaseModel):
        at: date | None = None

    class Holder(BaseModel):
        plain: Plain | None = attr(language="fr")
        french: French | None = attr(language="de")

    assert languages_of(Holder) == {"plain.at": "fr", "french.first": "fr"}


def test_an_unknown_language_is_refused_where_it_is_named() -> None:
    with pytest.raises(SchemaError, match=r"^Wrong: unknown language 'german'; name "):

        class Wrong(AttrSchema, language="german"):
            pass

    class Inner(BaseModel):
        price: float | None = attr(language="xx")

    class Outer(BaseModel):
        inner: Inner | None = None

    with pytest.raises(SchemaError, match=r"^Outer\.inner\.price: unknown language 'xx'"):
        compile_attributes(Outer)


@pytest.mark.parametrize("language", ["xx", "", 7, ["de"], {"de": 1}])
def test_a_document_with_an_unknown_language_is_refused(language: Any) -> None:
    field = {"title": "Tea", "properties": {"price": {"type": "number", "language": language}}}
    root = {"title": "Tea", "language": language, "properties": {"price": {"type": "number"}}}
    for document, name in ((field, r"Tea\.price"), (root, "Tea")):
        with pytest.raises(SchemaError, match=f"^{name}: unknown language"):
            AttrSchema.from_json_schema({"type": "object", **document})


def test_examples_are_read_in_the_language() -> None:
    class German(AttrSchema, language="de"):
        pieces: int | None = attr(examples=["1.299"])
        litres: int | None = attr(examples=["1,299"])

    pieces, litres = compile_attributes(German)
    assert pieces.misfits == ()
    assert "1,299" in litres.misfits[0]


# --- documents of JSON Schema --------------------------------------------------------------------


def test_documents_say_the_language_at_the_root_and_at_properties() -> None:
    document = Offer.json_schema()
    assert document["language"] == "de"
    assert document["$defs"]["French"]["language"] == "fr"
    assert document["properties"]["boxes"]["language"] == "fr"
    assert "language" not in document["$defs"]["Size"]
    assert "language" not in Size.json_schema()


def test_documents_go_round() -> None:
    again = AttrSchema.from_json_schema(json.dumps(Offer.json_schema()))
    assert languages_of(again) == LANGUAGES
    assert languages_of(AttrSchema.from_json_schema(again.json_schema())) == LANGUAGES


def test_a_document_names_languages_anywhere() -> None:
    day = {"type": "string", "format": "date"}
    inner = {"type": "object", "properties": {"at": day}}
    document = {
        "title": "Trip",
        "type": "object",
        "language": "pt-BR",
        "properties": {
            "start": day,
            "end": {**day, "language": "en-US"},
            "stop": {**inner, "language": "de"},
            "stops": {"type": "array", "items": {**inner, "language": "fr"}},
            "same": {"$ref": "#/$defs/Same", "language": "it"},
            "named": {"$ref": "#/$defs/Named"},
        },
        "$defs": {"Same": inner, "Named": {**inner, "language": "es"}},
    }
    right = {
        "start": "pt-BR",
        "end": "en-US",
        "stop.at": "de",
        "stops": "pt-BR",
        "stops.at": "fr",
        "same.at": "it",
        "named.at": "es",
    }
    schema = AttrSchema.from_json_schema(document)
    assert languages_of(schema) == right
    assert languages_of(AttrSchema.from_json_schema(schema.json_schema())) == right
    assert languages_of(pickle.loads(pickle.dumps(schema))) == right


def test_a_union_at_the_root_has_a_language() -> None:
    class Cat(BaseModel):
        born: date

    class Dog(BaseModel):
        weight: float

    class Pet(AttrSchema, RootModel[Cat | Dog], language="de"):
        pass

    for schema in (Pet, AttrSchema.from_json_schema(declaration_of(Pet))):
        assert languages_of(schema) == {"kind": None, "born": "de", "weight": "de"}


# --- readings ------------------------------------------------------------------------------------


def test_values_are_read_in_the_language() -> None:
    item = read(
        Offer,
        "Preis 1.299, Breite 1,250; ab 03/04/2021",
        price="1.299",
        **{"size.width": '"1,250"', "sold.first": '"03/04/2021"'},
    )
    assert item.price == 1299
    assert item.size.width == 1.25
    assert item.sold.first == date(2021, 4, 3)


def test_without_a_language_nothing_changes() -> None:
    class Plain(AttrSchema):
        price: float | None = None
        sold: date | None = None

    item = read(Plain, "1.299 03/04/2021", price="1.299", sold='"03/04/2021"')
    assert item == Plain(price=1.299, sold=date(2021, 3, 4))


@pytest.mark.parametrize(
    ("raw", "document", "value"),
    [
        ("1.255", "Gewicht 1,255", 1.255),
        ("1.255", "Gewicht 1.255", 1255),
        ("-1.255", "Temperatur \u22121.255", -1255),
        ("1299.00", "Preis 1.299,00", 1299),
        ('"1.255,5"', "", 1255.5),
        ("1.255", None, 1.255),
    ],
)
def test_a_bare_number_of_no_document_is_one_of_json(
    raw: str, document: str | None, value: float
) -> None:
    assert read(Offer, document, price=raw).price == value


def test_labels_are_read_in_the_language_and_typed_labels_stay() -> None:
    def instance(label: str) -> Any:
        return labelled_instance("d", "offer", {"price": label}, Offer).price

    assert instance("1.299 \u20ac") == 1299
    assert instance("1,255") == 1.255
    assert instance("1.255") == 1.255


def test_units_near_by_are_read_in_the_language() -> None:
    class Parcel(AttrSchema, language="de"):
        weight: float | None = attr(unit="kg")

    assert read(Parcel, "wiegt 1.250 g", weight="1.250").weight == 1.25
    assert read(Parcel, "wiegt 1.250", weight="1.250").weight == 1250


def test_a_field_that_is_read_early_keeps_the_language() -> None:
    assert languages_of(part_of(Offer, "price")) == {"price": "de"}
    assert languages_of(part_of(Offer, "sold")) == {"sold.first": "fr"}


def test_the_model_is_not_shown_the_language() -> None:
    class Plain(AttrSchema, category="offer"):
        price: float | None = attr("The price", examples=["5"])

    class German(AttrSchema, category="offer", language="de"):
        price: float | None = attr("The price", examples=["5"])

    codec = load_codec(resource_dir("embedded"))
    plain, german = compile_schema(Plain, codec), compile_schema(German, codec)
    assert german.instruction == plain.instruction
    assert [slot.json_schema for slot in german.slots] == [s.json_schema for s in plain.slots]
