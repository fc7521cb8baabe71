"""Demonstrations that nobody named: whose, for which models, and what switches them off."""

from __future__ import annotations

import pickle
from typing import Any, Literal

import pytest
import tokenizers
from conftest import tiny_model
from pydantic import BaseModel

from schemax import AttrSchema, Extractor, InputError, SchemaError, attr, load_schema
from schemax.attributes.examples import SomeValues
from schemax.attributes.ready_made import demonstrations_of
from schemax.config import DecodingConfig, resolve_decoding
from schemax.extraction.defaults import usual_demonstrations

ISOLATED = DecodingConfig()


class Lamp(AttrSchema, demonstrations=[("Brass lamp, 7 W", {"watts": 7}), ("Shade", {})]):
    """A lamp."""

    watts: int | None = attr(k_max=3)


class Laptop(AttrSchema):
    """Mostly fields of the ready-made schema of the same category, and one that is not there."""

    brand: str | None = None
    memory: float | None = attr("Memory, GB", title="Memory")
    screen: Literal["13", "15"] | None = None
    model: str | None = None
    smell: str | None = None


class Unknown(AttrSchema, category="glass harmonica"):
    brand: str | None = None


def usual(schema: type[Any], **settings: Any) -> list[Any]:
    given = {"template": "verbatim", "config": ISOLATED} | settings
    return list(usual_demonstrations(schema, **given))


@pytest.fixture(scope="module")
def extractor(backend: tokenizers.Tokenizer) -> Extractor:
    return Extractor(tiny_model("qwen3", backend.get_vocab_size()), backend)


def test_a_class_has_demonstrations_of_its_own(extractor: Extractor) -> None:
    assert usual(Lamp) == [("Brass lamp, 7 W", {"watts": 7}), ("Shade", {})]
    compiled = extractor.compile(Lamp)
    assert '"watts": 7\n' in compiled.prompt.instruction
    assert compiled is extractor.compile(Lamp, examples=usual(Lamp))
    assert "7 W" not in extractor.compile(Lamp, examples=()).prompt.instruction


def test_a_demonstration_that_does_not_fit_is_called_one(extractor: Extractor) -> None:
    class Vase(AttrSchema, demonstrations=[("Oak", {"height": 7}), ("Oak", {"hieght": 7})]):
        height: int | None = None

    with pytest.raises(InputError, match=r"^Vase: demonstrations\[1\]: hieght: Extra inputs"):
        extractor.compile(Vase)
    with pytest.raises(InputError, match=r"^Vase: examples\[0\]: hieght: Extra inputs"):
        extractor.compile(Vase, examples=[("Oak", {"hieght": 7})])


def test_subclasses_declare_their_own() -> None:
    class Torch(Lamp):
        battery: str | None = None

    assert usual(Torch) == []


def test_documents_carry_demonstrations() -> None:
    rows = [
        {"text": "7 W, 20 cm", "attributes": {"watts": 7, "size.width": 20, "size.depth": None}}
    ]
    size = {
        "type": "object",
        "properties": {"width": {"type": "number"}, "depth": {"type": "number"}},
    }
    properties = {"watts": {"type": ["integer", "null"]}, "size": size}
    document = {"title": "Lamp", "type": "object", "properties": properties, "demonstrations": rows}
    made = AttrSchema.from_json_schema(document)
    assert usual(made) == [("7 W, 20 cm", {"watts": 7, "size": {"width": 20}})]
    assert usual(pickle.loads(pickle.dumps(made))) == usual(made)
    assert usual(AttrSchema.from_json_schema(made.json_schema())) == usual(made)
    assert usual(AttrSchema.from_json_schema(Lamp.json_schema())) == usual(Lamp)
    for wrong in ("text", [{"text": "x"}], [{"attributes": {}}], [{"text": "x", "attributes": []}]):
        with pytest.raises(SchemaError, match=r"demonstrations\[0\] must be"):
            AttrSchema.from_json_schema({**document, "demonstrations": wrong})


def test_ready_made_schemas_bring_theirs(extractor: Extractor) -> None:
    laptop = load_schema("laptop")
    assert [text for text, _ in usual(laptop)] == [text for text, _ in demonstrations_of("laptop")]
    first = demonstrations_of("laptop")[0][0]
    assert first in extractor.compile(laptop).prompt.instruction


def test_classes_of_the_same_category_borrow_them(extractor: Extractor) -> None:
    shown = usual(Laptop)
    texts = dict(demonstrations_of("laptop"))
    assert [text for text, _ in shown] == list(texts)
    for text, some in shown:
        assert isinstance(some, SomeValues)
        assert {"brand", "model"} <= some.values.keys()
        assert "smell" not in some.values  # nobody knows
        assert some.values["brand"] == texts[text]["brand"]
        assert some.values.get("screen") in (None, "13", "15")
    instruction = extractor.compile(Laptop).prompt.instruction
    assert '"smell"' not in instruction
    assert '"brand": "' in instruction


@pytest.mark.parametrize(
    ("schema", "settings"),
    [
        (Unknown, {}),
        (Laptop, {"config": resolve_decoding("autoregressive")}),  # which would leave keys out
        (Lamp, {"template": "{{ documents[0].text }}\n"}),
        (load_schema("invoice"), {"config": resolve_decoding("paper")}),
    ],
)
def test_where_there_are_none(schema: type[Any], settings: dict[str, Any]) -> None:
    assert usual(schema, **settings) == []


def test_too_few_fields_in_common() -> None:
    class Odd(AttrSchema, category="laptop"):
        brand: str | None = None
        smell: str | None = None
        taste: str | None = None

    assert usual(Odd) == []


def test_plain_models_borrow_them() -> None:
    class Shoes(BaseModel):
        brand: str | None = None
        color: str | None = None

    assert len(usual(Shoes)) == len(demonstrations_of("shoes"))


def test_models_that_schemax_trained_are_shown_none() -> None:
    with pytest.warns(UserWarning, match="embedded"):
        embedded = Extractor.default()
    assert embedded.defaults.is_trained
    assert embedded.compile(Lamp) is embedded.compile(Lamp, examples=())


@pytest.mark.slow
@pytest.mark.parametrize("decoding", ["isolated", "paper", "autoregressive"])
def test_extracts_with_them(extractor: Extractor, decoding: str) -> None:
    texts = ["Oak lamp, 9 W", "LG"]
    for schema in (Lamp, Laptop):
        shown: Any = usual(schema, config=resolve_decoding(decoding))
        found, same = (
            extractor.extract(texts, schema, decoding=decoding, on_error="null", **given)
            for given in ({}, {"examples": shown})
        )
        assert found == same
    mixed = extractor.extract([{"category": "a"}], {"a": Lamp}, examples=(), on_error="null")
    assert len(mixed) == 1


def test_documents_without_a_value_that_fits_are_left_out(extractor: Extractor) -> None:
    class Tea(AttrSchema):
        brand: Literal["LG", "Sony"] | None = None
        size: int | None = None

    assert all(some.values for _, some in usual(Tea))
    assert len(usual(Tea)) < len(demonstrations_of("tea"))
    extractor.compile(Tea)
