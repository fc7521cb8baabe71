"""Contextual calibration: choices and null against what documents without content would have."""

from __future__ import annotations

from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from conftest import TITLES, combinations
from constrained import forked
from decoding import TEMPLATE, WAYS, assert_right, follow_branches
from grammar_walks import FORMATS
from oracle import allowed_tokens
from seams import engine_of

from schemax import AttrSchema, DecodingConfig, Extractor, attr
from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.compiler.content_free import (
    CONTENT_FREE,
    MOST_CHOICES,
    ChoicePrior,
    content_free_prompts,
)
from schemax.config import resolve_decoding
from schemax.evaluation.diagnosis.agreement import oracle_logits
from schemax.extraction.pipeline import contextually_calibrated
from schemax.runtime.engine.shared import SharedEngine
from schemax.tokens import SlotOutput, SlotSpec


class Shoe(AttrSchema):
    brand: str | None = attr(k_max=5)
    color: Literal["reddish", "red", "blue"] | None = None
    waterproof: bool = False
    size: float | None = attr(k_max=6)
    code: str = attr(k_max=3)


SLOTS = [way for way in WAYS if way != "autoregressive"]
CHOICES: dict[str, tuple[Any, ...]] = {
    "color": ("reddish", "red", "blue"),
    "waterproof": (True, False),
}


def compiled_as(way: str, format: str, codec: TextCodec, calibrated: bool) -> CompiledSchema:
    config = replace(WAYS[way], contextual_calibration=calibrated)
    return compile_schema(Shoe, codec, format=format, template=TEMPLATE, decoding=config)


def calibrated_in(model: Any, way: str, format: str, codec: TextCodec) -> CompiledSchema:
    compiled = compiled_as(way, format, codec, calibrated=True)
    return contextually_calibrated(SharedEngine(model), compiled)


def spec_of(compiled: CompiledSchema, name: str) -> SlotSpec:
    return compiled.slots[[item.name for item in compiled.attributes].index(name)]


@combinations("way, format", SLOTS, FORMATS)
def test_priors_by_hand(decoder_model: Any, codec: TextCodec, way: str, format: str) -> None:
    """Of all log-probabilities of the slow twin, which uses no cache."""
    model = decoder_model()
    compiled = calibrated_in(model, way, format, codec)
    names = [item.name for item in compiled.attributes]
    found: dict[tuple[str, bytes], list[float]] = {}
    for prompt in content_free_prompts(compiled):
        assert prompt.answers is not None
        given = [SlotOutput(ids, "stop") for row in prompt.answers for ids in row]
        for n, logits in enumerate(oracle_logits(model, prompt, compiled.decoding, given)):
            ids = given[n].ids
            logprobs = logits.double().log_softmax(dim=-1)[range(len(ids)), list(ids)]
            for end in range(1, len(ids) + 1):
                key = names[n % len(names)], codec.decode_bytes(ids[:end])
                found.setdefault(key, []).append(float(logprobs[:end].sum()))
    for name, values in CHOICES.items():
        prior = spec_of(compiled, name).prior
        assert isinstance(prior, ChoicePrior)
        expected = {
            # Slots write what several choices begin with, and their last choice, in several turns.
            data: np.exp(some[: len(CONTENT_FREE)]).mean()
            for (of, data), some in found.items()
            if of == name
        }
        assert prior.begun == pytest.approx(expected, rel=1e-3)
        texts = [compiled.format.escape(value).encode() for value in values]
        assert all(any(data.startswith(text) for data in prior.begun) for text in texts)
    assert [spec.prior is not None for spec in compiled.slots] == [False, True, True, False, False]


@combinations("way, format", SLOTS, FORMATS)
def test_tokens_are_the_oracles(
    decoder_model: Any, codec: TextCodec, way: str, format: str
) -> None:
    model = decoder_model()
    compiled = calibrated_in(model, way, format, codec)
    outputs = assert_right(model, compiled, TITLES[:4])
    for prompt, found in zip(compiled.encode(TITLES[:4]), outputs, strict=True):
        for n, logits in enumerate(oracle_logits(model, prompt, compiled.decoding, found)):
            spec = compiled.slots[n % len(compiled.slots)]
            if spec.prior is not None:
                assert spec.grammar is not None
                check_first(logits[0].double(), spec, found[n], codec)


def check_first(logits: Any, spec: SlotSpec, found: SlotOutput, codec: TextCodec) -> None:
    """The first token's probability, and how much was allowed, of all logits and by texts."""
    prior = spec.prior
    assert isinstance(prior, ChoicePrior)
    assert spec.grammar is not None
    allowed = np.flatnonzero(allowed_tokens(spec.grammar, (), len(logits)))
    texts = prior.choices.texts
    values = {value for value in prior.choices.values if value is not None}
    of: dict[int, set[Any]] = {}
    probable: dict[frozenset[Any], float] = {}
    for token in allowed.tolist():
        data = codec.decode_bytes((token,))
        of[token] = {prior.choices.begun_by(text)[0] for text in texts if text.startswith(data)}
        if of[token] < values:
            begun = [one for one in prior.begun if one.startswith(data)]
            least = min(map(len, begun), default=0)
            beyond = [one for one in prior.begun if data.startswith(one)]
            way = frozenset(of[token])
            share = sum(prior.begun[one] for one in begun if len(one) == least)
            if not begun:
                share = prior.begun[max(beyond, key=len)] if beyond else 0.0
            probable[way] = max(probable.get(way, 0.0), share)
    whole = sum(
        share for way, share in probable.items() if not any(other < way for other in probable)
    )
    scores = {}
    for token, ways in of.items():
        scores[token] = float(logits[token])
        if ways < values and whole:
            share = 0.9 * probable[frozenset(ways)] / whole / len(ways) + 0.1 / len(values)
            scores[token] -= log(len(values) * share)
    total = np.logaddexp.reduce([*scores.values()])
    assert found.logprobs[0] == pytest.approx(scores[found.ids[0]] - total, abs=1e-4)
    legal = float(logits[allowed].logsumexp(0) - logits.logsumexp(0))
    assert found.legal_logprobs[0] == pytest.approx(legal, abs=1e-4)


def test_tokens_are_the_oracles_where_models_fork(codec: TextCodec) -> None:
    model = forked(codec)
    assert_right(model, calibrated_in(model, "branched", "json", codec), TITLES[:2])


def test_it_is_found_once(decoder_model: Any, codec: TextCodec) -> None:
    engine = SharedEngine(decoder_model())
    compiled = compiled_as("branched", "json", codec, calibrated=True)
    known = contextually_calibrated(engine, compiled)
    assert known is not compiled
    assert contextually_calibrated(engine, compiled) is known
    plain = compiled_as("branched", "json", codec, calibrated=False)
    assert contextually_calibrated(engine, plain) is plain


@pytest.fixture(scope="module")
def extractor(saved_model: Path) -> Extractor:
    return Extractor.from_pretrained(saved_model)


def read(extractor: Extractor, schema: Any = Shoe, **changes: Any) -> list[Any]:
    decoding = DecodingConfig(max_retries=0, **changes)
    return sorted(extractor.stream(TITLES, schema, decoding=decoding), key=lambda item: item.index)


def test_confidence_is_that_of_the_choice(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was chosen is the likeliest, what is told of it is what it was chosen by, and what the
    type forbids is told as without calibration."""
    follow_branches(monkeypatch, 1e-9)
    plain = read(extractor, contextual_calibration=False, min_probability=0.0)
    found = read(extractor, contextual_calibration=True, min_probability=0.0)
    for one, other in zip(plain, found, strict=True):
        before, after = one.fields["color"], other.fields["color"]
        assert sum(after.alternatives.values()) == pytest.approx(1, abs=1e-3)
        assert after.alternatives != pytest.approx(before.alternatives, rel=1e-2)
        chosen = after.alternatives[None if after.raw == " null" else after.value]
        assert after.probability == pytest.approx(chosen * after.legal_probability, rel=1e-3)
        assert after.legal_at_start == pytest.approx(before.legal_at_start, rel=1e-4)
        assert other.fields["brand"].raw == one.fields["brand"].raw


class Priced(AttrSchema):
    currency: Literal["EUR", "USD"] | None = None
    price: float | None = attr(k_max=6, after="currency")
    taxed: bool | None = attr(after="price", default=None)


def test_fields_that_look_at_others(extractor: Extractor) -> None:
    decoding = DecodingConfig(contextual_calibration=True)
    compiled = extractor.compile(Priced, decoding=decoding)
    known = contextually_calibrated(engine_of(extractor), compiled)
    assert known.waves is not None
    assert compiled.waves is not None
    assert [spec.prior is not None for spec in known.waves.fields.specs] == [True, False, True]
    assert not any(spec.prior for spec in compiled.waves.fields.specs)
    plain, found = (read(extractor, Priced, contextual_calibration=one) for one in (False, True))
    taxed = [[item.fields["taxed"].probability for item in some] for some in (plain, found)]
    assert taxed[0] != taxed[1]


def test_many_choices_are_left_alone(extractor: Extractor) -> None:
    class Numbered(AttrSchema):
        number: Literal[*range(MOST_CHOICES + 1)] | None = None  # type: ignore[valid-type]
        letter: Literal["a", "b"] = "a"

    compiled = extractor.compile(Numbered, decoding=DecodingConfig(contextual_calibration=True))
    known = contextually_calibrated(engine_of(extractor), compiled)
    assert [spec.prior is not None for spec in known.slots] == [False, True]
    assert len(content_free_prompts(compiled)) == 2 * len(CONTENT_FREE)


def test_a_schema_without_choices_reads_nothing_more(extractor: Extractor) -> None:
    class Code(AttrSchema):
        code: str

    compiled = extractor.compile(Code, decoding=DecodingConfig(contextual_calibration=True))
    assert content_free_prompts(compiled) == []
    assert contextually_calibrated(engine_of(extractor), compiled) is compiled


def test_the_setting() -> None:
    name = "contextual_calibration"
    assert resolve_decoding(f"isolated:{name}=true") == DecodingConfig(contextual_calibration=True)
    for wrong, said in (
        (f"isolated:{name}=2", f"{name} must be True, False or None"),
        (f"autoregressive:{name}=true", f"{name} requires slots"),
        (f"paper:{name}=true", f"{name} requires slots"),
    ):
        with pytest.raises(ValueError, match=said):
            resolve_decoding(wrong)


def test_examples_by_likeness(decoder_model: Any, codec: TextCodec) -> None:
    """A document without content is shown what any document of its text is."""
    examples = [(f"{text} shoe", {"color": "red", "code": text}) for text in ("N/A", "[x]", "Abc")]
    config = DecodingConfig(nearest_examples=1, contextual_calibration=True)
    compiled = compile_schema(Shoe, codec, decoding=config, examples=examples)
    usual = compiled.encode(CONTENT_FREE)
    prompts = content_free_prompts(compiled)[: len(CONTENT_FREE)]
    for one, other in zip(prompts, usual, strict=True):
        assert len(one.demonstrations) == 1
        assert one.demonstrations == other.demonstrations
        assert (one.instruction, one.documents) == (other.instruction, other.documents)
    model = decoder_model()
    assert_right(model, contextually_calibrated(SharedEngine(model), compiled), TITLES[:2])
