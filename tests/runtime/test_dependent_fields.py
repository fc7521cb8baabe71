"""Fields that look at others: every slot gets what one plain request would get that holds them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
import tokenizers
import torch
from conftest import TITLES, slow_but
from constrained import forked
from decoding import TEMPLATE, counted, filled, follow_branches, limited, outputs_of
from families import FORK, IN_SEQUENCE
from oracle import oracle_outputs
from pydantic import BaseModel, create_model, field_validator
from test_families import generated

from schemax import SchemaError, extract
from schemax.attributes import attr, compile_attributes
from schemax.base.calibration import Calibration
from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.compiler.slot_specs import Items
from schemax.compiler.waves import Waves
from schemax.config import DecodingConfig
from schemax.extraction.extractor import Extractor
from schemax.extraction.schema import AttrSchema
from schemax.formats import get_format
from schemax.io.fingerprint import differences, of_schemas, of_settings
from schemax.results import SlotText
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.requests import new_request
from schemax.serve.completion import usage_of
from schemax.tokens import PromptIds, SlotOutput, SlotSpec, child_number
from schemax.training.features import fill_row, make_features
from schemax.training.training_examples import TrainingExample

PLAIN = DecodingConfig(max_retries=0, constrain="nothing")


class Size(BaseModel):
    """A nested model: its leaves look at what it looks at, and at each other."""

    width: float | None = attr(k_max=4)
    unit: Literal["cm", "inch"] | None = attr(after="width", k_max=4)


class Offer(AttrSchema):
    """Three waves, and a field that is declared before what it looks at."""

    currency: str | None = attr(after=("price", "kind"), k_max=5)
    price: float | None = attr("Price", k_max=5)
    kind: Literal["new", "used"] | None = attr(k_max=8)
    note: str | None = attr(after="currency", k_max=7)
    size: Size | None = attr(after="kind", default=None)
    tags: list[str] | None = attr(after="size", k_max=6)


AFTER = {
    "currency": ("price", "kind"),
    "price": (),
    "kind": (),
    "note": ("currency",),
    "size.width": ("kind",),
    "size.unit": ("kind", "size.width"),
    "tags": ("size.width", "size.unit"),
}


class Line(BaseModel):
    price: float | None = attr(k_max=4)
    currency: Literal["EUR", "USD"] | None = attr(after="price", k_max=4)
    rebates: list[int] = attr(long=True, max_length=2, default_factory=list, after="currency")


class Receipt(AttrSchema):
    """Lists that look at others, are looked at, and whose items have waves of their own."""

    shop: str | None = attr(k_max=5)
    lines: list[Line] = attr(after="shop", max_length=3)
    total: float | None = attr(after="lines", k_max=5)


def literal_of(compiled: CompiledSchema, output: SlotOutput, is_list: bool = False) -> str:
    """What docs/dependent-fields.md says stands in a key, in other words."""
    raw, complete = compiled.decode_slot(output.ids)
    try:
        readable = compiled.format.unescape(raw, is_list=is_list) is not None
    except ValueError:
        readable = False
    whole = complete or output.finish_reason != "length"
    return raw.rstrip() if readable and whole else compiled.format.escape(None)


def keys_behind(compiled: CompiledSchema, literals: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """The keys of all fields, where these values stand in them."""
    slots = [SlotText(literal, "stop", 1, complete=True) for literal in literals]
    return tuple(slot.key for slot in compiled.known(slots))


def written(compiled: CompiledSchema, value: Any) -> tuple[int, ...]:
    text = compiled.format.escape(value)
    return tuple(compiled.codec.encode(text + compiled.format.delimiter))


def head_of(prompt: PromptIds) -> list[int]:
    return [*prompt.instruction, *prompt.documents[0], *prompt.opening]


def test_leaves_and_waves_are_those_that_are_declared() -> None:
    found = {a.name: tuple(map(".".join, a.after)) for a in compile_attributes(Offer)}
    assert found == AFTER


FAMILIES = [f for f in (*IN_SEQUENCE, *FORK) if f.name in ("qwen3", "falcon", "mamba")]


@pytest.mark.parametrize(
    "family",
    slow_but({"qwen3"}, FAMILIES, lambda family: family.name),
    ids=lambda family: family.name,
)
@pytest.mark.parametrize("format", slow_but({"json"}, ["json", "yaml", "xml"]))
def test_slots_equal_plain_requests(family: Any, format: str, codec: TextCodec) -> None:
    """In sequence, and one row per slot: no code of ours in this oracle but the format's.

    The first wave is given, since a model of random weights writes hardly a literal.
    """
    raw = family.model(codec.vocab_size)
    model = prepare(raw)
    compiled = compile_schema(
        Offer, codec, format=format, template=TEMPLATE, decoding=PLAIN, vocab_size=model.vocab_size
    )
    form = compiled.format
    stated = [(12.5, "new"), (None, "used"), (7, None)]
    prompts = [
        replace(prompt, answers=(tuple(written(compiled, value) for value in values),))
        for prompt, values in zip(compiled.encode(TITLES[:3]), stated, strict=True)
    ]
    labels = {a.name: a.labels for a in compiled.attributes}
    names = list(labels)
    texts = set()
    for prompt, output in zip(prompts, filled(model, compiled, prompts), strict=True):
        assert len(prompt.keys[0]) == 2  # price and kind
        assert len(output.slots) == len(names)
        values = dict(zip(names, output.slots, strict=True))
        for name, k_max in zip(names, compiled.k_max, strict=True):
            if not AFTER[name]:
                continue
            text, before = "", None
            for other in AFTER[name]:
                is_list = other == "tags"
                text += form.key(labels[other], before)
                text += literal_of(compiled, values[other], is_list)
                before = labels[other]
            text += form.key(labels[name], before)
            texts.add(text)
            expected = generated(raw, [*head_of(prompt), *codec.encode(text)], k_max)
            assert list(values[name].ids) == expected[: len(values[name].ids)]
            assert values[name].finish_reason != "length" or len(values[name].ids) == k_max
    assert len(texts) > 9  # values stand in keys, not nulls alone


@pytest.mark.slow
@pytest.mark.parametrize("format", slow_but({"xml"}, ["json", "yaml", "xml"]))
@pytest.mark.parametrize("temperature", slow_but({1.2}, [0.0, 1.2]))
@pytest.mark.parametrize("max_retries", slow_but({1}, [0, 1]))
@pytest.mark.parametrize("kind", ["in sequence", "forks"])
def test_slots_equal_the_oracle(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    format: str,
    temperature: float,
    max_retries: int,
    kind: str,
) -> None:
    """Constrained, with retries; sampled too: as if all had been asked at once, values known."""
    config = DecodingConfig(temperature=temperature, max_retries=max_retries)
    compiled = compile_schema(Offer, codec, format=format, template=TEMPLATE, decoding=config)
    model = decoder_model() if kind == "in sequence" else forked(codec)
    prompts = compiled.encode(TITLES[:2])
    for prompt, output in zip(prompts, filled(model, compiled, prompts), strict=True):
        pairs = zip(output.slots, compiled.attributes, strict=True)
        literals = [literal_of(compiled, slot, one.is_list) for slot, one in pairs]
        (document,) = codec.encode_batch([TITLES[prompts.index(prompt)]])
        at_once = compiled.assemble([tuple(document)], [keys_behind(compiled, literals)])
        assert at_once.waves is None
        assert at_once.documents == prompt.documents
        budgets = [2**max_retries * budget for budget in at_once.k_max]
        bare = tuple(replace(slot, followed=()) for slot in output.slots)
        expected = oracle_outputs(model, at_once, compiled.stop, config, bare, budgets)
        assert bare == expected


@pytest.mark.parametrize("kind", slow_but({"in sequence"}, ["in sequence", "forks"]))
def test_lists_look_at_others_and_are_looked_at(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, kind: str
) -> None:
    """Counts, items, items of items, and a field behind all of them."""
    config = DecodingConfig(max_retries=0)
    compiled = compile_schema(Receipt, codec, template=TEMPLATE, decoding=config)
    model = decoder_model() if kind == "in sequence" else forked(codec)
    form, compared = compiled.format, 0
    items = compiled.slots[1].follow_ups
    assert isinstance(items, Items)

    def check(prompt: PromptIds, key: str, slot: SlotOutput, spec: SlotSpec, k_max: int) -> int:
        ids = (((*codec.encode(key),),),)
        asked = replace(prompt, keys=ids, k_max=(k_max,), slots=(spec,), numbers=(), waves=None)
        bare = (replace(slot, followed=()),)
        assert oracle_outputs(model, asked, compiled.stop, config, bare) == bare
        return 1

    prompts = compiled.encode(TITLES[:4])
    for prompt, output in zip(prompts, filled(model, compiled, prompts), strict=True):
        shop, lines, total = output.slots
        lead = form.key(("shop",), None) + literal_of(compiled, shop)
        text = form.key(("lines (count)",), None) + literal_of(compiled, lines)
        before: tuple[str, ...] = ("lines (count)",)
        for at in range(0, len(lines.items), 3):
            item = f"lines {at // 3 + 1}"
            price, currency, rebates = lines.items[at : at + 3]
            own = [("price", price), ("currency", currency), ("rebates (count)", rebates)]
            own += [(f"rebates {n + 1}", one) for n, one in enumerate(rebates.items)]
            for name, slot in own:
                text += form.key((item, name), before) + literal_of(compiled, slot)
                before = (item, name)
            behind = lead + form.key((item, "price"), ("shop",)) + literal_of(compiled, price)
            key = behind + form.key((item, "currency"), (item, "price"))
            compared += check(prompt, key, currency, items.fields.specs[1], 4)
            behind = lead + form.key((item, "currency"), ("shop",))
            behind += literal_of(compiled, currency)
            for name, slot in own[3:]:
                key = behind + form.key((item, name), (item, "currency"))
                inner = items.fields.specs[2].follow_ups
                assert isinstance(inner, Items)
                compared += check(prompt, key, slot, inner.fields.specs[0], inner.fields.k_max[0])
        key = text + form.key(("total",), before)
        compared += check(prompt, key, total, compiled.slots[2], 5)
    assert compared > 5


def test_keys_hold_the_values_in_every_format(codec: TextCodec) -> None:
    """Golden texts; null stands for what is not known."""
    expected = {
        "json": '  "price": 12.5,\n  "kind": null,\n  "currency":',
        "yaml": "price: 12.5\nkind: null\ncurrency:",
        "xml": "<price> 12.5</price>\n  <kind> null</kind>\n  <currency>",
    }
    for name, text in expected.items():
        compiled = compile_schema(Offer, codec, format=name, template=TEMPLATE)
        assert compiled.waves is not None
        literals = [compiled.format.escape(x) for x in ("EUR", 12.5, None, "x", 3, "cm", ["a"])]
        keys = keys_behind(compiled, literals)
        assert codec.decode_bytes(keys[0]).decode().strip() == text.strip()
        assert keys[1] == compiled.keys[0][1]
        unit = codec.decode_bytes(keys[5]).decode()
        assert unit.count("size") == 1  # its group stays in one piece


def test_what_is_cut_off_or_no_literal_stands_as_null(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec
) -> None:
    """Values are given; the keys of the next wave are looked at."""
    compiled = compile_schema(Offer, codec, template=TEMPLATE, decoding=PLAIN)
    assert compiled.waves is not None

    def keys(*texts: str, reason: Any = "stop") -> str:
        ids = [tuple(codec.encode(text)) for text in texts]
        outputs = tuple(SlotOutput(some, reason) for some in ids)
        called = compiled.waves.next_wave(outputs, None)
        assert called == () or len(called) == 2
        return codec.decode_bytes(called[0].key).decode()

    assert '"price": 12.5,\n  "kind": "new",' in keys(" 12.5,\n", ' "new"')
    assert '"price": null,\n  "kind": null,' in keys(" null", " null")
    assert '"price": null,\n  "kind": null,' in keys(" 12", ' "ne', reason="length")
    assert '"price": null,' in keys(' ["a', " null", reason="eos")
    assert '"price": "55-Inch",' in keys(' "55-Inch"', " null")
    # A context that has no room for them holds the key alone.
    called = compiled.waves.next_wave((SlotOutput(tuple(codec.encode(" 12.5,\n")), "stop"),) * 2, 9)
    assert [slot.key for slot in called] == [compiled.keys[0][0], compiled.keys[0][4]]


def test_slots_of_items_draw_random_numbers_of_their_own(codec: TextCodec) -> None:
    compiled = compile_schema(Receipt, codec, template=TEMPLATE)
    items, waves = compiled.slots[1].follow_ups, compiled.waves
    assert waves is not None
    assert items is not None
    shop = SlotOutput(tuple(codec.encode(' "a"')), "stop")
    (lines,) = waves.next_wave((shop,), None)
    count = tuple(codec.encode(" 3,"))
    written = (tuple(codec.encode(f" {n},")) for n in range(3))
    prices = [SlotOutput(ids, "stop", role="item") for ids in written]
    assert len(items.after(SlotOutput(count, "stop"))) == len(prices)
    known = (shop, SlotOutput(count, "stop", followed=tuple(prices)))
    currencies = waves.next_wave(known, None)
    assert len(currencies) == 3
    numbers = [child_number(lines.number, place) for place in range(3)]
    assert len({*numbers, *(slot.number for slot in currencies)}) == 6


def test_items_behind_a_long_value_stay_within_the_context(codec: TextCodec) -> None:
    """A value may take more tokens in a key than its budget, and items' keys hold it, too."""
    compiled = compile_schema(Receipt, codec, template=TEMPLATE)
    assert compiled.waves is not None
    form = compiled.format
    shop = form.escape("\N{OGHAM LETTER BEITH}" * 40)
    outputs = (SlotOutput(tuple(codec.encode(f" {shop},\n")), "stop"),)

    def extent(room: int | None) -> tuple[int, int]:
        (lines,) = compiled.waves.next_wave(outputs, room)
        assert lines.spec.follow_ups is not None
        return len(lines.key) + (lines.k_max or 0), lines.spec.follow_ups.extent

    own, items = extent(None)
    assert items > own
    assert extent(items) == (own, items)
    assert max(extent(items - 1)) < items - len(codec.encode(shop))


def test_a_document_is_read_once(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Later waves read their keys, and of values all but the last tokens; texts of choices the last
    token of their keys as well."""
    model = decoder_model()
    follow_branches(monkeypatch, 1.0)
    compiled = compile_schema(Offer, codec, template=TEMPLATE)
    outputs_of(model, compiled, TITLES[:1])  # the instruction is read by now
    tokens = counted(monkeypatch, model)
    (output,) = outputs_of(model, compiled, TITLES[:1])
    (prompt,) = compiled.encode(TITLES[:1])
    pairs = zip(output.slots, compiled.attributes, strict=True)
    assert compiled.waves is not None
    keys = keys_behind(compiled, [literal_of(compiled, s, a.is_list) for s, a in pairs])
    read = len(prompt.documents[0]) + len(prompt.opening) + sum(map(len, keys))
    read += sum(len(slot.ids) - 1 for slot in output.slots)
    # The last token of its key again, and its own but the last.
    read += sum(len(slot.free_text.ids) for slot in output.slots if slot.free_text is not None)
    shared = 0 if len(prompt.instruction) > 16 else len(prompt.instruction)
    assert sum(tokens) <= read + shared
    assert output.steps == len(tokens)


@pytest.mark.slow
@pytest.mark.parametrize("schema", slow_but({Receipt}, [Offer, Receipt]))
def test_nothing_depends_on_what_shares_a_pass(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    monkeypatch: pytest.MonkeyPatch,
    schema: Any,
) -> None:
    """Room in a pass, documents in flight, order, memory that runs out in a later wave."""
    model = decoder_model()
    config = DecodingConfig(temperature=1.3)
    compiled = compile_schema(schema, codec, template=TEMPLATE, decoding=config)
    alone = [outputs_of(model, compiled, [text])[0] for text in TITLES[:4]]
    limited(monkeypatch, pass_tokens=60)
    prompts = compiled.encode(TITLES[:4])
    assert filled(model, compiled, prompts[::-1])[::-1] == alone
    usual, passes = model.run_batch, 0

    def scarce(batch: Any, cache: Any) -> torch.Tensor:
        nonlocal passes
        passes += 1
        if passes == 14:
            raise torch.OutOfMemoryError("scarce")
        return usual(batch, cache)

    monkeypatch.setattr(model, "run_batch", scarce)
    assert filled(model, compiled, prompts) == alone


def test_other_fields_are_as_without_waves(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec
) -> None:
    """Sampled: a field that looks at none does not know that others do."""

    class Plain(AttrSchema, category="offer"):
        currency: str | None = attr(k_max=5)
        price: float | None = attr("Price", k_max=5)
        kind: Literal["new", "used"] | None = attr(k_max=4)

    class Waved(Plain, category="offer"):
        currency: str | None = attr(after="price", k_max=5)

    config = DecodingConfig(temperature=1.1)
    model = decoder_model()
    plain, waved = (
        outputs_of(model, compile_schema(s, codec, template=TEMPLATE, decoding=config), TITLES)
        for s in (Plain, Waved)
    )
    assert [o.slots[1:] for o in plain] == [o.slots[1:] for o in waved]
    assert [o.slots[0] for o in plain] != [o.slots[0] for o in waved]


def test_positions_reach_as_far_as_later_waves_do(codec: TextCodec) -> None:
    """What the context has to hold is known before anything is read."""
    compiled = compile_schema(Offer, codec, template=TEMPLATE)
    (prompt,) = compiled.encode(TITLES[:1])
    request = new_request(prompt, compiled.stop, compiled.decoding)
    assert compiled.waves is not None
    furthest = request.max_position - request.first_position
    assert furthest >= len(keys_behind(compiled, [" 123456789"] * 7)[5]) + compiled.k_max[5]
    assert request.layout.extent < compiled.waves.extent


def declared(**after: Any) -> type[AttrSchema]:
    fields = {name: (str | None, attr(after=some)) for name, some in after.items()}
    return create_model("Made", __base__=AttrSchema, **fields)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("after", "field", "said"),
    [
        ({"a": "b", "b": ()}, None, None),
        ({"a": "a"}, "a", "the field itself"),
        ({"a": "b", "b": "c", "c": "a"}, "a", "circle"),
        ({"a": "z", "b": ()}, "a", "'z', which is not asked for; there are b"),
        ({"a": "b.x", "b": ()}, "a", "'b.x'"),
        ({"a": 5}, "a", "names of fields, not 5"),
    ],
)
def test_what_cannot_be_is_refused_before_a_model_is_loaded(
    after: Any, field: str | None, said: str | None
) -> None:
    schema = declared(**after)
    if said is None:
        assert compile_attributes(schema)[0].after == (("b",),)
        return
    with pytest.raises(SchemaError, match=said) as caught:
        extract(["x"], schema, model="no/such-model")
    assert caught.value.field in after


def test_items_look_at_none_outside_them(codec: TextCodec) -> None:
    class Inner(BaseModel):
        price: float
        currency: str = attr(after="shop")

    class Outer(AttrSchema):
        shop: str
        lines: list[Inner]

    with pytest.raises(SchemaError, match=r"lines\.currency.*'lines\.shop'"):
        compile_attributes(Outer)


@pytest.mark.parametrize(
    "decoding", ["paper", "isolated:layout=gapped", "isolated:documents=stacked"]
)
def test_other_layouts_refuse_it(codec: TextCodec, decoding: str) -> None:
    with pytest.raises(SchemaError, match=r"currency.*after requires isolated documents"):
        compile_schema(Offer, codec, decoding=decoding)


def test_a_model_that_writes_the_whole_output_sees_what_stands_before(codec: TextCodec) -> None:
    class Ordered(AttrSchema):
        price: float | None
        currency: str | None = attr(after="price")

    assert compile_schema(Ordered, codec, decoding="autoregressive").waves is None
    with pytest.raises(SchemaError, match="a place behind the fields"):
        compile_schema(Offer, codec, decoding="autoregressive")


def test_the_document_of_a_class_holds_it() -> None:
    made = AttrSchema.from_json_schema(Offer.json_schema())
    assert [a.after for a in compile_attributes(made)] == [
        a.after for a in compile_attributes(Offer)
    ]
    document = {
        "type": "object",
        "properties": {
            "Price (net)": {"type": "number"},
            "currency": {"type": "string", "after": "Price (net)"},
        },
    }
    named = AttrSchema.from_json_schema(document)
    assert compile_attributes(named)[1].after == (("price_net",),)
    again = AttrSchema.from_json_schema(named.json_schema())
    assert compile_attributes(again)[1].after == (("price_net",),)
    document["properties"]["currency"]["after"] = ["price"]  # type: ignore[index]
    with pytest.raises(SchemaError, match="currency: after names 'price'"):
        AttrSchema.from_json_schema(document)


@pytest.mark.slow
def test_extractors_read_in_waves(
    decoder_model: Callable[..., DecoderModel], backend: tokenizers.Tokenizer
) -> None:
    """Calls, streams and tasks; two calls at once share passes."""
    model = decoder_model()
    extractor = Extractor(model.model, backend, template=TEMPLATE)
    found = extractor.extract(TITLES[:3], Offer)
    assert len(found) == 3
    rows = {item.index: item for item in extractor.stream(TITLES[:3], Offer)}
    assert [rows[n].value for n in range(3)] == found
    assert list(rows[0].fields) == list(AFTER)

    async def both() -> list[Any]:
        calls = extractor.aextract(TITLES[:3], Offer), extractor.aextract(TITLES[:3], Receipt)
        return list(await asyncio.gather(*calls))

    assert asyncio.run(both())[0] == found
    assert get_format("json") == extractor.compile(Offer).format
    extractor.close()


def test_training_sees_what_extraction_sees(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec
) -> None:
    """Keys of annotated values; what looks at a value that nobody knows is not learnt."""
    compiled = compile_schema(Offer, codec, template=TEMPLATE)
    values = {"price": 12.5, "currency": "EUR", "tags": ["a"]}
    examples = [
        TrainingExample("1", "offer", TITLES[0], values),
        TrainingExample("2", "offer", TITLES[1], values, frozenset({"price"})),
    ]
    features = make_features(examples, {"offer": compiled}, decoder_model(), 1.0)["offer"]
    assert [chances == (1.0,) * 7 for chances in (f.chances for f in features)] == [True, False]
    assert features[1].chances[0] == 0
    row = fill_row(compiled, features, None)
    text = codec.decode_bytes(row.input_ids.tolist()).decode()
    key = '  "price": 12.5,\n  "kind": null,\n  "currency":'
    assert text.count(key) == 2
    assert text.count('  "currency": "EUR",\n  "note":') == 2
    (prompt,) = compiled.encode(TITLES[:1])
    given = tuple(written(compiled, value) for value in (12.5, None))
    (output,) = filled(decoder_model(), compiled, [replace(prompt, answers=(given,))])
    literals = [
        literal_of(compiled, s, a.is_list)
        for s, a in zip(output.slots, compiled.attributes, strict=True)
    ]
    assert compiled.waves is not None
    (asked,) = {keys_behind(compiled, some)[0] for some in (literals, features[0].literals)}
    assert asked in windows(row.input_ids.tolist(), len(asked))


class Refused(Receipt, category="receipt"):
    """No shop is accepted, so that every one of them is asked for again."""

    shop: Literal["Ann", "Bob"] = attr(k_max=8)
    lines: list[Line] = attr(after="shop", min_length=1, max_length=3)

    @field_validator("shop")
    @classmethod
    def refuse(cls, shop: str) -> str:
        raise ValueError("no shop is called so")


@pytest.mark.parametrize("kind", slow_but({"in sequence"}, ["in sequence", "forks"]))
def test_keys_of_known_values_are_those_that_were_asked(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    backend: tokenizers.Tokenizer,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """Of lists, of what looks at them, and of second chances, from what the decoder wrote."""
    follow_branches(monkeypatch, 1.0)
    config = DecodingConfig(max_repairs=1)
    model: Any = decoder_model() if kind == "in sequence" else forked(codec)
    extractor = Extractor(model.model, backend, template=TEMPLATE)
    compiled = extractor.compile(Refused, decoding=config)
    assert compiled.waves is not None
    asked = Counter(compiled.waves.opened[0][0] * 2)
    for owner, name in ((Waves, "next_wave"), (Items, "after")):
        usual = getattr(owner, name)

        def noted(self: Any, *given: Any, usual: Any = usual) -> Any:
            called = usual(self, *given)
            asked.update(slot.key for slot in called)
            return called

        monkeypatch.setattr(owner, name, noted)
    known, read = Counter[tuple[int, ...]](), 0
    for item in extractor.stream(TITLES[:2], Refused, decoding=config):
        known.update(slot.key for slot in compiled.known([s for s in item.slots if s]))
        usage = usage_of(compiled, TITLES[item.index], item)
        read += usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
        read -= len(compiled.opening) + len(codec.encode(TITLES[item.index]))
    assert any("error" in codec.decode_bytes(key).decode() for key in known)
    assert known.total() >= 2 * 7  # items, too
    assert known == asked
    assert read == sum(len(key) * count for key, count in asked.items())


class Roomy(BaseModel):
    price: float | None = None
    currency: Literal["EUR", "USD"] | None = attr(after="price")
    rebates: list[int] = attr(long=True, max_length=2, default_factory=list, after="currency")


class RoomyReceipt(AttrSchema, category="receipt"):
    """Budgets that every value fits."""

    shop: str | None = None
    lines: list[Roomy] = attr(after="shop", max_length=3)
    total: float | None = attr(after="lines")


def test_lists_are_trained_in_waves_as_they_are_decoded(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec
) -> None:
    compiled = compile_schema(RoomyReceipt, codec, template=TEMPLATE)
    lines: Any = [[12.5, "EUR", [3, 4]], [None, "USD", None]]
    values = {"shop": "Ann", "lines": lines, "total": 20}
    examples = [TrainingExample("1", "receipt", TITLES[0], values)]
    features = make_features(examples, {"receipt": compiled}, decoder_model(), 1.0)["receipt"]
    row = fill_row(compiled, features, None)
    assert len(row) == len(compiled.instruction) + features[0].tokens
    assert row.position_ids.max() < len(compiled.instruction) + features[0].extent
    found = {}
    for slot in range(int(row.slot.max()) + 1):
        mine = row.slot == slot
        key = codec.decode_bytes(row.input_ids[mine & (row.step == 0)].tolist()).decode()
        found[key] = compiled.decode_slot([i for i in row.labels[mine].tolist() if i >= 0])[0]
    shop, item = '  "shop": "Ann",\n', '  "lines {}": {{\n    '
    one, two = (shop + item.format(number) for number in (1, 2))
    nested = "price", "currency", "rebates (count)", "rebates 1", "rebates 2"
    values_of = [(" 12.5", ' "EUR"', " 2", " 3", " 4"), (" null", ' "USD"', " null")]
    seen = "".join(
        item.format(number)
        + ",\n    ".join(f'"{name}":{value}' for name, value in zip(nested, some, strict=False))
        + "\n  },\n"
        for number, some in enumerate(values_of, 1)
    )
    assert found == {
        '  "shop":': ' "Ann"',
        f'{shop}  "lines (count)":': " 2",
        f'  "lines (count)": 2,\n{seen}  "total":': " 20",
        f'{one}"price":': " 12.5",
        f'{one}"price": 12.5,\n    "currency":': ' "EUR"',
        f'{one}"currency": "EUR",\n    "rebates (count)":': " 2",
        f'{one}"currency": "EUR",\n    "rebates 1":': " 3",
        f'{one}"currency": "EUR",\n    "rebates 2":': " 4",
        f'{two}"price":': " null",
        f'{two}"price": null,\n    "currency":': ' "USD"',
        f'{two}"currency": "USD",\n    "rebates (count)":': " null",
    }


def windows(ids: list[int], width: int) -> set[tuple[int, ...]]:
    return {tuple(ids[at : at + width]) for at in range(len(ids) - width + 1)}


def test_runs_with_other_waves_are_other_runs() -> None:
    usual = of_schemas(declared(a=(), b=()))
    assert usual != of_schemas(declared(a="b", b=()))
    assert usual == of_schemas(declared(a=(), b=()))
    settings = [of_settings(DecodingConfig(max_repairs=n), Calibration()) for n in (0, 1)]
    assert differences(*settings) == ["decoding max_repairs was 0, is 1"]
