"""Models whose files do not belong together: refused or said at load, never run without a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import tiny_model
from safetensors.torch import load_file, save_file
from test_load import edit, logits, make_lora, refused, saved
from tokenizers import AddedToken, Tokenizer
from transformers import PreTrainedTokenizerFast

from schemax import Extractor, ModelError, doctor
from schemax.compiler import TextCodec, compile_schema
from schemax.extraction.schema import AttrSchema
from schemax.runtime.models.architecture import examine


class Item(AttrSchema):
    brand: str | None = None


@pytest.fixture
def fast(backend: Tokenizer) -> PreTrainedTokenizerFast:
    own = Tokenizer.from_str(backend.to_str())
    return PreTrainedTokenizerFast(tokenizer_object=own, eos_token="<|endoftext|>")


@pytest.fixture
def folder(backend: Tokenizer, fast: PreTrainedTokenizerFast, tmp_path: Path) -> Path:
    return saved(tmp_path / "base", backend, fast)


# Tokens beyond the embeddings


def test_tokens_of_the_chat_template_have_embeddings(
    folder: Path, fast: PreTrainedTokenizerFast
) -> None:
    fast.add_special_tokens({"additional_special_tokens": ["<|turn|>"]})
    fast.chat_template = "{% for m in messages %}<|turn|>{{ m.content }}{% endfor %}"
    fast.save_pretrained(folder)
    refused("'<|turn|>'", "resize", name=folder)


def test_tokens_of_an_adapters_tokenizer_have_embeddings(
    folder: Path, fast: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    adapter = make_lora(folder, tmp_path / "lora")
    fast.add_tokens([AddedToken("    ", special=False)])  # texts hold spaces
    fast.save_pretrained(adapter)
    refused("'    '", "resize", name=folder, adapter=adapter)


def test_tokens_that_no_prompt_holds_need_no_embeddings(
    folder: Path, fast: PreTrainedTokenizerFast
) -> None:
    fast.add_special_tokens({"additional_special_tokens": ["<image>"]})
    fast.save_pretrained(folder)
    loaded = Extractor.from_pretrained(folder, device="cpu")
    assert loaded.extract(["LG <image> 55"], Item, on_error="null")


def test_a_chat_template_that_spells_a_token_in_parts(
    backend: Tokenizer, fast: PreTrainedTokenizerFast
) -> None:
    fast.add_special_tokens({"additional_special_tokens": ["<|user|>"]})
    fast.chat_template = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% endfor %}"
    with pytest.raises(ModelError, match=r"'<\|user\|>'"):
        compile_schema(Item, fast, vocab_size=backend.get_vocab_size())


# Tensors that the model does not take, or lacks


def test_weights_of_more_layers_than_the_config_says(folder: Path) -> None:
    edit(folder / "config.json", num_hidden_layers=1, layer_types=["full_attention"])
    refused("no place for 11", "model.layers.1.", "different models", name=folder)


def test_biases_that_the_config_does_not_ask_for(folder: Path) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    size = len(tensors["model.layers.0.self_attn.q_proj.weight"])
    tensors["model.layers.0.self_attn.q_proj.bias"] = torch.ones(size)
    save_file(tensors, path, metadata={"format": "pt"})
    refused("no place for 1", "q_proj.bias", name=folder)


def test_weights_of_another_architecture(folder: Path) -> None:
    """Qwen3 normalizes queries and keys; Llama has the same tensors but these."""
    edit(folder / "config.json", model_type="llama", architectures=["LlamaForCausalLM"])
    refused("no place for 4", "k_norm.weight", name=folder)


def test_parts_beside_the_decoder_are_said_to_be_left_out(folder: Path) -> None:
    path = folder / "model.safetensors"
    expected = logits(Extractor.from_pretrained(folder, device="cpu").model.model)
    tensors = load_file(path)
    tensors["vision_tower.patches.weight"] = torch.ones(3)
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.warns(UserWarning, match=r"1 stored tensor \(vision_tower.*left out"):
        loaded = Extractor.from_pretrained(folder, device="cpu")
    assert torch.equal(logits(loaded.model.model), expected)


# Adapters that change more than weights


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("trainable_token_indices", [5, 7]),
        ("layer_replication", [[0, 2], [1, 2]]),
        ("alora_invocation_tokens", [5]),
    ],
)
def test_adapters_that_change_more_than_weights(
    setting: str, value: Any, folder: Path, tmp_path: Path
) -> None:
    adapter = make_lora(folder, tmp_path / "lora", **{setting: value})
    refused(str(adapter), setting, "merge it", name=folder, adapter=adapter)


# Contexts that RoPE scaling extends


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}, 2048),
        ({"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 256}, 600),
        ({"rope_type": "linear", "factor": 2.0}, 1200),
        ({"rope_type": "dynamic", "factor": 2.0}, 600),
        ({"rope_type": "default"}, 600),
    ],
)
def test_contexts_that_scaling_extends(
    scaling: dict[str, Any], context: int, codec: TextCodec
) -> None:
    rope = {"rope_theta": 10000.0, **scaling}
    model = tiny_model("llama", codec.vocab_size, max_position_embeddings=600, rope_parameters=rope)
    assert examine(model).max_positions == context


def test_texts_beyond_the_trained_context_are_read(codec: TextCodec) -> None:
    rope = {"rope_theta": 10000.0, "rope_type": "yarn", "factor": 4.0}
    model = tiny_model("llama", codec.vocab_size, max_position_embeddings=600, rope_parameters=rope)
    extractor = Extractor(model, codec)
    (item,) = extractor.stream(["QZW 7 kg, " * 100], Item)
    assert "too long" not in str(item.errors)


# Settings of `generate`


@pytest.mark.slow
def test_penalties_of_a_generation_config_are_said_not_to_apply(codec: TextCodec) -> None:
    model = tiny_model("qwen3", codec.vocab_size)
    assert "generation config" not in {fact.name for fact in doctor(model, tokenizer=codec).facts}
    model.generation_config.repetition_penalty = 1.05
    facts = {fact.name: fact.found for fact in doctor(model, tokenizer=codec).facts}
    assert facts["generation config"].startswith("repetition_penalty 1.05: not applied")
