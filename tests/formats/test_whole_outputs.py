"""Whole outputs that a model wrote itself: every value is right, or refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemax import AttrSchema, Extraction
from schemax.base.calibration import Calibration
from schemax.compiler import TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.extraction.documents import RecordFields, read_documents
from schemax.extraction.readout import read_out
from schemax.formats import OutputFormat, Path, Value, get_format
from schemax.runtime.slots.outputs import DocumentOutput
from schemax.tokens import FinishReason, SlotOutput

JSON, YAML, XML = map(get_format, ("json", "yaml", "xml"))
PRICE, BRAND, SIZES, WIDTH = PATHS = [("price",), ("brand",), ("sizes",), ("dims", "width")]
BROKEN = "a value that is refused"


def read(format: OutputFormat, text: str, paths: Sequence[Path] = PATHS) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for path, raw in format.parse(text, paths).items():
        try:
            values[path[-1]] = format.unescape(raw, is_list=path == SIZES)
        except ValueError:
            values[path[-1]] = BROKEN
    return values


class Variant(AttrSchema):
    sku: str
    price: Decimal | None = None
    colors: list[str] = []  # noqa: RUF012


class Offer(AttrSchema):
    variants: list[Variant]


class Product(AttrSchema):
    price: float | None = None
    brand: str | None = None
    sizes: list[str] | None = None


def extracted(
    codec: TextCodec,
    text: str,
    format: str = "json",
    reason: FinishReason = "eos",
    schema: type[AttrSchema] = Product,
) -> Extraction[Any]:
    config = DecodingConfig(layout="autoregressive", max_retries=0)
    compiled = compile_schema(schema, codec, format=format, decoding=config)
    output = DocumentOutput((SlotOutput(tuple(codec.encode(text)), reason),), 1)
    (document,) = read_documents(["A television"], RecordFields.of(None, "id", "category"))
    return read_out(document, output, compiled, Calibration())


# --- JSON ---------------------------------------------------------------------------------------

scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8)
)
objects = st.dictionaries(
    st.sampled_from(["price", "brand", "sizes", "other", '"', "a\\", "{}", ":"]),
    st.one_of(scalars, st.lists(scalars, max_size=3), st.dictionaries(st.text(), scalars)),
)


@given(
    product=objects.filter(lambda product: not isinstance(product.get("dims"), dict)),
    indent=st.sampled_from([None, 0, 2]),
    separators=st.sampled_from([(",", ":"), (" , ", " : "), (", ", ": ")]),
    is_ascii=st.booleans(),
    prose=st.sampled_from(["", "Sure, for {this}: ", "```json\n", "<think>{}</think>\n"]),
)
def test_json_is_read_exactly(
    product: dict[str, Any], indent: int, separators: Any, is_ascii: bool, prose: str
) -> None:
    def told(value: Any) -> Any:
        if isinstance(value, dict):
            return BROKEN
        if isinstance(value, list):
            return [told(item) for item in value]
        return value if value is None or isinstance(value, str) else json.dumps(value)

    text = json.dumps(product, indent=indent, separators=separators, ensure_ascii=is_ascii)
    if product:
        expected = {name: told(product[name]) for (name,) in PATHS[:3] if name in product}
        if isinstance(expected.get("sizes"), str) and expected["sizes"] != BROKEN:
            expected["sizes"] = [expected["sizes"]]
        assert read(JSON, prose + text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"price": 1.50, "brand": 12345678901234567890123}', ["1.50", "12345678901234567890123"]),
        ('{"price": 1, "price": 2, "brand": "x"}', [BROKEN, "x"]),
        ('{"price":1,299}', ["1,299"]),
        ('{"price": 12,50 €, "brand": "x"}', ["12,50 €", "x"]),
        ('{"price": 55 inches, "brand": x, y}', ["55 inches", "x, y"]),
        ('{"price": 12:30, "brand": "x"}', ["12:30", "x"]),
        ('{"price": "55" TV", "brand": "x"}', [BROKEN, "x"]),
        ('{"price": "55" TV"}', [BROKEN]),
        ('{"price": "a "great", "new" thing", "brand": "x"}', [BROKEN, "x"]),
        ('{"price": "x", "y", "brand": "z"}', [BROKEN, "z"]),
        ('{"price": "x",\n "y",\n "brand": "z"}', [BROKEN, "z"]),
        ('{"price": "12,\n "brand": "x"}', [BROKEN, "x"]),
        ('{"price": "1" "brand": "x"}', ["1", "x"]),
        ('{"price": 1\n "brand": "x",}', ["1", "x"]),
        ("{'price': 1.50, 'brand': 'it, \"x\"'}", ["1.50", 'it, "x"']),
        ('{"price": 1, "brand": "x', ["1", BROKEN]),
        ('{"price": 1, "brand": ', ["1", BROKEN]),
        ('{"price": 1, "brand": tru', ["1", BROKEN]),
        ('{"price": 1, "bra', ["1"]),
        ('{"price": "1", "brand"', ["1"]),
        ('{"price": "1",\n  ', ["1"]),
        ('{"price": 1,\n  ', ["1"]),
        ('{"price": 1,', [BROKEN]),
        ('{"price": 1,2', [BROKEN]),
        ('{"price": 1, "brand": ["x", "y', ["1", BROKEN]),
        ('{"price": {"amount": 1}, "brand": "x"}', [BROKEN, "x"]),
        ('{"price": [{"brand": "y"} {"brand": "z"}], "brand": "x"}', [BROKEN, "x"]),
        ('{"price": [1, "brand": "x"}', [BROKEN]),
        ('[{"price": 1}]', ["1"]),
        ('[{"price": 1}, {"price": 2}]', []),
        ('The {price} is "1": {"price": 2} or {"price": 3}', []),
    ],
)
def test_broken_json_costs_the_broken_value(text: str, expected: list[str]) -> None:
    values = read(JSON, text, [PRICE, BRAND])
    assert values == dict(zip(("price", "brand"), expected, strict=False))


def test_commas_in_numbers(codec: TextCodec) -> None:
    whole = extracted(codec, '{"price": 1,299, "brand": "Acme"}')
    assert (whole.value, whole.errors) == (Product(price=1299, brand="Acme"), ())
    item = extracted(codec, '{"brand": "55" TV", "price": 12,50 €}')
    assert item.value == Product(price=12.5)
    (error,) = item.errors
    assert (error.field, error.raw) == ("brand", ' "55" TV"')
    assert "text stands behind the string" in error.message


def test_an_output_that_ends_within_a_value(codec: TextCodec) -> None:
    text = '{"brand": "Acme", "price": 12'
    (error,) = extracted(codec, text).errors
    assert error.field == "price"
    errors = extracted(codec, text, reason="length").errors
    assert [error.field for error in errors] == ["price", "sizes"]
    assert all("truncated" in error.message for error in errors)


def test_objects_of_a_list_are_read_one_by_one(codec: TextCodec) -> None:
    text = """{"variants": [
      {"sku": "A", "price": 1.50, "colors": ["red", "blue"]},
      {"sku": "B [new}", "price": 1,299},
      {"sku": "55" TV", "price": 12345678901234567890.10}
    ]}"""
    item = extracted(codec, text, schema=Offer)
    first, second = item.value.variants
    assert (first.sku, str(first.price), first.colors) == ("A", "1.50", ["red", "blue"])
    assert (second.sku, second.price) == ("B [new}", 1299)
    assert item.errors[0].field == "variants.2.sku"
    assert item.fields["variants.2.price"].raw == " 12345678901234567890.10"


@pytest.mark.parametrize("rows", ['[{"sku": "A"}, "B"]', '[[{"sku": "A"}]]', '[{"sku": "A"}, {'])
def test_a_list_of_more_than_objects_is_refused(codec: TextCodec, rows: str) -> None:
    item = extracted(codec, f'{{"variants": {rows}}}', schema=Offer)
    assert item.value is None
    assert item.errors[0].field == "variants"


# --- around the answer --------------------------------------------------------------------------

ANSWERS = {
    "json": '{\n  "price": 1.50,\n  "brand": "x"\n}',
    "yaml": "price: 1.50\nbrand: x\n",
    "xml": "<result>\n  <price>1.50</price>\n  <brand>x</brand>\n</result>",
}
ANSWER = {"price": "1.50", "brand": "x"}


@pytest.mark.parametrize(("name", "answer"), ANSWERS.items())
@pytest.mark.parametrize(
    "around",
    [
        "<think>\nSo {0}?\n</think>\n\n{0}",
        "Here you are:\n```{1}\n{0}\n```\nI hope that it helps.\n```python\nprint(0)\n```",
        "```\n{0}\n```",
        "<think>\nFirst.</think>\n```{1}\n{0}\n```",
        "So {0}, or not?\n</think>\n\n{0}",
    ],
)
def test_the_answer_stands_between(name: str, answer: str, around: str) -> None:
    text = around.replace("{1}", name).replace("{0}", answer)
    assert read(get_format(name), text) == ANSWER


@pytest.mark.parametrize(("name", "answer"), ANSWERS.items())
def test_thoughts_that_do_not_end_are_no_answer(name: str, answer: str) -> None:
    assert read(get_format(name), f"<think>\nIt may be {answer}, or else") == {}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("json", '{"product": {"price": 1.50, "brand": "x"}}'),
        ("json", '{"id": 5, "note": {"a": 1}, "result": {"price": 1.50, "brand": "x"}}'),
        ("json", '[{"price": 1.50, "brand": "x"}]'),
        ("yaml", "product:\n  price: 1.50\n  brand: x\n"),
        ("yaml", "- price: 1.50\n  brand: x\n"),
        ("xml", "<product><price>1.50</price><brand>x</brand></product>"),
    ],
)
def test_an_answer_within_another_object(name: str, text: str) -> None:
    assert read(get_format(name), text) == ANSWER


@pytest.mark.parametrize(
    "text",
    [
        '{"a": {"brand": "x"}, "b": {"brand": "y"}}',
        '{"brands": {"first": {"brand": "x"}}}',
        '{"product": {"name": "x"}}',
    ],
)
def test_no_single_object_holds_the_answer(codec: TextCodec, text: str) -> None:
    (error,) = extracted(codec, text).errors
    assert (error.field, error.message) == (
        None,
        "the output holds none of the keys, or several answers",
    )
    assert read(JSON, '{"price": 1, "product": {"brand": "x"}}') == {"price": "1"}


# --- YAML ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("price: 12,50 €\nbrand: a: b\n", {"price": "12,50 €", "brand": "a: b"}),
        ("price: [1\nbrand: x\n", {"price": BROKEN, "brand": "x"}),
        ('price: "1\nbrand: x\n', {"price": BROKEN, "brand": "x"}),
        ("price:\n  amount: 1\nbrand: x\n", {"price": BROKEN, "brand": "x"}),
        ("sizes:\n  - S\n  - {x: M}\nbrand: x\n", {"sizes": BROKEN, "brand": "x"}),
        ("sizes:\n  - S\n  - @M\nbrand: x\n", {"sizes": BROKEN, "brand": "x"}),
        ("sizes:\n  - S\n  - M\nbrand: @x\n", {"sizes": ["S", "M"], "brand": "@x"}),
        ("brand: >\n  a\n  b\nprice: @1\n", {"brand": "a b", "price": "@1"}),
        ("dims:\n  width: a: b\n  height: 5\nprice: 1\n", {"width": "a: b", "price": "1"}),
        ("dims:\n  width:\n    x: @\nprice: 1\n", {"width": BROKEN, "price": "1"}),
        ("price: &a 1\nbrand: *a\n", {"price": "1", "brand": BROKEN}),
    ],
)
def test_broken_yaml_costs_the_broken_value(text: str, expected: dict[str, Value]) -> None:
    assert read(YAML, text) == expected


# --- XML ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("<sizes>S</sizes>\n<sizes>M | L</sizes>", ["S", "M | L"]),
        ("<sizes>\n  <size>S</size>\n  <size>A&amp;T</size>\n</sizes>", ["S", "A&T"]),
        ("<sizes><sizes>S</sizes><sizes>M</sizes></sizes>", ["S", "M"]),
        ("<sizes><size>S</size>, <size>M</size></sizes>", BROKEN),
        ("<sizes><size><name>S</name></size></sizes>", BROKEN),
        ("<sizes><size>S</size><size>M</sizes>", BROKEN),
        ("<sizes>S</sizes><sizes>M", BROKEN),
        ("<sizes>S<brand>x</brand>", BROKEN),
        ("<sizes>S</dims>", ["S"]),
    ],
)
def test_xml_items(text: str, sizes: Value) -> None:
    values = read(XML, f"<price>1</price>{text}<brand>x</brand>")
    assert values == {"price": "1", "sizes": sizes, "brand": "x"} or "<brand>" in text
    assert values["sizes"] == sizes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<brand>Acme <b>TV</b></brand>", "markup"),
        ("<brand>Acme<br/>TV</brand>", "markup"),
        ("<brand>Acme</brand><brand>Sony</brand>", "expected one value, got 2"),
        ("<brand><name>Acme</name><country>FR</country></brand>", "expected one value, got 2"),
        ("<brand>Acme", "markup"),
    ],
)
def test_markup_in_an_xml_value_is_an_error(codec: TextCodec, text: str, said: str) -> None:
    item = extracted(codec, f"<price>5</price>{text}", "xml")
    assert item.value == Product(price=5)
    (error,) = item.errors
    assert error.field == "brand"
    assert said in error.message


def test_entities_of_a_document_type_are_not_expanded() -> None:
    text = '<!DOCTYPE x [<!ENTITY a "Acme">]><result><brand>&a;</brand></result>'
    assert read(XML, text) == {"brand": "&a;"}


# --- hostile outputs ----------------------------------------------------------------------------


@pytest.mark.timeout(120)  # takes seconds; hours, if the time grew with the square
@pytest.mark.parametrize("name", ["json", "yaml", "xml"])
@pytest.mark.parametrize(
    "part",
    [
        *("[", "{", "(", '{"a":', '{"price":[', '{"dims":{', '"', '"price": "', "'", ","),
        *(
            '{"price": "x"y',
            '"price": x{}',
            "\\",
            '\\"',
            "\n",
            " ",
            ":",
            "}",
            "/*",
            '"price":"x"y,',
        ),
        *("price: @\n", "dims:\n  width: @\n", "- ", "&a *a ", "price: [", "*a: &a [*a]\n", "? "),
        *("<", "<price>", "</price>", "<price", "<dims><width>", "<![CDATA[", "<!--", "&amp", "</"),
        *("<price>1</price>", "<x>", "<think>", "```", "\n```json\n", "|", "\t", "é", "<price/>"),
    ],
)
def test_hostile_outputs_are_read_in_linear_time(name: str, part: str) -> None:
    for size in (15_000, 500_000):
        text = part * (size // len(part))
        for output in (text, f"brand: x\n{text}", f'"price": 1, "brand": "{text}'):
            read(get_format(name), output)


def test_an_output_of_yaml_that_is_too_long_is_refused(codec: TextCodec) -> None:
    text = "brand: x\n" + "price: 1\n" * 2000
    (error,) = extracted(codec, text, "yaml").errors
    assert (error.field, error.message) == (
        None,
        "the output holds none of the keys, or several answers",
    )
