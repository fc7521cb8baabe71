"""Unions, dicts, tuples, dataclasses, TypedDicts, recursion: what is asked, what becomes of it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Literal

import pydantic
import pytest
from conftest import TITLES
from constrained import strictly, walk
from decoding import TEMPLATE, filled
from decoding import expected as expected_of
from grammar_walks import accepts_value
from kind_models import (
    FULL,
    Box,
    Channel,
    Company,
    Email,
    Everything,
    Lid,
    Note,
    Parcel,
    Part,
    Person,
    flat,
    read,
    slots_of,
    written,
)
from pydantic import BaseModel, TypeAdapter
from test_lists import compare, prompts_with
from typing_extensions import TypedDict

from schemax import AttrSchema, Extractor, SchemaError, attr
from schemax.attributes import compile_attributes
from schemax.compiler import TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.formats import get_format
from schemax.io.columns import columns_of
from schemax.results import build
from schemax.runtime.models.model import DecoderModel

in_each_format = pytest.mark.parametrize("format", ["json", "yaml", "xml"])


def refused(annotation: Any, field: Any = ...) -> str:
    with pytest.raises(SchemaError) as caught:
        compile_attributes(pydantic.create_model("Model", x=(annotation, field)))
    assert (caught.value.schema, caught.value.field) == ("Model", "x")
    return caught.value.reason


# --- all of them --------------------------------------------------------------------------------


@in_each_format
def test_what_is_written_for_an_instance_is_read_as_it(format: str) -> None:
    """As few-shot examples show it, through Pydantic, in both directions."""
    output = get_format(format)
    slots = slots_of(FULL, output)
    found = build(
        Everything, compile_attributes(Everything), slots, output, index=0, document_id=None
    )
    assert found.errors == ()
    # In XML a text of digits is written like a number.
    assert found.value == FULL.model_copy(update={"code": 55} if format == "xml" else {})
    assert found.fields["who.kind"].value == "company"
    assert found.fields["who.company.number"].value == 12
    assert found.fields["who.person.number"].value is None
    assert found.fields["specs.1.key"].value == "net weight"
    row = found.to_row(details=True)
    assert row["attributes"]["specs"] == {"depth": 1.5, "net weight": 3}
    assert json.loads(json.dumps(row)) == row


def test_prompts_survive_a_document() -> None:
    document = Everything.json_schema()
    again = AttrSchema.from_json_schema(document)
    assert list(flat(compile_attributes(again))) == list(flat(compile_attributes(Everything)))
    slots = slots_of(FULL, get_format("json"))
    found = build(
        again, compile_attributes(again), slots, get_format("json"), index=0, document_id=None
    )
    assert found.errors == ()
    plain = found.value.model_dump(mode="json", exclude_none=True)
    plain["box"]["made"] = 7  # which is not read, and so no part of the document's class
    assert plain == FULL.model_dump(mode="json", exclude_none=True)


@in_each_format
def test_slots_equal_the_oracle(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, format: str
) -> None:
    class Small(AttrSchema):
        who: Person | Company | None
        specs: dict[str, int | str] = attr(k_max=6, default_factory=dict, max_length=3)
        mixed: tuple[int, bool] | None

    config = DecodingConfig(k_max=6, max_retries=0)
    compiled = compile_schema(Small, codec, format=format, template=TEMPLATE, decoding=config)
    model = decoder_model()
    prompts = prompts_with(compiled, TITLES[:2], (2, 1))
    outputs = [output.slots for output in filled(model, compiled, prompts)]
    for prompt, slots, expected in zip(
        prompts, outputs, expected_of(model, compiled, TITLES[:2], outputs), strict=True
    ):
        pairs = zip(compiled.attributes, slots, expected, strict=True)
        assert all(
            (slot.ids, slot.finish_reason) == (right.ids, right.finish_reason)
            for attribute, slot, right in pairs
            if not attribute.two_phase  # whose counts are given
        )
        assert compare(model, compiled, prompt, slots) == len(slots[-2].items)
    assert [len(slots[-2].items) for slots in outputs] == [4, 2]


class Scalars(BaseModel):
    code: int | str | None
    when: pydantic.NaiveDatetime | Literal["now", "don't know"] | float
    flag: bool | int
    many: list[int | Literal["x"]]
    mixed: tuple[bool, Literal["a", "b"], int]
    pair: tuple[float, float]


@in_each_format
def test_whatever_a_grammar_allows_is_valid(codec: TextCodec, format: str) -> None:
    compiled = compile_schema(strictly(Scalars), codec, format=format, template=TEMPLATE)
    for seed in range(6):
        chance = random.Random(seed)
        raws = [
            compiled.decode_slot(walk(spec, compiled.stop, codec, chance))[0]
            for spec in compiled.slots
        ]
        names = [attribute.name for attribute in compiled.attributes]
        found = read(Scalars, format, **dict(zip(names, raws, strict=True)))
        assert found.errors == (), raws


@in_each_format
def test_a_grammar_allows_the_literals_of_all_types(format: str) -> None:
    code, when, _, many, mixed, _ = compile_attributes(Scalars)
    accepted = [(code, 5), (code, "five"), (when, "now"), (when, "don't know"), (when, 1.5)]
    accepted += [(when, datetime(2024, 3, 1, 12)), (many, [1, "x"]), (mixed, [True, "b", 3])]
    for attribute, value in accepted:
        assert accepts_value(attribute, value, format), (attribute.name, value)
    for attribute, value in [
        (when, "later"),
        (many, ["y"]),
        (mixed, ["b", True, 3]),
        (mixed, [True]),
    ]:
        assert not accepts_value(attribute, value, format), (attribute.name, value)


# --- unions of models ---------------------------------------------------------------------------


def test_a_union_asks_for_its_kind_and_for_the_fields_of_all() -> None:
    model = pydantic.create_model(
        "Model", who=(Person | Company, ...), reach=(Channel | None, None)
    )
    shown = {one.name: (one.choices, one.omittable) for one in compile_attributes(model)}
    assert shown == {
        "who.kind": (("person", "company"), False),
        "who.name": ((), False),
        "who.born": ((), True),
        "who.legal_form": ((), True),
        "who.person.number": ((), True),
        "who.company.number": ((), True),
        "reach.channel": (("email", "newsletter", "phone"), True),
        "reach.address": ((), True),
        "reach.digits": ((), True),
        "reach.owner.kind": (("person", "company"), True),
        "reach.owner.name": ((), True),
        "reach.owner.born": ((), True),
        "reach.owner.legal_form": ((), True),
        "reach.owner.person.number": ((), True),
        "reach.owner.company.number": ((), True),
    }
    described = {one.name: one.description for one in compile_attributes(model)}
    assert described["who.person.number"] == "Of the passport (only of kind person)"
    assert described["reach.address"] == "only of channel email or newsletter"


class Contract(BaseModel):
    who: Person | Company | None = None
    seller: Person | Company


def test_fields_of_another_kind_are_left_out() -> None:
    found = read(
        Contract,
        seller__kind=' "person"',
        seller__name=' "Ann"',
        seller__legal_form=' "AG"',
        seller__person__number=' "5"',
        seller__company__number=" 7",
    )
    assert found.value == Contract(seller=Person(name="Ann", number="5"))
    assert found.errors == ()
    result = found.fields["seller.legal_form"]
    assert (result.value, result.note) == (None, "left out: of another kind")


@pytest.mark.parametrize(
    ("slots", "errors"),
    [
        ({"seller__kind": ' "company"', "seller__name": ' "A"'}, ["seller.legal_form"]),
        ({"seller__name": ' "A"'}, ["seller.kind"]),
        ({"seller__kind": ' "person"', "seller__name": ' "A"', "seller__born": ' "soon"'},
         ["seller.born"]),
        ({"seller__kind": ' "person"', "seller__name": ' "A"', "who__born": ' "2000-01-01"'},
         ["who.kind", "who.born"]),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(slots: Mapping[str, str], errors: list[str]) -> None:
    found = read(Contract, **slots)
    assert [error.field for error in found.errors] == errors
    assert (found.value is None) == (errors[0] in ("seller.legal_form", "seller.kind"))


def test_kinds_that_take_the_same_fields_are_not_mixed_up() -> None:
    """Pydantic would take the first model whose fields fit."""

    class Left(BaseModel):
        x: int

    class Right(BaseModel):
        x: int

    model = pydantic.create_model("Model", side=(Left | Right, ...))
    found = read(model, side__kind=' "right"', side__x=" 3")
    assert type(found.value.side) is Right


def test_items_of_a_list_and_values_of_a_dict_have_kinds_of_their_own() -> None:
    class Book(BaseModel):
        all: list[Person | Company] = []
        by_role: dict[str, Person | Company] = {}

    person = (' "person"', ' "Ann"', " null", " null", " null", " null")
    broken = (' "company"', ' "Bo"', " null", " null", " null", " null")
    company = (' "company"', ' "Co"', " null", ' "AG"', " null", " 3")
    found = read(
        Book,
        all=written(" 3", [person, broken, company]),
        by_role=written(" 2", [(' "buyer"', *company), (' "seller"', *person)]),
    )
    ann, co = Person(name="Ann"), Company(name="Co", legal_form="AG", number=3)
    assert found.value == Book(all=[ann, co], by_role={"buyer": co, "seller": ann})
    assert found.errors[0].field == "all.1.legal_form"
    assert found.fields["all.2.kind"].value == "company"
    assert found.fields["by_role.1.value.name"].value == "Ann"


def test_unions_that_are_refused() -> None:
    class Untold(TypedDict):
        x: int

    assert "whose values do not tell" in refused(Untold | Note)
    again = pydantic.create_model("Person", y=(int, ...))
    assert "two models called 'person'" in refused(Person | again)
    many = [pydantic.create_model(f"Model{n}", x=(int, ...)) for n in range(101)]
    union: Any = many[0]
    for model in many[1:]:
        union = union | model
    assert "a union of 101 models; at most 100" in refused(union)


def test_columns_hold_the_fields_of_all_kinds() -> None:
    (who,) = [column for column in columns_of(Everything) if column.name == "who"]
    types = {child.name: child.type for child in who.children}
    assert types == {"name": "string", "born": "date", "number": "json", "legal_form": "string"}


# --- dicts, unions of scalars, tuples -----------------------------------------------------------


class Specs(BaseModel):
    specs: dict[str, float] = {}
    counts: dict[int, list[str]] | None = attr(default=None, min_length=1)


def test_pairs_become_a_dict() -> None:
    found = read(
        Specs,
        specs=written(" 4", [(' "a"', " 1"), (' "b"', ' "much"'), (' "a"', " 2"), (" null", " 3")]),
        counts=written(" 1", [(" 5", ' ["x", "y"]')]),
    )
    assert found.value == Specs(specs={"a": 1}, counts={5: ["x", "y"]})
    assert {error.field: error.message.partition(",")[0] for error in found.errors} == {
        "specs.1.value": "Input should be a valid number",
        "specs.2": "discarded",
        "specs.3.key": "the text states no value",
        "specs.1.key": "discarded",
        "specs.3.value": "discarded",
    }
    assert found.fields["counts.0.value"].value == ["x", "y"]
    assert read(Specs, specs=" null", counts=" null").value == Specs()


def test_dicts_in_tables_and_in_documents() -> None:
    assert [column.type for column in columns_of(Specs)] == ["json", "json"]
    document = {
        "title": "Doc",
        "type": "object",
        "properties": {
            "a": {"type": "object", "additionalProperties": {"type": "integer"}},
            "b": {"type": "object", "patternProperties": {"^x": {"type": "string"}}},
            "c": {
                "type": "object",
                "propertyNames": {"enum": ["u", "v"]},
                "additionalProperties": {"type": "object", "properties": {"d": {"type": "number"}}},
                "maxProperties": 2,
            },
        },
    }
    attributes = {
        one.name: one for one in compile_attributes(AttrSchema.from_json_schema(document))
    }
    assert all(one.is_mapping and one.two_phase for one in attributes.values())
    assert attributes["b"].fields[0].constraints == (("pattern", "^x"),)
    assert attributes["c"].fields[0].choices == ("u", "v")
    assert attributes["c"].constraints == (("maxItems", 2),)


def test_dicts_that_are_refused() -> None:
    assert "does not say what its values are" in refused(dict)
    assert "the keys of a dict must be text" in refused(dict[tuple[int, ...], str])
    assert "a list of dicts is not supported" in refused(list[dict[str, str]])


@pytest.mark.parametrize(
    ("annotation", "raw", "value"),
    [
        (int | str, " 55", 55),
        (int | str, ' "55"', "55"),
        (float | str, " 1.50", 1.5),
        (bool | int, " true", True),
        (bool | int, " 1", 1),
        (Literal["auto"] | int, ' "auto"', "auto"),
        (list[int | str], ' [1, "a"]', [1, "a"]),
        (list[int | str], ' ["1", "2"]', ["1", "2"]),
        (tuple[str, ...], ' ["a", "b"]', ("a", "b")),
        (tuple[float, float], " [1, 2.5]", (1, 2.5)),
        (tuple[float, float], ' "1, 2.5"', (1, 2.5)),
        (tuple[str, int], ' ["5", 5]', ("5", 5)),
    ],
)
def test_scalars_of_several_types(annotation: Any, raw: str, value: Any) -> None:
    model = pydantic.create_model("Model", x=(annotation, ...))
    found = read(model, x=raw).value
    assert found is not None
    assert (found.x, type(found.x)) == (value, type(value))


def test_tuples_of_another_length_are_errors_and_null_is_none() -> None:
    model = pydantic.create_model("Model", x=(tuple[str, int] | None, None))
    assert (read(model, x=" null").value, read(model, x=" null").errors) == (model(x=None), ())
    (error,) = read(model, x=' ["a"]').errors
    assert (error.field, error.message) == ("x", "expected 2 values, got 1")
    assert "holds scalars, none of them None" in refused(tuple[Person, int])
    assert "holds scalars, none of them None" in refused(tuple[str, int | None])


# --- dataclasses, TypedDicts, recursion ---------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "slots", "value"),
    [
        (Box, {"width": ' "2.5 cm"', "labels": ' ["a"]'}, Box(2.5, ["a"])),
        (
            Parcel,
            {"name": ' "a"', "weight": " 2", "box__width": " 1"},
            Parcel(name="a", weight=2.0, box=Box(1.0)),
        ),
        (Lid, {"box__width": " 1", "tight": " true"}, Lid(Box(1.0), tight=True)),
        (Note, {"text": ' "x"', "author": " null"}, {"text": "x"}),
    ],
)
def test_classes_that_are_no_pydantic_models(kind: Any, slots: Any, value: Any) -> None:
    found = read(kind, **slots)
    assert (found.value, found.errors) == (value, ())
    plain = TypeAdapter(kind).dump_python(value, mode="json")
    assert found.to_row()["attributes"] == plain
    missing = read(kind)
    assert missing.value is None
    assert missing.errors[0].message == "the text states no value, and the field is required"


@pytest.mark.parametrize("kind", [Box, Note])
def test_extractors_give_instances_of_them(
    decoder_model: Callable[..., DecoderModel], backend: Any, kind: Any
) -> None:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    extractor = Extractor(
        decoder_model().model,
        tokenizer,
        decoding=DecodingConfig(k_max=20, temperature=3.0, seed=3),
    )
    example = Box(1.5, ["x"]) if kind is Box else {"text": "x", "author": "y"}
    values = extractor.extract(TITLES, kind, on_error="null", examples=[("A", example)])
    rows = list(extractor.stream(TITLES[:2], kind))
    assert (len(values), len(rows)) == (len(TITLES), 2)
    expected, field = (Box, "width") if kind is Box else (dict, "text")
    found = [value for value in values if value is not None]
    assert found
    assert all(isinstance(value, expected) for value in found)
    assert all(field in row.fields for row in rows)


def test_levels_of_a_model_that_contains_itself() -> None:
    (name, parts) = compile_attributes(Part)
    assert [leaf.name for leaf in parts.fields] == ["name"]
    assert name.name == "name"

    class Tree(AttrSchema):
        value: int
        left: Tree | None = attr(max_depth=2)

    names = [one.name for one in compile_attributes(Tree)]
    assert names == ["value", "left.value", "left.left.value"]
    found = read(Tree, value=" 1", left__value=" 2", left__left__value=" 3").value
    assert found == Tree(value=1, left=Tree(value=2, left=Tree(value=3)))


class Ping(BaseModel):
    x: int
    pong: Pong | None = None


class Pong(BaseModel):
    ping: Ping | Email | None = attr(max_depth=1, default=None)


class Endless(BaseModel):
    again: Endless = attr(max_depth=1)


def test_circles_of_several_models_and_of_unions() -> None:
    assert [one.name for one in compile_attributes(Ping)] == [
        *("x", "pong.ping.kind", "pong.ping.x"),
        *("pong.ping.pong.ping.channel", "pong.ping.pong.ping.address"),
        *("pong.ping.channel", "pong.ping.address"),
    ]
    with pytest.raises(SchemaError, match=r"Endless\.again\.again: requires one Endless in every"):
        compile_attributes(Endless)
    with pytest.raises(SchemaError, match="max_depth must be a whole number from 1 to 8"):
        compile_attributes(pydantic.create_model("Model", x=(int, attr(max_depth=9))))


def test_fields_of_a_union_look_at_its_kind_and_at_others() -> None:
    class Left(BaseModel):
        size: int
        x: int = attr(after=["kind", "size"])

    class Right(BaseModel):
        size: str
        x: int = attr(after=["kind", "size"])

    model = pydantic.create_model(
        "Model", side=(Left | Right, ...), y=(int | None, attr(after="side", default=None))
    )
    after = {one.name: [".".join(path) for path in one.after] for one in compile_attributes(model)}
    assert after == {
        "side.kind": [],
        "side.x": ["side.kind", "side.left.size", "side.right.size"],
        "side.left.size": [],
        "side.right.size": [],
        "y": ["side.kind", "side.x", "side.left.size", "side.right.size"],
    }
