"""What a JSON Schema document says beyond types and bounds holds for what is extracted."""

from __future__ import annotations

import time
from typing import Any

import jsonschema
import pytest
from conftest import slow_but

from schemax import AttrSchema, Extraction, SchemaError, attr, load_schema, schema_names
from schemax.attributes import compile_attributes
from schemax.attributes.ready_made import document_of
from schemax.compiler import TextCodec, compile_schema
from schemax.formats import get_format
from schemax.results import SlotText, build

PROPERTIES = {
    "price": {"type": "number"},
    "currency": {"type": "string"},
    "e-mail": {"type": "string", "format": "email"},
    "tags": {"type": "array", "items": {"type": "string", "format": "email"}},
    "box": {"type": "object", "properties": {"mail to": {"type": "string", "format": "email"}}},
}
EURO = {"properties": {"currency": {"const": "EUR"}}, "required": ["currency"]}


def declared(**document: Any) -> type[AttrSchema]:
    return AttrSchema.from_json_schema({"title": "Doc", "type": "object", **document})


def read(model: type[AttrSchema], **texts: Any) -> Extraction[Any]:
    output, attributes = get_format("json"), compile_attributes(model)
    slots = [
        SlotText(output.escape(texts.get(item.name.replace(".", "_"))), "stop", 1, complete=True)
        for item in attributes
    ]
    return build(model, attributes, slots, output, index=0, document_id="d")


@pytest.mark.parametrize(
    ("more", "texts", "field", "message", "kept"),
    [
        ({}, {"e_mail": "nobody"}, "e_mail", "'nobody' is not a 'email'", False),
        ({}, {"e_mail": "a@b.c"}, None, "", True),
        ({}, {"tags": ["a@b.c", "nobody"]}, "tags", "item 2: 'nobody' is not a 'email'", False),
        ({}, {"box_mail_to": "nobody"}, "box.mail_to", "'nobody' is not a 'email'", False),
        ({"dependentRequired": {"price": ["currency"]}}, {"price": "5"}, "currency",
         "'currency' is a dependency of 'price'", True),
        ({"if": EURO, "then": {"properties": {"price": {"maximum": 9}}}},
         {"price": "50", "currency": "EUR"}, "price", "50.0 is greater than the maximum of 9",
         False),
        ({"if": EURO, "then": {"properties": {"price": {"maximum": 9}}}},
         {"price": "50", "currency": "USD"}, None, "", True),
        ({"if": EURO, "then": {"required": ["e-mail"]}}, {"currency": "EUR"}, "e_mail",
         "'e-mail' is a required property", True),
        ({"not": {"required": ["price"]}}, {"price": "3"}, None, "should not be valid", True),
        ({"anyOf": [{"required": ["price"]}, {"required": ["e-mail"]}]}, {"currency": "EUR"},
         None, "not valid under any", True),
        ({"minProperties": 2}, {"currency": "EUR", "price": "3"}, None, "", True),
    ],
)  # fmt: skip
def test_what_a_declaration_cannot_hold_is_an_error_of_a_field(
    more: Any, texts: dict[str, Any], field: str | None, message: str, kept: bool
) -> None:
    """A value at fault goes, and what no fallback mends is said; the row stays."""
    item = read(declared(properties=PROPERTIES, **more), **texts)
    assert item.value is not None
    if not message:
        assert item.errors == ()
    else:
        (error,) = item.errors
        assert (error.field, message in error.message) == (field, True)
    found = [
        *(item.value.price, item.value.currency, item.value.e_mail, item.value.tags or None),
        item.value.box and item.value.box.mail_to,
    ]
    assert sum(value is not None for value in found) == len(texts) - (not kept)


def test_a_list_that_lacks_something() -> None:
    tags = {"type": "array", "items": {"type": "string"}, "contains": {"const": "new"}}
    model = declared(properties={"tags": tags})
    assert read(model, tags=["old", "new"]).errors == ()
    item = read(model, tags=["old"])
    assert item.value == model(tags=[])
    assert [(error.field, error.raw) for error in item.errors] == [("tags", ' ["old"]')]
    assert [error.field for error in read(model).errors] == ["tags"]


def test_nulls_that_are_allowed_are_judged_as_pydantic_did() -> None:
    text = {"type": "string", "nullable": True}
    model = declared(properties={"x": text}, required=["x"], minProperties=1)
    assert read(model).errors == ()


def test_parts_of_all_of_are_one_declaration() -> None:
    base = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    more = {"properties": {"b": {"allOf": [{"type": "integer"}, {"minimum": 2}]}}}
    model = declared(allOf=[{"$ref": "#/$defs/base"}, more], **{"$defs": {"base": base}})
    assert read(model, a="x", b="3").value == model.model_validate({"a": "x", "b": 3})
    assert [error.field for error in read(model, a="x", b="1").errors] == ["b"]


def test_references_by_id_and_anchor() -> None:
    inner = {"$id": "inner.json", "type": "object", "properties": {"q": {"$ref": "#/$defs/w"}}}
    document = {
        "$id": "https://example.org/schemas/doc.json",
        "properties": {
            "x": {"$ref": "#/$defs/a"},
            "y": {"$ref": "inner.json"},
            "z": {"$ref": "#flag"},
        },
        "$defs": {
            "a": {"type": "integer"},
            "b": {**inner, "$defs": {"w": {"type": "boolean"}}},
            "c": {"$anchor": "flag", "type": "boolean"},
        },
    }
    kinds = {item.name: item.kind for item in compile_attributes(declared(**document))}
    assert kinds == {"x": "integer", "y.q": "boolean", "z": "boolean"}
    urn = {"$id": "urn:example:doc", "properties": {"x": {"$ref": "#/$defs/a"}}}
    (item,) = compile_attributes(declared(**urn, **{"$defs": {"a": {"type": "integer"}}}))
    assert item.kind == "integer"


FOLDED = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(40)}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"not": {"$ref": "https://example.org/x"}}, "points outside the document"),
        ({"not": {"$ref": "file:///etc/passwd"}}, "points outside the document"),
        ({"not": {"$ref": "#"}}, "# refers to itself"),
        ({"not": {"$ref": "#/$defs/d0"}, "$defs": {**FOLDED, "d40": {}}}, "more than 20,000 parts"),
        ({"$defs": {f"k{i}": {} for i in range(100_000)}}, "more than 20,000 parts"),
        ({"if": {"properties": {"x": {"pattern": "("}}}}, "'(' is not a 'regex'"),
        ({"minProperties": "a"}, "minProperties: 'a' is not of type 'integer'"),
        ({"$schema": 3}, "$schema must be text"),
        ({"dependantRequired": {"x": ["y"]}}, "did you mean 'dependentRequired'"),
    ],
)
def test_hostile_and_broken_documents_are_refused_at_once(more: Any, reason: str) -> None:
    started = time.process_time()
    with pytest.raises(SchemaError) as caught:
        declared(properties={"x": {"type": "string"}}, **more)
    assert reason in caught.value.reason
    assert time.process_time() - started < 60  # only a hang fails


def test_conditions_search_for_patterns_in_bounded_time() -> None:
    slow = {"properties": {"x": {"pattern": "^(a+)+$(?!b)"}}, "required": ["x"]}
    model = declared(properties={"x": {"type": "string"}}, **{"not": slow})
    started = time.process_time()
    read(model, x="a" * 40 + "!")
    assert time.process_time() - started < 60  # only a hang fails


def test_a_pattern_that_cannot_be_searched_for_is_an_error_of_its_field() -> None:
    longest = {"properties": {"x": {"pattern": "a" * 20_000}}}
    item = read(
        declared(properties={"x": {"type": "string"}}, **{"if": {}, "then": longest}), x="b"
    )
    (error,) = item.errors
    assert (error.field, "its pattern cannot be used" in error.message) == ("x", True)


class Shop(AttrSchema, category="online shop", format="yaml"):
    """Shops."""

    legalName: str | None = attr("Name in the register", k_max=9)  # noqa: N815
    size: float | None = attr(unit="m^2", strict=True, ge=1)
    open_on: list[str] = attr(long=True, default_factory=list)


def test_a_round_trip_gives_the_same_prompt(codec: TextCodec) -> None:
    document = Shop.json_schema()
    assert document["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(document)
    for made in (
        AttrSchema.from_json_schema(document),
        AttrSchema.from_json_schema(Shop.model_json_schema()),
    ):
        left, right = (compile_schema(schema, codec) for schema in (Shop, made))
        assert codec.decode_bytes(left.instruction) == codec.decode_bytes(right.instruction)
        assert b"legal name" in codec.decode_bytes(left.instruction)
        assert made.json_schema() == document


@pytest.mark.parametrize("name", slow_but(schema_names()[::8], schema_names()))
def test_ready_made_schemas_are_valid_and_round_trip(name: str) -> None:
    assert document_of(name)["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    model = load_schema(name)
    document = model.json_schema()
    jsonschema.Draft202012Validator.check_schema(document)
    made = AttrSchema.from_json_schema(document)
    assert repr(compile_attributes(model)) == repr(compile_attributes(made))
