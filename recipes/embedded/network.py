"""The network: its shape, its initialization from an earlier model, and its optimizers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import AttentionInterface, Qwen3Config, Qwen3ForCausalLM

from recipes.embedded.muon import Muon
from schemax.compiler import TextCodec


@dataclass(frozen=True, slots=True)
class Shape:
    """The size of the network. vocab_size: the most tokens of the BPE, without twins."""

    vocab_size: int = 8192
    hidden_size: int = 256
    num_layers: int = 6
    intermediate_size: int = 768


def new_model(shape: Shape, codec: TextCodec, out: Path) -> Qwen3ForCausalLM:
    """Returns a small Qwen3 with random weights; saves its config into `out`."""
    config = Qwen3Config(
        vocab_size=codec.vocab_size,
        hidden_size=shape.hidden_size,
        num_hidden_layers=shape.num_layers,
        intermediate_size=shape.intermediate_size,
        num_attention_heads=shape.hidden_size // 64,
        num_key_value_heads=shape.hidden_size // 128,
        head_dim=64,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        eos_token_id=codec.eos_ids[0],
        pad_token_id=codec.eos_ids[0],
        bos_token_id=None,
    )
    config.save_pretrained(out)
    return Qwen3ForCausalLM(config)


def take_up(model: Qwen3ForCausalLM, start: Path) -> None:
    """Loads the weights of an earlier model with the same shape and tokenizer."""
    model.load_state_dict(Qwen3ForCausalLM.from_pretrained(start, dtype=torch.float32).state_dict())


def add_dropout(model: nn.Module) -> nn.Dropout:
    """Adds dropout after attention and feed-forward, which Qwen3 lacks.

    Returns the module that all hooks use; its `p` can be changed at any time.
    """
    dropout = nn.Dropout(0.0)

    def drop(module: nn.Module, _args: Any, output: torch.Tensor) -> torch.Tensor:
        return functional.dropout(output, dropout.p, module.training)

    for name, module in model.named_modules():
        if name.endswith(("o_proj", "down_proj")):
            module.register_forward_hook(drop)
    return dropout


def new_optimizers(
    model: nn.Module, learning_rate: float, weight_decay: float
) -> list[torch.optim.Optimizer]:
    """Returns Muon (Jordan et al., 2024) for the layers' matrices, AdamW for embeddings and norms.

    From scratch, Muon's loss is far below AdamW's at the same number of steps.
    """
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.ndim == 2 and "embed" not in name]
    others = [p for name, p in named if p.ndim != 2 or "embed" in name]
    return [
        Muon(matrices, lr=learning_rate, weight_decay=weight_decay),
        torch.optim.AdamW(others, lr=learning_rate, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def use_rounded_attention() -> None:
    """Makes all models of this process attend with scores in bfloat16, from now on.

    On CPUs this takes half the time of torch's attention; the rounding error is far below the
    differences between batches. For training only.
    """
    AttentionInterface.register("sdpa", rounded_attention)


def rounded_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float,
    **_options: Any,
) -> tuple[torch.Tensor, None]:
    """Attends: (B, H, L, D) queries, (B, G, L, D) keys, values, (B, 1, L, L) -> (B, L, H, D)."""
    batch, heads, length, width = query.shape
    groups, dtype = key.shape[1], value.dtype
    # Autocast computes softmax in float32, which doubles the memory traffic.
    with torch.autocast("cpu", enabled=False):
        rows = (query * scaling).to(dtype).reshape(batch, groups, -1, width)
        scores = (rows @ key.to(dtype).transpose(-1, -2)).view(batch, groups, -1, length, length)
        scores += _added(attention_mask, dtype)[:, None]
        weights = scores.softmax(-1).view(batch, groups, -1, length)
        found = (weights @ value).view(batch, heads, length, width)
    return found.transpose(1, 2), None


@lru_cache(maxsize=1)
def _added(allowed: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Returns the additive mask; cached, since all layers get the same mask."""
    lowest = torch.finfo(dtype).min
    return torch.zeros_like(allowed, dtype=dtype).masked_fill_(~allowed, lowest)
