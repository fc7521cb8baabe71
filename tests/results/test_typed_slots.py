"""Typed slots hold literals and texts that are read as values, in every format and engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal

import pytest
from conftest import TITLES, combinations, slow_but
from constrained import forked, strictly
from decoding import WAYS, assert_right
from grammar_walks import FORMATS, TAILS, accepts, in_each_format
from pydantic import BaseModel, Field

from schemax import AttrSchema, Extraction, SchemaError, attr
from schemax.attributes import compile_attributes
from schemax.compiler import TextCodec, compile_schema
from schemax.compiler.grammars import slot_grammar
from schemax.extraction.labels import typed_labels
from schemax.formats import get_format
from schemax.io.table_schema import TableSchema
from schemax.report.rows import FieldSets, PageImages, plain_row
from schemax.results import SlotText, build
from schemax.runtime.models.model import DecoderModel


class Flat(AttrSchema):
    size: float | None = attr("Diagonal", unit="inch", ge=1, le=200)
    price: Decimal | None = None
    pieces: int = 1
    released: date | None = None
    updated: datetime | None = None
    smart: bool | None = None
    resolution: Literal["1080p", "4K"] | None = None
    ports: list[str] = attr(default_factory=list)
    sizes: list[float] = attr(default_factory=list)
    modes: list[Literal["eco", "film", "a, b"]] = attr(default_factory=list)


class Television(Flat):
    years: list[int] = attr(long=True, default_factory=list)


ATTRIBUTES = {attribute.name: attribute for attribute in compile_attributes(Television)}


def read(texts: dict[str, Any], name: str = "json", schema: Any = Television) -> Extraction[Any]:
    """An extraction of a document whose slots hold these texts, in the format's spelling."""
    output = get_format(name)
    slots = [
        SlotText(output.escape(texts.get(item.name)), "stop", 1, complete=True)
        for item in compile_attributes(schema)
    ]
    attributes = compile_attributes(schema)
    source = {"text": " | ".join(str(text) for text in texts.values())}
    return build(schema, attributes, slots, output, index=0, document_id="d", texts=source)


# --- what is allowed -----------------------------------------------------------------------------

LITERALS = {
    "size": [55.5],
    "pieces": [12],
    "released": [date(2024, 2, 29)],
    "smart": [True, False],
    "resolution": ["4K"],
    "ports": [["HDMI", "USB, C"], []],
    "sizes": [[1, 2.5]],
    "modes": [["a, b"], ["eco", "film"]],
}
TEXTS = {
    "size": ["55-Inch", '55" (140 cm)', "1.299,00 €", "two"],
    "pieces": ["1,299", "a dozen"],
    "released": ["March 3, 2021", "03.04.2021"],
    "updated": ["March 3, 2021 5:30 pm"],
    "smart": ["yes", "Yes", "NEIN"],
    "ports": ["HDMI, USB"],
    "sizes": ["1,5; 2"],
    "modes": ["Eco, Film"],
}


@in_each_format
def test_slots_take_literals_texts_and_null(name: str) -> None:
    output = get_format(name)
    for field, attribute in ATTRIBUTES.items():
        strict, lenient = (
            slot_grammar(attribute, output, TAILS[name], literals=literals) or ""
            for literals in (True, False)
        )
        for value in LITERALS.get(field, []):
            literal = output.escape(value) + TAILS[name][0]
            assert accepts(strict, literal), literal
            assert accepts(lenient, literal), literal
        for text in TEXTS.get(field, []):
            literal = output.escape(text) + TAILS[name][0]
            assert accepts(lenient, literal), literal
            # In XML a text of several items is a list of one, too.
            assert accepts(strict, literal) == (name == "xml" and field == "ports"), literal
        if attribute.omittable:
            assert accepts(lenient, output.escape(None) + TAILS[name][0])
    required = compile_attributes(Required)[0]
    lenient = slot_grammar(required, output, TAILS[name], literals=False) or ""
    assert not accepts(lenient, output.escape(None) + TAILS[name][0])


class Required(BaseModel):
    count: int


def test_a_choice_is_one_of_the_choices(codec: TextCodec) -> None:
    """No text stands for one: the slot is closed, its choices' probabilities are known."""
    compiled = compile_schema(Television, codec)
    specs = dict(zip(ATTRIBUTES, compiled.slots, strict=True))
    asked_first = {name for name, spec in specs.items() if spec.grammar and spec.grammar.strict}
    assert asked_first == {"smart", "resolution", "years"}  # of a long list, the count


def test_a_strict_field_takes_literals_alone(codec: TextCodec) -> None:
    class Mixed(BaseModel):
        free: int
        bound: int = attr(strict=True)

    free, bound = (spec.grammar for spec in compile_schema(Mixed, codec).slots)
    assert free is not None
    assert bound is not None
    assert (free.strict, bound.strict) == (False, True)
    assert free.text != bound.text
    item = read({"free": "two", "bound": "two"}, schema=Mixed)
    assert [error.field for error in item.errors] == ["bound"]


def test_a_budget_holds_a_text(codec: TextCodec) -> None:
    loose, strict = (
        dict(zip(ATTRIBUTES, compile_schema(schema, codec).k_max, strict=True))
        for schema in (Television, strictly(Television))
    )
    for field, texts in TEXTS.items():
        assert all(len(codec.encode(f' "{text}",')) <= loose[field] for text in texts), field
    assert all(strict[field] <= loose[field] for field in loose)
    assert strict["size"] < loose["size"]


# --- what is decoded -----------------------------------------------------------------------------


@combinations("name, way", FORMATS, [way for way in WAYS if way != "autoregressive"])
@pytest.mark.parametrize("temperature", slow_but({1.5}, [0.0, 1.5]))
def test_decoding_equals_the_oracle(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    way: str,
    name: str,
    temperature: float,
) -> None:
    config = replace(WAYS[way], temperature=temperature, max_retries=0, k_max=12)
    template = "{% for d in documents %}{{ d.text }}\n{% endfor %}"
    compiled = compile_schema(Flat, codec, format=name, template=template, decoding=config)
    assert_right(decoder_model(), compiled, TITLES[:2])


@in_each_format
def test_forks_equal_the_oracle(codec: TextCodec, name: str) -> None:
    template = "{% for d in documents %}{{ d.text }}\n{% endfor %}"
    decoding = "isolated:temperature=1.5:max_retries=0:k_max=12"
    compiled = compile_schema(Flat, codec, format=name, template=template, decoding=decoding)
    assert_right(forked(codec), compiled, TITLES[:2])


# --- what is read --------------------------------------------------------------------------------

READ = {
    "size": ("140 cm", 55.1),
    "price": ("1.299,00 €", Decimal(1299)),
    "pieces": ("two", 2),
    "released": ("3. März 2021", date(2021, 3, 3)),
    "updated": ("March 3, 2021 5:30 pm", datetime(2021, 3, 3, 17, 30)),
    "smart": ("Yes", True),
    "resolution": ("4K UHD", "4K"),
    "ports": ("HDMI, USB", ["HDMI", "USB"]),
    "sizes": ("1,5; 2 m", [1.5, 2.0]),
    "modes": ("Eco, Films", ["eco", "film"]),
}


@in_each_format
def test_texts_become_values(name: str) -> None:
    item = read({field: text for field, (text, _) in READ.items()}, name)
    assert item.errors == ()
    for field, (text, value) in READ.items():
        found = item.fields[field]
        assert found.value == value, field
        assert found.raw == get_format(name).escape(text)
        assert (found.note is None) == (field == "ports"), field
        assert found.grounded in ((None,) if field == "smart" else (True,)), field
    assert item.fields["size"].note == '"140 cm" read as 55.1 (centimeter in inch)'
    assert [item.texts["text"][s.start : s.end] for s in item.fields["ports"].spans if s] == [
        "HDMI",
        "USB",
    ]


class Jeans(AttrSchema):
    brand: str | None = None
    fits: list[str] = attr(default_factory=list)
    seller: str


@pytest.mark.parametrize("literal", ["false", "True", "null"])
def test_literals_in_free_text_are_no_values_unless_the_document_says_them(literal: str) -> None:
    """A required field keeps what the model wrote: a literal is better than a failed row."""
    texts = {"brand": literal, "fits": [literal], "seller": literal}
    slots = [SlotText(get_format("json").escape(text), "stop", 1, True) for text in texts.values()]
    for document, schema, kept in (
        ("Slim jeans", Jeans, False),
        ("Slim jeans", strictly(Jeans), True),
        (f"{literal.upper()} RELIGION jeans", Jeans, True),
    ):
        item: Any = build(
            schema,
            compile_attributes(schema),
            slots,
            get_format("json"),
            index=0,
            document_id="d",
            texts={"text": document},
        )
        assert item.value is not None
        assert (item.value.brand, item.value.fits) == ((literal, [literal]) if kept else (None, []))
        assert item.value.seller == literal
        assert (item.fields["brand"].note is None) == kept


@in_each_format
@pytest.mark.parametrize("text", ["n/a", "Not  specified", "—", "unknown"])
def test_what_says_that_there_is_no_value(name: str, text: str) -> None:
    item = read({"size": text, "pieces": text, "released": text, "smart": text}, name)
    assert item.errors == ()
    assert item.value == Television()
    assert "says that there is no value" in str(item.fields["size"].note)


@in_each_format
def test_a_list_of_one_item_stays_one(name: str) -> None:
    item = read({"ports": ["a, b"], "modes": ["a, b"], "sizes": ["1,5"]}, name)
    assert item.value == Television(ports=["a, b"], modes=["a, b"], sizes=[1.5])
    assert read({"modes": "a, b"}, name).value == Television(modes=["a, b"])


def test_conditions_hold_for_what_is_read() -> None:
    item = read(
        {"size": "900 cm", "price": "10 x 20", "sizes": "1, x", "resolution": "4K or 1080p"}
    )
    assert item.value == Television(sizes=[1.0])  # the other item costs itself alone
    told = {error.field: error.message for error in item.errors}
    assert told["size"] == "Input should be less than or equal to 200"
    assert told["price"] == "states several numbers (10, 20); the field takes one"
    assert told["sizes"].startswith("item 2: Input should be a valid number")
    assert told["resolution"] == "Input should be '1080p' or '4K'"
    (error,) = read({"size": "4 kg"}).errors
    assert error.message == "kilogram does not convert to inch"
    assert error.raw == ' "4 kg"'


def test_items_of_long_lists_are_read() -> None:
    def slot(raw: str) -> SlotText:
        return SlotText(raw, "stop", 1, complete=True)

    output, attributes = get_format("json"), compile_attributes(Television)
    items = tuple((slot(raw),) for raw in (' "MMXX (2020)"', " 2021"))
    slots = [None] * (len(attributes) - 1) + [
        SlotText(" 2", "stop", 1, complete=True, items=items)  # type: ignore[list-item]
    ]
    item = build(Television, attributes, slots, output, index=0, document_id=None)
    assert item.value == Television(years=[2020, 2021])
    assert item.fields["years"].note == '"MMXX (2020)" read as 2020 ("MMXX" is not read)'


# --- where notes and units are shown -------------------------------------------------------------


def test_rows_tables_and_reports_show_notes() -> None:
    item = read({"size": "140 cm", "ports": ["HDMI"]})
    note = '"140 cm" read as 55.1 (centimeter in inch)'
    row = item.to_row(details=True)
    assert (row["fields"]["size"]["note"], row["fields"]["ports"]["note"]) == (note, None)
    assert TableSchema.of(Television, details=True).cells(row)["size__note"] == note
    cells = plain_row(item, FieldSets(), PageImages())["c"]
    assert [cell.get("m") for cell in cells][:2] == [note, None]


def test_the_model_is_shown_the_unit(codec: TextCodec) -> None:
    class Sized(BaseModel):
        width: float = attr(unit="cm")
        depth: list[int] = attr("Of the case", unit="inch")

    text = compile_schema(Sized, codec).prompt.instruction
    assert "width: in cm [number]" in text
    assert "depth: Of the case (in inch) [list of: whole number]" in text


@pytest.mark.parametrize(
    ("annotation", "options", "reason"),
    [
        (float, {"unit": "foo"}, "unknown unit 'foo'"),
        (str, {"unit": "inch"}, "unit applies to numbers only"),
        (Literal[1, 2], {"unit": "inch"}, "unit applies to numbers only"),
        (int, {"strict": "yes"}, "strict must be True or False, not 'yes'"),
    ],
)
def test_what_cannot_be_declared(annotation: Any, options: Any, reason: str) -> None:
    field = Field(json_schema_extra=options)
    model = type("Model", (BaseModel,), {"__annotations__": {"x": annotation}, "x": field})
    with pytest.raises(SchemaError, match=f"^Model.x: {reason}"):
        compile_attributes(model)


def test_units_and_strictness_go_through_json_schema() -> None:
    class Outer(AttrSchema):
        size: float = attr("Diagonal", unit="inch")
        inner: Required = attr(strict=True)

    again = AttrSchema.from_json_schema(Outer.model_json_schema())
    for model in (Outer, again):
        size, count = compile_attributes(model)
        assert (size.unit, size.description, size.strict) == ("inch", "Diagonal (in inch)", False)
        assert (count.name, count.strict) == ("inner.count", True)


def test_labels_are_read_as_outputs_are() -> None:
    stated = {"size": "140 cm", "pieces": "two", "smart": "yes", "resolution": "4k", "price": "x"}
    values, errors = typed_labels("d", "tv", stated, Television, get_format("json"))
    assert values == {
        "size": Decimal("55.1"),
        "pieces": Decimal(2),
        "smart": True,
        "resolution": "4K",
    }
    assert [error.field for error in errors] == ["price"]
