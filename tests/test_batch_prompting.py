"""Several documents in one prompt, and one output for all of them (Cheng et al., 2023)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from conftest import TITLES, slow_but
from constrained import forked
from decoding import TEMPLATE, assert_right, outputs_of, run

from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.runtime.model import DecoderModel

CONFIG = DecodingConfig(
    layout="autoregressive", documents="stacked", documents_per_prompt=3, k_max=8, max_retries=0
)


def compiled_for(schema: Any, codec: Any, format: str = "json", **changes: Any) -> CompiledSchema:
    config = replace(CONFIG, **changes)
    return compile_schema(schema, codec, format=format, template=TEMPLATE, decoding=config)


@pytest.mark.parametrize("format", slow_but({"json"}, ["json", "yaml", "xml"]))
@pytest.mark.parametrize("temperature", [0.0, 1.2])
@pytest.mark.parametrize("in_flight", slow_but({4}, [1, 4, None]))
def test_outputs_equal_the_oracle(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    format: str,
    temperature: float,
    in_flight: int | None,
) -> None:
    """Seven documents in prompts of three: the last one has its document to itself."""
    compiled = compiled_for(small, codec, format, temperature=temperature, documents_per_prompt=3)
    outputs = assert_right(decoder_model(), compiled, TITLES, in_flight)
    assert [len(slots) for slots in outputs] == [1, 1, 1]


def test_outputs_equal_plain_generate(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any
) -> None:
    compiled = compiled_for(small, codec, constrain=False)
    model = decoder_model()
    prompts = compiled.encode(TITLES)
    for prompt, (slot,) in zip(prompts, run(model, compiled, TITLES), strict=True):
        head = [*prompt.instruction, *(i for d in prompt.documents for i in d), *prompt.opening]
        request = torch.tensor([head])
        generated = model.model.generate(
            request,
            attention_mask=torch.ones_like(request),
            max_new_tokens=len(slot.ids),
            do_sample=False,
            eos_token_id=-1,
            pad_token_id=0,
        )
        assert list(slot.ids) == generated[0, len(head) :].tolist()


@pytest.mark.parametrize("kind", ["in sequence", "forks"])
def test_every_document_of_a_prompt_gets_its_output(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any, kind: str
) -> None:
    model = decoder_model() if kind == "in sequence" else forked(codec)
    compiled = compiled_for(small, codec)
    outputs = outputs_of(model, compiled, TITLES)
    assert [output.document for output in outputs] == [0, 1, 2, 0, 1, 2, 0]
    assert outputs[0].slots == outputs[2].slots != outputs[3].slots
    assert all(len(output.slots) == 1 for output in outputs)
