"""Unions of models, lists and dicts with scalars, and unions that are a whole schema."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any

import pydantic
import pytest
from conftest import TITLES
from decoding import TEMPLATE, filled
from decoding import expected as expected_of
from kind_models import Company, Email, Person, Phone, flat, read, slots_of, written
from pydantic import BaseModel, RootModel
from test_kinds import in_each_format, refused
from typing_extensions import TypedDict

from schemax import AttrSchema, Extractor, SchemaError, attr
from schemax.attributes import compile_attributes
from schemax.compiler import TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.formats import get_format
from schemax.io.columns import columns_of
from schemax.results import build
from schemax.runtime.models.model import DecoderModel
from schemax.serve.output import pieces


class Note(TypedDict):
    text: str


class Offer(AttrSchema):
    """An offer."""

    seller: Person | str
    owner: Person | Company | None | int
    tags: str | list[str]
    people: Person | list[Person]
    mix: int | list[str] | None = None
    extra: dict[str, float] | str | None = None
    all: list[Person | str] = attr(default_factory=list)
    days: date | list[date] | None = None
    note: Note | bool | None = None


PLAIN = Offer(
    seller="Bob's, Ltd",
    owner=5,
    tags="x, y",
    people=Person(name="Ann"),
    mix=4,
    extra="none",
    all=["R"],
    days=date(2024, 3, 1),
    note=True,
)
NESTED = Offer(
    seller=Person(name="Ann"),
    owner=Company(name="Co", legal_form="AG"),
    tags=["x", "z"],
    people=[Person(name="Ann"), Person(name="Bo")],
    mix=["a"],
    extra={"a": 1.5},
    all=[Person(name="Q"), "R"],
    days=[date(2024, 3, 1), date(2024, 3, 2)],
    note={"text": "T"},
)


@in_each_format
@pytest.mark.parametrize("instance", [PLAIN, NESTED])
def test_what_is_written_for_an_instance_is_read_as_it(instance: Offer, format: str) -> None:
    output = get_format(format)
    slots = slots_of(instance, output)
    found = build(Offer, compile_attributes(Offer), slots, output, index=0, document_id=None)
    assert (found.value, found.errors) == (instance, ())
    row = found.to_row()["attributes"]
    assert Offer.model_validate(row) == instance
    assert found.fields["seller.text"].value == (instance.seller if instance is PLAIN else None)
    assert found.fields["tags"].value == instance.tags


def test_what_is_asked_for_a_mixture() -> None:
    shown = {one.name: one for one in compile_attributes(Offer)}
    choices = {name: one.choices for name, one in shown.items() if one.is_discriminator}
    assert choices == {
        "seller.kind": ("person", "text"),
        "owner.kind": ("person", "company", "plain number"),  # a person has a number
        "mix.kind": ("number", "list"),
        "extra.kind": ("dict", "text"),
        "note.kind": ("note", "yes or no"),
    }
    text = shown["seller.text"]
    assert (text.labels, text.description, text.omittable) == (
        *(("seller", "text"), "only of kind text", True),
    )
    assert (shown["mix.list"].is_list, shown["extra.dict"].is_mapping) == (True, True)
    assert all(shown[name].is_one_or_several for name in ("tags", "people", "days"))


def test_prompts_survive_a_document_and_a_process() -> None:
    model = pydantic.create_model("Offer", __base__=Offer, note=(str | None, None))
    again = AttrSchema.from_json_schema(model.json_schema())
    assert list(flat(compile_attributes(again))) == list(flat(compile_attributes(model)))
    attributes = compile_attributes(Offer)
    assert pickle.loads(pickle.dumps(attributes)) == attributes


class Small(BaseModel):
    seller: Person | int | None = None
    size: int | list[int] | None = None
    both: Person | list[Person] | None = None


@pytest.mark.parametrize(
    ("slots", "fields", "value"),
    [
        (
            {"seller__kind": ' "plain number"', "seller__plain number": ' "many"'},
            ["seller.plain number", "seller.kind"],
            Small(),
        ),
        ({"seller__kind": ' "plain number"'}, ["seller.plain number", "seller.kind"], Small()),
        (
            {"seller__kind": ' "person"', "seller__plain number": " 4"},
            ["seller.name", "seller.kind"],
            Small(),
        ),
        ({"size": ' ["a"]'}, ["size"], Small()),
        ({"size": " [5]"}, [], Small(size=5)),
        ({"size": " []"}, [], Small(size=[])),
        (
            {"both": written(" 2", [(' "Ann"', " null", " null"), (" null", " null", ' "5"')])},
            ["both.1.name", "both.1.number"],
            Small(both=Person(name="Ann")),
        ),
        (
            {"both": written(" 1", [(' "Ann"', ' "soon"', " null")])},
            ["both.0.born"],
            Small(both=Person(name="Ann")),
        ),
    ],
)
def test_what_cannot_be_used_costs_no_more_than_it_must(
    slots: dict[str, Any], fields: list[str], value: Small
) -> None:
    found = read(Small, **slots)
    assert ([error.field for error in found.errors], found.value) == (fields, value)


def test_items_that_stand_for_a_list_say_where_they_are() -> None:
    found = read(Small, both=written(" 1", [(' "Ann"', ' "2000-01-01"', " null")]))
    assert found.fields["both"].value == found.value.both
    assert found.fields["both.0.born"].value == date(2000, 1, 1)


def test_a_text_for_a_list_that_may_be_one_is_not_split() -> None:
    model = pydantic.create_model("Model", x=(str | list[str], ...), y=(list[str], ...))
    found = read(model, x=' "Berlin, Germany"', y=' "a, b"').value
    assert (found.x, found.y) == ("Berlin, Germany", ["a", "b"])


def test_conditions_of_a_list_that_may_be_one() -> None:
    short: Any = Annotated[str, pydantic.StringConstraints(max_length=5)]
    several: Any = Annotated[list[short], pydantic.Field(min_length=2, max_length=3)]
    (one,) = compile_attributes(pydantic.create_model("Model", x=(short | several, ...)))
    assert one.constraints == (("maxLength", 5), ("minItems", 1), ("maxItems", 3))
    (one,) = compile_attributes(pydantic.create_model("Model", x=(str | several, ...)))
    assert one.constraints == (("minItems", 1), ("maxItems", 3))


class Tree(AttrSchema):
    name: str
    below: list[Tree | str] = attr(max_depth=1, default_factory=list)
    beside: Tree | int | None = attr(max_depth=1, default=None)
    behind: dict[str, Tree] | str | None = attr(max_depth=1, default=None)


def test_a_mixture_without_the_model_that_lies_too_deep() -> None:
    (_, below, *beside) = compile_attributes(Tree)
    inner = {leaf.name: leaf for leaf in below.fields}
    assert (inner["below"].kind, inner["below"].is_list) == ("string", True)
    assert inner["beside"].kind == "integer"
    assert inner["behind"].kind == "string"
    assert "beside.below" in {leaf.name for leaf in beside}
    tree = Tree(name="a", below=["x", Tree(name="b", below=["c"])], behind={"k": Tree(name="d")})
    slots = slots_of(tree, get_format("json"))
    found = build(
        Tree, compile_attributes(Tree), slots, get_format("json"), index=0, document_id=None
    )
    assert (found.value, found.errors) == (tree, ())


def test_mixtures_that_are_refused() -> None:
    assert "'list' names two" in refused(list[int] | list[str] | Person)
    assert "a list of lists" in refused(list[str | list[str]])


def test_columns_of_mixtures() -> None:
    columns = {column.name: column for column in columns_of(Offer)}
    assert {name: (one.type, one.is_list) for name, one in columns.items()} == {
        "seller": ("string", False),
        "owner": ("json", False),
        "tags": ("string", True),
        "people": ("struct", True),
        "mix": ("json", False),
        "extra": ("string", False),
        "all": ("string", True),
        "days": ("date", True),
        "note": ("json", False),
    }
    assert columns["tags"].cell("x") == ["x"]
    assert columns["seller"].cell({"name": "Ann"}) == '{"name": "Ann"}'


@in_each_format
def test_slots_equal_the_oracle(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, format: str
) -> None:
    class Mixed(AttrSchema):
        seller: Person | str | None
        tags: str | list[str] = attr(k_max=6)

    config = DecodingConfig(k_max=6, max_retries=0)
    compiled = compile_schema(Mixed, codec, format=format, template=TEMPLATE, decoding=config)
    model = decoder_model()
    prompts = compiled.encode(TITLES[:2])
    outputs = [output.slots for output in filled(model, compiled, prompts)]
    expected = expected_of(model, compiled, TITLES[:2], outputs)
    for slots, right in zip(outputs, expected, strict=True):
        assert [one.ids for one in slots] == [one.ids for one in right]


ALTERNATIVES = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "Shop",
    "type": "object",
    "properties": {
        "tags": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "address": {
            "anyOf": [
                {"type": "object", "properties": {"street": {"type": "string"}}},
                {"type": "string"},
            ]
        },
        "codes": {"type": ["string", "array", "null"], "items": {"type": "string"}},
        "size": {"type": ["object", "number"], "properties": {"width": {"type": "number"}}},
    },
}


def test_documents_with_mixtures() -> None:
    made = AttrSchema.from_json_schema(ALTERNATIVES)
    asked = {one.name: one.choices or one.is_one_or_several for one in compile_attributes(made)}
    assert asked == {
        "tags": True,
        "address.kind": ("address", "text"),
        "address.street": False,
        "address.text": False,
        "codes": True,
        "size.kind": ("size", "number"),
        "size.width": False,
        "size.number": False,
    }
    found = read(made, tags=' "a"', address__kind=' "text"', address__text=' "Main St 5"')
    assert (found.value.tags, found.value.address, found.errors) == ("a", "Main St 5", ())


# --- whole schemas ------------------------------------------------------------------------------


class Reach(RootModel[Email | Phone]):
    """How to reach someone."""


class Who(RootModel[Person | Company]):
    pass


@in_each_format
@pytest.mark.parametrize(
    "instance",
    [
        Reach(Email(channel="newsletter", address="a@b")),
        Reach(Phone(digits="3", owner=Person(name="x"))),
        Who(Person(name="A", number="4")),
        Who(Company(name="B", legal_form="AG", number=3)),
    ],
)
def test_a_union_is_a_whole_schema(instance: Any, format: str) -> None:
    schema, output = type(instance), get_format(format)
    slots = slots_of(instance, output)
    found = build(schema, compile_attributes(schema), slots, output, index=0, document_id=None)
    assert (found.value, found.errors) == (instance, ())
    assert found.to_row()["attributes"] == instance.model_dump(mode="json")


def test_what_is_missing_in_a_whole_union() -> None:
    found = read(Who, kind=' "company"', name=' "C"', born=' "2000-01-01"', company__number=" 3")
    assert [error.field for error in found.errors] == ["legal_form"]
    assert (found.value, found.partial) == (None, {"name": "C", "number": 3})
    assert found.fields["born"].note == "left out: of another kind"
    assert [error.field for error in read(Who, name=' "C"').errors] == ["kind"]
    assert [column.name for column in columns_of(Who)] == ["name", "born", "number", "legal_form"]


CAT, DOG = (
    {
        "title": name,
        "type": "object",
        "properties": {
            "kind": {"const": name},
            "name": {"type": "string"},
            own: {"type": "boolean"},
        },
        "required": ["kind", "name"],
    }
    for name, own in (("cat", "indoor"), ("dog", "barks"))
)


@pytest.mark.parametrize(
    "document",
    [
        {"oneOf": [{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}]},
        {"type": "object", "anyOf": [CAT, DOG], "discriminator": {"propertyName": "kind"}},
    ],
)
def test_a_document_is_a_union(document: dict[str, Any]) -> None:
    whole = {"title": "Animal", "$defs": {"cat": CAT, "dog": DOG}, **document}
    made = AttrSchema.from_json_schema(whole)
    assert [(one.name, one.choices) for one in compile_attributes(made)] == [
        *(("kind", ("cat", "dog")), ("name", ()), ("indoor", ()), ("barks", ()))
    ]
    found = read(made, kind=' "dog"', name=' "Rex"', barks=" true", indoor=" true")
    row = {"kind": "dog", "name": "Rex", "barks": True}
    assert (found.to_row()["attributes"], found.errors) == (row, ())
    assert pickle.loads(pickle.dumps(found.value)) == found.value
    served = pieces(found.value)
    assert "".join(text for text, _ in served) == '{"kind": "dog", "name": "Rex", "barks": true}'
    again = AttrSchema.from_json_schema(made.json_schema())
    assert list(flat(compile_attributes(again))) == list(flat(compile_attributes(made)))


def test_conditions_of_a_document_that_is_a_union() -> None:
    only_x = {"not": {"properties": {"name": {"const": "X"}}}}
    made = AttrSchema.from_json_schema({"title": "Animal", "anyOf": [CAT, {**DOG, **only_x}]})
    assert read(made, kind=' "dog"', name=' "Y"', barks=" true").errors == ()
    (error,) = read(made, kind=' "dog"', name=' "X"', barks=" true").errors
    assert "is not valid under any of the given schemas" in error.message


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"anyOf": [{"type": "string"}, CAT]}, "a root that is no object has no named fields"),
        ({"anyOf": [{"type": "null"}, CAT]}, "a root that is no object has no named fields"),
        ({"type": "array", "items": CAT}, "or be anyOf of such"),
    ],
)
def test_roots_that_are_refused(document: dict[str, Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        AttrSchema.from_json_schema(document)


def test_a_bare_union_says_how_to_declare_it() -> None:
    with pytest.raises(SchemaError, match=r"class Item\(RootModel\[Cat \| Dog\]\)"):
        compile_attributes(Person | Company)  # type: ignore[arg-type]


def test_an_extractor_reads_a_union(
    decoder_model: Callable[..., DecoderModel], backend: Any
) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    extractor = Extractor(decoder_model().model, tokenizer, decoding=DecodingConfig(k_max=4))
    example = ("A", Who(Person(name="Ann")))
    for value in extractor.extract(TITLES[:2], Who, on_error="null", examples=[example]):
        assert value is None or isinstance(value.root, Person | Company)


def test_alternatives_of_the_same_properties_are_conditions() -> None:
    """They refine what the root declares; those with properties of their own are what it is."""
    own = {"kind": {"type": "string"}, "size": {"type": "integer"}}
    alternatives = [{"properties": {"kind": {"const": kind}}} for kind in ("shoe", "tea")]
    document = {"type": "object", "properties": own, "anyOf": alternatives}
    model = AttrSchema.from_json_schema(document)
    assert [attribute.path for attribute in compile_attributes(model)] == [("kind",), ("size",)]
    alternatives[0]["properties"]["laces"] = {"type": "string"}
    other = AttrSchema.from_json_schema(document)
    assert ("laces",) in [attribute.path for attribute in compile_attributes(other)]
