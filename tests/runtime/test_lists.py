"""Lists in two phases: every item gets what one plain request for it would get."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from conftest import TITLES, slow_but
from constrained import forked
from decoding import TEMPLATE, called_prompt, counted, filled, limited, outputs_of
from families import FORK, IN_SEQUENCE
from oracle import oracle_outputs
from test_families import generated

from schemax.attributes import attr
from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.extraction.schema import AttrSchema
from schemax.formats import get_format
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.outputs import passes_of
from schemax.runtime.slots.plan import plan_prompt
from schemax.runtime.slots.requests import new_request
from schemax.tokens import ChildSlot, FollowUps, PromptIds, SlotOutput, SlotSpec

# `generate` knows neither types nor retries.
PLAIN = DecodingConfig(max_retries=0, constrain="nothing")
COUNTS = (2, 0, 5, 1, 12, None, 3)


class Port(AttrSchema):
    """What an item is made of."""

    kind: Literal["HDMI", "USB"] = attr("Kind of port", k_max=4)
    version: float | None = attr(k_max=3)
    uses: list[Literal["tv", "pc"]] = attr(long=True, default_factory=list, max_length=2)


class Television(AttrSchema):
    """Two lists in two phases among other slots."""

    brand: str | None = attr("Manufacturer", k_max=6)
    colors: list[str] | None = attr("Colours", long=True, max_length=6, k_max=9)
    ports: list[Port] = attr("Connectors", min_length=1, max_length=4)
    tags: list[str] | None = attr("Inline", k_max=7)


class Forced(AttrSchema):
    """Counts that nothing else can be."""

    colors: list[str] = attr("Colours", long=True, min_length=7, max_length=7, k_max=8)
    sizes: list[int] = attr("Sizes", long=True, min_length=3, max_length=3, k_max=3)


def written_count(compiled: CompiledSchema, count: int | None) -> tuple[int, ...]:
    output = compiled.format
    return tuple(compiled.codec.encode(output.escape(count) + output.delimiter))


def prompts_with(
    compiled: CompiledSchema, texts: Sequence[str], counts: Sequence[int | None]
) -> list[PromptIds]:
    """Prompts whose counts are given; the model chooses everything else."""
    return [
        replace(
            prompt,
            answers=(
                tuple(
                    written_count(compiled, count) if attribute.two_phase else ()
                    for attribute in compiled.attributes
                ),
            ),
        )
        for prompt, count in zip(compiled.encode(texts), counts, strict=True)
    ]


def check(model: Any, head: list[int], specs: Sequence[SlotSpec], slots: Sequence[Any]) -> int:
    """Every slot that was called for is what one request gives; how many tokens were compared."""
    written = 0
    for spec, slot in zip(specs, slots, strict=True):
        whole = spec.is_count and slot.finish_reason != "length"
        children = spec.follow_ups.after(slot) if spec.follow_ups and whole else ()
        assert len(slot.items) == len(children)
        for child, output in zip(children, slot.items, strict=True):
            expected = generated(model, [*head, *child.key], child.k_max)
            assert list(output.ids) == expected[: len(output.ids)]
            assert output.finish_reason != "length" or len(output.ids) == child.k_max
            written += len(output.ids)
        written += check(model, head, [child.spec for child in children], slot.items)
    return written


FAMILIES = [f for f in (*IN_SEQUENCE, *FORK) if f.name in ("qwen3", "llama", "falcon", "mamba")]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
@pytest.mark.parametrize("format", slow_but({"json"}, ["json", "yaml", "xml"]))
def test_items_equal_plain_requests(family: Any, format: str, codec: TextCodec) -> None:
    """In sequence, and one row per slot; documents of different counts at once."""
    raw = family.model(codec.vocab_size)
    model = prepare(raw)
    compiled = compile_schema(
        Television,
        codec,
        format=format,
        template=TEMPLATE,
        decoding=PLAIN,
        vocab_size=model.vocab_size,
    )
    texts, counts = TITLES[:4], (2, 0, 5, None)
    prompts = prompts_with(compiled, texts, counts)
    outputs = [output.slots for output in filled(model, compiled, prompts)]
    for count, slots in zip(counts, outputs, strict=True):
        _, colors, ports, _ = slots
        assert len(colors.items) == (count or 0)
        assert len(ports.items) == 3 * min(count or 0, 4)  # three leaves, max_length
    compared = [
        check(
            raw, [*prompt.instruction, *prompt.documents[0], *prompt.opening], compiled.slots, slots
        )
        for prompt, slots in zip(prompts, outputs, strict=True)
    ]
    assert compared[1] == compared[3] == 0
    assert compared[2] > 30


def compare(
    model: Any, compiled: CompiledSchema, prompt: PromptIds, slots: Sequence[SlotOutput]
) -> int:
    """Every slot that was called for is what the oracle says; how many were compared."""
    if (called := called_prompt(prompt, slots)) is None:
        assert not any(slot.items for slot in slots)
        return 0
    config = compiled.decoding
    children = [child for slot in slots for child in slot.items]
    budgets = [2**config.max_retries * budget for budget in called.k_max]
    expected = oracle_outputs(model, called, compiled.stop, config, children, budgets)
    bare = [replace(child, followed=()) for child in children]
    assert [(slot.ids, slot.finish_reason) for slot in bare] == [
        (slot.ids, slot.finish_reason) for slot in expected
    ]
    return len(children) + compare(model, compiled, called, children)


@pytest.mark.slow
@pytest.mark.parametrize("format", slow_but({"yaml"}, ["json", "yaml", "xml"]))
@pytest.mark.parametrize("temperature", slow_but({1.2}, [0.0, 1.2]))
@pytest.mark.parametrize("max_retries", [0, 1])
@pytest.mark.parametrize("kind", ["in sequence", "forks"])
def test_items_equal_the_oracle(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    format: str,
    temperature: float,
    max_retries: int,
    kind: str,
) -> None:
    """Constrained, with retries; sampled too; and items of items."""
    config = DecodingConfig(temperature=temperature, max_retries=max_retries)
    compiled = compile_schema(Television, codec, format=format, template=TEMPLATE, decoding=config)
    model = decoder_model() if kind == "in sequence" else forked(codec)
    prompts = prompts_with(compiled, TITLES[:3], (2, 5, 1))
    compared = 0
    for prompt, output in zip(prompts, filled(model, compiled, prompts), strict=True):
        assert output.steps >= passes_of(output.slots)
        compared += compare(model, compiled, prompt, output.slots)
    assert compared > 20


@pytest.mark.slow
@pytest.mark.parametrize("temperature", slow_but({1.3}, [0.0, 1.3]))
@pytest.mark.parametrize(
    ("batch_size", "limits"),
    [
        pytest.param("auto", {"pass_tokens": 60}, marks=pytest.mark.slow),
        (2, {}),
        pytest.param("auto", {"capacity": 200, "pass_tokens": 200}, marks=pytest.mark.slow),
    ],
)
def test_nothing_depends_on_what_shares_a_pass(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    monkeypatch: pytest.MonkeyPatch,
    temperature: float,
    batch_size: Any,
    limits: dict[str, int],
) -> None:
    """Room in a pass, documents in flight, order: the same slots as one document at a time."""
    model = decoder_model()
    config = DecodingConfig(temperature=temperature, batch_size=batch_size)
    compiled = compile_schema(Television, codec, template=TEMPLATE, decoding=config)
    prompts = prompts_with(compiled, TITLES, COUNTS)
    alone = [filled(model, compiled, [prompt])[0] for prompt in prompts]
    limited(monkeypatch, **limits)
    assert filled(model, compiled, prompts) == alone
    assert filled(model, compiled, prompts[::-1])[::-1] == alone


@pytest.mark.parametrize("after", [0, 2, 4, 9])
def test_out_of_memory_loses_nothing(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    monkeypatch: pytest.MonkeyPatch,
    after: int,
) -> None:
    """Before, while and after items are called for: all in flight begin again."""
    model = decoder_model()
    compiled = compile_schema(Television, codec, template=TEMPLATE)
    expected = outputs_of(model, compiled, TITLES)
    usual, passes = model.run_batch, 0

    def scarce(batch: Any, cache: Any) -> torch.Tensor:
        nonlocal passes
        passes += 1
        if passes == after + 1:
            raise torch.OutOfMemoryError("scarce")
        return usual(batch, cache)

    monkeypatch.setattr(model, "run_batch", scarce)
    assert outputs_of(model, compiled, TITLES) == expected


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
def test_passes_are_those_of_the_longest_item(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, format: str
) -> None:
    """Not the sum: a list takes its count and its longest item."""
    model = decoder_model()
    compiled = compile_schema(Forced, codec, format=format, template=TEMPLATE)
    for output in outputs_of(model, compiled, TITLES):
        assert [len(slot.items) for slot in output.slots] == [7, 3]
        longest = max(s.passes + max(c.passes for c in s.items) for s in output.slots)
        assert output.steps == longest
        items = [child.passes for slot in output.slots for child in slot.items]
        assert output.steps < sum(items) / 2


def test_a_document_is_read_once(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream passes prompt and keys once each, and of values all but the last tokens."""
    model = decoder_model()
    compiled = compile_schema(Forced, codec, template=TEMPLATE)
    outputs_of(model, compiled, TITLES[:1])  # the instruction is read by now
    tokens = counted(monkeypatch, model)
    (output,) = outputs_of(model, compiled, TITLES[:1])
    (prompt,) = compiled.encode(TITLES[:1])
    called = called_prompt(prompt, output.slots)
    assert called is not None
    keys = sum(len(key) for key in (*prompt.keys[0], *called.keys[0]))
    slots = [*output.slots, *(child for slot in output.slots for child in slot.items)]
    values = sum(len(slot.ids) - 1 for slot in slots)
    read = len(prompt.documents[0]) + len(prompt.opening) + keys + values
    shared = 0 if len(prompt.instruction) > 16 else len(prompt.instruction)
    assert sum(tokens) <= read + shared


def called_by(follow_ups: FollowUps, ids: tuple[int, ...]) -> tuple[ChildSlot, ...]:
    return follow_ups.after(SlotOutput(ids, "stop"))


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
@pytest.mark.parametrize("given", [(99, 4), (4, 4), (0, 0), (None, 0)])
def test_counts_call_for_items(
    codec: TextCodec, format: str, given: tuple[int | None, int]
) -> None:
    """Up to the most that there may be; none for null, and for what is no number."""
    compiled = compile_schema(Television, codec, format=format)
    items_of = compiled.slots[2].follow_ups
    assert items_of is not None
    written, items = given
    assert len(called_by(items_of, written_count(compiled, written))) == 3 * items
    garbage = tuple(codec.encode(f" many{get_format(format).delimiter}"))
    assert called_by(items_of, garbage) == ()
    assert called_by(items_of, ()) == ()


def test_a_count_that_is_cut_off_calls_for_nothing(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec
) -> None:
    model = decoder_model()
    config = DecodingConfig(max_retries=0)
    compiled = compile_schema(Television, codec, format="yaml", template=TEMPLATE, decoding=config)
    (prompt,) = compiled.encode(TITLES[:1])
    cut = tuple(codec.encode(" 2222222"))[: compiled.k_max[1]]
    (output,) = filled(model, compiled, [replace(prompt, answers=(((), cut, (), ()),))])
    slots = output.slots
    assert slots[1].finish_reason == "length"
    assert slots[1].items == ()


def test_positions_reach_as_far_as_items_do(codec: TextCodec) -> None:
    """What the context has to hold is known before anything is read."""
    compiled = compile_schema(Television, codec, template=TEMPLATE)
    (prompt,) = compiled.encode(TITLES[:1])
    plan = plan_prompt(prompt, compiled.decoding)
    spec = compiled.slots[2]
    assert spec.follow_ups is not None
    stem = sum(len(part) for part in (prompt.instruction, prompt.documents[0], prompt.opening))
    every = called_by(spec.follow_ups, written_count(compiled, 4))
    assert plan.max_position >= max(stem + len(c.key) + c.k_max - 2 for c in every)
    request = new_request(prompt, compiled.stop, compiled.decoding)
    assert request.max_position == plan.max_position
