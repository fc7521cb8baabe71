"""Slots hold nothing but what their fields' types allow, whatever the model would like to say."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest
import tokenizers
import torch
from conftest import TITLES, combinations, slow_but, tiny_model
from constrained import (
    DOCUMENTS,
    LOOPS,
    TEMPLATE,
    Everything,
    Forced,
    faults,
    in_stream,
    strictly,
    walk,
)
from decoding import assert_right, expected, follow_branches, watched
from grammar_walks import FORMATS, in_each_format
from llguidance import LLParserLimits
from transformers import PreTrainedTokenizerFast

from schemax import AttrSchema, Extraction, Extractor, attr
from schemax.compiler import CompiledSchema, TextCodec, as_codec, automata, compile_schema
from schemax.config import DecodingConfig
from schemax.evaluation.diagnosis.agreement import oracle_logits
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.models.model import DecoderModel

Model = Callable[..., DecoderModel]


def compiled_for(schema: Any, codec: TextCodec, **options: Any) -> CompiledSchema:
    config = DecodingConfig(**options.pop("config", {}))
    return compile_schema(strictly(schema), codec, template=TEMPLATE, decoding=config, **options)


# --- what is written is valid --------------------------------------------------------------------


@pytest.mark.slow
@combinations("name, loop", FORMATS, [*LOOPS])
@pytest.mark.parametrize("temperature", slow_but({3.0}, [0.0, 3.0]))
def test_whatever_ends_is_valid(
    decoder_model: Model, codec: TextCodec, name: str, temperature: float, loop: str
) -> None:
    config = {"temperature": temperature, "documents_per_prompt": 2}
    compiled = compiled_for(Everything, codec, format=name, config=config)
    ended = set()
    texts = DOCUMENTS[-4:] if loop == "forks" else DOCUMENTS
    for slots_of_document in LOOPS[loop](decoder_model(), compiled, texts):
        for attribute, slot in zip(compiled.attributes, slots_of_document, strict=True):
            raw, complete = compiled.decode_slot(slot.ids)
            assert slot.finish_reason in ("stop", "length")
            assert complete == (slot.finish_reason == "stop")
            if complete:
                ended.add(attribute.name)
                assert not faults(Everything, attribute.name, raw, compiled.format), raw
    assert temperature < 3 or len(ended) > len(compiled.attributes) - 3, ended


class Stated(AttrSchema):
    """Required and optional fields."""

    size: float
    choice: Literal["red", "blue"]
    counts: list[int] = attr(min_length=1)
    may: bool | None
    might: int = 5
    any_of: list[Literal["x", "y"]] = attr(default_factory=list)


@in_each_format
def test_only_what_may_be_absent_is(decoder_model: Model, codec: TextCodec, name: str) -> None:
    config = {"temperature": 2.0}
    compiled = compiled_for(Stated, codec, format=name, config=config)
    null, empty = compiled.format.escape(None), compiled.format.escape([])
    absent = [
        attribute.name
        for found in in_stream(decoder_model(), compiled, [str(n) for n in range(40)])
        for attribute, slot in zip(compiled.attributes, found, strict=True)
        if compiled.decode_slot(slot.ids)[0] in (null, empty)
    ]
    assert set(absent) == {"may", "might", "any_of"}


@pytest.mark.slow
def test_rows_have_no_errors_but_of_budgets(codec: TextCodec, backend: Any) -> None:
    """End to end, schemas of several categories in one run, documents of 0 to 40,000 characters."""
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    model = tiny_model("qwen3", codec.vocab_size, max_position_embeddings=32_768)
    extractor = Extractor(model, fast)
    schemas = {"a": strictly(Forced), "b": strictly(Stated)}

    def read(texts: list[str], decoding: str, kinds: str = "ab") -> list[Extraction[Any]]:
        rows = [{"text": text, "kind": kind} for text in texts for kind in kinds]
        options = {"category": "kind", "text": "text", "decoding": decoding}
        found = list(extractor.stream(rows, schemas, **options))
        assert sorted(item.index for item in found) == list(range(len(rows)))
        return found

    long = "Samsung 55 inch 4K Smart TV, black </product> \U0001f600 " * 850
    assert len(long) > 40_000
    items = [*read([long], "isolated", "b"), *read(DOCUMENTS, "isolated:temperature=1.5")]
    for item in items:
        truncated = {name for name, f in item.fields.items() if f.finish_reason == "length"}
        reasons = {error.field for error in item.errors}
        assert reasons == (truncated if item.fields else {None}), item.errors
    assert sum(not item.fields for item in items) == 2  # the empty text's
    free = read(TITLES, "isolated:constrain=nothing")
    assert any(item.errors for item in free)
    assert not any(field.alternatives for item in free for field in item.fields.values())


# --- one way to decode is as good as another -----------------------------------------------------

WAYS: list[dict[str, Any]] = [
    {},
    {"temperature": 1.5, "top_p": 0.9, "seed": 3},
    {"k_max": 4},
    {"documents": "stacked", "documents_per_prompt": 2, "temperature": 1.0},
    {"layout": "gapped"},
    {"layout": "gapped", "temperature": 2.0},
    {"layout": "gapped", "k_max": 5},
    {"layout": "gapped", "slots": "causal", "temperature": 1.0},
    {"layout": "gapped", "slots": "causal", "k_max": 5},
    {"layout": "gapped", "slots": "causal", "documents": "stacked", "documents_per_prompt": 2},
]


@combinations("name, config", FORMATS, WAYS, ids=str)
def test_forced_tokens_are_those_of_the_oracle(
    decoder_model: Model, codec: TextCodec, config: dict[str, Any], name: str
) -> None:
    """Which steps token by token, and asks a matcher of its own at every one of them."""
    compiled = compiled_for(Forced, codec, format=name, config={"max_retries": 0, **config})
    assert_right(decoder_model(), compiled, TITLES[:4])


@combinations(
    "k_max, temperature, layout",
    [3, 1, 2, 5],
    [0.0, 1.5],
    [{}, {"layout": "gapped"}, {"layout": "gapped", "slots": "causal"}],
)
def test_budgets_cut_what_is_forced_and_retries_go_on(
    decoder_model: Model, codec: TextCodec, k_max: int, temperature: float, layout: dict[str, Any]
) -> None:
    config = {"k_max": k_max, "temperature": temperature, **layout}
    model, texts = decoder_model(), TITLES[:3]
    cut, whole = (
        compiled_for(Forced, codec, config={**config, "max_retries": retries}) for retries in (0, 2)
    )
    short, found = assert_right(model, cut, texts), assert_right(model, whole, texts)
    longer = 0
    for before, after in zip(sum(short, ()), sum(found, ()), strict=True):
        assert after.ids[: len(before.ids)] == before.ids
        longer += len(after.ids) > len(before.ids)
        assert len(after.ids) <= 4 * max(k_max, 6)  # the largest that a field names
    assert longer


def test_what_is_forced_takes_no_passes(
    decoder_model: Model, codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what is read at once gives the logits of what is read token by token."""
    follow_branches(monkeypatch, 1.0)
    config = {"max_retries": 0}
    compiled = compiled_for(Forced, codec, config=config)
    prompts = compiled.encode(TITLES)
    at_once, seen = watched(decoder_model(), compiled, TITLES)
    assert at_once == expected(decoder_model(), compiled, TITLES, at_once)
    number, read = 0, 0
    for prompt, row in zip(prompts, at_once, strict=True):
        for logits in oracle_logits(decoder_model(), prompt, compiled.decoding, row):
            steps = [step for step in range(len(logits)) if (number, step) in seen]
            told_of = torch.stack([seen[number, step] for step in steps])
            wanted = logits[steps].log_softmax(dim=-1)
            torch.testing.assert_close(told_of, wanted, atol=1e-4, rtol=1e-4)
            number, read = number + 1, read + len(steps)
    assert read == len(seen) < sum(len(slot.ids) for row in at_once for slot in row)
    names = [attribute.name for attribute in compiled.attributes]
    for row in at_once:
        slot = dict(zip(names, row, strict=True))
        assert slot["only"].passes < len(slot["only"].ids) / 2
        assert slot["middle"].passes < len(slot["middle"].ids)
        assert all(1 <= s.passes <= len(s.ids) for s in row)
    gone = {slot.passes for row in at_once for slot in row[2:3]}
    assert max(gone) >= 2  # forced in the middle, read, and gone on from


def test_steps_are_the_passes_of_the_slowest_slot(codec: TextCodec, backend: Any) -> None:
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    extractor = Extractor(tiny_model("qwen3", codec.vocab_size), fast)

    class Only(AttrSchema):
        one: Literal["the one and only choice"]

    for item in extractor.stream(TITLES, Only):
        assert item.value == Only(one="the one and only choice")
        assert item.steps < item.fields["one"].tokens
        assert item.fields["one"].confidence == item.fields["one"].legal_probability
        assert item.fields["one"].alternatives == {"the one and only choice": 1.0}


def test_bytes_within_a_character_are_not_forced(codec: TextCodec) -> None:
    """A chosen token may end within one; text that begins behind it would skip the rest of it."""
    compiled = compiled_for(Forced, codec)
    grammar = compiled.slots[0].grammar
    assert grammar is not None
    face = "\U0001f600".encode()
    assert codec.decode_bytes(grammar.encode(face + b" x")) == face + b" x"
    assert grammar.encode(face[2:] + b" x") == ()
    assert codec.decode_bytes(grammar.encode(b"x " + face[:2])) == b"x "


# --- what fails ----------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("limit", ["initial_lexer_fuel", "step_lexer_fuel", "max_lexer_states"])
def test_a_grammar_that_fails_lets_its_slots_go_on(
    decoder_model: Model,
    codec: TextCodec,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    limit: str,
    temperature: float,
) -> None:
    """From the start, or where a limit is met on the way; one warning says so."""
    limits = LLParserLimits(**{limit: 30})
    monkeypatch.setattr(automata, "parser_limits", lambda: limits)
    automata.prototype.cache_clear()
    found = {}
    try:
        for constrain in ("types", "nothing"):
            config = {"constrain": constrain, "temperature": temperature, "k_max": 6}
            compiled = compiled_for(Stated, codec, config=config)
            with caplog.at_level(logging.WARNING):
                found[constrain] = in_stream(decoder_model(), compiled, TITLES)
    finally:
        automata.prototype.cache_clear()
    warnings = [record.message for record in caplog.records]
    assert warnings
    assert all("without their grammar" in message for message in warnings)
    assert all("\n" not in message for message in warnings)
    assert len(warnings) <= len(Stated.model_fields)  # once per grammar
    if limit == "initial_lexer_fuel":
        assert found["types"] == found["nothing"]


@pytest.mark.slow
def test_a_token_with_text_that_ends_slots_is_no_text(backend: tokenizers.Tokenizer) -> None:
    """Where the tokenizer names no end, or none that is special."""
    bare = TextCodec(backend)
    assert bare.eos_ids == ()
    model = prepare(tiny_model("qwen3", bare.vocab_size))
    word = bare.vocab_size - 1  # the last of its merges
    for eos_ids in ((), (word,)):
        compiled = compiled_for(
            Everything, bare, config={"temperature": 1.5}, eos_ids=eos_ids, format="yaml"
        )
        for row in in_stream(model, compiled, TITLES):
            for attribute, slot in zip(compiled.attributes, row, strict=True):
                raw, complete = compiled.decode_slot(slot.ids)
                assert slot.finish_reason != "eos"
                assert not complete or not faults(Everything, attribute.name, raw, compiled.format)


# --- large vocabularies --------------------------------------------------------------------------


@pytest.mark.release
@pytest.mark.parametrize("tokenizer", slow_but({"gpt-2"}, ["gpt-2", "phi-3", "qwen2"]))
@in_each_format
def test_no_walk_comes_to_a_dead_end(data: Path, tokenizer: str, name: str) -> None:
    """Tokens that straddle a value's end included."""
    folder = data / "tokenizers" / tokenizer
    if not folder.is_dir():
        pytest.skip("no such tokenizer here")
    codec = as_codec(folder)
    vocab_size = codec.vocab_size + 64  # models have more, for the sake of their hardware
    compiled = compiled_for(Everything, codec, format=name, vocab_size=vocab_size)
    finished = 0
    for attribute, spec in zip(compiled.attributes, compiled.slots, strict=True):
        ids = walk(spec, compiled.stop, codec, random.Random(attribute.name))
        if ids:
            finished += 1
            raw, complete = compiled.decode_slot(ids)
            assert complete
            assert not faults(Everything, attribute.name, raw, compiled.format), raw
    assert finished > len(compiled.slots) / 2


# --- together ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_threads_share_a_compiled_schema(decoder_model: Model, codec: TextCodec) -> None:
    compiled = compiled_for(Everything, codec, config={"temperature": 1.0})
    model = decoder_model()
    expected = in_stream(model, compiled, TITLES)
    automata.prototype.cache_clear()
    together = threading.Barrier(4)

    def run(_: int) -> Any:
        together.wait()
        models = prepare(model.model)  # its hooks and memory are its own
        return [in_stream(models, compiled, TITLES) for _ in range(2)]

    specs = [spec for spec in compiled.slots if spec.grammar is not None]

    def copies(_: int) -> None:
        together.wait()
        for spec in specs * 20:
            matcher = spec.grammar.new_matcher()  # type: ignore[union-attr]
            matcher.compute_bitmask()
            assert not matcher.is_error()

    with ThreadPoolExecutor(4) as pool:
        copied = [pool.submit(copies, n) for n in range(3)]
        ran = pool.submit(run, 0)
        assert ran.result() == [expected, expected]
        for future in copied:
            future.result()
