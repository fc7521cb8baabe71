"""How sure slots are: log-probabilities and alternatives, beside plain forward passes."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from enum import Enum
from math import exp, log
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from conftest import TITLES, tiny_model
from constrained import (
    LOOPS,
    NASTY,
    TEMPLATE,
    Colour,
    Everything,
    Forced,
    allowed_after,
    forked,
    head_of,
    teacher_forced,
)
from grammar_walks import in_each_format
from transformers import PreTrainedTokenizerFast

from schemax import AttrSchema, Extractor, report
from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.compiler.slots import choice_texts
from schemax.config import DecodingConfig
from schemax.results import FieldResult
from schemax.results.confidence import Choices as Distribution
from schemax.results.confidence import Step
from schemax.runtime.choosing import Chooser
from schemax.runtime.model import DecoderModel
from schemax.runtime.reference import _forced
from schemax.schema import Attribute
from schemax.tokens import SlotOutput

Model = Callable[..., DecoderModel]


def expected_logprobs(
    compiled: CompiledSchema, model: Any, text: str, n: int, slot: SlotOutput
) -> tuple[list[float], float | None]:
    """Of a slot's tokens, and of null as its first one, by one plain forward pass."""
    (prompt,) = compiled.encode([text])
    spec = compiled.slots[n]
    logits = teacher_forced(model, head_of(prompt, n), slot.ids)
    strict = spec.grammar is not None and spec.grammar.strict
    found, null = [], None
    for step, token in enumerate(slot.ids):
        row = logits[step]
        if strict:
            mask = torch.full_like(row, -torch.inf)
            mask[allowed_after(spec, slot.ids[:step])] = 0
            row = row + mask
        logprobs = row.log_softmax(dim=-1)
        if step == 0 and spec.null_id >= 0:
            null = float(logprobs[spec.null_id])
        forced = spec.grammar and _forced(spec.grammar, list(slot.ids[:step]), compiled.stop)
        found.append(float(logprobs[token]) if forced is None else 0.0)
    return found, null


@pytest.mark.parametrize(
    "config", [{}, {"temperature": 1.7}, {"temperature": 0.7, "top_p": 0.8}, {"constrain": False}]
)
@pytest.mark.parametrize("loop", LOOPS)
def test_log_probabilities_are_the_models(
    decoder_model: Model, codec: TextCodec, loop: str, config: dict[str, Any]
) -> None:
    """Not those of sampling; of a strict grammar, among what it allows."""
    settings = DecodingConfig(**config, k_max=8, max_retries=0)
    texts = TITLES[:1] if loop == "forks" else TITLES[:3]
    model = forked(codec) if loop == "forks" else decoder_model()
    for schema in (Forced, Everything):
        compiled = compile_schema(schema, codec, template=TEMPLATE, decoding=settings)
        for text, row in zip(texts, LOOPS[loop](model, compiled, texts), strict=True):
            for n, slot in enumerate(row):
                logprobs, null = expected_logprobs(compiled, model, text, n, slot)
                assert slot.logprobs == pytest.approx(logprobs, abs=1e-3)
                assert (slot.null_logprob is None) == (null is None)
                assert null is None or slot.null_logprob == pytest.approx(null, abs=1e-3)


# --- alternatives --------------------------------------------------------------------------------


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
    extractor: Extractor, schema: Any, name: str = "json", temperature: float = 0.0
) -> Iterator[tuple[Attribute, FieldResult, SlotOutput, int, CompiledSchema]]:
    """Every field of every title: its result, and the slot that it was read out of."""
    settings = DecodingConfig(temperature=temperature)
    compiled = compile_schema(
        schema, extractor.tokenizer, format=name, template=TEMPLATE, decoding=settings, eos_ids=(0,)
    )
    rows = LOOPS["stream"](extractor.model, compiled, TITLES)
    items = list(
        extractor.stream(TITLES, schema, format=name, template=TEMPLATE, decoding=settings)
    )
    for item in items:
        for attribute, slot in zip(compiled.attributes, rows[item.index], strict=True):
            result = item.fields[attribute.name]
            assert result.raw == compiled.decode_slot(slot.ids)[0]
            yield attribute, result, slot, item.index, compiled


@in_each_format
@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_alternatives_are_a_distribution(
    extractor: Extractor, name: str, temperature: float
) -> None:
    for attribute, field, slot, _, _ in read(extractor, Choices, name, temperature):
        wanted = set(attribute.choice_values) or {True, False}
        assert set(field.alternatives) == wanted | ({None} if attribute.omittable else set())
        assert sum(field.alternatives.values()) == pytest.approx(1, abs=1e-3)
        assert min(field.alternatives.values()) >= 0
        if slot.finish_reason == "stop":
            assert field.probability == field.alternatives[field.value]
            # Other ways to cut it into tokens only add to what was written.
            assert field.probability >= exp(sum(slot.logprobs)) - 1e-5


def brute(compiled: CompiledSchema, model: Any, text: str, n: int, slot: SlotOutput) -> Any:
    """Choice -> probability: a forward pass behind every token that was written, and a matcher.

    What shares a token that was not written shares its probability.
    """
    (prompt,) = compiled.encode([text])
    codec, spec, attribute = compiled.codec, compiled.slots[n], compiled.attributes[n]
    table = codec.token_bytes
    values = [*(attribute.choice_values or (True, False)), *[None] * attribute.omittable]
    literals = [compiled.format.escape(value).encode() for value in values]
    ends = [b",\n", b"\n}"]
    logits = teacher_forced(model, head_of(prompt, n), slot.ids)
    found = dict.fromkeys(values, 0.0)
    whole = 1.0

    def begun_by(data: bytes) -> list[Any]:
        return [
            value
            for value, literal in zip(values, literals, strict=True)
            if any(
                (literal + end).startswith(data) or data.startswith(literal + end) for end in ends
            )
        ]

    for step in range(len(slot.ids)):
        before = codec.decode_bytes(slot.ids[:step])
        following = codec.decode_bytes(slot.ids[: step + 1])
        allowed = allowed_after(spec, slot.ids[:step])
        chances = logits[step][allowed].softmax(dim=0).tolist()
        onward = 0.0
        for token, chance in zip(allowed, chances, strict=True):
            begun = begun_by(before + table[token])
            if begun == begun_by(following):
                onward += chance
                continue
            for value in begun:
                found[value] += whole * chance / len(begun)
        whole *= onward
    (chosen,) = begun_by(codec.decode_bytes(slot.ids))
    found[chosen] += whole
    return found


class Plain(AttrSchema):
    colour: Literal["red", "green", "dark red", "dark blue"] | None
    flag: bool
    size: Literal["S", "M", "L", "XL", "XXL"]


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_alternatives_by_brute_force(extractor: Extractor, temperature: float) -> None:
    for attribute, field, slot, at, compiled in read(extractor, Plain, temperature=temperature):
        n = compiled.attributes.index(attribute)
        expected = brute(compiled, extractor.model, TITLES[at], n, slot)
        assert field.alternatives == pytest.approx(expected, abs=2e-3)


def test_probabilities_are_those_of_the_logits(codec: TextCodec) -> None:
    """Logits made by hand, so that what comes out is known."""

    class Switch(AttrSchema):
        choice: Literal["ab", "b", "c"]

    compiled = compile_schema(Switch, codec, format="yaml", template=TEMPLATE)
    (spec,) = compiled.slots
    chooser = Chooser(compiled.stop, compiled.decoding)
    chooser.begin([7], [spec])
    (space,), (a,), (b,), (c,) = (codec.encode(letter) for letter in (" ", "a", "b", "c"))
    keys, ids = torch.zeros(1, 2, dtype=torch.int64), []
    for likely in ({space: 1.0}, {b: 0.5, c: 0.3, a: 0.2}):
        logits = torch.full((1, codec.vocab_size), -50.0)
        for token, chance in likely.items():
            logits[0, token] = log(chance)
        chosen = chooser.choose(logits, np.array([7]), keys, np.array([len(ids)]))
        assert chosen.logprobs[0] == pytest.approx(log(max(likely.values())), abs=1e-5)
        assert np.isnan(chosen.null_logprobs[0])
        ids += chosen.ids.tolist()
    steps = [
        Step(
            codec.decode_bytes(ids[: s.step]),
            [codec.token_bytes[i] for i in s.ids],
            s.probabilities,
        )
        for s in chooser.end(7)
    ]
    texts = choice_texts(compiled.attributes, 0, compiled.format, compiled.decoding)
    found = Distribution(texts).distribution(steps)
    assert found == pytest.approx({"b": 0.5, "c": 0.3, "ab": 0.2}, abs=1e-5)


def test_a_thousand_choices(extractor: Extractor) -> None:
    names = tuple(f"Model {n * 7919 % 10007} {'XYZ'[n % 3]}" for n in range(1000))

    class Many(AttrSchema):
        choice: Literal[names]  # type: ignore[valid-type]

    for _, field, _, _, _ in read(extractor, Many):
        assert field.alternatives.keys() == set(names)
        assert sum(field.alternatives.values()) == pytest.approx(1, abs=1e-3)
        assert field.alternatives[field.value] == field.probability


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
        assert fields["flag"]["probability"] == max(fields["flag"]["alternatives"].values())
    report(items, tmp_path / "report.html")
    assert '"c":' in (tmp_path / "report.html").read_text("utf-8")
