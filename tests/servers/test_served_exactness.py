"""What a server of schemax reads is what its model reads in this process, to the last note."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NamedTuple

import pytest
from pydantic import BaseModel, Field, RootModel, field_validator
from serving import served
from typing_extensions import TypedDict

from schemax import AttrSchema, Extraction, Extractor, attr, load_schema
from schemax.attributes import Attribute, compile_attributes
from schemax.attributes.json_classes import declaration_of
from schemax.attributes.ready_made import demonstrations_of, schema_names
from schemax.base.resources import resource_dir
from schemax.errors import ModelError


class Pair(NamedTuple):
    here: Extractor
    there: Extractor
    url: str


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    here = Extractor.from_pretrained(resource_dir("embedded"), device="cpu")
    with served(Extractor.from_pretrained(resource_dir("embedded"), device="cpu")) as url:
        there = Extractor.from_server(f"{url}/v1")
        yield Pair(here, there, url)
        there.close()


class Roast(Enum):
    LIGHT = "light roast"
    DARK = "dark roast"
    STRENGTH = 5


class Size(BaseModel):
    width: float | None = attr("Width", unit="inch")
    height: float | None = attr("Height", unit="inch", default=None)


class Shoe(BaseModel):
    kind: Literal["shoe"] = "shoe"
    sole: str | None = None
    size: Size | None = None


class Tv(BaseModel):
    kind: Literal["tv"] = "tv"
    screen: float | None = attr("Diagonal", unit="inch", default=None)


class Line(BaseModel):
    item: str
    count: int | None = None
    price: Decimal | None = Field(None, ge=0)


class Everything(AttrSchema, category="coffee or a shoe"):
    """Whatever a shop sells."""

    brand_name: str | None = attr("Manufacturer", examples=["LG", "Nike"], alias="maker")
    weight: float | None = attr("Net weight", unit="oz")
    volume: int | None = attr("Volume", unit="ml")
    roast: Roast | None = attr("Roast")
    resolution: Literal["720p", "4K"] | None = None
    cores: Literal[4, 8] | None = None
    organic: bool | None = None
    packed: date | None = attr("Day of packing")
    seen: datetime | None = None
    size: Size | None = attr("Outer size", k_max=9)
    code: int | str | None = attr("Article code")
    ports: list[str] = attr("Connectors", default_factory=list)
    years: set[int] = attr("Years", default_factory=set)
    roasts: list[Roast] = attr("Roasts", default_factory=list)
    details: dict[str, str] = attr("Other facts", default_factory=dict, max_length=2)
    item: Shoe | Tv | None = None
    sku: str | None = attr("SKU", pattern="[A-Z]{2}[0-9]+", strict=True)
    material: str | None = attr("Material", title="What it is MADE of", extractive=True)
    note: str = attr("A note", default="none", skip=True)
    copied: str | None = attr("Model behind the brand", after="brand_name")

    @field_validator("brand_name")
    @classmethod
    def _loud(cls, value: str | None) -> str | None:
        if value == "Twinings":
            raise ValueError("Twinings is not sold here")
        return value and value.upper()


class Order(BaseModel):
    lines: list[Line] = Field(default_factory=list, max_length=3)
    total: float | None = None
    window: tuple[int, str] | None = None


class Holder(RootModel[Shoe | Tv]):
    pass


class Part(AttrSchema):
    name: str | None = None
    parts: list[Part] = attr("Parts", default_factory=list, max_depth=2, max_length=2)


@dataclass
class Flat:
    brand: str | None = None
    width: float = 2.5


class Typed(TypedDict):
    brand: str | None
    count: int | None


class German(AttrSchema, language="de"):
    width: float | None = attr("Width", unit="inch")
    packed: date | None = attr("Packed on", language="fr")
    size: Size | None = None


DECLARED: list[Any] = [Everything, Order, Holder, Part, Flat, Typed, German]
TEXTS = [
    "Twinings Green Tea, 340 g, dark roast, organic, packed 2024-06-09, SKU AB123",
    "Nike Pegasus 40, rubber sole, 140 cm x 2 ft, 3 Fl Oz bottle, HDMI | USB-C, 1080p or 4K",
    "<b>LG</b> TV 55-Inch &amp; stand, 2 lb, 12/5/2020, 500 ml; 2 x soundbar at $19.99, total 99",
    "",
    "8 cores, not organic, width: 30, height: 1,299.50 in; {{ x }} <|im_end|> \ud800 \u00fc",
]


def read(extractor: Extractor, texts: Sequence[Any], schema: Any, **options: Any) -> list[Any]:
    found: Any = extractor.stream(texts, schema, **options)
    return sorted(found, key=lambda item: item.index)


_FACTS = ("raw", "value", "left_out", "spans", "locations", "note", "finish_reason", "tokens")
_SHARES = ("confidence", "probability", "null_probability", "legal_probability", "legal_at_start")


def plain(item: Extraction[Any]) -> dict[str, Any]:
    """All that an extraction tells, but for probabilities."""
    row = {one.name: getattr(item, one.name) for one in fields(item) if one.name != "slots"}
    facts = {
        name: {fact: getattr(result, fact) for fact in _FACTS}
        for name, result in item.fields.items()
    }
    return {**row, "texts": dict(item.texts), "partial": dict(item.partial), "fields": facts}


def shares(item: Extraction[Any]) -> list[float]:
    """All probabilities of an extraction; -1 for None."""
    return [
        -1 if share is None else share
        for result in item.fields.values()
        for share in (*(getattr(result, name) for name in _SHARES), *result.alternatives.values())
    ]


def same(pair: Pair, texts: Sequence[Any], schema: Any, **options: Any) -> None:
    right = read(pair.here, texts, schema, **options)
    found = read(pair.there, texts, schema, **options)
    for one, other in zip(found, right, strict=True):
        assert plain(one) == plain(other)
        choices = [
            [*item.fields[name].alternatives] for name in other.fields for item in (one, other)
        ]
        assert choices[::2] == choices[1::2]
        # Batches of other shapes round in other places.
        assert shares(one) == pytest.approx(shares(other), rel=1e-3, abs=1e-6)


def ready(name: str) -> tuple[type[AttrSchema], list[str]]:
    return load_schema(name), [text for text, _ in demonstrations_of(name)]


@pytest.mark.slow
@pytest.mark.parametrize("name", schema_names()[::24])
def test_ready_made_schemas(pair: Pair, name: str) -> None:
    schema, texts = ready(name)
    same(pair, texts[:2], schema)


def test_the_format_of_a_class_gives_way_to_the_server_s(pair: Pair) -> None:
    class Plain(AttrSchema):
        """A product."""

        brand: str | None = None

    class Marked(AttrSchema, category="plain", format="xml"):
        """A product."""

        brand: str | None = None

    values = [
        [item.value.brand for item in read(pair.there, TEXTS[:2], schema)]
        for schema in (Plain, Marked)
    ]
    assert values[0] == values[1] != [None, None]


@pytest.mark.release
@pytest.mark.parametrize(("place", "name"), [*enumerate(schema_names())])
def test_all_ready_made_schemas(pair: Pair, place: int, name: str) -> None:
    schema, texts = ready(name)
    same(pair, [texts[place % len(texts)], TEXTS[place % len(TEXTS)]], schema)


@pytest.mark.slow
@pytest.mark.parametrize("schema", DECLARED[::2], ids=lambda schema: schema.__name__)
def test_declared_classes(pair: Pair, schema: Any) -> None:
    same(pair, TEXTS[:2], schema)


@pytest.mark.release
@pytest.mark.parametrize("schema", DECLARED, ids=lambda schema: schema.__name__)
def test_declared_classes_at_length(pair: Pair, schema: Any) -> None:
    same(pair, TEXTS[2:], schema)


def test_records_and_sampling(pair: Pair) -> None:
    """Records of several texts, HTML among them, whose spans are places in these."""
    records = [
        {"id": 7, "title": "<b>Twinings</b> &lt;Tea&gt;", "size": "2 lb", "category": "tea"},
        {"id": 8, "title": "Nike shoe", "size": None, "category": "shoe"},
    ]
    schemas = {"tea": Flat, "shoe": Typed}
    same(pair, records, schemas, category="category")
    same(pair, TEXTS[:1], Flat, decoding="isolated:temperature=0.9:seed=3")


class Coffee(AttrSchema):
    weight: float | None = attr("Net weight", unit="oz")


@pytest.mark.parametrize(
    ("text", "value", "note"),
    [
        ("Lavazza Coffee, 340 g", 12.0, '"340 g" read as 12 (gram in oz)'),
        ("Lavazza Coffee, 2 lb", 32.0, '"2 lb" read as 32 (pound in oz)'),
    ],
)
def test_units_of_the_text(pair: Pair, text: str, value: float, note: str) -> None:
    (item,) = read(pair.there, [text], Coffee)
    result = item.fields["weight"]
    assert (result.value, result.note) == (value, note)
    assert text[result.span.start : result.span.end] == text.split()[-2]


def test_what_the_context_does_not_hold(pair: Pair) -> None:
    same(pair, ["tea " * 20_000, TEXTS[0]], Flat)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"format": "yaml"}, "leave `format` out"),
        ({"template": "standard"}, "leave `template` out"),
        ({"examples": [("LG", {"brand": "LG"})]}, "leave `examples` out"),
        ({"examples": ()}, "leave `examples` out"),
        ({"decoding": "paper"}, "it takes temperature, top_p, seed"),
    ],
)
def test_what_is_the_servers_own(pair: Pair, options: Any, said: str) -> None:
    with pytest.raises(ModelError, match=said):
        pair.there.extract(TEXTS[:1], Flat, **options)


def test_a_tokenizer_is_of_no_use(pair: Pair) -> None:
    with pytest.raises(ModelError, match="needs no `tokenizer`"):
        Extractor.from_server(f"{pair.url}/v1", tokenizer=resource_dir("embedded"))


def test_answers_that_are_no_slots_cost_their_rows(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of another version may understand a declaration otherwise."""
    ask = pair.there.model.client.ask
    changed: dict[str, Any] = {}

    async def other(path: str, body: Any = None) -> Any:
        reply = await ask(path, body)
        reply["rows"][0].update(changed)
        return reply

    monkeypatch.setattr(pair.there.model.client, "ask", other)
    for change in ({"labels": [["x"]]}, {"slots": [7, 7]}, {"slots": [{"raw": 1}, None]}):
        changed.clear()
        changed.update(change)
        (item,) = read(pair.there, TEXTS[:1], Flat)
        assert item.value is None
        assert "answered without slots" in item.errors[0].message


def names_of(kind: Any) -> set[str]:
    return {one.name for one in fields(kind)}


# Of the class alone, on which neither prompts nor slots depend; and those that are compared apart.
_OWN = {"choice_values", "discriminated", "misfits", "required"}
_OWN |= {"members", "positions", "fields"}


def essence(attribute: Attribute) -> list[Any]:
    """What prompts and slots depend on."""
    told = {one.name: getattr(attribute, one.name) for one in fields(attribute)}
    # A set drops what it is given twice, whoever reads the list.
    told["constraints"] = [one for one in attribute.constraints if one[0] != "uniqueItems"]
    return [
        {name: value for name, value in told.items() if name not in _OWN},
        [one.kind for one in attribute.variants],
        [one.kind for one in attribute.places],
        list(map(essence, attribute.fields)),
    ]


@pytest.mark.parametrize(
    "schema", [*DECLARED, *schema_names()], ids=lambda schema: getattr(schema, "__name__", schema)
)
def test_a_declaration_that_is_sent_says_all(schema: Any) -> None:
    schema = load_schema(schema) if isinstance(schema, str) else schema
    made = AttrSchema.from_json_schema(json.dumps(declaration_of(schema)))
    found, right = compile_attributes(made), compile_attributes(schema)
    assert list(map(essence, found)) == list(map(essence, right))


@pytest.mark.slow
def test_a_cascade_of_a_model_here_and_a_server(pair: Pair) -> None:
    """The same model in both places, so that all answers are those of the model alone."""
    schema, (text, *_) = ready("coffee")
    texts = [text, "Ground coffee, dark, 12 oz"]
    alone = sorted(pair.here.stream(texts, schema), key=lambda item: item.index)
    for parts in ([pair.here, pair.there], [pair.there, pair.here]):
        stream = Extractor.cascade(parts, confidence=0.9).stream(texts, schema)
        items = sorted(stream, key=lambda item: item.index)
        assert [item.value for item in items] == [item.value for item in alone]
        answering = {field.model for item in items for field in item.fields.values()}
        assert answering == {None, parts[1].name}
