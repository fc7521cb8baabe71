"""Texts do not begin with a space of its own, which tokenizers that split digits off like to write;
numbers may."""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

import pytest
import tokenizers
from completions_server import served
from conftest import DATA, TITLES, combinations, slow_but, tiny_model
from decoding import assert_right, outputs_of
from tokenizers import decoders, models, pre_tokenizers, trainers

from schemax import AttrSchema, Extractor, attr
from schemax.compiler import CompiledSchema, TextCodec, compile_schema, load_codec
from schemax.config import DecodingConfig
from schemax.runtime.engine.self_test import prepare
from schemax.tokens import SlotSpec

VALUES: dict[str, list[Any]] = {
    "text": ["Samsung", "55 inch", "1093", "", "é \U0001f600", "null", None],
    "short": ["4K", "55"],
    "code": ["A-1", "B-12"],
    "choice": ["720p", "4K"],
    "number": [5, -7.25, 1093, None],
    "both": ["1093", "x", 1093],
    "day": [date(2024, 5, 12), None],
    "tags": [["1", "x"], [], ["5"]],
}
NUMBERS = {"number", "both"}


class Values(AttrSchema):
    """Every way in which a value may begin."""

    text: str | None = attr(k_max=6)
    short: str = attr(max_length=5, k_max=6)
    code: str = attr(pattern="^[A-Z]-[0-9]{1,3}$", k_max=6)
    choice: Literal["720p", "4K"]
    number: float | None = attr(k_max=6)
    both: str | int = attr(k_max=6)
    day: date | None = attr(k_max=8)
    tags: list[str] = attr(k_max=8)


@pytest.fixture(scope="module")
def splitting() -> TextCodec:
    """Cuts digits one by one, off from the space before them, and nothing else off from it."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    digits = pre_tokenizers.Digits(individual_digits=True)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    lines = ['"a": "Samsung",', '"b": "x",', '"c": [ "x"],', '"d": null,', '"e": -5,'] * 9
    tokenizer.train_from_iterator([*TITLES, *lines], trainer)
    return TextCodec(tokenizer, special_tokens={"eos_token": "<|endoftext|>"})


def spaces(codec: TextCodec) -> set[int]:
    return {number for number, data in enumerate(codec.token_bytes) if data == b" "}


def refused(spec: SlotSpec) -> set[int]:
    assert spec.grammar is not None
    return set(spec.grammar.not_first())


def compiled_for(codec: TextCodec, name: str = "json", **config: Any) -> CompiledSchema:
    return compile_schema(Values, codec, format=name, decoding=DecodingConfig(**config))


def test_only_numbers_begin_with_a_space_alone(splitting: TextCodec) -> None:
    assert next(splitting.decode_bytes([n]) for n in splitting.encode(' "5"')) == b' "'
    assert [splitting.decode_bytes([n]) for n in splitting.encode(" 5")] == [b" ", b"5"]
    compiled = compiled_for(splitting, layout="gapped")  # lists in one slot
    for attribute, spec in zip(compiled.attributes, compiled.slots, strict=True):
        is_number = attribute.name in NUMBERS
        assert refused(spec) == (set() if is_number else spaces(splitting)), attribute.name


def test_a_tokenizer_that_cuts_quotes_off_may_open_texts() -> None:
    """Else nothing could."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(["abc"], trainer)
    codec = TextCodec(tokenizer, special_tokens={"eos_token": "<|endoftext|>"})
    assert not any(map(refused, compiled_for(codec).slots))


FOLDERS = sorted((DATA / "tokenizers").glob("*/"))


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but({"json"}, ["json", "yaml", "xml"]))
@pytest.mark.parametrize("folder", slow_but(FOLDERS[:1], FOLDERS), ids=lambda folder: folder.name)
def test_every_value_can_be_written_as_the_tokenizer_cuts_it(folder: Any, name: str) -> None:
    codec = load_codec(folder)
    compiled = compiled_for(codec, name)
    for attribute, spec in zip(compiled.attributes, compiled.slots, strict=True):
        assert spec.grammar is not None
        for value in VALUES[attribute.name]:
            if isinstance(value, list):
                continue  # in two phases
            ids = codec.encode(compiled.format.escape(value) + compiled.format.delimiter)
            length = compiled.stop.length(ids)
            assert length is not None
            assert ids[0] not in refused(spec), (attribute.name, value)
            assert spec.grammar.new_matcher().try_consume_tokens(ids[:length]) == length


@pytest.mark.slow
def test_servers_begin_values_as_this_process_does(splitting: TextCodec) -> None:
    model = tiny_model("qwen3", splitting.vocab_size)
    with served(model, splitting) as server:
        there = Extractor.from_server(server.url, tokenizer=splitting)
        found = there.extract(TITLES[:2], Values, on_error="null")
    decoding = DecodingConfig(constrain="types", contextual_calibration=False)  # as servers decode
    here = Extractor(model, splitting, eos_ids=splitting.eos_ids, decoding=decoding)
    assert found == here.extract(TITLES[:2], Values, on_error="null")


@combinations("temperature, constrain", [0.0, 3.0], ["document", "types"])
def test_slots_are_those_of_the_oracle(
    splitting: TextCodec, temperature: float, constrain: str
) -> None:
    """Whatever a model prefers, and however its grammar is asked."""
    config = {"temperature": temperature, "constrain": constrain}
    model: Any = prepare(tiny_model("qwen3", splitting.vocab_size))
    compiled = compiled_for(splitting, "json", layout="gapped", max_retries=0, **config)
    assert_right(model, compiled, TITLES[:4])
    begun = {
        attribute.name
        for output in outputs_of(model, compiled, TITLES)
        for attribute, slot in zip(compiled.attributes, output.slots, strict=True)
        if slot.ids[0] in spaces(splitting)
    }
    assert begun <= NUMBERS
