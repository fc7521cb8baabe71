"""Decoding as a stream: the oracle's outputs, whatever shares a pass and whatever runs out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TITLES, slow_but, tiny_model
from decoding import (
    TEMPLATE,
    WAYS,
    assert_right,
    by_prompt,
    compiled_in,
    counted,
    filled,
    in_some_ways,
    limited,
    outputs_of,
    streamed,
    windowed,
)
from seams import watch_prefixes

from schemax import Extractor
from schemax.compiler import TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.runtime.engine.scheduler import Scheduler
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.arrays import FreeList
from schemax.runtime.slots.outputs import Watcher
from schemax.tokens import ChildSlot, PromptIds, SlotOutput, SlotSpec


@pytest.mark.slow
@pytest.mark.parametrize("family", slow_but({"qwen3"}, ["qwen3", "llama"]))
@pytest.mark.parametrize("way", slow_but({"branched", "causal", "paper"}, WAYS))
@pytest.mark.parametrize("temperature", slow_but({1.3}, [0.0, 1.3]))
def test_nothing_depends_on_what_shares_a_pass(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    family: str,
    way: str,
    temperature: float,
) -> None:
    """Documents in flight, flights, room in a pass, order: the oracle's slots of one prompt."""
    model = decoder_model(family)
    compiled = compiled_in(way, small, codec, temperature=temperature)
    prompts = compiled.encode(TITLES[:5])
    each = [len(prompt.documents) for prompt in prompts]
    expected = assert_right(model, compiled, TITLES[:5], 1)
    for batch_size, pass_tokens, flights in (("auto", 1024, 1), (2, 1024, 2), ("auto", 150, 2)):
        config = replace(compiled.decoding, batch_size=batch_size)
        again = replace(compiled, decoding=config)
        with pytest.MonkeyPatch.context() as patch:
            limited(patch, pass_tokens=pass_tokens, flights=flights)
            got = by_prompt(filled(model, again, prompts), each)
            assert got == expected
            backwards = by_prompt(filled(model, again, prompts[::-1]), each[::-1])
            assert backwards == expected[::-1]


@pytest.mark.slow
@pytest.mark.parametrize("way", slow_but({"paper"}, ["branched", "causal", "paper"]))
@pytest.mark.parametrize("capacity", slow_but({60}, [1, 60, 400]))
def test_little_room_for_tokens_costs_nothing_but_passes(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    capacity: int,
    way: str,
) -> None:
    """Long and short documents in turn: the store is widened, narrowed and moved."""
    model = decoder_model()
    compiled = compiled_in(way, small, codec)
    texts = [*TITLES, "Sony " * 90, *TITLES, "LG tv " * 40, *[f"{t}." for t in TITLES]]
    expected = outputs_of(model, compiled, texts)
    limited(monkeypatch, capacity=capacity, pass_tokens=200)
    assert outputs_of(model, compiled, texts) == expected
    windowed(monkeypatch, 4)
    assert outputs_of(model, compiled, texts) == expected


@pytest.mark.slow
def test_several_instructions_share_passes(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any
) -> None:
    model = decoder_model()
    compiled = [
        compile_schema(small, codec, template=f"{words}\n{TEMPLATE}")
        for words in ("Be brief.", "Read with care, and twice.", "")
    ]
    bare = compile_schema(
        small, codec, template="{% for d in documents %}{{ d.text }}\n{% endfor %}"
    )
    assert len({c.instruction for c in [*compiled, bare]}) == 4
    prompts = [c.encode([text])[0] for text in TITLES for c in [*compiled, bare]]
    found = dict(streamed(model, prompts, bare.stop, bare.decoding))
    for place, prompt in enumerate(prompts):
        ((_, alone),) = streamed(model, [prompt], bare.stop, bare.decoding)
        assert found[place] == alone


@in_some_ways
def test_equal_documents_are_read_once(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    model = decoder_model()
    compiled = compiled_in(way, small, codec)
    texts = TITLES[:6]
    expected = outputs_of(model, compiled, texts)
    outputs_of(model, compiled, texts[:2])  # the instruction is read by now
    tokens = counted(monkeypatch, model)
    once = outputs_of(model, compiled, texts)
    read = sum(tokens)
    tokens.clear()
    assert outputs_of(model, compiled, texts * 5) == expected * 5
    assert sum(tokens) == read
    assert once == expected


def test_an_instruction_is_read_once_for_all_calls(
    codec: TextCodec, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = prepare(tiny_model("qwen3", codec.vocab_size))
    assert isinstance(model, DecoderModel)
    compiled = compile_schema(small, codec)
    tokens = counted(monkeypatch, model)
    first = outputs_of(model, compiled, ["LG"])
    assert tokens[0] == len(compiled.instruction)
    passes = len(tokens)
    assert outputs_of(model, compiled, ["LG"]) == first
    assert len(tokens) == 2 * passes - 1
    assert max(tokens[passes:]) < len(compiled.instruction)


def test_no_token_is_padding_and_passes_are_full(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every token that is passed is one that must be: nothing else is ever computed."""
    model = decoder_model()
    limited(monkeypatch, pass_tokens=160)
    compiled = compile_schema(
        small, codec, template=TEMPLATE, decoding=DecodingConfig(max_retries=0, constrain="nothing")
    )
    texts = [f"{title} {number}" for number in range(6) for title in TITLES]
    prompts = compiled.encode(texts)
    outputs_of(model, compiled, texts[:1])
    tokens = counted(monkeypatch, model)
    found = dict(streamed(model, prompts, compiled.stop, compiled.decoding))
    needed = 0
    for place, prompt in enumerate(prompts):
        needed += len(prompt.documents[0]) + len(prompt.opening) + sum(map(len, prompt.keys[0]))
        needed += sum(len(slot.ids) - 1 for slot in found[place].slots)
    assert sum(tokens) == needed
    # A pass is full when no further document would have fitted; the last ones only drain.
    largest = max(len(p.documents[0]) + len(p.opening) + sum(map(len, p.keys[0])) for p in prompts)
    most = max(len(s.ids) for o in found.values() for s in o.slots)
    assert max(tokens) <= 160
    assert all(count > 160 - largest for count in tokens[: len(tokens) - most])


@pytest.mark.slow
@in_some_ways
def test_documents_are_taken_as_there_is_room(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    """An endless input gives its first outputs after one window, and memory stays what it is."""
    windowed(monkeypatch, 8)
    limited(monkeypatch, pass_tokens=160)
    compiled = compiled_in(way, small, codec)
    taken = 0

    def endless() -> Iterator[PromptIds]:
        nonlocal taken
        while True:
            taken += 1
            yield compiled.encode([f"{TITLES[taken % 7]} {taken}"])[0]

    outputs = streamed(decoder_model(), endless(), compiled.stop, compiled.decoding)
    for count in range(1, 100):
        next(outputs)
        assert taken - count <= 60  # a window, and what is in flight
    assert taken >= 99


class Later:
    """A wave of one slot, whose key is longer than what else a pass has room for."""

    extent = 100

    def next_wave(self, outputs: tuple[SlotOutput, ...], room: int | None) -> tuple[ChildSlot, ...]:
        return (ChildSlot((5,) * 90, 3, SlotSpec(), "wave"),) if len(outputs) == 4 else ()

    def final_outputs(self, outputs: tuple[SlotOutput, ...]) -> tuple[SlotOutput, ...]:
        return outputs


@pytest.mark.slow
@pytest.mark.parametrize("pass_tokens", slow_but({128}, [64, 128]))
def test_what_is_called_for_comes_before_new_documents(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    pass_tokens: int,
) -> None:
    """However long its key is: an endless input never keeps a document from being done."""
    windowed(monkeypatch, 8)
    limited(monkeypatch, pass_tokens=pass_tokens)
    compiled = compiled_in("branched", small, codec, k_max=3)
    assert compiled.num_slots == 4
    taken = 0

    def endless() -> Iterator[PromptIds]:
        nonlocal taken
        while taken < 400:
            taken += 1
            (prompt,) = compiled.encode([f"{TITLES[taken % 7]} {taken}"])
            yield replace(prompt, waves=Later())

    outputs = streamed(decoder_model(), endless(), compiled.stop, compiled.decoding)
    for count in range(1, 30):
        _, output = next(outputs)
        assert len(output.slots) == 5
        assert taken - count <= 40


@in_some_ways
@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("not ours"), ValueError("a broken file")], ids=["oom", "value"]
)
@pytest.mark.parametrize("after", [0, 1, 30])
def test_an_input_that_breaks_loses_nothing_that_was_read(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    after: int,
    way: str,
) -> None:
    """Its error is raised when all that came before is done, and is never taken for a pass's."""
    windowed(monkeypatch, 1)
    compiled = compiled_in(way, small, codec)
    prompts = compiled.encode([f"{TITLES[number % 7]} {number}" for number in range(after)])

    def broken() -> Iterator[PromptIds]:
        yield from prompts
        raise error

    found = []

    def run() -> None:
        for place, output in streamed(decoder_model(), broken(), compiled.stop, compiled.decoding):
            assert output.slots
            found.append(place)

    with pytest.raises(type(error), match=str(error)):
        run()
    assert sorted(found) == list(range(after))


@in_some_ways
def test_instructions_are_read_again_with_other_weights(
    codec: TextCodec,
    small: Any,
    way: str,
) -> None:
    raw = tiny_model("qwen3", codec.vocab_size)
    model, compiled = prepare(raw), compiled_in(way, small, codec)
    before = outputs_of(model, compiled, TITLES)
    with torch.no_grad():
        for weights in raw.parameters():
            weights.mul_(1.5)
    after = outputs_of(model, compiled, TITLES)
    assert after == outputs_of(prepare(raw), compiled, TITLES)
    assert after != before


@pytest.mark.slow
def test_instructions_that_nothing_uses_are_let_go(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any
) -> None:
    """Many categories in one run: memory holds what is in flight, and the kept ones."""
    model = decoder_model()
    held: list[int] = []

    compiled = [
        compile_schema(small, codec, template=f"Number {n} of many instructions.\n{TEMPLATE}")
        for n in range(16)
    ]
    config = replace(compiled[0].decoding, batch_size=4)
    prompts = [c.encode([text])[0] for c in compiled for text in TITLES[:3]]
    with pytest.MonkeyPatch.context() as patch:
        watch_prefixes(patch, held.append)
        found = dict(streamed(model, prompts, compiled[0].stop, config))
    assert len(found) == 48
    assert max(held) <= 4
    for place in (0, 25, 47):
        ((_, alone),) = streamed(model, [prompts[place]], compiled[0].stop, config)
        assert found[place] == alone


@pytest.mark.slow
@pytest.mark.parametrize("attention", slow_but({"sdpa"}, ["sdpa", "eager"]))
def test_threads_and_other_users_of_the_model_do_not_disturb_each_other(
    codec: TextCodec, small: Any, attention: str
) -> None:
    """Two wrappers of one model, and transformers' own `generate` on it, all at once."""
    raw = tiny_model("qwen3", codec.vocab_size, attn_implementation=attention)
    models = [prepare(raw), prepare(raw)]
    compiled = compile_schema(small, codec, template=TEMPLATE)
    expected = outputs_of(models[0], compiled, TITLES)
    assert raw.config._attn_implementation == attention
    request = torch.tensor([codec.encode(TITLES[2])])

    def generated(_: int) -> list[int]:
        ids: list[int] = raw.generate(
            request, max_new_tokens=12, do_sample=False, pad_token_id=0, eos_token_id=-1
        )[0].tolist()
        return ids

    plain = generated(0)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(outputs_of, models[k % 2], compiled, TITLES) for k in range(8)]
        others = list(pool.map(generated, range(8)))
        assert all(run.result() == expected for run in runs)
    assert all(ids == plain for ids in others)
    assert threading.active_count() < 50


def test_numbers_that_are_taken_are_never_given_twice() -> None:
    stack, out, rng = FreeList(), set[int](), np.random.default_rng(0)
    for _ in range(200):
        taken = stack.take(int(rng.integers(0, 9))).tolist()
        assert not out & set(taken)
        out |= set(taken)
        given = [number for number in out if rng.random() < 0.5]
        stack.give(np.array(given, np.int64))
        out -= set(given)
        assert stack.num_taken == len(out)
    assert stack.size < 60


@in_some_ways
def test_sparse_rows_are_moved_together(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    """Stragglers do not drag empty rows along, and go on as they began."""
    model = decoder_model()
    compiled = compiled_in(way, small, codec)
    texts = [f"{title} {number}" for number in range(5) for title in TITLES]
    expected = outputs_of(model, compiled, texts)
    moves = []
    usual = Scheduler.resize

    def resize(scheduler: Scheduler, rows: int, width: int) -> Any:
        moves.append((rows, width) == (scheduler.rows.num_rows, scheduler.rows.width))
        return usual(scheduler, rows, width)

    monkeypatch.setattr(Scheduler, "resize", resize)
    assert outputs_of(model, compiled, texts) == expected
    assert any(moves)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["branched", "gapped"])
def test_refused_documents_are_told_of_as_they_are_met(
    codec: TextCodec,
    small: Any,
    way: str,
) -> None:
    """A stream of nothing but documents that are too long ends no sooner, and piles up nothing."""
    model = tiny_model("qwen3", codec.vocab_size, max_position_embeddings=600)
    extractor = Extractor(model, codec, eos_ids=codec.eos_ids)
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield TITLES[0] if taken == 500 else "Sony " * 600

    items = extractor.stream(endless(), small, template=TEMPLATE, decoding=WAYS[way])
    first = next(items)
    assert first.index == 0
    assert "too long" in first.errors[0].message
    assert taken <= 100
    assert next(item.index for item in items if item.steps) == 499


def test_extractions_end_when_another_thread_closes_them(codec: TextCodec, small: Any) -> None:
    """Here the thread that runs the model does so, while the caller waits for a first document."""
    extractor = Extractor(tiny_model("qwen3", codec.vocab_size), codec, eos_ids=codec.eos_ids)
    watcher = Watcher(lambda _: reading.close())
    reading = extractor.extractions(TITLES[:1], small, template=TEMPLATE, watcher=watcher)
    assert list(reading) == []
    assert len(extractor.extract(TITLES[:1], small, template=TEMPLATE, on_error="null")) == 1
