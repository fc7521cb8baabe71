"""The heart of the suite: the decoder's tokens are the oracle's tokens, in float32."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import TITLES, combinations, slow_but, tiny_model
from decoding import assert_right, expected, run

from schemax.compiler import TextCodec, compile_schema
from schemax.config import PRESETS, DecodingConfig
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.models.model import DecoderModel
from schemax.tokens import SlotOutput

COMBINATIONS = [
    ("branched", "isolated", "independent"),
    ("branched", "stacked", "independent"),
    ("gapped", "isolated", "independent"),
    ("gapped", "isolated", "causal"),
    ("gapped", "stacked", "independent"),
    ("gapped", "stacked", "causal"),
]


# The oracle's cost grows with the cube of the prompt's length.
SHORT = "{% for d in documents %}{{ d.id }} {{ d.text }}\n{% endfor %}"


def settings(combination: tuple[str, str, str], **changes: Any) -> DecodingConfig:
    layout, documents, slots = combination
    return DecodingConfig(layout=layout, documents=documents, slots=slots, **changes)


@combinations(
    "family, prompts", ["qwen3", "llama"], [(1, 4, "json"), (2, 1, "yaml"), (3, 2, "xml")]
)
@pytest.mark.parametrize("combination", COMBINATIONS, ids="-".join)
def test_decoding_equals_the_oracle(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    family: str,
    combination: tuple[str, str, str],
    prompts: tuple[int, int, str],
) -> None:
    """prompts: documents of a prompt, prompts in flight, format."""
    num_documents, batch_size, format = prompts
    config = settings(combination, documents_per_prompt=num_documents)
    compiled = compile_schema(small, codec, format=format, template=SHORT, decoding=config)
    model = decoder_model(family)
    assert_right(model, compiled, TITLES[:4], batch_size)


@pytest.mark.parametrize("combination", COMBINATIONS, ids="-".join)
def test_sampling_equals_the_oracle(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    combination: tuple[str, str, str],
) -> None:
    """Sampled tokens vary, so every way for a slot to end occurs; greedy ones often repeat."""
    config = settings(combination, documents_per_prompt=2, temperature=1.5, top_p=0.95, seed=3)
    compiled = compile_schema(small, codec, template=SHORT, decoding=config)
    model = decoder_model()
    outputs = assert_right(model, compiled, TITLES, 3)
    reasons = {slot.finish_reason for slots in outputs for slot in slots}
    assert {"stop", "length"} <= reasons
    again = replace(config, seed=4)
    other = compile_schema(small, codec, template=SHORT, decoding=again)
    assert run(model, other, TITLES, 3) != outputs


@combinations("family, format", ["qwen3", "llama"], ["json", "yaml", "xml"])
def test_autoregressive_equals_the_oracle(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    family: str,
    format: str,
) -> None:
    compiled = compile_schema(
        small, codec, format=format, template=SHORT, decoding="autoregressive"
    )
    model = decoder_model(family)
    assert_right(model, compiled, TITLES[:2], 2)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_presets_equal_the_oracle(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any, preset: str
) -> None:
    compiled = compile_schema(small, codec, template=SHORT, decoding=preset)
    model = decoder_model()
    assert_right(model, compiled, TITLES, 2)


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize("documents", ["isolated", "stacked"])
def test_branched_equals_plain_generate(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    family: str,
    documents: str,
) -> None:
    """No code of ours in the oracle: transformers' `generate`, once per attribute."""
    config = DecodingConfig(
        documents=documents, documents_per_prompt=2, constrain="nothing", max_retries=0
    )
    compiled = compile_schema(small, codec, decoding=config)
    model = decoder_model(family)
    prompts = compiled.encode(TITLES[:4])
    outputs = run(model, compiled, TITLES[:4], 2)
    compared = 0
    for prompt, slots in zip(prompts, outputs, strict=True):
        for j in range(len(prompt.documents)):
            seen = prompt.documents if documents == "stacked" else prompt.documents[j : j + 1]
            head = [*prompt.instruction, *(i for ids in seen for i in ids), *prompt.opening]
            for n, key in enumerate(prompt.keys[j]):
                request = torch.tensor([[*head, *key]])
                generated = model.model.generate(
                    request,
                    attention_mask=torch.ones_like(request),
                    max_new_tokens=prompt.k_max[n],
                    do_sample=False,
                    eos_token_id=-1,
                    pad_token_id=0,
                )[0, request.shape[1] :].tolist()
                slot = slots[j * len(prompt.k_max) + n]
                assert list(slot.ids) == generated[: len(slot.ids)]
                assert slot.finish_reason != "length" or len(slot.ids) == prompt.k_max[n]
                compared += 1
    assert compared == 16


@pytest.mark.slow
@combinations("slots, attention", ["independent", "causal"], ["eager", "flex_attention"])
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_other_attention_equals_the_oracle(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    attention: str,
    slots: str,
) -> None:
    """FlexAttention, which is compiled elsewhere, runs as it stands; its masks are the rule."""
    config = DecodingConfig(
        layout="gapped", slots=slots, documents="stacked", documents_per_prompt=2
    )
    compiled = compile_schema(small, codec, template=SHORT, decoding=config)
    with torch.compiler.set_stance("force_eager"):
        model = decoder_model(attn_implementation=attention)
        assert_right(model, compiled, TITLES[:4], 2)


def test_sliding_windows_go_by_position(codec: TextCodec, small: Any) -> None:
    """A window shorter than the prompt, on one layer of two; the oracle is `generate`."""
    model = DecoderModel(
        tiny_model(
            "qwen3",
            codec.vocab_size,
            use_sliding_window=True,
            sliding_window=9,
            max_window_layers=1,
            layer_types=["full_attention", "sliding_attention"],
        )
    )
    compiled = compile_schema(small, codec, decoding="isolated:constrain=nothing:max_retries=0")
    (prompt,) = compiled.encode(TITLES[2:3])
    (slots,) = run(model, compiled, TITLES[2:3], 1)
    for key, slot, k_max in zip(prompt.keys[0], slots, prompt.k_max, strict=True):
        ids = [*prompt.instruction, *prompt.documents[0], *prompt.opening, *key]
        request = torch.tensor([ids])
        generated = model.model.generate(
            request,
            attention_mask=torch.ones_like(request),
            max_new_tokens=k_max,
            do_sample=False,
            eos_token_id=-1,
            pad_token_id=0,
        )[0, len(ids) :].tolist()
        assert list(slot.ids) == generated[: len(slot.ids)]


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["branched", "gapped"])
@pytest.mark.parametrize("temperature", slow_but({1.2}, [0.0, 1.2]))
def test_isolated_outputs_depend_on_nothing_else(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    layout: str,
    temperature: float,
) -> None:
    """Any J, batch size, order and padding: the same slots for the same text."""
    model = decoder_model()

    def by_text(texts: list[str], in_flight: int, **changes: Any) -> dict[str, list[SlotOutput]]:
        config = DecodingConfig(layout=layout, temperature=temperature, **changes)
        compiled = compile_schema(small, codec, template=SHORT, decoding=config)
        flat = [slot for slots in run(model, compiled, texts, in_flight) for slot in slots]
        width = compiled.num_slots
        return {text: flat[i * width : (i + 1) * width] for i, text in enumerate(texts)}

    alone = {}
    for text in TITLES:
        alone |= by_text([text], 1)
    for number in (1, 2, 3, 7):
        assert by_text(TITLES, 2, documents_per_prompt=number) == alone
        assert by_text(TITLES[::-1], 5, documents_per_prompt=number) == alone


def test_bfloat16_runs_and_mostly_agrees(codec: TextCodec, small: Any) -> None:
    """In bfloat16 rounding depends on the batch's shape; most tokens agree all the same."""
    model = DecoderModel(tiny_model("qwen3", codec.vocab_size).to(torch.bfloat16))
    compiled = compile_schema(small, codec, template=SHORT)
    fast = run(model, compiled, TITLES, 7)
    slow = expected(model, compiled, TITLES, fast)
    same = [
        a.ids == b.ids for x, y in zip(fast, slow, strict=True) for a, b in zip(x, y, strict=True)
    ]
    assert sum(same) > len(same) / 2


@pytest.mark.release
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("preset", "dtype"),
    [*((preset, torch.float32) for preset in PRESETS), ("isolated", torch.bfloat16)],
)
def test_cuda_agrees_with_the_oracle(
    codec: TextCodec, small: Any, preset: str, dtype: torch.dtype, cuda: None
) -> None:
    model = prepare(tiny_model("qwen3", codec.vocab_size).to("cuda", dtype))
    assert isinstance(model, DecoderModel)
    compiled = compile_schema(small, codec, decoding=preset)
    fast = run(model, compiled, TITLES[:2], 2)
    slow = expected(model, compiled, TITLES[:2], fast)
    if dtype == torch.float32:
        assert fast == slow
    # The oracle's slots end with the first token that differs, which rounding may decide.
    tokens = [sum(len(slot.ids) for slots in found for slot in slots) for found in (slow, fast)]
    assert tokens[0] > tokens[1] / 2
