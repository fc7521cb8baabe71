"""Values that go round in circles end early, and get no more budget."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from completions_server import served
from conftest import TITLES, slow_but, tiny_model
from constrained import forked
from decoding import assert_right, outputs_of, run
from hypothesis import given
from hypothesis import strategies as st

from schemax import AttrSchema, Extractor, attr
from schemax.compiler import TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.sampling.loops import (
    FEWEST_TIMES,
    FEWEST_TOKENS,
    LONGEST_PERIOD,
    is_loop,
    may_be_loops,
    run_at_end,
)


class Told(AttrSchema):
    """Texts that may become long."""

    brand: str | None = attr("Manufacturer", k_max=40)
    name: str = attr(min_length=1, k_max=40)
    about: list[str] = attr(k_max=40)
    size: float | None = None


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ([7] * 24, (24, 1)),
        ([7] * 23, None),
        ([1, *[2, 3, 4] * 8], (24, 3)),
        ([1, *[2, 3, 4] * 7, 2, 3], None),
        ([*range(10)] * 5, (50, 10)),
        ([*range(10)] * 4, None),
        ([*range(17)] * 9, None),
        ([*[2, 3] * 20, 9], None),
        ([], None),
    ],
)
def test_runs_at_the_end(ids: list[int], found: tuple[int, int] | None) -> None:
    assert run_at_end(ids) == found
    assert is_loop(ids, [1, 2, 3]) == (found is not None)


def test_a_run_that_stands_in_the_document_is_no_loop() -> None:
    dashes = [5] * 40
    assert not is_loop([8, *[5] * 30], [1, 2, *dashes, 3])
    assert is_loop([8, *[5] * 60], [1, 2, *dashes, 3])
    assert is_loop([*[5, 6] * 12], [*[5, 6] * 8, 7])


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(0, 3), max_size=9),
            st.lists(st.integers(0, 3), min_size=1, max_size=20),
            st.integers(0, 9),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_a_glance_misses_no_loop(parts: list[tuple[list[int], list[int], int]]) -> None:
    values = [[*before, *period * times] for before, period, times in parts]
    written = np.full((len(values), max(map(len, values)) + 2), -1, np.int64)
    for row, value in zip(written, values, strict=True):
        row[: len(value)] = value
    glance = may_be_loops(written, np.array([len(value) for value in values], np.int64))
    for value, may_be in zip(values, glance, strict=True):
        run = run_at_end(value)
        assert may_be or run is None
        if run is not None:
            length, period = run
            assert length >= max(FEWEST_TOKENS, FEWEST_TIMES * period)
            assert period <= LONGEST_PERIOD
            assert value[-length:-period] == value[period - length :]


def short_sighted(codec: TextCodec) -> Any:
    """A model that hardly looks further back than one token, so that it goes round in circles."""
    model = tiny_model("qwen3", codec.vocab_size)
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.mul_(0.02)
    return model


@pytest.fixture(scope="module")
def loopy(codec: TextCodec) -> Any:
    return prepare(short_sighted(codec))


WAYS = {
    "branched": DecodingConfig(),
    "gapped": DecodingConfig(layout="gapped"),
    "causal": DecodingConfig(layout="gapped", slots="causal"),
    "free": DecodingConfig(constrain="nothing", max_retries=2),
}


def compiled_for(codec: TextCodec, config: DecodingConfig) -> Any:
    return compile_schema(Told, codec, decoding=config)


def cut_early(outputs: Any, budget: int) -> list[Any]:
    """Texts that ended although they had budget left."""
    return [
        slot
        for slots in outputs
        for slot in slots
        if slot.finish_reason == "length" and run_at_end(slot.ids) and len(slot.ids) < budget
    ]


@pytest.mark.slow
@pytest.mark.parametrize("way", slow_but({"branched", "causal"}, WAYS))
def test_loops_end_where_the_oracle_ends_them(codec: TextCodec, way: str, loopy: Any) -> None:
    """As often as documents let it, and whatever else is in the same passes."""
    compiled = compiled_for(codec, WAYS[way])
    outputs = assert_right(loopy, compiled, TITLES[:4])
    assert cut_early(outputs, 80)
    for text, alone in zip(TITLES[:4], outputs, strict=True):
        assert run(loopy, compiled, [text]) == [alone]


def test_without_retries_a_budget_is_a_budget(codec: TextCodec, loopy: Any) -> None:
    config = DecodingConfig(max_retries=0, constrain="nothing")
    compiled = compiled_for(codec, config)
    (budgets,) = {prompt.k_max for prompt in compiled.encode(TITLES[:4])}
    looped = [
        (len(slot.ids), budget)
        for slots in assert_right(loopy, compiled, TITLES[:4])
        for slot, budget in zip(slots, budgets, strict=True)
        if run_at_end(slot.ids)
    ]
    assert all(count == budget for count, budget in looped)
    assert looped


@pytest.mark.slow
def test_forks_end_loops_too(codec: TextCodec) -> None:
    model = forked(codec)
    compiled = compiled_for(codec, DecodingConfig(constrain="nothing"))
    outputs = [output.slots for output in outputs_of(model, compiled, TITLES[:4])]
    plain = replace(compiled.decoding, max_retries=0)
    shorter = outputs_of(model, compile_schema(Told, codec, decoding=plain), TITLES[:4])
    assert cut_early(outputs, 80)
    for slots, before in zip(outputs, shorter, strict=True):
        for slot, first in zip(slots, before.slots, strict=True):
            count = min(len(slot.ids), len(first.ids))
            assert slot.ids[:count] == first.ids[:count]


@pytest.mark.release
def test_servers_end_loops_too_and_fields_say_so(codec: TextCodec) -> None:
    model = short_sighted(codec)
    # Servers hold no text to its document.
    here = Extractor(
        model, codec, eos_ids=codec.eos_ids, decoding=DecodingConfig(constrain="types")
    )
    items = list(here.stream(TITLES[:2], Told))
    said = {error.message for item in items for error in item.errors}
    assert any("repeated itself for" in message and "truncated" in message for message in said)
    with served(model, codec) as server:
        there = Extractor.from_server(server.url, tokenizer=codec)
        found = sorted(there.stream(TITLES[:2], Told), key=lambda item: item.index)
    items.sort(key=lambda item: item.index)
    for one, other in zip(found, items, strict=True):
        assert {name: field.raw for name, field in one.fields.items()} == {
            name: field.raw for name, field in other.fields.items()
        }
        assert one.errors == other.errors
