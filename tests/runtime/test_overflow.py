"""Logits that are NaN or infinite: a row error that names the dtype, and nobody else's harm."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TITLES, Small, tiny_model
from families import FAMILIES
from httpx import Client
from serving import served
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from schemax import Extractor, ModelError, doctor
from schemax.compiler import TextCodec
from schemax.config import DecodingConfig
from schemax.runtime.models.loading import load

# A token that no prompt here holds but this document.
BAD = "a ~ b"


@pytest.fixture
def fast(backend: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")


def spoilt(model: Any, codec: TextCodec, number: float) -> Any:
    (token,) = codec.encode("~")
    with torch.no_grad():
        model.get_input_embeddings().weight[token] = number
    return model


def rows(extractor: Extractor, texts: list[str], decoding: Any = "isolated") -> list[Any]:
    items = extractor.stream(texts, Small, decoding=decoding)
    return sorted(items, key=lambda item: item.index)


def values(item: Any) -> dict[str, Any]:
    assert all(math.isfinite(result.confidence) for result in item.fields.values())
    return {name: result.raw for name, result in item.fields.items()}


TYPES = DecodingConfig(max_retries=0)
FREE = DecodingConfig(constrain="nothing")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "decoding", "number"),
    [
        ("qwen3", TYPES, math.nan),
        ("qwen3", TYPES, math.inf),
        ("qwen3", DecodingConfig(batch_size=1), math.nan),
        ("qwen3", FREE, math.nan),
        ("qwen3", DecodingConfig(temperature=0.7), math.inf),
        ("bloom", TYPES, math.nan),
        ("bloom", FREE, math.inf),
    ],
)
def test_a_document_without_logits_fails_alone(
    family: str, decoding: DecodingConfig, number: float, codec: TextCodec
) -> None:
    model = FAMILIES[family].model(codec.vocab_size, tie_word_embeddings=False)
    extractor = Extractor(spoilt(model, codec, number), codec, eos_ids=(0,))
    texts = [*TITLES[:3], BAD, *TITLES[3:], BAD + TITLES[2], TITLES[0]]
    expected = rows(extractor, [*TITLES, TITLES[0]], decoding)
    items = rows(extractor, texts, decoding)
    failed = [item for item in items if item.index in (3, 8)]
    for item in failed:
        assert item.value is None
        (error,) = item.errors
        assert "NaN or infinity in torch.float32" in error.message
    others = [item for item in items if item.index not in (3, 8)]
    assert [values(item) for item in others] == [values(item) for item in expected]


@pytest.mark.parametrize("slots", ["independent", "causal"])
def test_a_stacked_prompt_without_logits_fails_whole(slots: Any, codec: TextCodec) -> None:
    model = spoilt(tiny_model("qwen3", codec.vocab_size), codec, math.nan)
    extractor = Extractor(model, codec, eos_ids=(0,))
    decoding = DecodingConfig(
        layout="gapped", documents="stacked", slots=slots, documents_per_prompt=2, k_max=4
    )
    items = rows(extractor, [TITLES[0], BAD, *TITLES[1:5]], decoding)
    assert [item.value is None and "NaN" in str(item.errors) for item in items[:2]] == [True] * 2
    expected = rows(extractor, TITLES[1:5], decoding)
    assert [values(item) for item in items[2:]] == [values(item) for item in expected]


def test_over_http_a_field_is_never_nan(codec: TextCodec) -> None:
    model = spoilt(tiny_model("qwen3", codec.vocab_size), codec, math.nan)
    schema = {"type": "object", "properties": {"smart": {"type": "boolean"}}}
    body: dict[str, Any] = {"documents": [BAD, TITLES[0]], "schema": schema}
    with served(Extractor(model, codec, eos_ids=(0,))) as url, Client(base_url=url) as client:
        answer = client.post("/v1/extract", json={**body, "details": True})
        lines = client.post("/v1/extract", json={**body, "stream": True}).text
    bad, good = answer.json()["rows"]
    assert "NaN or infinity in torch.float32" in str(bad["errors"])
    assert bad["attributes"] is None
    assert good["attributes"] is not None
    assert "NaN" not in lines.replace("NaN or infinity", "")
    assert "NaN or infinity" in lines


# Dtypes


def test_weights_that_float16_cannot_hold_are_named(
    backend: Tokenizer, fast: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """Even where no text of the proof reaches them."""
    model = tiny_model("qwen3", backend.get_vocab_size())
    with torch.no_grad():
        model.model.embed_tokens.weight[-1] = 1e5
    model.save_pretrained(tmp_path)
    fast.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"1 of its tensors .*embed_tokens.* ends at 65,504"):
        Extractor.from_pretrained(tmp_path, device="cpu", dtype="float16")
    Extractor.from_pretrained(tmp_path, device="cpu", dtype="bfloat16")


def test_float16_is_taken_when_it_is_named_alone(
    backend: Tokenizer, fast: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    tiny_model("qwen3", backend.get_vocab_size()).half().save_pretrained(tmp_path)
    fast.save_pretrained(tmp_path)
    assert load(tmp_path, device="meta").model.dtype == torch.bfloat16
    assert load(tmp_path, device="meta", dtype="float16").model.dtype == torch.float16


def overflowing(model: Any) -> Any:
    """Finite weights whose products float16 cannot hold."""
    with torch.no_grad():
        model.model.norm.weight.fill_(300.0)
        model.lm_head.weight.mul_(3000.0)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_doctor_examines_in_the_dtype_that_it_recommends(
    dtype: str, backend: Tokenizer, fast: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    overflowing(tiny_model("qwen3", backend.get_vocab_size())).save_pretrained(tmp_path)
    fast.save_pretrained(tmp_path)
    diagnosis = doctor(tmp_path, device="cpu", dtype=dtype)
    facts = {fact.name: fact.found for fact in diagnosis.facts}
    assert all(way.exact for way in diagnosis.agreements)
    if dtype == "float16":
        assert "NaN or infinity" in facts["in float16"]
        assert diagnosis.recommended["dtype"] == "float32"
    else:
        assert "of the tokens" in facts["in bfloat16"]
        assert diagnosis.recommended["dtype"] == "bfloat16"
