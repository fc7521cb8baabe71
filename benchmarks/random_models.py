"""Random weights of published shapes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

_BLOCK = 1 << 22


def _shape(
    hidden: int, inner: int, layers: int, heads: int, *, tied: bool = False, **other: int
) -> Mapping[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
        "tie_word_embeddings": tied,
        **other,
    }


_TINY = {"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 4096}

SHAPES: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "qwen3-tiny": _shape(64, 128, 2, 4, tied=True, **_TINY),  # not published; for quick trials
        "qwen3-0.6b": _shape(1024, 3072, 28, 16, tied=True),
        "qwen3-1.7b": _shape(2048, 6144, 28, 16, tied=True),
        "qwen3-4b": _shape(2560, 9728, 36, 32, tied=True),
        "qwen3-8b": _shape(4096, 12288, 36, 32),
        "qwen3-14b": _shape(5120, 17408, 40, 40),
        "qwen3-32b": _shape(5120, 25600, 64, 64),
    }
)


def shape_config(name: str) -> Any:
    """The configuration of a shape. Raises ValueError for an unknown name."""
    if name not in SHAPES:
        raise ValueError(f"unknown shape {name!r}; the shapes are {', '.join(SHAPES)}")
    make: Any = Qwen3Config  # its signature lacks the arguments of all configurations
    return make(
        **SHAPES[name],
        max_position_embeddings=40_960,
        rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0},
        rms_norm_eps=1e-6,
        attn_implementation="sdpa",
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )


def random_model(config: Any, dtype: torch.dtype, device: torch.device) -> Any:
    """Makes a Qwen3 model with random weights, as fast as memory can be written.

    The numbers repeat every few million, which makes no kernel faster.
    """
    with torch.device("meta"):
        model: Any = Qwen3ForCausalLM(config)
    model = model.to(dtype).to_empty(device=device)
    model.tie_weights()
    # Rotary frequencies are no weights, so they are not set yet.
    with device:
        model.model.rotary_emb = type(model.model.rotary_emb)(config)
    random = torch.Generator(device).manual_seed(0)
    block = torch.empty(_BLOCK, dtype=dtype, device=device).normal_(0, 0.02, generator=random)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.fill_(1.0)
                continue
            flat = weight.view(-1)
            for start in range(0, len(flat), _BLOCK):
                piece = flat[start : start + _BLOCK]
                piece.copy_(block[: len(piece)])
    return model.eval()
