"""The probabilities of all choices, beside plain forward passes down every branch."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from functools import partial
from math import exp, log
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from conftest import TITLES, combinations, tiny_model
from constrained import (
    LOOPS,
    NASTY,
    TEMPLATE,
    Colour,
    allowed_after,
    forked,
    head_of,
    teacher_forced,
)
from decoding import called_prompt, follow_branches
from grammar_walks import FORMATS
from oracle import forced_token
from transformers import PreTrainedTokenizerFast

from schemax import AttrSchema, Extractor, report
from schemax.attributes import Attribute, attr
from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.compiler.choices import Branches
from schemax.compiler.slot_specs import Items
from schemax.config import DecodingConfig
from schemax.extraction.readout import distribution, tree_of
from schemax.reading.booleans import spellings
from schemax.results import FieldResult
from schemax.runtime.sampling.sampler import Sampler
from schemax.runtime.slots.plan import plan_prompt
from schemax.runtime.slots.slot_table import SlotTable
from schemax.tokens import PromptIds, SlotOutput


class Mixed(Enum):
    AB = "ab"
    ABC = "abc"
    FIVE = 5
    YES = True
    HALF = 0.5
    FACE = "\U0001f600\U0001f601"
    QUOTED = 'q"x, "y"'
    BROKEN = "a\nb"


class Choices(AttrSchema):
    """Choices of all kinds, required and not."""

    prefixes: Literal["a", "ab", "abc", "abcd"]
    mixed: Mixed | None
    nasty: Literal[NASTY] | None  # type: ignore[valid-type]
    flag: bool
    perhaps: bool | None
    one: Literal["only"]
    one_or_none: Literal["only"] | None
    colour: Colour


@pytest.fixture(scope="module")
def extractor(codec: TextCodec, backend: Any) -> Extractor:
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    return Extractor(tiny_model("qwen3", codec.vocab_size), fast)


def read(
    extractor: Extractor, schema: Any, name: str = "json", **config: Any
) -> Iterator[tuple[Attribute, FieldResult, SlotOutput, int, CompiledSchema]]:
    """Every field of some titles: its result, and the slot that it was read out of."""
    settings = DecodingConfig(**config)
    compiled = compile_schema(
        schema, extractor.tokenizer, format=name, template=TEMPLATE, decoding=settings, eos_ids=(0,)
    )
    texts = TITLES[:4]
    rows = LOOPS["stream"](extractor.model, compiled, texts)
    items = list(extractor.stream(texts, schema, format=name, template=TEMPLATE, decoding=settings))
    for item in items:
        for attribute, slot in zip(compiled.attributes, rows[item.index], strict=True):
            result = item.fields[attribute.name]
            if slot.free_text is not None and result.note is not None:
                continue  # read out of a text, of which there are none
            assert result.raw == compiled.decode_slot(slot.ids)[0]
            yield attribute, result, slot, item.index, compiled


@pytest.mark.slow
@combinations("name, temperature", FORMATS, [0.0, 2.0])
def test_alternatives_are_a_distribution(
    extractor: Extractor, name: str, temperature: float
) -> None:
    for attribute, field, slot, _, _ in read(extractor, Choices, name, temperature=temperature):
        wanted = set(attribute.choice_values) or {True, False}
        assert set(field.alternatives) == wanted | ({None} if attribute.omittable else set())
        assert sum(field.alternatives.values()) == pytest.approx(1, abs=1e-3)
        assert min(field.alternatives.values()) >= 0
        if slot.finish_reason == "stop":
            among = field.alternatives[field.value]
            assert field.probability == pytest.approx(among * field.legal_probability)
            # Other ways to cut it into tokens only add to what was written.
            assert among >= exp(sum(slot.logprobs)) - 1e-5


def brute(
    compiled: CompiledSchema, model: Any, prompt: PromptIds, n: int, attribute: Attribute
) -> dict[Any, float]:
    """Choice -> probability: a forward pass for every beginning that leaves a choice."""
    spec = prompt.slots[n]
    values = [*(attribute.choice_values or (True, False)), *[None] * attribute.omittable]
    literals = [compiled.format.escape(value).encode() for value in values]
    if attribute.kind == "boolean" and not attribute.strict:
        literals += [compiled.format.escape(word).encode() for word in spellings()]
        values += spellings().values()
    ends = [b",\n", b"\n}"]
    found = dict.fromkeys(values, 0.0)

    def begun_by(data: bytes) -> list[Any]:
        begun = [
            value
            for value, literal in zip(values, literals, strict=True)
            if any(
                (literal + end).startswith(data) or data.startswith(literal + end) for end in ends
            )
        ]
        return list(dict.fromkeys(begun))

    def walk(ids: list[int], probability: float) -> None:
        begun = begun_by(compiled.codec.decode_bytes(ids))
        if len(begun) == 1 or probability < 1e-5:
            for value in begun:
                found[value] += probability / len(begun)
            return
        if ids and (forced := forced_token(spec.grammar, ids, compiled.stop)) is not None:
            walk([*ids, forced], probability)
            return
        allowed = allowed_after(spec, ids)
        logits = teacher_forced(model, head_of(prompt, n), [*ids, 0])[len(ids)]
        chances = logits[allowed].softmax(dim=0).tolist()
        for token, chance in zip(allowed, chances, strict=True):
            walk([*ids, token], probability * chance)

    walk([], 1.0)
    return found


class Plain(AttrSchema):
    colour: Literal["red", "green", "dark red", "dark blue"] | None
    flag: bool
    size: Literal["S", "M", "L", "XL", "XXL"]


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_alternatives_by_brute_force(
    extractor: Extractor, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow_branches(monkeypatch, 1e-9)
    for attribute, field, _, at, compiled in read(extractor, Plain, temperature=temperature):
        n = compiled.attributes.index(attribute)
        (prompt,) = compiled.encode([TITLES[at]])
        expected = brute(compiled, extractor.model, prompt, n, attribute)
        assert field.alternatives == pytest.approx(expected, abs=1e-3)


class Part(AttrSchema):
    finish: Literal["steel grey", "steel blue", "oak"] | None


class Parcel(AttrSchema):
    parts: list[Part]


def test_alternatives_of_items_by_brute_force(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose keys are known when they are called for."""
    follow_branches(monkeypatch, 1e-9)
    settings = DecodingConfig()
    compiled = compile_schema(
        Parcel, extractor.tokenizer, template=TEMPLATE, decoding=settings, eos_ids=(0,)
    )
    items = compiled.slots[-1].follow_ups
    assert isinstance(items, Items)
    attribute, choices = items.fields.segments[0].attribute, items.fields.choices[0]
    checked = 0
    for text, row in zip(TITLES, LOOPS["stream"](extractor.model, compiled, TITLES), strict=True):
        (document,) = compiled.encode([text])
        prompt = called_prompt(document, row)
        outputs = [child for slot in row for child in slot.items]
        if prompt is None:
            continue
        for n, (spec, output) in enumerate(zip(prompt.slots, outputs, strict=True)):
            if not isinstance(spec.follow_ups, Branches):
                assert output.branches == ()
                continue
            found = distribution_of(compiled, choices, output)
            expected = brute(compiled, extractor.model, prompt, n, attribute)
            assert found == pytest.approx(expected, abs=1e-3)
            checked += len(output.branches) > 0
    assert checked


def distribution_of(compiled: CompiledSchema, choices: Any, slot: SlotOutput) -> dict[Any, float]:
    left_by = partial(choices.left_by, compiled.codec)
    return distribution(choices.values, left_by, tree_of(slot))


def all_branches(slot: SlotOutput) -> Iterator[SlotOutput]:
    for branch in slot.branches:
        yield branch
        yield from all_branches(branch)


@pytest.mark.slow
def test_only_branches_that_are_probable_enough_are_followed(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = {}
    for threshold in (1.0, 0.05, 1e-9):
        follow_branches(monkeypatch, threshold)
        found = list(read(extractor, Plain))
        numbers[threshold] = sum(1 for _, _, slot, _, _ in found for _ in all_branches(slot))
        for _, field, _, _, _ in found:
            assert sum(field.alternatives.values()) == pytest.approx(1, abs=1e-3)
    assert numbers[1.0] == 0 < numbers[0.05] < numbers[1e-9]


class Tight(AttrSchema):
    """Choices that are longer than their budget."""

    code: Literal["S", "qqqqqqqqqqqqqqqqqqqq1", "qqqqqqqqqqqqqqqqqqqq2"] = attr(k_max=8)


@pytest.mark.parametrize("retries", [0, 2])
def test_branches_have_their_slots_budget(
    extractor: Extractor,
    decoder_model: Callable[..., Any],
    retries: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And stay within the context of a model that the document just fits."""
    follow_branches(monkeypatch, 1e-9)
    settings = DecodingConfig(max_retries=retries)
    compiled = compile_schema(
        Tight, extractor.tokenizer, template=TEMPLATE, decoding=settings, eos_ids=(0,)
    )
    for text in TITLES[:4]:
        (prompt,) = compiled.encode([text])
        budgets = tuple(2**retries * budget for budget in prompt.k_max)
        most = plan_prompt(replace(prompt, k_max=budgets), settings).max_position + 1
        model = decoder_model("qwen3", max_position_embeddings=most)
        with furthest_of(model) as furthest:
            ((slot,),) = LOOPS["stream"](model, compiled, [text])
        assert max(furthest) < most
        for branch in all_branches(slot):
            assert branch.finish_reason == "stop" or len(branch.ids) == 8 * 2**retries
        assert retries or not any(b.finish_reason == "stop" for b in all_branches(slot))


@contextmanager
def furthest_of(model: Any) -> Iterator[list[int]]:
    """The largest position id of every pass."""
    usual, found = model.run_batch, []

    def told(batch: Any, cache: Any) -> torch.Tensor:
        found.append(int(batch.position_ids.max()))
        return usual(batch, cache)

    model.run_batch = told
    try:
        yield found
    finally:
        del model.run_batch


@pytest.mark.slow
def test_branches_change_no_value(extractor: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever shares a pass with them."""
    rows = {}
    for threshold in (1e-9, 1.0):
        follow_branches(monkeypatch, threshold)
        rows[threshold] = [
            (at, attribute.name, field.value, slot.ids)
            for attribute, field, slot, at, _ in read(extractor, Choices)
        ]
    assert sorted(rows[1e-9], key=repr) == sorted(rows[1.0], key=repr)


def test_nothing_is_read_twice_for_branches(codec: TextCodec) -> None:
    """One row per slot has nothing that branches could go on from."""
    compiled = compile_schema(Plain, codec, template=TEMPLATE, decoding=DecodingConfig())
    (row,) = LOOPS["forks"](forked(codec), compiled, TITLES[:1])
    assert [slot.branches for slot in row] == [()] * 3


@pytest.mark.parametrize("config", [{"layout": "gapped"}, {"documents": "stacked"}])
def test_slots_that_see_others_have_no_branches(codec: TextCodec, config: dict[str, Any]) -> None:
    compiled = compile_schema(Plain, codec, decoding=DecodingConfig(**config))
    assert [spec.follow_ups for spec in compiled.slots] == [None] * 3


def test_probabilities_are_those_of_the_logits(codec: TextCodec) -> None:
    """Logits made by hand, so that what comes out is known."""

    class Switch(AttrSchema):
        choice: Literal["ab", "b", "c"]

    compiled = compile_schema(Switch, codec, format="yaml", template=TEMPLATE)
    (spec,) = compiled.slots
    table = SlotTable()
    sampler = Sampler(table, codec.vocab_size)
    state = table.stops.start(compiled.stop)
    values = {"budget": np.array([9]), "null_id": -1, "state": state}
    slots = table.add(values, (spec,), compiled.stop)
    sampler.grammars.begin(slots, (spec,), compiled.stop)
    (space,), (a,), (b,), (c,) = (codec.encode(letter) for letter in (" ", "a", "b", "c"))
    ids: list[int] = []
    for likely in ({space: 1.0}, {b: 0.5, c: 0.3, a: 0.2}):
        logits = torch.full((1, codec.vocab_size), -50.0)
        for token, chance in likely.items():
            logits[0, token] = log(chance)
        chosen = sampler.choose(logits, slots)
        assert chosen.logprobs[0] == pytest.approx(log(max(likely.values())), abs=1e-5)
        assert np.isnan(chosen.null_logprobs[0])
        table.write(slots, *chosen[:4])
        sampler.grammars.settle(slots, chosen.ids)
        ids += chosen.ids.tolist()
    (slot,) = table.outputs(slots)
    assert list(slot.ids[: len(ids)]) == ids
    choices = compiled.fields.choices[0]
    found = distribution_of(compiled, choices, slot)
    assert found == pytest.approx({"b": 0.5, "c": 0.3, "ab": 0.2}, abs=1e-5)


def test_a_thousand_choices(extractor: Extractor) -> None:
    names = tuple(f"Model {n * 7919 % 10007} {'XYZ'[n % 3]}" for n in range(1000))

    class Many(AttrSchema):
        choice: Literal[names]  # type: ignore[valid-type]

    for _, field, _, _, _ in read(extractor, Many):
        assert field.alternatives.keys() == set(names)
        assert sum(field.alternatives.values()) == pytest.approx(1, abs=1e-3)
        among = field.alternatives[field.value]
        assert field.probability == pytest.approx(among * field.legal_probability)


# --- in results ----------------------------------------------------------------------------------


def test_results_travel_and_show(extractor: Extractor, tmp_path: Path) -> None:
    items = sorted(extractor.stream(TITLES, Choices), key=lambda item: item.index)
    for item in items:
        for copied in (copy.deepcopy(item), pickle.loads(pickle.dumps(item))):
            assert copied.fields == item.fields
            assert any(field.alternatives for field in copied.fields.values())
        fields = json.loads(json.dumps(item.to_row(details=True), allow_nan=False))["fields"]
        mixed = fields["mixed"]["alternatives"]
        assert set(mixed) == {
            *("ab", "abc", "5", "true", "0.5", "null"),
            *("\U0001f600\U0001f601", 'q"x, "y"', "a\nb"),
        }
        assert sum(mixed.values()) == pytest.approx(1, abs=1e-3)
        assert fields["flag"]["null_probability"] is None
        flag = fields["flag"]
        assert 0 < flag["legal_probability"] <= flag["legal_at_start"] <= 1
        among = max(flag["alternatives"].values())
        assert flag["probability"] == pytest.approx(among * flag["legal_probability"])
    report(items, tmp_path / "report.html")
    assert '"c":' in (tmp_path / "report.html").read_text("utf-8")
