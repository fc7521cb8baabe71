"""Slots with choices whose model wants to write something else: a text that names a choice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
from conftest import TITLES
from constrained import forked
from decoding import filled

from schemax import AttrSchema, DecodingConfig, Extractor
from schemax.attributes import attr
from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.compiler.choices import Branches
from schemax.runtime.engine.decode import decode
from schemax.runtime.models.model import DecoderModel
from schemax.tokens import PromptIds

BOOTS = [
    "Northfell Women's Tamarack Waterproof Hiking Boot, Dark Olive, 8.5 M US",
    "Adidas Men's Runfalcon 3.0 Running Shoe, Core Black, 11",
    "Crocs Unisex Classic Clog, Navy",
]


class Shoe(AttrSchema):
    """A pair of shoes."""

    brand: str | None = attr("Manufacturer")
    gender: Literal["men", "women", "kids", "unisex"] | None = attr("Who the shoe is made for")


class Chosen(AttrSchema):
    one: Literal["red", "blue"] | None = attr(k_max=6)
    name: str | None = attr(k_max=4)


@pytest.fixture(scope="module")
def embedded() -> Extractor:
    return Extractor.default()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
def test_words_of_the_document_name_a_choice(embedded: Extractor, format: str) -> None:
    items = sorted(embedded.stream(BOOTS, Shoe, format=format), key=lambda item: item.index)
    fields = [item.fields["gender"] for item in items]
    assert [field.value for field in fields] == ["women", "men", "unisex"]
    assert fields[0].note == '"Women\'s" read as women (similar spelling)'
    assert [
        item.texts["text"][slice(*f.span[:2])]
        for item, f in zip(items, fields, strict=True)
        if f.span
    ] == [
        "Women's",
        "Men's",
        "Unisex",
    ]
    assert all(field.confidence and field.confidence > 0.8 for field in fields)
    assert all(not field.alternatives for field in fields)


class Sized(Shoe):
    """A pair of shoes, whose size depends on who it is made for."""

    size: str | None = attr(after="gender")


def test_what_looks_at_a_choice_sees_the_one_that_the_row_gets(embedded: Extractor) -> None:
    compiled = embedded.compile(Sized)
    prompts, model = compiled.encode(BOOTS), embedded.model
    assert compiled.waves is not None
    assert isinstance(model, DecoderModel)
    rows = sorted(embedded.stream(BOOTS, Sized), key=lambda item: item.index)
    for item, output in zip(rows, filled(model, compiled, prompts), strict=True):
        first = tuple(output.slots[n] for n in compiled.waves.fields.first)
        assert first[1].free_text is not None  # else there is nothing to tell apart
        (slot,) = compiled.waves.next_wave(first, None)
        key = compiled.codec.decode_bytes(slot.key).decode()
        assert f'"gender": "{item.value.gender}",\n' in key
    assert [item.value.gender for item in rows] == ["women", "men", "unisex"]


@pytest.mark.parametrize("settings", [{"constrain": "nothing"}, {"layout": "gapped"}])
def test_where_it_does_not_apply(codec: TextCodec, settings: dict[str, Any]) -> None:
    assert _texts(compile_schema(Shoe, codec, decoding=DecodingConfig())) != [None]
    assert not any(_texts(compile_schema(Shoe, codec, decoding=DecodingConfig(**settings))))


def test_one_choice_needs_no_text(codec: TextCodec) -> None:
    class Only(AttrSchema):
        one: Literal["only"] | None = None
        strict: Literal["a", "b"] | None = attr(strict=True)

    assert not any(_texts(compile_schema(Only, codec)))


def _texts(compiled: CompiledSchema) -> list[Any]:
    return [
        spec.follow_ups.free_text
        for spec in compiled.slots
        if isinstance(spec.follow_ups, Branches)
    ]


@pytest.mark.parametrize("kind", ["in sequence", "forks"])
@pytest.mark.parametrize("temperature", [0.0, 1.2])
def test_the_text_is_what_a_slot_without_choices_writes(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, kind: str, temperature: float
) -> None:
    model: Any = decoder_model() if kind == "in sequence" else forked(codec)
    config = DecodingConfig(temperature=temperature)
    compiled = compile_schema(Chosen, codec, decoding=config, eos_ids=(0,))
    prompts = [compiled.assemble([tuple(codec.encode(title))]) for title in TITLES]
    found = decode(model, prompts, compiled.stop, config)
    branches = compiled.slots[0].follow_ups
    assert isinstance(branches, Branches)
    assert branches.free_text is not None
    spec = branches.free_text

    def freely(prompt: PromptIds) -> PromptIds:
        return replace(prompt, slots=(spec, *prompt.slots[1:]))

    free = decode(model, list(map(freely, prompts)), compiled.stop, config)
    texts = [slots[0].free_text for slots in found]
    assert any(text is not None for text in texts)
    if temperature == 0:
        for text, slots in zip(texts, free, strict=True):
            assert text is None or text.ids == slots[0].ids
    for slot in (slots[0] for slots in found):
        wanted = slot.finish_reason != "length" and slot.legal_logprobs[1] < -0.6931472
        assert (slot.free_text is not None) == wanted


def test_passes_of_texts_are_counted(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec
) -> None:
    compiled = compile_schema(Chosen, codec, eos_ids=(0,))
    prompts = [compiled.assemble([tuple(codec.encode(title))]) for title in TITLES]
    for slots in decode(decoder_model(), prompts, compiled.stop, DecodingConfig()):
        for slot in slots:
            assert slot.free_text is None or slot.free_text.passes > 0
