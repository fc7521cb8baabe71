"""Visibility, plans, requests, the pool of keys and values, and sampling, each by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TITLES, slow_but, tiny_model
from constrained import forked
from decoding import assert_right, compiled_in, in_each_way, outputs_of, streamed
from oracle import chosen
from seams import replaced

from schemax.compiler import TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.runtime.attention.batch import KVWrite
from schemax.runtime.attention.kv_pool import KVPool
from schemax.runtime.attention.visibility import TokenInfo, visible
from schemax.runtime.engine import fork as fork_module
from schemax.runtime.engine.decode import decode
from schemax.runtime.engine.fork import ForkModel
from schemax.runtime.engine.scheduler import Scheduler
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.sampling.draw import largest, uniform
from schemax.runtime.slots.plan import plan_prompt
from schemax.runtime.slots.requests import new_request, seeded_digest, with_retries
from schemax.tokens import PromptIds, StopTable


@dataclass(frozen=True, slots=True)
class Token:
    """The four integers that say what a token sees."""

    position_id: int
    document: int
    slot: int
    step: int


def sees(query: Token, key: Token, config: DecodingConfig) -> bool:
    """The rule of visibility as docs/architecture.md has it, for one pair of tokens."""
    if key.position_id > query.position_id:
        return False
    if config.documents == "isolated":
        is_shown = key.document < -1 and query.document >= 0  # a demonstration, to documents
        if key.document not in (-1, query.document) and not is_shown:
            return False
    if key.slot in (-1, query.slot):
        return True
    return config.slots == "causal" and key.step <= query.step


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
        Token(position, document, slot, step)
        for position, document, slot, step in product(
            (0, 3, 7), (-3, -2, -1, 0, 1), (-1, 0, 4), (0, 1, 2)
        )
    ]
    expected = torch.tensor([[sees(q, k, config) for k in tokens] for q in tokens])
    info = token_info(tokens)
    assert torch.equal(visible(info, info, config)[0], expected)


def test_padding_is_never_seen_and_sees_something() -> None:
    info = token_info([Token(0, -1, -1, 0), Token(1, -1, -1, 0)])
    info.real[0, 1] = False
    mask = visible(info, info, RULES[0])[0]
    assert mask.tolist() == [[True, False], [True, False]]


NO_STOP = StopTable(np.zeros((1, 32), np.int8), ())


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


@pytest.mark.parametrize("shared", [2, 40], ids=["own", "shared"])
def test_plan_isolated_branched(shared: int) -> None:
    instruction = tuple(range(shared))
    plan = plan_prompt(prompt(instruction=instruction), DecodingConfig(documents_per_prompt=2))
    behind = [3, 6, 10, 11, 12], [4, 5, 6, 10, 11, 12]
    assert plan.input_ids.tolist() == [*instruction, *behind[0], *behind[1]]
    # Positions restart after the instruction; branches after the opening.
    positions = (plan.position_ids[shared:] - shared).tolist()
    assert plan.position_ids[:shared].tolist() == list(instruction)
    assert positions == [0, 1, 2, 3, 2, 0, 1, 2, 3, 4, 3]
    assert plan.document.tolist() == [-1] * shared + [0] * 5 + [1] * 6
    assert plan.slot[shared:].tolist() == [-1, -1, 0, 0, 1, -1, -1, -1, 2, 2, 3]
    assert plan.slot_ids.tolist() == [0, 1, 2, 3]
    assert (plan.last_index - shared).tolist() == [3, 4, 9, 10]


def test_a_long_instruction_is_shared_by_requests() -> None:
    for shared in (2, 40):
        example = prompt(instruction=tuple(range(shared)), documents=((3,),), sampling_keys=(7,))
        request = new_request(example, NO_STOP, DecodingConfig())
        assert request.prefix == (example.instruction if shared == 40 else ())
        assert request.stem_positions[-1] == shared + 1
        assert request.digests == (7,)


def test_plan_stacked_gapped_runs_on() -> None:
    config = DecodingConfig(layout="gapped", documents="stacked", documents_per_prompt=2)
    plan = plan_prompt(prompt(), config)
    assert plan.input_ids.tolist() == [1, 2, 3, 4, 5, 6, 10, 11, 12, 10, 11, 12]
    assert plan.position_ids.tolist() == [*range(8), 11, 14, 15, 19]
    assert plan.last_position.tolist() == [7, 11, 15, 19]
    assert plan.max_position == 19 + 2 - 1
    assert plan.slot.tolist() == [-1] * 12


def test_plan_autoregressive_has_one_slot_for_stacked_documents() -> None:
    config = DecodingConfig(layout="autoregressive", documents="stacked", documents_per_prompt=2)
    plan = plan_prompt(prompt(keys=(((),), ((),)), k_max=(9,)), config)
    assert plan.input_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert plan.slot_ids.tolist() == [0]
    assert plan.last_index.tolist() == plan.last_position.tolist() == [5]


def test_budgets_of_retries_stay_below_the_bound() -> None:
    budgets, last = np.array([3, 2, 5]), np.array([10, 30, 90])
    assert with_retries(budgets, last, 0, None).tolist() == [3, 2, 5]
    assert with_retries(budgets, last, 2, None).tolist() == [12, 8, 20]
    assert with_retries(budgets, last, 2, 100).tolist() == [12, 8, 10]
    # The last token of a value is never an input, so that its position is the bound's last one.
    assert with_retries(budgets, last, 1, 34).tolist() == [6, 4, 5]
    assert with_retries(budgets, last, 1, 33).tolist() == [6, 2, 5]


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
            return model.forward(input_ids, tokens, place, config)

    assert torch.equal(logits(planted=5, step=2), logits(planted=100, step=2))
    assert not torch.equal(logits(planted=5, step=1), logits(planted=100, step=1))


@pytest.mark.parametrize("layout", ["gapped", "branched"])
def test_stacked_slots_of_different_documents_never_mix(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any, layout: str
) -> None:
    """Whatever stands in all other slots, a slot's value is the same."""
    config = DecodingConfig(layout=layout, documents="stacked", documents_per_prompt=2)
    compiled = compile_schema(small, codec, decoding=config)
    (prompt,) = compiled.encode(TITLES[:2])
    assert len(set(plan_prompt(prompt, config).slot_ids.tolist())) == 2 * compiled.num_slots
    model = decoder_model()
    (together,) = decode(model, [prompt], compiled.stop, config)
    given = tuple(codec.encode(" null,"))
    width = compiled.num_slots
    for slot, output in enumerate(together):
        flat = [() if place == slot else given for place in range(2 * width)]
        others = replace(prompt, answers=(tuple(flat[:width]), tuple(flat[width:])))
        (found,) = decode(model, [others], compiled.stop, config)
        assert found[slot].ids == output.ids
        assert all(f.ids == given[:1] for place, f in enumerate(found) if place != slot)


def test_keys_and_values_are_stored_where_a_pass_says() -> None:
    """Rows of documents, a pool that grows, and prefixes; all of it beside the others."""
    cache = KVPool(num_layers=1)
    (layer,) = cache.kv_layers
    key = torch.arange(1.0, 25.0).reshape(1, 2, 6, 2)  # of six tokens, two heads of two numbers
    layer.store(key, -key, KVWrite(prefix=3))
    assert torch.equal(layer.prefixes[3][0], key)
    # Four tokens of two documents' stems, and two more of slots of their own.
    write = KVWrite(
        fresh=torch.tensor([[0, 1], [2, 3]]),
        rows=torch.tensor([2, 0]),
        num_rows=3,
        row_width=4,
        stem_width=2,
        slot_mapping=torch.tensor([4, 1]),
        pool_size=5,
    )
    layer.store(key, -key, write)
    assert layer.documents is not None
    assert layer.pool is not None
    assert layer.documents[0].shape == (3, 2, 4, 2)
    assert torch.equal(layer.documents[0][2, :, :2], key[0, :, :2])
    assert torch.equal(layer.documents[1][0, :, :2], -key[0, :, 2:4])
    assert not layer.documents[0][1].any()
    assert torch.equal(layer.pool[0][4], key[0, :, 4])
    assert torch.equal(layer.pool[1][1], -key[0, :, 5])
    # Rows move together, and what they held stays; so does the pool, as it grows.
    cache.resize(np.array([2]), 2, 6, 2)
    assert layer.documents[0].shape == (2, 2, 6, 2)
    assert torch.equal(layer.documents[0][0, :, :2], key[0, :, :2])
    assert not layer.documents[0][0, :, 2:].any()
    write = KVWrite(slot_mapping=torch.tensor([7]), pool_size=9)
    layer.store(key[:, :, :1], key[:, :, :1], write)
    assert torch.equal(layer.pool[0][7], key[0, :, 0])
    assert torch.equal(layer.pool[0][4], key[0, :, 4])
    assert cache.bytes_per_token == 2 * 2 * 2 * 4


def test_uniform_numbers_are_uniform_and_independent() -> None:
    keys = torch.stack([torch.arange(20_000) * 7919, torch.arange(20_000) % 16], dim=1)
    digests = keys[:, 0].tolist()
    reseeded = torch.tensor([seeded_digest(digest, 2) for digest in digests])
    draws = uniform(keys, step=3).numpy()
    assert draws.min() >= 0
    assert draws.max() < 1
    counts = np.histogram(draws, bins=20, range=(0, 1))[0]
    assert abs(counts - 1000).max() < 160  # five standard deviations
    others = (keys, 4), (torch.stack([reseeded, keys[:, 1]], dim=1), 3), (keys + 1, 3)
    for other in (uniform(*given) for given in others):
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
    ids = chosen(logits, keys, 0, config)
    probabilities = logits[0].softmax(0)
    kept = probabilities[:2] / probabilities[:2].sum()  # 0.64 + 0.24 >= 0.8
    frequencies = torch.bincount(ids, minlength=5)[:2] / 8000
    assert int(ids.max()) == 1
    assert torch.allclose(frequencies, kept, atol=0.03)


@in_each_way
@pytest.mark.parametrize("batch_size", slow_but({"auto"}, ["auto", 1]))
def test_retries_change_no_other_slot(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    way: str,
    batch_size: Any,
) -> None:
    """A slot that runs out of its budget goes on; all others are what they were without."""
    model = decoder_model()
    k_max = 9 if way == "autoregressive" else None
    once = compiled_in(
        way, small, codec, temperature=1.3, max_retries=0, batch_size=batch_size, k_max=k_max
    )
    twice = compiled_in(
        way, small, codec, temperature=1.3, max_retries=1, batch_size=batch_size, k_max=k_max
    )
    before, after = outputs_of(model, once, TITLES), outputs_of(model, twice, TITLES)
    longer = 0
    for short, long in zip(before, after, strict=True):
        for a, b in zip(short.slots, long.slots, strict=True):
            if a.finish_reason == "length":
                assert b.ids[: len(a.ids)] == a.ids
                longer += len(b.ids) > len(a.ids)
                assert len(b.ids) <= 2 * len(a.ids)
            else:
                assert a == b
        assert long.steps >= short.steps
    assert longer > 3


@pytest.mark.parametrize("way", ["gapped", "causal", "paper"])
def test_retried_slots_equal_the_oracle(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any, way: str
) -> None:
    """Beyond its gap, a slot sees no later keys."""
    compiled = compiled_in(way, small, codec, temperature=1.3, max_retries=1)
    outputs = assert_right(decoder_model(), compiled, TITLES)
    budgets = [budget for slots in outputs for budget in compiled.k_max * (len(slots) // 4)]
    flat = [slot for slots in outputs for slot in slots]
    assert sum(len(s.ids) > budget for s, budget in zip(flat, budgets, strict=True)) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("layout", slow_but({"gapped"}, ["branched", "gapped"]))
@pytest.mark.parametrize("temperature", slow_but({1.3}, [0.0, 1.3]))
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


def test_too_long_documents_are_reported_and_others_go_on(codec: TextCodec, small: Any) -> None:
    model = DecoderModel(tiny_model("qwen3", codec.vocab_size, max_position_embeddings=600))
    compiled = compile_schema(small, codec)
    outputs = outputs_of(model, compiled, ["LG", "tv " * 4000, "Sony"])
    assert outputs[1].slots == ()
    assert "context has 600" in str(outputs[1].problem)
    assert [len(outputs[i].slots) for i in (0, 2)] == [4, 4]


def test_stacked_documents_that_are_too_long_are_each_reported(
    codec: TextCodec, small: Any
) -> None:
    model = DecoderModel(tiny_model("qwen3", codec.vocab_size, max_position_embeddings=600))
    compiled = compiled_in("stacked", small, codec)
    outputs = outputs_of(model, compiled, ["LG", "tv " * 4000, "Sony", "TCL"])
    assert [bool(output.slots) for output in outputs] == [False, False, True, True]
    assert all("context has 600" in str(output.problem) for output in outputs[:2])
    assert [output.document for output in outputs[2:]] == [0, 1]


@in_each_way
@pytest.mark.parametrize("batch_size", slow_but({2}, [1, 2, 3]))
def test_no_more_documents_are_in_flight_than_batch_size(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    batch_size: int,
) -> None:
    """A prompt of several documents is read even where it has more than that by itself."""
    sizes = []
    usual = Scheduler.allot

    def allot(scheduler: Scheduler) -> Any:
        sizes.append(sum(request.num_documents for request in scheduler.requests))
        return usual(scheduler)

    monkeypatch.setattr(Scheduler, "allot", allot)
    compiled = compiled_in(way, small, codec, batch_size=batch_size, temperature=1.3)
    outputs_of(decoder_model(), compiled, TITLES)
    together = compiled.decoding.documents_per_prompt
    together = together if compiled.decoding.documents == "stacked" else 1
    assert max(sizes) == max(together, batch_size // together * together)


# --- one row per slot ----------------------------------------------------------------------------


@pytest.mark.parametrize("batch_size", [1, 3])
def test_forked_batches_respect_their_size(
    codec: TextCodec, small: Any, monkeypatch: pytest.MonkeyPatch, batch_size: int
) -> None:
    sizes = []
    usual = fork_module.decode_forked

    def counted(model: Any, requests: Any, *rest: Any) -> Any:
        sizes.append(len(requests))
        return usual(model, requests, *rest)

    monkeypatch.setattr(fork_module, "decode_forked", counted)
    compiled = compiled_in("branched", small, codec, batch_size=batch_size)
    texts = [f"LG {number}" for number in range(7)]
    assert len(outputs_of(forked(codec), compiled, texts)) == 7
    assert max(sizes) == batch_size
    assert sum(sizes) == 7


@pytest.mark.parametrize(
    "error",
    [torch.OutOfMemoryError("scarce"), RuntimeError("DefaultCPUAllocator: can't allocate memory")],
    ids=["accelerator", "cpu"],
)
def test_forks_out_of_memory_go_on_with_half_a_batch(
    codec: TextCodec, small: Any, monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    model = forked(codec)
    compiled = compiled_in("branched", small, codec)
    texts = [f"LG {number}" for number in range(7)]
    expected = outputs_of(model, compiled, texts)
    sizes = []
    usual = fork_module.decode_forked

    def scarce(model: Any, requests: Any, *rest: Any) -> Any:
        sizes.append(len(requests))
        if len(requests) > 2:
            raise error
        return usual(model, requests, *rest)

    monkeypatch.setattr(fork_module, "decode_forked", scarce)
    assert outputs_of(model, compiled, texts) == expected
    assert sizes[0] > 2
    assert sizes[-1] <= 2


def test_forks_try_larger_batches_again_once_memory_is_there(
    codec: TextCodec, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(monkeypatch, "passes until more is tried", 1)
    model = forked(codec)
    compiled = compiled_in("branched", small, codec)
    texts = [f"LG {number}" for number in range(10, 40)]
    expected = outputs_of(model, compiled, texts)
    sizes: list[int] = []
    usual = fork_module.decode_forked

    def scarce(model: Any, requests: Any, *rest: Any) -> Any:
        sizes.append(len(requests))
        if sum(size > 2 for size in sizes) <= 2 < sizes[-1]:
            raise torch.OutOfMemoryError("scarce")
        return usual(model, requests, *rest)

    monkeypatch.setattr(fork_module, "decode_forked", scarce)
    assert outputs_of(model, compiled, texts) == expected
    _, halved, *rest = [size for size in sizes if size > 2]
    assert max(rest) == halved > min(rest)


def test_a_document_too_large_for_forks_costs_itself_only(
    codec: TextCodec, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = fork_module.decode_forked

    def scarce(model: Any, requests: Any, *rest: Any) -> Any:
        if any(len(request.stem) > 1000 for request in requests):
            raise torch.OutOfMemoryError("scarce")
        return usual(model, requests, *rest)

    monkeypatch.setattr(fork_module, "decode_forked", scarce)
    compiled = compiled_in("branched", small, codec)
    outputs = outputs_of(forked(codec), compiled, ["LG", "Sony " * 600, "TCL"])
    assert [bool(output.slots) for output in outputs] == [True, False, True]
    assert "memory" in str(outputs[1].problem)


def test_other_failures_of_forks_are_not_taken_for_a_lack_of_memory(
    codec: TextCodec, small: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("a bug")

    monkeypatch.setattr(fork_module, "decode_forked", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        outputs_of(forked(codec), compiled_in("branched", small, codec), TITLES)


# --- what is given -------------------------------------------------------------------------------


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
    for _, output in streamed(model, prompts, compiled.stop, compiled.decoding):
        first, second, third, _ = output.slots
        assert [slot.ids for slot in (first, second)] == [given[0], given[1][:1]]
        assert [slot.finish_reason for slot in (first, second)] == ["stop", "stop"]
        assert third.ids[: len(given[2])] == given[2]
        assert len(third.ids) > len(given[2])
