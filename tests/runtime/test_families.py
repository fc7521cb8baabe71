"""Every family of models gives, slot for slot, what transformers' own `generate` gives."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import TITLES, slow_but, tiny_config, tiny_model
from decoding import TEMPLATE, assert_right, streamed
from families import FORK, IN_SEQUENCE, NEARLY, REFUSED, Family
from transformers import Qwen3ForCausalLM
from transformers.models.minimax import modeling_minimax
from transformers.models.minimax.modeling_minimax import MiniMaxCache

from schemax import Extractor, doctor
from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.errors import ModelError
from schemax.evaluation.diagnosis.agreement import agreements
from schemax.runtime.engine.fork import ForkModel
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.models.model import DecoderModel
from schemax.tokens import SlotOutput


def usually(families: Iterable[Family]) -> Any:
    """Of every kind one in all runs: windows, sinks, caps, recurrent layers, ALiBi."""
    usual = {"qwen3", "gemma3", "gpt_oss", "mamba", "bloom"}
    return slow_but(usual, families, lambda family: family.name)


@pytest.mark.slow
@pytest.mark.parametrize("family", usually(IN_SEQUENCE), ids=lambda family: family.name)
def test_every_layout_is_exact(family: Family, codec: TextCodec) -> None:
    """Gapped and stacked layouts, causal slots and autoregressive decoding as well."""
    model = DecoderModel(family.model(codec.vocab_size))
    found = list(agreements(model, codec))
    assert len(found) == 7
    assert all(item.exact and item.tokens == item.agreeing > 0 for item in found), found


@pytest.mark.parametrize("family", usually(IN_SEQUENCE), ids=lambda family: family.name)
@pytest.mark.parametrize("layout", ["branched", "gapped"])
def test_constrained_slots_equal_the_oracle(
    family: Family, layout: str, codec: TextCodec, small: Any
) -> None:
    """With types and retries: all that users have by default; and the paper's way, whole."""
    paper = {"documents": "stacked", "slots": "causal", "documents_per_prompt": 2, "k_max": 4}
    config = DecodingConfig(layout=layout, **(paper if layout == "gapped" else {}))
    model = DecoderModel(family.model(codec.vocab_size))
    compiled = compile_schema(
        small, codec, template=TEMPLATE, decoding=config, vocab_size=model.vocab_size
    )
    outputs = assert_right(model, compiled, TITLES[:4])
    written = [slot for slots in outputs for slot in slots]
    assert len(written) == 16
    assert {"stop", "length"} & {slot.finish_reason for slot in written}


def test_copies_of_a_wrapped_model_run(codec: TextCodec) -> None:
    """Hooks are shared by all wrappers of a model, and copied with it."""
    model = tiny_model("qwen3", codec.vocab_size)
    prepare(model)
    count = sum(len(module._forward_pre_hooks) for module in model.modules())
    prepare(model)
    assert sum(len(module._forward_pre_hooks) for module in model.modules()) == count
    prepare(copy.deepcopy(model))
    pickle.loads(pickle.dumps(model))


def test_models_that_fail_are_refused(codec: TextCodec) -> None:
    class Broken(Qwen3ForCausalLM):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            raise RuntimeError("sizes 40 and 33")

    model = Broken(tiny_config("qwen3", codec.vocab_size))
    with pytest.raises(ModelError, match=r"Broken .*sizes 40 and 33"):
        prepare(model)


def test_capped_attention_needs_eager(codec: TextCodec) -> None:
    (family,) = [family for family in IN_SEQUENCE if family.name == "gemma2"]
    model = family.model(codec.vocab_size)
    model.config._attn_implementation = "sdpa"
    with pytest.raises(ModelError, match='attn_implementation="eager"'):
        prepare(model)


# `generate` knows no types.
PLAIN = DecodingConfig(max_retries=0, constrain="nothing")


def outputs_of(
    model: Any, compiled: CompiledSchema, texts: list[str]
) -> list[tuple[SlotOutput, ...]]:
    prompts = [*compiled.encode(texts)]
    found = dict(streamed(model, prompts, compiled.stop, compiled.decoding))
    return [found[place].slots for place in range(len(texts))]


def requests_of(compiled: CompiledSchema, text: str) -> list[list[int]]:
    """The same text as plain requests, one per attribute."""
    (prompt,) = compiled.encode([text])
    head = [*prompt.instruction, *prompt.documents[0], *prompt.opening]
    return [[*head, *key] for key in prompt.keys[0]]


def generated(model: Any, ids: list[int], count: int) -> list[int]:
    request = torch.tensor([ids])
    made = model.generate(
        request,
        attention_mask=torch.ones_like(request),
        max_new_tokens=count,
        do_sample=False,
        eos_token_id=-1,
        pad_token_id=0,
    )
    return list(made[0, len(ids) :].tolist())


def check(model: Any, compiled: CompiledSchema, outputs: list[tuple[SlotOutput, ...]]) -> None:
    written = 0
    for text, slots in zip(TITLES[:4], outputs, strict=True):
        for ids, slot, k_max in zip(
            requests_of(compiled, text), slots, compiled.k_max, strict=True
        ):
            assert list(slot.ids) == generated(model, ids, k_max)[: len(slot.ids)]
            assert slot.finish_reason != "length" or len(slot.ids) == k_max
            written += len(slot.ids)
    assert written > 40


@pytest.mark.parametrize("family", usually(IN_SEQUENCE), ids=lambda family: family.name)
def test_in_sequence_equals_generate(
    family: Family, codec: TextCodec, small: Any, record_property: Any
) -> None:
    config = replace(PLAIN, documents_per_prompt=2, batch_size=2)
    compiled = compile_schema(small, codec, template=TEMPLATE, decoding=config)
    record_property("family", family.name)
    model = family.model(codec.vocab_size)
    prepared = prepare(model)
    record(record_property, family, prepared)
    assert isinstance(prepared, DecoderModel)
    check(model, compiled, outputs_of(prepared, compiled, TITLES[:4]))


@pytest.mark.parametrize("family", usually(FORK), ids=lambda family: family.name)
def test_fork_equals_generate(
    family: Family, codec: TextCodec, small: Any, record_property: Any
) -> None:
    config = replace(PLAIN, documents_per_prompt=2, batch_size=4)
    compiled = compile_schema(small, codec, template=TEMPLATE, decoding=config)
    record_property("family", family.name)
    model = family.model(codec.vocab_size)
    prepared = prepare(model)
    record(record_property, family, prepared)
    # GPT-J goes through transformers' attention interface from 5.24 on, and so decodes in sequence.
    assert isinstance(prepared, ForkModel) or family.name == "gptj"
    check(model, compiled, outputs_of(prepared, compiled, TITLES[:4]))


@pytest.mark.parametrize("family", usually(NEARLY), ids=lambda family: family.name)
def test_uneven_steps_nearly_agree(family: Family, codec: TextCodec, record_property: Any) -> None:
    """What can be said of a model that does not agree with itself."""
    prepared = prepare(family.model(codec.vocab_size))
    record(record_property, family, prepared, refused="nearly exact: see below")
    assert prepared.architecture.uneven_steps
    found = [item for item in agreements(prepared, codec) if item.tokens]
    assert found
    assert all(item.ok and item.exact is None for item in found), found
    diagnosis = doctor(prepared.model, tokenizer=codec)
    assert "agree" in str(diagnosis)
    assert "exact   " not in str(diagnosis)


@pytest.mark.parametrize("family", REFUSED, ids=lambda family: family.name)
def test_what_cannot_be_exact_is_refused(
    family: Family, codec: TextCodec, record_property: Any
) -> None:
    model = family.model(codec.vocab_size)
    record_property("family", family.name)
    causes = r"keeps what it has read to itself|its cache does not hold what it read"
    with pytest.raises(ModelError, match=causes) as refusal:
        prepare(model)
    (cause,) = re.findall(causes, str(refusal.value))
    record(record_property, family, None, refused=f"refused: {cause}")


class SealedCache(MiniMaxCache):
    """Keeps states of linear attention where nothing copies them."""

    @property
    def linear_cache(self) -> Any:
        return self._sealed["states"]

    @linear_cache.setter
    def linear_cache(self, states: list[Any]) -> None:
        self._sealed = {"states": states}


def test_caches_that_are_copied_in_part_are_found_out(
    codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    (family,) = [family for family in FORK if family.name == "minimax"]
    monkeypatch.setattr(modeling_minimax, "MiniMaxCache", SealedCache)
    model = family.model(codec.vocab_size)
    with pytest.raises(ModelError):
        prepare(model)


def record(record_property: Any, family: Family, prepared: Any, **more: str) -> None:
    """For the page of tested models."""
    forked = isinstance(prepared, ForkModel)
    decodes = "one row per slot" if forked else "in sequence" if prepared else "not at all"
    attends = prepared and family.heads != "none"
    backend = prepared.config._attn_implementation if attends else ""
    found = {"family": family.name, "decodes": decodes, "backend": backend}
    for name, value in {**found, **more}.items():
        record_property(name, value)


def test_longrope_takes_what_its_short_factors_serve(codec: TextCodec, small: Any) -> None:
    """A longer prompt in the same call is refused, and changes nothing."""
    (family,) = [family for family in IN_SEQUENCE if "longrope" in family.name]
    rope = {**family.model(codec.vocab_size).config.rope_parameters}
    rope["original_max_position_embeddings"] = 170
    model = family.model(
        codec.vocab_size, original_max_position_embeddings=170, rope_parameters=rope
    )
    compiled = compile_schema(small, codec, template=TEMPLATE, decoding=PLAIN)
    texts = [TITLES[6], "QZW 7 kg, " * 60, TITLES[1]]
    found = dict(streamed(prepare(model), compiled.encode(texts), compiled.stop, compiled.decoding))
    for place in (0, 2):
        requests = requests_of(compiled, texts[place])
        for ids, slot in zip(requests, found[place].slots, strict=True):
            assert list(slot.ids) == generated(model, ids, len(slot.ids))
    assert "the model's context has 170" in found[1].problem


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but({"bloom"}, ["bloom", "mamba", "jamba"]))
@pytest.mark.parametrize("temperature", slow_but({1.2}, [0.0, 1.2]))
def test_forked_outputs_depend_on_nothing_else(
    name: str, temperature: float, codec: TextCodec, small: Any
) -> None:
    """Any J, batch size and order, stacked documents and retries included."""
    (family,) = [family for family in FORK if family.name == name]
    model = prepare(family.model(codec.vocab_size))

    def run(texts: list[str], **changes: Any) -> list[tuple[SlotOutput, ...]]:
        config = DecodingConfig(temperature=temperature, seed=5, **changes)
        compiled = compile_schema(small, codec, template=TEMPLATE, decoding=config)
        return outputs_of(model, compiled, texts)

    alone = [run([text])[0] for text in TITLES[:5]]
    assert run(TITLES[:5]) == alone
    assert run(TITLES[:5], documents_per_prompt=3, batch_size=2) == alone
    assert run(TITLES[4::-1], documents_per_prompt=2) == alone[::-1]
    assert run(TITLES[:5], documents="stacked", documents_per_prompt=2) != alone


def test_forked_models_refuse_one_skeleton_for_all(codec: TextCodec, small: Any) -> None:
    (family,) = [family for family in FORK if family.name == "mamba"]
    extractor = Extractor(family.model(codec.vocab_size), codec, eos_ids=(0,))
    with pytest.raises(ModelError, match=r"one row per slot.*'branched'"):
        extractor.extract(TITLES, small, decoding="paper")


@pytest.mark.slow
def test_forked_models_extract(codec: TextCodec, small: Any) -> None:
    """The same API; passes count the keys, which are read token by token."""
    (family,) = [family for family in FORK if family.name == "mamba2"]
    extractor = Extractor(family.model(codec.vocab_size), codec, eos_ids=(0,))
    for decoding in ("isolated", "autoregressive"):
        items = list(extractor.stream(TITLES, small, decoding=decoding, template=TEMPLATE))
        assert sorted(item.index for item in items) == list(range(len(TITLES)))
        assert all(item.steps > 1 for item in items)


class Stubborn(Qwen3ForCausalLM):
    """Counts positions itself, whatever it is told."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("position_ids", None)
        return super().forward(*args, **kwargs)


class Blind(Qwen3ForCausalLM):
    """Sees everything before a token, whatever it is told."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        kwargs.pop("attention_mask", None)
        return super().forward(*args, **kwargs)


@pytest.mark.parametrize("wrong", [Stubborn, Blind])
def test_wrong_models_are_found_out(wrong: Any, codec: TextCodec) -> None:
    torch.manual_seed(7)
    model = wrong(tiny_config("qwen3", codec.vocab_size)).eval()
    with pytest.raises(ModelError, match="hands out no state to go on from"):
        Extractor(model, codec)
    diagnosis = doctor(model, tokenizer=codec)
    assert not diagnosis.ok
    assert "hands out no state to go on from" in str(diagnosis)


@pytest.mark.parametrize("name", ["llama", "granite", "olmo2", "mistral", "gemma3"])
def test_windows_are_those_of_the_models_code(name: str, codec: TextCodec, small: Any) -> None:
    """A config may give a window that its architecture has no code for.

    The cache of `generate` drops keys by the config nonetheless, so there it runs without one.
    """
    (family,) = [family for family in IN_SEQUENCE if family.name == name]
    compiled = compile_schema(small, codec, template=TEMPLATE, decoding=PLAIN)
    model = family.model(codec.vocab_size, sliding_window=9)
    prepared = prepare(model)
    assert isinstance(prepared, DecoderModel)
    expected = {"mistral": [9], "gemma3": [9, None]}
    assert [*prepared.windows] == expected.get(name, [None])
    model.generation_config.use_cache = False
    check(model, compiled, outputs_of(prepared, compiled, TITLES[:4]))
