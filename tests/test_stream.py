"""Decoding as a stream: the same outputs as in batches, whatever shares a pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TITLES, tiny_model
from families import IN_SEQUENCE, Family

from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.runtime import limits as limits_module
from schemax.runtime import stream as stream_module
from schemax.runtime.attention import _flash, _matmul, attend, attend_parts
from schemax.runtime.blocks import BlockCache
from schemax.runtime.decoder import decode
from schemax.runtime.engine import fill, streams
from schemax.runtime.flight import Flight, Stack
from schemax.runtime.limits import Limits
from schemax.runtime.model import DecoderModel
from schemax.runtime.outputs import DocumentOutput, passes_of
from schemax.runtime.plan import plan_prompt
from schemax.runtime.prepare import prepare
from schemax.tokens import PromptIds, SlotOutput

TEMPLATE = "Read the attributes.\n{% for d in documents %}{{ d.text }}\n{% endfor %}"
# Families whose attention is outside transformers' interface.
UNPACKED = {"gptj", "falcon"}


def outputs_of(model: Any, compiled: CompiledSchema, texts: list[str]) -> list[DocumentOutput]:
    found = dict(fill(model, compiled.encode(texts), compiled.stop, compiled.decoding))
    return [found[place] for place in range(len(texts))]


def in_batches(
    model: DecoderModel, compiled: CompiledSchema, texts: list[str]
) -> list[list[SlotOutput]]:
    plans = [plan_prompt(prompt, compiled.decoding) for prompt in compiled.encode(texts)]
    slots = [s for row in decode(model, plans, compiled.stop, compiled.decoding) for s in row]
    width = len(plans[0].k_max) // len(dict.fromkeys(plans[0].slot_document.tolist()))
    return [slots[at : at + width] for at in range(0, len(slots), width)]


@pytest.mark.parametrize("family", IN_SEQUENCE, ids=lambda family: family.name)
@pytest.mark.parametrize("layout", ["branched", "gapped", "autoregressive"])
def test_stream_equals_batches(family: Family, layout: Any, codec: TextCodec, small: Any) -> None:
    """Windows, chunks, softcaps, sinks, compressed states: all families, all layouts."""
    model = prepare(family.model(codec.vocab_size))
    assert isinstance(model, DecoderModel)
    config = DecodingConfig(layout=layout, max_retries=0)
    assert streams(model, config) == (family.name not in UNPACKED)
    compiled = compile_schema(
        small, codec, template=TEMPLATE, decoding=config, vocab_size=model.vocab_size
    )
    got = outputs_of(model, compiled, TITLES)
    assert [list(output.slots) for output in got] == in_batches(model, compiled, TITLES)
    assert [output.steps for output in got] == [passes_of(o.slots) for o in got]
    assert all(1 <= s.passes <= len(s.ids) for output in got for s in output.slots)


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize("layout", ["branched", "gapped", "autoregressive"])
@pytest.mark.parametrize("temperature", [0.0, 1.3])
@pytest.mark.parametrize("num_documents", [1, 3])
@pytest.mark.parametrize(("batch_size", "pass_tokens"), [("auto", 1024), (2, 1024), ("auto", 150)])
def test_nothing_depends_on_what_shares_a_pass(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    family: str,
    layout: Any,
    temperature: float,
    num_documents: int,
    batch_size: Any,
    pass_tokens: int,
) -> None:
    """Documents in flight, room in a pass, order: the same slots as one document at a time."""
    if layout == "autoregressive" and num_documents > 1:
        pytest.skip("one document per prompt")
    limited(monkeypatch, pass_tokens=pass_tokens)
    model = decoder_model(family)
    config = DecodingConfig(
        layout=layout,
        temperature=temperature,
        documents_per_prompt=num_documents,
        batch_size=batch_size,
        max_retries=0,
    )
    compiled = compile_schema(small, codec, template=TEMPLATE, decoding=config)
    expected = in_batches(model, compiled, TITLES)
    got = outputs_of(model, compiled, TITLES)
    assert [list(output.slots) for output in got] == expected
    backwards = outputs_of(model, compiled, TITLES[::-1])
    assert [list(output.slots) for output in backwards[::-1]] == expected


def limited(monkeypatch: pytest.MonkeyPatch, **changes: int) -> None:
    """Limits of a smaller machine."""
    usual = Limits.of

    def of(model: DecoderModel, config: DecodingConfig) -> Limits:
        return replace(usual(model, config), **changes)

    monkeypatch.setattr(stream_module.Limits, "of", of)


@pytest.mark.parametrize("capacity", [1, 60, 400])
def test_little_room_for_tokens_costs_nothing_but_passes(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    capacity: int,
) -> None:
    """Long and short documents in turn: the store is widened, narrowed and moved."""
    model = decoder_model()
    compiled = compile_schema(small, codec, template=TEMPLATE)
    texts = [*TITLES, "Sony " * 90, *TITLES, "LG tv " * 40, *[f"{t}." for t in TITLES]]
    expected = outputs_of(model, compiled, texts)
    limited(monkeypatch, capacity=capacity, pass_tokens=200)
    assert outputs_of(model, compiled, texts) == expected
    monkeypatch.setattr(stream_module, "_WINDOW", 4)
    assert outputs_of(model, compiled, texts) == expected


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
    found = dict(fill(model, prompts, bare.stop, bare.decoding))
    for place, prompt in enumerate(prompts):
        ((_, alone),) = fill(model, [prompt], bare.stop, bare.decoding)
        assert found[place] == alone


def test_equal_documents_are_read_once(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = decoder_model()
    compiled = compile_schema(small, codec, template=TEMPLATE)
    expected = outputs_of(model, compiled, TITLES)
    outputs_of(model, compiled, TITLES[:1])  # the instruction is read by now
    tokens = counted(monkeypatch, model)
    once = outputs_of(model, compiled, TITLES)
    read = sum(tokens)
    tokens.clear()
    assert outputs_of(model, compiled, TITLES * 5) == expected * 5
    assert sum(tokens) == read
    assert once == expected


def counted(monkeypatch: pytest.MonkeyPatch, model: DecoderModel) -> list[int]:
    """How many tokens each pass takes."""
    tokens: list[int] = []
    usual = model.run_pass

    def run_pass(work: Any, cache: Any) -> torch.Tensor:
        tokens.append(work.input_ids.shape[1])
        return usual(work, cache)

    monkeypatch.setattr(model, "run_pass", run_pass)
    return tokens


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
        small, codec, template=TEMPLATE, decoding=DecodingConfig(max_retries=0, constrain=False)
    )
    texts = [f"{title} {number}" for number in range(6) for title in TITLES]
    prompts = compiled.encode(texts)
    outputs_of(model, compiled, texts[:1])
    tokens = counted(monkeypatch, model)
    found = dict(fill(model, prompts, compiled.stop, compiled.decoding))
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


def test_documents_are_taken_as_there_is_room(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An endless input gives its first outputs after one window, and memory stays what it is."""
    monkeypatch.setattr(stream_module, "_WINDOW", 8)
    limited(monkeypatch, pass_tokens=160)
    compiled = compile_schema(small, codec, template=TEMPLATE)
    taken = 0

    def endless() -> Iterator[PromptIds]:
        nonlocal taken
        while True:
            taken += 1
            yield compiled.encode([f"{TITLES[taken % 7]} {taken}"])[0]

    outputs = fill(decoder_model(), endless(), compiled.stop, compiled.decoding)
    for count in range(1, 100):
        next(outputs)
        assert taken - count <= 60  # a window, and what is in flight
    assert taken >= 99


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("scarce"), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
    ids=["accelerator", "cpu"],
)
@pytest.mark.parametrize("after", [0, 2])
def test_out_of_memory_halves_what_is_in_flight(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    error: RuntimeError,
    after: int,
) -> None:
    """At the first pass or in the middle: all in flight begin again, and nothing is lost."""
    model = decoder_model()
    compiled = compile_schema(small, codec, template=TEMPLATE)
    texts = [f"{title} {number}" for number in range(4) for title in TITLES]
    expected = outputs_of(model, compiled, texts)
    usual, passes, failed = model.run_pass, 0, 0

    def scarce(work: Any, cache: Any) -> torch.Tensor:
        nonlocal passes, failed
        passes += 1
        if passes > after and len(work.selection) > 20:
            failed += 1
            raise error
        return usual(work, cache)

    monkeypatch.setattr(model, "run_pass", scarce)
    assert outputs_of(model, compiled, texts) == expected
    assert 1 <= failed <= 4


def test_what_memory_was_short_of_for_a_while_is_tried_again(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Others may have taken the memory, and given it back."""
    monkeypatch.setattr(limits_module, "_PATIENCE", 1)
    model = decoder_model()
    compiled = compile_schema(small, codec, template=TEMPLATE)
    texts = [f"{title} {number}" for number in range(30) for title in TITLES]
    expected = outputs_of(model, compiled, texts)
    usual, sizes, scarcities = model.run_pass, [], 3

    def scarce(work: Any, cache: Any) -> torch.Tensor:
        nonlocal scarcities
        sizes.append(len(work.selection))
        if scarcities and sizes[-1] > 4:
            scarcities -= 1
            raise torch.OutOfMemoryError("scarce")
        return usual(work, cache)

    monkeypatch.setattr(model, "run_pass", scarce)
    assert outputs_of(model, compiled, texts) == expected
    failed = [at for at, size in enumerate(sizes) if size > 4][2]
    assert sizes[failed] < sizes[0] / 3
    assert max(sizes[failed + 1 :]) > 0.8 * sizes[0]


def test_memory_that_stays_short_is_tried_ever_less() -> None:
    throttle = limits_module.Throttle(Limits(1 << 30, 1024, 10_000))
    failures, done = [], 0
    while done < 1_000_000:
        throttle.count(100)
        done += 100
        if throttle.now.documents > 80:
            failures.append(done)
            throttle.halve(100)
            assert throttle.now.documents == 50
    assert 5 < len(failures) < 30
    between = np.diff(failures)
    assert (between[1:6] > 1.9 * between[:5]).all()
    assert between[-1] > 1000 * 50


def test_a_shortage_that_passes_is_forgotten() -> None:
    """However small the limits had become."""
    throttle = limits_module.Throttle(Limits(1 << 30, 1024, 10_000))
    in_flight = 1024
    while in_flight > 1:
        throttle.halve(in_flight)
        in_flight = throttle.now.documents
    done = 0
    while throttle.now.documents < 1024:
        throttle.count(throttle.now.documents)
        done += throttle.now.documents
    assert done < 50_000
    assert throttle.now.pass_tokens == 1024


@pytest.mark.parametrize("lasting", [False, True])
def test_a_store_that_cannot_grow_loses_nothing(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    lasting: bool,
) -> None:
    """Documents that are refused among them; and if it never can, they fail one by one."""
    model = decoder_model("qwen3", max_position_embeddings=300)
    compiled = compile_schema(small, codec, template=TEMPLATE)
    long = "Sony " * 400
    titles = [f"LG {number} {'OLED ' * (number // 2)}" for number in range(60)]
    texts = [text for title in titles for text in (title, f"{long}{title}", f"TCL {title}")]
    expected = outputs_of(model, compiled, texts)
    assert [bool(output.slots) for output in expected] == [len(text) < 600 for text in texts]
    usual, moves = BlockCache.move, 0

    def scarce(*arguments: Any) -> None:
        nonlocal moves
        moves += 1
        if lasting or moves == 2:
            raise torch.OutOfMemoryError("scarce")
        usual(*arguments)

    monkeypatch.setattr(BlockCache, "move", scarce)
    limited(monkeypatch, pass_tokens=200)
    found = outputs_of(model, compiled, texts)
    assert moves > 2
    if lasting:
        assert all(output.problem for output in found)
    else:
        assert found == expected


def test_a_document_too_large_for_memory_costs_itself_only(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = decoder_model()
    usual = model.run_pass

    def scarce(work: Any, cache: Any) -> torch.Tensor:
        if work.input_ids.shape[1] > 500:
            raise torch.OutOfMemoryError("scarce")
        return usual(work, cache)

    monkeypatch.setattr(model, "run_pass", scarce)
    compiled = compile_schema(small, codec, template=TEMPLATE)
    outputs = outputs_of(model, compiled, ["LG", "Sony " * 600, "TCL"])
    assert [bool(output.slots) for output in outputs] == [True, False, True]
    assert "memory" in str(outputs[1].problem)


def test_after_a_document_too_large_all_goes_on_as_before(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It sorts among the last of its window; later windows are not read one by one for it."""
    monkeypatch.setattr(stream_module, "_WINDOW", 12)
    model = decoder_model()
    usual, passes = model.run_pass, 0

    def scarce(work: Any, cache: Any) -> torch.Tensor:
        nonlocal passes
        passes += 1
        if work.input_ids.shape[1] > 500:
            raise torch.OutOfMemoryError("scarce")
        return usual(work, cache)

    monkeypatch.setattr(model, "run_pass", scarce)
    limited(monkeypatch, pass_tokens=400)
    compiled = compile_schema(small, codec, template=TEMPLATE)
    texts = [f"{TITLES[number % 7]} {number}" for number in range(60)]
    expected = outputs_of(model, compiled, texts)
    alone, passes = passes, 0
    found = outputs_of(model, compiled, [*texts[:11], "Sony " * 600, *texts[11:]])
    assert "memory" in str(found.pop(11).problem)
    assert found == expected
    assert passes < 5 * alone  # one by one: sixteen times


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
) -> None:
    """Its error is raised when all that came before is done, and is never taken for a pass's."""
    monkeypatch.setattr(stream_module, "_WINDOW", 1)
    compiled = compile_schema(small, codec, template=TEMPLATE)
    prompts = compiled.encode([f"{TITLES[number % 7]} {number}" for number in range(after)])

    def broken() -> Iterator[PromptIds]:
        yield from prompts
        raise error

    found = []

    def run() -> None:
        for place, output in fill(decoder_model(), broken(), compiled.stop, compiled.decoding):
            assert output.slots
            found.append(place)

    with pytest.raises(type(error), match=str(error)):
        run()
    assert sorted(found) == list(range(after))


def test_instructions_are_read_again_with_other_weights(codec: TextCodec, small: Any) -> None:
    raw = tiny_model("qwen3", codec.vocab_size)
    model, compiled = prepare(raw), compile_schema(small, codec)
    before = outputs_of(model, compiled, TITLES)
    with torch.no_grad():
        for weights in raw.parameters():
            weights.mul_(1.5)
    after = outputs_of(model, compiled, TITLES)
    assert after == outputs_of(prepare(raw), compiled, TITLES)
    assert after != before


def test_instructions_that_nothing_uses_are_let_go(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any
) -> None:
    """Many categories in one run: memory holds what is in flight, and the kept ones."""
    model = decoder_model()
    held = 0
    usual = stream_module.Instructions.read

    def read(self: Any, flight: Flight) -> None:
        nonlocal held
        usual(self, flight)
        held = max(held, len(self.lengths))

    compiled = [
        compile_schema(small, codec, template=f"Number {n} of many instructions.\n{TEMPLATE}")
        for n in range(40)
    ]
    config = replace(compiled[0].decoding, batch_size=4)
    prompts = [c.encode([text])[0] for c in compiled for text in TITLES[:3]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_module.Instructions, "read", read)
        found = dict(fill(model, prompts, compiled[0].stop, config))
    assert len(found) == 120
    assert held <= 4
    for place in (0, 61, 119):
        ((_, alone),) = fill(model, [prompts[place]], compiled[0].stop, config)
        assert found[place] == alone


def test_other_failures_are_not_taken_for_a_lack_of_memory(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any) -> torch.Tensor:
        raise RuntimeError("a bug")

    model = decoder_model()
    monkeypatch.setattr(model, "run_pass", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        outputs_of(model, compile_schema(small, codec), TITLES)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
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


def test_bfloat16_runs_and_mostly_agrees(codec: TextCodec, small: Any) -> None:
    """Kernels round differently with the shape of a pass; most tokens agree all the same."""
    model = prepare(tiny_model("qwen3", codec.vocab_size).to(torch.bfloat16))
    assert isinstance(model, DecoderModel)
    assert model.packs
    config = DecodingConfig(max_retries=0)
    compiled = compile_schema(small, codec, template=TEMPLATE, decoding=config)
    fast = [list(output.slots) for output in outputs_of(model, compiled, TITLES)]
    slow = in_batches(model, compiled, TITLES)
    same = [a == b for x, y in zip(fast, slow, strict=True) for a, b in zip(x, y, strict=True)]
    assert sum(same) > len(same) / 2


@pytest.mark.parametrize("kernel", [_flash, _matmul, attend])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("count", [1, 5, 40, 150])
@pytest.mark.parametrize("kind", ["plain", "causal", "per query", "per row"])
def test_kernels_equal_the_definition(kernel: Any, groups: int, count: int, kind: str) -> None:
    """Outputs and log-sum-exps; rows that see nothing of a part must not turn into NaN."""
    generator = torch.Generator().manual_seed(count)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    length = 40 if count < 40 else count
    query = random(3, count, 2 * groups, 8)
    key, value = random(3, 2, length, 8), random(3, 2, length, 8)
    least = torch.finfo(torch.float32).min
    mask, added = None, torch.zeros(3, 1, length)
    if kind.startswith("per"):
        rows = count if kind == "per query" else 1
        added = mask = torch.where(random(3, rows, length) > 0, 0.0, least)
        mask[0] = least
    causal = kind == "causal"
    if causal:
        added = torch.full((count, length), least).triu(1)[None]
    out, total = kernel(query, key, value, 0.3, mask, causal, None)
    by_head = query.double().transpose(1, 2)
    keys, values = (part.double().repeat_interleave(groups, dim=1) for part in (key, value))
    scores = by_head @ keys.transpose(-1, -2) * 0.3 + added.double()[:, None]
    expected, weights = scores.softmax(-1) @ values, scores.logsumexp(-1)
    seen = slice(1, None) if mask is not None else slice(None)
    torch.testing.assert_close(out[seen], expected.transpose(1, 2)[seen].float())
    torch.testing.assert_close(total[seen], weights.transpose(1, 2)[seen].float())
    assert torch.isfinite(out).all()


@pytest.mark.parametrize("kind", ["plain", "causal", "masked"])
def test_long_rows_are_multiplied_some_queries_at_a_time(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    from schemax.runtime import attention

    query = torch.randn(2, 50, 4, 8)
    key, value = torch.randn(2, 2, 50, 8), torch.randn(2, 2, 50, 8)
    mask = torch.randn(2, 50, 50) if kind == "masked" else None
    whole = _matmul(query, key, value, 0.3, mask, kind == "causal", 5.0)
    monkeypatch.setattr(attention, "_MOST_SCORES", 3000)
    for got, expected in zip(
        _matmul(query, key, value, 0.3, mask, kind == "causal", 5.0), whole, strict=True
    ):
        torch.testing.assert_close(got, expected)


def test_parts_equal_attention_over_all_keys() -> None:
    """The merge of three parts is the softmax over all of them, sinks included."""
    from schemax.runtime.attention import Part

    torch.manual_seed(0)
    query, key, value = torch.randn(6, 4, 8), torch.randn(2, 30, 8), torch.randn(2, 30, 8)
    cuts = [(0, 11), (11, 12), (12, 30)]

    def part(start: int, stop: int) -> Part:
        return Part(
            queries=None,
            places=None,
            targets=slice(0, 6),
            fetch=lambda _: (key[None, :, start:stop], value[None, :, start:stop]),
            masks=(None,),
        )

    sinks = torch.randn(4)
    got = attend_parts(query, [part(*cut) for cut in cuts], None, 0, 0.4, None, sinks)
    scores = torch.einsum("thd,hmd->htm", query, key.repeat_interleave(2, 0)) * 0.4
    weights = torch.cat([scores, sinks[:, None, None].expand(4, 6, 1)], -1).softmax(-1)[..., :-1]
    expected = torch.einsum("htm,hmd->thd", weights, value.repeat_interleave(2, 0))
    torch.testing.assert_close(got, expected)


def test_stack_never_gives_a_number_twice() -> None:
    stack, out, rng = Stack(), set[int](), np.random.default_rng(0)
    for _ in range(200):
        taken = stack.take(int(rng.integers(0, 9))).tolist()
        assert not out & set(taken)
        out |= set(taken)
        given = [number for number in out if rng.random() < 0.5]
        stack.give(np.array(given, np.int64))
        out -= set(given)
    assert stack.size < 60


def test_sparse_rows_are_moved_together(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Stragglers do not drag empty rows along, and go on as they began."""
    model = decoder_model()
    compiled = compile_schema(small, codec, template=TEMPLATE)
    texts = [f"{title} {number}" for number in range(5) for title in TITLES]
    expected = outputs_of(model, compiled, texts)
    moves = []
    usual = Flight.extend

    def extend(flight: Flight, rows: int, width: int) -> Any:
        moves.append((rows, width) == (flight.num_rows, flight.width))
        return usual(flight, rows, width)

    monkeypatch.setattr(Flight, "extend", extend)
    assert outputs_of(model, compiled, texts) == expected
    assert any(moves)


def test_refused_documents_are_told_of_as_they_are_met(codec: TextCodec, small: Any) -> None:
    """A stream of nothing but documents that are too long ends no sooner, and piles up nothing."""
    model = prepare(tiny_model("qwen3", codec.vocab_size, max_position_embeddings=600))
    compiled = compile_schema(small, codec, template=TEMPLATE)
    (long,) = compiled.encode(["Sony " * 600])
    (short,) = compiled.encode([TITLES[0]])
    taken = 0

    def endless() -> Iterator[PromptIds]:
        nonlocal taken
        while True:
            taken += 1
            yield short if taken == 5000 else long

    outputs = fill(model, endless(), compiled.stop, compiled.decoding)
    place, output = next(outputs)
    assert place == 0
    assert "too long" in (output.problem or "")
    assert taken <= 2048
    found = next(place for place, output in outputs if output.problem is None)
    assert found == 4999
