"""Visibility, plans, the cache and sampling, each by itself."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TITLES, tiny_model
from schemax.runtime.decoder import decode
from schemax.runtime.kvcache import SlotCache
from schemax.runtime.reference import Token, decode_reference, sees

from schemax.compiler import TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.runtime import engine
from schemax.runtime.fork import ForkModel
from schemax.runtime.model import DecoderModel
from schemax.runtime.plan import plan_prompt
from schemax.runtime.sampling import choose, largest, uniform
from schemax.runtime.visibility import TokenInfo, visible
from schemax.tokens import PromptIds, SlotOutput

# Documents that may see each other are not decoded as a stream.
IN_BATCHES = DecodingConfig(documents="stacked")

RULES = [
    DecodingConfig(layout="gapped", documents=documents, slots=slots)
    for documents in ("isolated", "stacked")
    for slots in ("independent", "causal")
]


def token_info(tokens: list[Token]) -> TokenInfo:
    def column(name: str) -> torch.Tensor:
        return torch.tensor([[getattr(token, name) for token in tokens]])

    return TokenInfo(
        position_ids=column("position_id"),
        document=column("document"),
        slot=column("slot"),
        step=column("step"),
        real=torch.ones(1, len(tokens), dtype=torch.bool),
    )


@pytest.mark.parametrize("config", RULES, ids=lambda c: f"{c.documents}-{c.slots}")
def test_tensor_rule_equals_the_rule_token_by_token(config: DecodingConfig) -> None:
    tokens = [
        Token(0, position, document, slot, step)
        for position, document, slot, step in product((0, 3, 7), (-1, 0, 1), (-1, 0, 4), (0, 1, 2))
    ]
    expected = torch.tensor([[sees(q, k, config) for k in tokens] for q in tokens])
    info = token_info(tokens)
    assert torch.equal(visible(info, info, config)[0], expected)


def test_padding_is_never_seen_and_sees_something() -> None:
    info = token_info([Token(0, 0, -1, -1, 0), Token(0, 1, -1, -1, 0)])
    info.real[0, 1] = False
    mask = visible(info, info, RULES[0])[0]
    assert mask.tolist() == [[True, False], [True, False]]


def prompt(**changes: Any) -> PromptIds:
    given = {
        "instruction": (1, 2),
        "documents": ((3,), (4, 5)),
        "opening": (6,),
        "keys": (((10, 11), (12,)), ((10, 11), (12,))),
        "k_max": (3, 2),
        "sampling_keys": (7, 8),
    }
    return PromptIds(**{**given, **changes})


def test_the_paper_s_example() -> None:
    """Figure 2: a gap of 7, keys that end at 12, 22 and 32, first value tokens at 13, 23 and 33."""
    example = PromptIds(
        instruction=tuple(range(6)),
        documents=(tuple(range(4)),),
        opening=(),
        keys=((tuple(range(3)),) * 3,),
        k_max=(7, 7, 7),
        sampling_keys=(0,),
    )
    plan = plan_prompt(example, DecodingConfig(layout="gapped", documents="stacked"))
    assert plan.last_position.tolist() == [12, 22, 32]
    assert (plan.last_position + 1).tolist() == [13, 23, 33]
    assert plan.position_ids.tolist() == [*range(13), 20, 21, 22, 30, 31, 32]


def test_plan_isolated_branched() -> None:
    plan = plan_prompt(prompt(), DecodingConfig(documents_per_prompt=2))
    assert plan.input_ids.tolist() == [1, 2, 3, 6, 10, 11, 12, 4, 5, 6, 10, 11, 12]
    # Positions restart after the instruction; branches after the opening.
    assert plan.position_ids.tolist() == [0, 1, 2, 3, 4, 5, 4, 2, 3, 4, 5, 6, 5]
    assert plan.document.tolist() == [-1, -1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1]
    assert plan.slot.tolist() == [-1, -1, -1, -1, 0, 0, 1, -1, -1, -1, 2, 2, 3]
    assert plan.slot_ids.tolist() == [0, 1, 2, 3]
    assert plan.last_index.tolist() == [5, 6, 11, 12]
    assert plan.sampling_keys.tolist() == [[7, 0], [7, 1], [8, 0], [8, 1]]


def test_plan_stacked_gapped_runs_on() -> None:
    config = DecodingConfig(layout="gapped", documents="stacked", documents_per_prompt=2)
    plan = plan_prompt(prompt(), config)
    assert plan.input_ids.tolist() == [1, 2, 3, 4, 5, 6, 10, 11, 12, 10, 11, 12]
    assert plan.position_ids.tolist() == [*range(8), 11, 14, 15, 19]
    assert plan.last_position.tolist() == [7, 11, 15, 19]
    assert plan.max_position == 19 + 2 - 1
    assert plan.slot.tolist() == [-1] * 12


def test_plan_of_one_slot_hides_later_keys() -> None:
    config = DecodingConfig(layout="gapped", documents="stacked", documents_per_prompt=2)
    plan = plan_prompt(prompt(), config, targets=[2], budget_scale=2)
    assert plan.input_ids.tolist() == [1, 2, 3, 4, 5, 6, 10, 11, 12, 10, 11]
    assert plan.slot_ids.tolist() == [2]
    assert plan.k_max.tolist() == [6]
    whole = plan_prompt(prompt(), config)
    assert plan.last_position.tolist() == whole.last_position[2:3].tolist()


def test_causal_slots_never_see_later_steps(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any
) -> None:
    """Four integers, not three: a planted value token of a later step changes nothing.

    Without `step` an earlier slot's whole value would be visible in training, where all values
    are present at once.
    """
    config = DecodingConfig(layout="gapped", documents="stacked", slots="causal")
    compiled = compile_schema(small, codec, decoding=config)
    plan = plan_prompt(compiled.encode(TITLES[:1])[0], config)
    model = decoder_model()

    def logits(planted: int, step: int) -> torch.Tensor:
        """Of the second slot's first value token, beside a value token of the first slot."""
        added = [(planted, 0, step), (9, 1, 1)]
        tokens = TokenInfo(
            position_ids=torch.tensor(
                [[*plan.position_ids, *(plan.last_position[slot] + s for _, slot, s in added)]]
            ),
            document=torch.tensor([[*plan.document, 0, 0]]),
            slot=torch.tensor([[*plan.slot, 0, 1]]),
            step=torch.tensor([[*(0 for _ in plan.slot), *(s for _, _, s in added)]]),
            real=torch.ones(1, len(plan.slot) + 2, dtype=torch.bool),
        )
        input_ids = torch.tensor([[*plan.input_ids, *(i for i, _, _ in added)]])
        place = (torch.tensor([0]), torch.tensor([input_ids.shape[1] - 1]))
        with torch.inference_mode():
            return model.forward(input_ids, tokens, tokens, None, place, config)

    assert torch.equal(logits(planted=5, step=2), logits(planted=100, step=2))
    assert not torch.equal(logits(planted=5, step=1), logits(planted=100, step=1))


@pytest.mark.parametrize("layout", ["gapped", "branched"])
def test_stacked_slots_of_different_documents_never_mix(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any, layout: str
) -> None:
    """Values of one document's slot are invisible to the same attribute of another document."""
    config = DecodingConfig(layout=layout, documents="stacked", documents_per_prompt=2)
    compiled = compile_schema(small, codec, decoding=config)
    plan = plan_prompt(compiled.encode(TITLES[:2])[0], config)
    assert len(set(plan.slot_ids.tolist())) == 2 * compiled.num_slots
    model = decoder_model()
    (together,) = decode(model, [plan], compiled.stop, config)
    for slot, output in enumerate(together):
        alone = plan_prompt(compiled.encode(TITLES[:2])[0], config, targets=[slot])
        assert decode(model, [alone], compiled.stop, config) == [[output]]


def test_cache_writes_where_it_is_told_and_grows() -> None:
    cache = SlotCache(num_layers=1)
    first = torch.arange(12.0).reshape(2, 1, 3, 2)
    cache.write_to(torch.tensor([[0, 1, 2], [0, 1, 2]]), 3)
    cache.update(first, first, 0)
    # The second row has only one real token so far; the next one goes right behind it.
    cache.write_to(torch.tensor([[3], [1]]), 4)
    keys, values = cache.update(torch.full((2, 1, 1, 2), -1.0), torch.zeros(2, 1, 1, 2), 0)
    assert keys.shape == (2, 1, 4, 2)
    assert torch.equal(keys[0, 0, :3], first[0, 0])
    assert keys[0, 0, 3].tolist() == [-1, -1]
    assert keys[1, 0, 1].tolist() == [-1, -1]
    assert values[1, 0, 1].tolist() == [0, 0]
    cache.keep_rows(torch.tensor([1]))
    cache.write_to(torch.tensor([[2]]), 3)
    keys, _ = cache.update(torch.ones(1, 1, 1, 2), torch.ones(1, 1, 1, 2), 0)
    assert keys[0, 0].tolist() == [first[1, 0, 0].tolist(), [-1, -1], [1, 1]]


def test_uniform_numbers_are_uniform_and_independent() -> None:
    keys = torch.stack([torch.arange(20_000) * 7919, torch.arange(20_000) % 16], dim=1)
    draws = uniform(keys, step=3, seed=1).numpy()
    assert draws.min() >= 0
    assert draws.max() < 1
    counts = np.histogram(draws, bins=20, range=(0, 1))[0]
    assert abs(counts - 1000).max() < 160  # five standard deviations
    for other in (uniform(keys, 4, 1), uniform(keys, 3, 2), uniform(keys + 1, 3, 1)):
        assert abs(np.corrcoef(draws, other.numpy())[0, 1]) < 0.04


@pytest.mark.parametrize("size", [5, 512, 1300, 4096])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_largest_is_the_first_of_equals(size: int, dtype: torch.dtype) -> None:
    logits = torch.randint(-9, 9, (300, size), generator=torch.Generator().manual_seed(size))
    logits[:20] = -3
    logits[20:40, :-1] = -3
    numbers = logits.numpy()
    assert largest(logits.to(dtype)).tolist() == numbers.argmax(axis=1).tolist()


def test_nucleus_sampling_follows_the_distribution() -> None:
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -20.0]).expand(8000, 5)
    keys = torch.stack([torch.arange(8000), torch.zeros(8000, dtype=torch.int64)], dim=1)
    config = DecodingConfig(temperature=1.0, top_p=0.8)
    ids = choose(logits, keys, 0, config)
    probabilities = logits[0].softmax(0)
    kept = probabilities[:2] / probabilities[:2].sum()  # 0.64 + 0.24 >= 0.8
    frequencies = torch.bincount(ids, minlength=5)[:2] / 8000
    assert int(ids.max()) == 1
    assert torch.allclose(frequencies, kept, atol=0.03)


def outputs_of(model: DecoderModel, compiled: Any, texts: list[str]) -> list[engine.DocumentOutput]:
    found = dict(engine.fill(model, compiled.encode(texts), compiled.stop, compiled.decoding))
    return [found[place] for place in range(len(texts))]


@pytest.mark.parametrize(
    ("layout", "documents", "slots"),
    [
        ("branched", "isolated", "independent"),
        ("branched", "stacked", "independent"),
        ("gapped", "isolated", "independent"),
        ("gapped", "isolated", "causal"),
        ("gapped", "stacked", "causal"),
    ],
)
@pytest.mark.parametrize("batch_size", ["auto", 1])
def test_retry_continues_the_slot_alone(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    layout: Any,
    documents: Any,
    slots: Any,
    batch_size: Any,
) -> None:
    model = decoder_model()
    once = DecodingConfig(
        layout=layout,
        documents=documents,
        slots=slots,
        temperature=1.3,
        max_retries=0,
        documents_per_prompt=2,
        batch_size=batch_size,
    )
    before = outputs_of(model, compile_schema(small, codec, decoding=once), TITLES)
    twice = replace(once, max_retries=1)
    after = outputs_of(model, compile_schema(small, codec, decoding=twice), TITLES)
    longer = 0
    for short, long in zip(before, after, strict=True):
        for a, b in zip(short.slots, long.slots, strict=True):
            if a.finish_reason == "length":
                assert b.ids[: len(a.ids)] == a.ids
                longer += len(b.ids) > len(a.ids)
                assert len(b.ids) <= 2 * len(a.ids)
            else:
                assert a == b
        retried = any(slot.finish_reason == "length" for slot in short.slots)
        assert long.steps >= short.steps
        if not engine.streams(model, once):  # where a slot just goes on, beside longer ones
            assert (long.steps > short.steps) == retried
    assert longer > 3


@pytest.mark.parametrize("layout", ["branched", "gapped"])
@pytest.mark.parametrize("temperature", [0.0, 1.3])
def test_engine_outputs_depend_on_nothing_but_the_document(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    layout: Any,
    temperature: float,
) -> None:
    """Sorting, batching, splitting and retrying change neither slots nor steps."""
    model = decoder_model()
    alone = DecodingConfig(layout=layout, temperature=temperature, batch_size=1)
    compiled = compile_schema(small, codec, decoding=alone)
    expected = [outputs_of(model, compiled, [text])[0] for text in TITLES]
    for changes in ({"batch_size": 3}, {"documents_per_prompt": 4}, {"batch_size": "auto"}):
        other = compile_schema(small, codec, decoding=replace(alone, **changes))
        assert outputs_of(model, other, TITLES) == expected
        assert outputs_of(model, other, TITLES[::-1]) == expected[::-1]


def test_retried_slot_equals_the_reference(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any
) -> None:
    model = decoder_model()
    config = DecodingConfig(layout="gapped", temperature=1.3)
    compiled = compile_schema(small, codec, decoding=config)
    before = outputs_of(
        model, compile_schema(small, codec, decoding=replace(config, max_retries=0)), TITLES
    )
    after = outputs_of(model, compiled, TITLES)
    compared = 0
    for prompt, short, long in zip(compiled.encode(TITLES), before, after, strict=True):
        for slot, output in enumerate(short.slots):
            if output.finish_reason == "length" and compared < 4:
                plan = plan_prompt(prompt, config, targets=[slot], budget_scale=2)
                assert decode_reference(model, plan, compiled.stop, config) == [long.slots[slot]]
                compared += 1
    assert compared == 4


def test_threads_do_not_disturb_each_other(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any
) -> None:
    model = decoder_model()
    compiled = compile_schema(small, codec)
    expected = outputs_of(model, compiled, TITLES)
    with ThreadPoolExecutor(4) as pool:
        runs = [pool.submit(outputs_of, model, compiled, TITLES) for _ in range(12)]
        assert all(run.result() == expected for run in runs)


def test_too_long_documents_are_reported_and_others_go_on(codec: TextCodec, small: Any) -> None:
    from conftest import tiny_model

    model = DecoderModel(tiny_model("qwen3", codec.vocab_size, max_position_embeddings=600))
    compiled = compile_schema(small, codec)
    outputs = outputs_of(model, compiled, ["LG", "tv " * 4000, "Sony"])
    assert outputs[1].slots == ()
    assert "context has 600" in str(outputs[1].problem)
    assert [len(outputs[i].slots) for i in (0, 2)] == [4, 4]


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("scarce"), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
    ids=["accelerator", "cpu"],
)
def test_out_of_memory_halves_the_batch(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    error: RuntimeError,
) -> None:
    model = decoder_model()
    compiled = compile_schema(small, codec, decoding=IN_BATCHES)
    expected = outputs_of(model, compiled, TITLES)
    sizes = []

    def scarce(model: Any, plans: Any, *rest: Any) -> list[list[SlotOutput]]:
        sizes.append(len(plans))
        if len(plans) > 2:
            raise error
        return decode(model, plans, *rest)

    monkeypatch.setattr(engine, "decode", scarce)
    assert outputs_of(model, compiled, TITLES) == expected
    assert sizes[0] == 7
    assert max(sizes[-3:]) <= 2


def test_a_document_too_large_for_memory_costs_itself_only(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def scarce(model: Any, plans: Any, *rest: Any) -> list[list[SlotOutput]]:
        if any(len(plan.input_ids) > 1500 for plan in plans):
            raise torch.OutOfMemoryError("scarce")
        return decode(model, plans, *rest)

    monkeypatch.setattr(engine, "decode", scarce)
    compiled = compile_schema(small, codec, decoding=IN_BATCHES)
    outputs = outputs_of(decoder_model(), compiled, ["LG", "Sony " * 600, "TCL"])
    assert [bool(output.slots) for output in outputs] == [True, False, True]
    assert "memory" in str(outputs[1].problem)


def test_other_failures_are_not_taken_for_a_lack_of_memory(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any) -> list[list[SlotOutput]]:
        raise RuntimeError("a bug")

    monkeypatch.setattr(engine, "decode", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        outputs_of(decoder_model(), compile_schema(small, codec, decoding=IN_BATCHES), TITLES)


@pytest.mark.parametrize("pieces", [1, 3])
def test_batches_respect_their_size(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    pieces: int,
) -> None:
    sizes = []

    def counted(model: Any, plans: Any, *rest: Any) -> list[list[SlotOutput]]:
        sizes.append(len(plans))
        return decode(model, plans, *rest)

    monkeypatch.setattr(engine, "decode", counted)
    config = replace(IN_BATCHES, batch_size=pieces, temperature=1.3)
    outputs_of(decoder_model(), compile_schema(small, codec, decoding=config), TITLES)
    assert max(sizes) == pieces  # retries included
    assert len(sizes) > -(-len(TITLES) // pieces)


@pytest.mark.parametrize("layout", ["branched", "gapped"])
@pytest.mark.parametrize("way", [DecoderModel, ForkModel])
def test_answers_are_written_whatever_the_model_says(
    codec: TextCodec, small: Any, layout: str, way: Any
) -> None:
    """Every engine can be made to do the same work; where an answer ends, the model goes on."""
    model = way(tiny_model("qwen3", codec.vocab_size))
    if model.refusal(DecodingConfig(layout=layout)):
        pytest.skip("forked rows have no skeleton in common")
    compiled = compile_schema(small, codec, decoding=DecodingConfig(layout=layout))
    texts = [' "LG",', " null,", ' "4', ""]
    given = tuple(tuple(codec.encode(text)) for text in texts)
    prompts = [
        replace(prompt, answers=(given,)) for prompt in compiled.encode([TITLES[0], TITLES[2]])
    ]
    for _, output in engine.fill(model, prompts, compiled.stop, compiled.decoding):
        first, second, third, _ = output.slots
        assert [slot.ids for slot in (first, second)] == [given[0], given[1][:1]]
        assert [slot.finish_reason for slot in (first, second)] == ["stop", "stop"]
        assert third.ids[: len(given[2])] == given[2]
        assert len(third.ids) > len(given[2])
