"""Chains of pointwise operations compiled by torch's own compiler, on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TITLES, tiny_model
from decoding import compiled_in, run
from simulated_guard import HAS_COMPILER
from test_gpu import Typed, assert_alike
from torch._dynamo.utils import counters
from transformers.models.qwen3 import modeling_qwen3

from schemax import Extractor, ModelError
from schemax.compiler import TextCodec
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.models.pointwise import compile_chains, is_compiled


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As it is before anything was compiled, and again afterwards."""
    rotary = modeling_qwen3.apply_rotary_pos_emb
    monkeypatch.setattr(modeling_qwen3, "apply_rotary_pos_emb", rotary)
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@pytest.mark.release
@pytest.mark.skipif(not HAS_COMPILER, reason="torch compiles with g++")
def test_outputs_are_those_without(
    codec: TextCodec, compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the numbers of tokens, nothing is compiled again, and layers share what is."""
    compiled = compiled_in("branched", Typed, codec, k_max=4)
    expected = run(prepare(tiny_model("qwen3", codec.vocab_size)), compiled, TITLES, 4)
    module = tiny_model("qwen3", codec.vocab_size)
    compile_chains(module)
    model = prepare(module)
    assert isinstance(model, DecoderModel)
    assert_alike(run(model, compiled, TITLES[:3], 3), expected[:3])
    assert_alike(run(model, compiled, TITLES, 4), expected)
    graphs = counters["stats"]["unique_graphs"]
    assert graphs <= 22
    assert_alike(run(model, compiled, TITLES[::-1], 7), expected[::-1])
    assert counters["stats"]["unique_graphs"] == graphs
    causal = compiled_in("causal", Typed, codec, k_max=4)
    expected = run(prepare(tiny_model("qwen3", codec.vocab_size)), causal, TITLES[:4], 2)
    assert_alike(run(model, causal, TITLES[:4], 2), expected)


def test_loading_compiles_where_it_is_asked_for(
    saved_model: Path, compiler: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_nothing(function: Any, **options: Any) -> Any:
        return function

    monkeypatch.setattr(torch, "compile", compile_nothing)
    assert not is_compiled(Extractor.from_pretrained(saved_model).model.model)
    module = Extractor.from_pretrained(saved_model, compile=True).model.model
    chains = [name for name, part in module.named_modules() if part._compiled_call_impl]
    for name in ("model.norm", "model.layers.0.mlp", "model.layers.1.self_attn.q_norm"):
        assert name in chains

    def fail(function: Any, **options: Any) -> Any:
        raise RuntimeError("Cannot find a working triton installation.\nMore of it")

    monkeypatch.setattr(torch, "compile", fail)
    with pytest.raises(ModelError, match=r"compiled for cpu \(Cannot find a working triton"):
        Extractor.from_pretrained(saved_model, compile=True)
