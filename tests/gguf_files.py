"""GGUF files of tiny random models, as converters write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from conftest import tiny_model
from torch import Tensor

# transformers' names of a layer's tensors, and those of GGUF.
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_OTHERS = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def write_gguf(
    backend: tokenizers.Tokenizer,
    file: Path,
    without: tuple[str, ...] = (),
    tensors: Mapping[str, Tensor] | None = None,
    rope: dict[str, Any] | None = None,
    **entries: Any,
) -> Any:
    """A Llama with two layers, in float32; returns the same model of transformers.

    without: what is left out, tensors and "tokenizer". tensors: more of these. rope: the scaling of
    the returned model; the file has what `tensors` and `entries` say. entries: more numbers and
    texts of the header, or others in place of the right ones; dots of their names are written as
    two underscores.
    """
    import gguf

    scaled = {"rope_parameters": {"rope_theta": 10000.0, **rope}} if rope else {}
    model = tiny_model("llama", backend.get_vocab_size(), **scaled)
    config = model.config
    architecture = str(entries.pop("architecture", "llama"))
    writer = gguf.GGUFWriter(file, architecture)
    numbers = {
        "block_count": config.num_hidden_layers,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "rope.dimension_count": config.head_dim,
        **{key.replace("__", "."): value for key, value in entries.items() if "split" not in key},
    }
    for key, value in numbers.items():
        kinds: dict[type, Any] = {float: writer.add_float32, str: writer.add_string}
        kinds.get(type(value), writer.add_uint32)(f"{architecture}.{key}", value)
    if "split" in entries:
        writer.add_uint16("split.count", entries["split"])
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", config.rms_norm_eps)
    writer.add_float32(f"{architecture}.rope.freq_base", config.rope_parameters["rope_theta"])
    if "tokenizer" not in without:
        _add_tokenizer(writer, backend)
    for name, tensor in model.state_dict().items():
        if (stored := _stored_name(name)) not in without:
            heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
            count = heads.get(stored.split(".")[-2])
            writer.add_tensor(stored, (_paired(tensor, count) if count else tensor).numpy())
    for name, tensor in (tensors or {}).items():
        writer.add_tensor(name, tensor.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return model


def _add_tokenizer(writer: Any, backend: tokenizers.Tokenizer) -> None:
    written = json.loads(backend.to_str())
    tokens = sorted(backend.get_vocab().items(), key=lambda item: item[1])
    merges = [m if isinstance(m, str) else " ".join(m) for m in written["model"]["merges"]]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([token for token, _ in tokens])
    writer.add_token_types([3 if token == "<|endoftext|>" else 1 for token, _ in tokens])
    writer.add_token_merges(merges)
    writer.add_eos_token_id(0)


def _paired(tensor: Tensor, heads: int) -> Tensor:
    """Halves of each head in turns: GGUF rotates neighbours where transformers rotates halves."""
    halves = tensor.view(heads, 2, -1, tensor.shape[1])
    return halves.transpose(1, 2).reshape(tensor.shape).contiguous()


def _stored_name(name: str) -> str:
    stem, _, kind = name.rpartition(".")
    if stem in _OTHERS:
        return f"{_OTHERS[stem]}.{kind}"
    _, _, number, inner = stem.split(".", 3)
    return f"blk.{number}.{_LAYER[inner]}.{kind}"
