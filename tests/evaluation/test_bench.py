"""`schemax bench`: every engine does the same work, and the report says what was measured."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from conftest import slow_but, tiny_model

from benchmarks.generated import Sizes, generate_work, value_lengths
from benchmarks.random_models import SHAPES, random_model, shape_config
from benchmarks.rivals import ALL
from benchmarks.rivals.draft import Draft, DraftOptions
from schemax.compiler import TextCodec
from schemax.evaluation.benchmark import compare
from schemax.evaluation.benchmark.engines import (
    BenchmarkError,
    EngineOptions,
    Floor,
    Reading,
    SchemaxEngine,
    replica,
)
from schemax.evaluation.benchmark.measure import Rules, measure_engines
from schemax.evaluation.benchmark.workload import Category, Listing, Workload, annotated_work
from schemax.evaluation.examples import Example
from schemax.tokens import DONE, StopTable

CPU = torch.device("cpu")
ABSENT = ("llama.cpp", "outlines", "generate-flash")
RUNNING = tuple(name for name in compare.engine_names(ALL) if name not in ABSENT)
build_engines = partial(compare.build_engines, rivals=ALL)
SMALL = Sizes(documents=5, document_tokens=24, attributes=3, instruction_tokens=20, jitter=0.3)


@pytest.fixture(scope="module")
def model(codec: TextCodec) -> Any:
    return tiny_model("qwen3", codec.vocab_size)


def examples() -> list[Example]:
    return [
        Example("Tea", "Tazo Zen 24 ct", {"Brand": "Tazo"}),
        Example("Tea", "Twinings 20", {"Net content": "20"}),
        Example("Shoes", "Crocs Clog", {"Brand": "Crocs"}),
    ]


def handmade() -> Workload:
    """Two documents, two attributes, few tokens: small enough to count by hand."""
    category = Category(
        instruction=(20, 21, 22), opening=(23,), keys=((24, 25), (26,)), k_max=(5, 5)
    )
    table = torch.zeros(1, 64, dtype=torch.int8)
    table[0, 2] = DONE
    return Workload(
        categories=(category,),
        listings=(
            Listing(0, (30, 31, 32, 33), ((30, 2), (31, 32, 2))),
            Listing(0, (40, 41), ((2,), (41, 2))),
        ),
        stop=StopTable(table.numpy(), ()),
        eos_id=1,
        vocab_size=64,
        facts={"source": "by hand"},
    )


def test_tokens_are_counted() -> None:
    work = handmade()
    counts = work.counts()
    read = {"instructions": 3, "documents": 6, "openings": 2, "keys": 6}
    assert counts.items() >= read.items()
    # What completes a value is never an input: 8 tokens are generated, 4 of them passed.
    assert (counts["values"], counts["head"]) == (4, 8)
    assert counts["passed"] == 3 + 6 + 2 + 6 + 4
    assert counts["outputs"] == 6 + 8 + 2
    assert work.output(work.listings[1]) == (24, 25, 2, 26, 41, 2, 1)


def test_the_floor_passes_exactly_these_tokens(model: Any) -> None:
    work = handmade()
    floor, reading = Floor(model, EngineOptions()), Reading(model, EngineOptions())
    assert floor.rows(work) == [(11, 5), (7, 3), (3, 0)]
    assert sum(tokens for tokens, _ in floor.rows(work)) == work.counts()["passed"]
    assert reading.rows(work) == [(4, 0), (3, 0), (2, 0)]
    floor.setup(work)
    shapes: list[Any] = []
    head = floor.module.get_output_embeddings()
    head.register_forward_pre_hook(lambda _, args: shapes.append(args[0].shape[0]))
    floor.module.base_model.register_forward_pre_hook(
        lambda _, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    floor.batch_size = 2
    floor.run(work)
    assert shapes == [(1, 11), 5, (1, 7), 3, (1, 3)]
    assert list(floor.batches([(20, 1), (19, 1), (18, 1), (17, 1), (9, 0)])) == [
        [(20, 1), (19, 1)],
        [(18, 1), (17, 1)],
        [(9, 0)],
    ]


def test_generated_listings_have_the_sizes_asked_for() -> None:
    sizes = Sizes(documents=6, document_tokens=40, attributes=4, key_tokens=3, seed=1)
    work = generate_work(sizes, 4096)
    assert work.listings == generate_work(sizes, 4096).listings
    assert {len(listing.ids) for listing in work.listings} == {40}
    (category,) = work.categories
    assert len(category.instruction) == 250
    assert [len(key) for key in category.keys] == [3] * 4
    for listing in work.listings:
        text = " ".join(map(str, listing.ids))
        for answer in listing.answers:
            assert " ".join(map(str, answer[:-1])) in text  # values are copies
            assert work.stop.next_state[0, answer[-1]] == DONE
    lengths = {len(listing.ids) for listing in generate_work(SMALL, 4096).listings}
    assert len(lengths) > 1
    assert min(lengths) >= 17
    assert max(lengths) <= 31


def test_annotated_listings_end_where_their_stop_rule_does(codec: TextCodec) -> None:
    work = annotated_work(examples(), codec, codec.vocab_size)
    assert work.facts["stated_values"] == 3
    assert len(work.categories) == 2
    for listing in work.listings:
        for answer in listing.answers:
            state = 0
            for token in answer:
                assert state != DONE
                state = int(work.stop.next_state[state, token])
            assert state == DONE
    assert sum(value_lengths(work).values()) >= 3
    assert len(work.part(2)) == 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_but({"annotated"}, ["generated", "annotated"]))
def test_every_engine_writes_the_given_answers(model: Any, codec: TextCodec, kind: str) -> None:
    names: tuple[str, ...] = RUNNING
    work = generate_work(SMALL, codec.vocab_size)
    if kind == "annotated":  # values and keys of unlike lengths, two categories
        names = ("paper-2", "autoregressive-6", "generate", "batch-prompting", "lookup")
        names += ("per-attribute-cached",)
        work = annotated_work(examples(), codec, codec.vocab_size)
    engines = build_engines(names, model, EngineOptions(generate_batches=(1, 2)))
    assert tuple(engine.name for engine in engines) == names
    for outcome in measure_engines(engines, work, Rules(repeats=1, rival_documents=3), CPU):
        # `measure` has compared what they wrote with the answers.
        assert outcome.skipped is None, (outcome.engine.name, outcome.skipped)
        assert len(outcome.seconds) == 1
        assert outcome.documents == (3 if outcome.engine.kind == "rival" else len(work))
        assert outcome.engine.module is None


def test_a_grammar_allows_the_given_answers(model: Any, codec: TextCodec) -> None:
    pytest.importorskip("outlines_core")
    work = annotated_work(examples(), codec, codec.vocab_size)
    (outcome,) = measure_engines(
        build_engines(["outlines"], model, EngineOptions()), work, Rules(repeats=1), CPU
    )
    assert outcome.skipped is None


@pytest.mark.slow
def test_passes_are_those_of_the_longest_value(model: Any, codec: TextCodec) -> None:
    work = generate_work(SMALL, codec.vocab_size)
    (outcome,) = measure_engines(
        build_engines(["generate"], model, EngineOptions(generate_batches=(5,))), work, Rules(), CPU
    )
    # And one over the instruction.
    assert outcome.passes == 1 + max(len(work.output(listing)) for listing in work.listings)
    assert outcome.tried.keys() == {5}


@pytest.mark.parametrize(
    "name",
    slow_but({"isolated", "paper-2"}, ["isolated", "paper-2", "autoregressive", "continuous"]),
)
def test_runs_read_no_less_than_the_ones_before(model: Any, codec: TextCodec, name: str) -> None:
    work = generate_work(SMALL, codec.vocab_size).part(3)
    (engine,) = build_engines([name], model, EngineOptions())
    engine.setup(work)
    read: list[int] = []
    embeddings = engine.module.get_input_embeddings()
    embeddings.register_forward_pre_hook(lambda _, args: read.append(args[0].numel()))
    totals = []
    for _ in range(2):
        engine.reset(work)
        read.clear()
        engine.run(work)
        totals.append(sum(read))
    engine.teardown()
    assert totals[0] == totals[1]
    # Two documents in a prompt share its opening.
    shared = len(work.categories[0].opening) if name == "paper-2" else 0
    assert totals[0] >= work.counts()["passed"] - shared


def test_an_instruction_is_read_once(model: Any, codec: TextCodec) -> None:
    work = annotated_work(examples(), codec, codec.vocab_size)
    instructions = [len(category.instruction) for category in work.categories]
    for name in ("generate", "batch-prompting", "per-attribute", "per-attribute-cached"):
        (engine,) = build_engines([name], model, EngineOptions())
        engine.setup(work)
        read: list[int] = []
        embeddings = engine.module.get_input_embeddings()
        embeddings.register_forward_pre_hook(
            lambda _, args, read=read: read.append(args[0].numel())
        )
        engine.run(work)
        assert [n for n in read if n in instructions] == instructions, name


@pytest.mark.slow
def test_drafts_are_right_as_often_as_is_stated(model: Any, codec: TextCodec) -> None:
    work = generate_work(SMALL, codec.vocab_size).part(1)
    passes = []
    for acceptance in (0.0, 1.0):
        field = DraftOptions(draft_acceptance=acceptance)
        (outcome,) = measure_engines(
            build_engines(["draft"], model, field), work, Rules(repeats=1), CPU
        )
        passes.append(outcome.passes)
        assert f"{acceptance:.0%} of them accepted" in outcome.engine.note
    assert passes[0] == 1 + len(work.output(work.listings[0]))
    assert passes[1] < passes[0] / 3


@pytest.mark.slow
def test_a_draft_is_stopped_where_it_is_not_sure(model: Any, codec: TextCodec) -> None:
    work = generate_work(Sizes(documents=2, document_tokens=40, attributes=6), codec.vocab_size)
    (engine,) = build_engines(["draft"], model, EngineOptions())
    assert isinstance(engine, Draft)
    engine.setup(work)
    passes = {"draft": 0, "target": 0}

    def count(name: str) -> Any:
        def hook(*_: Any) -> None:
            passes[name] += 1

        return hook

    engine.module.register_forward_pre_hook(count("target"))
    engine.drafter.register_forward_pre_hook(count("draft"))
    assert list(engine.run(work)) == list(work.expected("output"))
    # Four of five tokens are right: a draft that is always sure would write 20 each time.
    assert 3 < passes["draft"] / passes["target"] < 12
    tokens = sum(len(output) for (output,) in work.expected("output"))
    assert 2.5 < tokens / passes["target"] < 8


def test_other_answers_stop_the_comparison(model: Any, codec: TextCodec) -> None:
    work = generate_work(SMALL, codec.vocab_size)
    (engine,) = build_engines(["isolated"], model, EngineOptions())
    assert isinstance(engine, SchemaxEngine)
    run = engine.run

    def wrong(work: Workload) -> Any:
        first, *others = run(work)
        return [((7,), *first[1:]), *others]

    engine.run = wrong  # type: ignore[method-assign]
    with pytest.raises(BenchmarkError, match=r"isolated did not .* document 0, slot 0: \(7,\)"):
        measure_engines([engine], work, Rules(repeats=1), CPU)


def test_engines_share_weights_and_nothing_else(model: Any) -> None:
    twin = replica(model)
    for name, weight in twin.named_parameters():
        assert weight.data_ptr() == model.get_parameter(name).data_ptr()
    assert twin.config is not model.config
    assert twin.get_output_embeddings() is not model.get_output_embeddings()


def test_shapes_are_the_published_ones() -> None:
    from transformers import Qwen3ForCausalLM

    published = {"qwen3-0.6b": 596_049_920, "qwen3-8b": 8_190_735_360}
    for name, parameters in published.items():
        with torch.device("meta"):
            made = Qwen3ForCausalLM(shape_config(name))
        assert sum(weight.numel() for weight in made.parameters()) == parameters
    assert all(shape_config(name).vocab_size for name in SHAPES)
    tiny = random_model(shape_config("qwen3-tiny"), torch.float32, CPU)
    assert tiny(input_ids=torch.arange(9)[None]).logits.isfinite().all()
    assert tiny.lm_head.weight is tiny.model.embed_tokens.weight
