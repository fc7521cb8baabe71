"""A transformers model as a GGUF file."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from schemax.benchmark.engines.base import Unavailable

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def write_gguf(model: Any, path: Path, add_tokens: Callable[[Any], None] | None = None) -> None:
    """A Qwen3 as a GGUF file: weights in their own dtype, norms in float32.

    add_tokens: writes a tokenizer; without it tokens have no texts.

    Raises Unavailable for any other model.
    """
    config = model.config
    if reason := _unlike_qwen3(config):
        raise Unavailable(reason)
    gguf: Any = import_module("gguf")
    layers = config.num_hidden_layers
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_block_count(layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(model.get_input_embeddings().weight.shape[0])
    if add_tokens is None:
        writer.add_tokenizer_model("none")
    else:
        add_tokens(writer)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, layers)
    for name, weight in model.named_parameters():  # a tied head is not among them
        known = names.get_name(name, try_suffixes=(".weight",))
        if known is None or weight.dtype not in _DTYPES or type(weight.data) is not torch.Tensor:
            raise Unavailable(
                f"cannot convert {name}: it is quantized, or no weight of a plain Qwen3"
            )
        data = weight.detach().cpu().contiguous()
        if data.dim() == 1:
            writer.add_tensor(known, data.float().numpy())
        elif data.dtype == torch.bfloat16:
            raw = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(known, data.view(torch.uint8).numpy(), raw_dtype=raw)
        else:
            writer.add_tensor(known, data.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _unlike_qwen3(config: Any) -> str:
    """What the conversion does not support, in words; empty for a plain Qwen3."""
    if config.model_type != "qwen3":
        return f"only Qwen3 is converted, not {config.model_type}"
    if config.rope_parameters["rope_type"] != "default":
        return "only Qwen3 with plain rotary embeddings is converted"
    if set(config.layer_types) != {"full_attention"}:
        return "only Qwen3 with full attention is converted"
    return "" if config.hidden_act == "silu" else "only Qwen3 with SiLU is converted"
