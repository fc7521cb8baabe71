"""Compiles (`torch.compile`) chains of pointwise operations into single kernels, or whole layers.

Chains are norms, operations between the products of an MLP, and rotary positions: code of
transformers that every layer runs. Products stay as they are, and so do kernels of attention,
except for `attention.Chains`. Layers share compiled code. Training compiles whole layers, since its
passes stay the same; decoding would compile them again for every kind of pass.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from schemax.errors import ModelError

_ROTARY = "apply_rotary_pos_emb"


def compile_chains(model: Any) -> None:
    """Makes a model of transformers compile its chains on its first pass, for any number of tokens.

    Raises ModelError, with the cause, if nothing can be compiled.
    """
    _check_compiler(model)
    for module in _chains(model):
        module.compile(dynamic=True)
    # One compiled function serves all layers of all models of the family.
    for name in {type(module).__module__ for module in model.modules()}:
        code = sys.modules[name]
        rotary = getattr(code, _ROTARY, None)
        if rotary is not None and not hasattr(rotary, "_torchdynamo_orig_callable"):
            setattr(code, _ROTARY, torch.compile(rotary, dynamic=True))


def compile_layers(model: Any) -> None:
    """Makes a model in training compile its layers, which share compiled code.

    Raises ModelError, with the cause, if nothing can be compiled.
    """
    _check_compiler(model)
    count = model.config.get_text_config().num_hidden_layers
    for stack in model.modules():
        if isinstance(stack, nn.ModuleList) and len(stack) == count:
            for layer in stack:
                layer.compile(dynamic=True)


def _check_compiler(model: Any) -> None:
    device = next(model.parameters()).device
    try:
        torch.compile(_chain)(torch.ones(2, device=device))
    except Exception as error:  # a missing compiler may raise anything
        reason = (str(error).strip() or type(error).__name__).partition("\n")[0]
        raise ModelError(
            f"compile=True: nothing can be compiled for {device} ({reason}); install a C++ "
            "compiler (CPU) or Triton (GPU), or leave it out"
        ) from error


def is_compiled(model: Any) -> bool:
    return any(module._compiled_call_impl is not None for module in model.modules())


def _chain(numbers: torch.Tensor) -> torch.Tensor:
    return numbers * 2 + 1


def _chains(model: Any) -> Iterator[nn.Module]:
    """Yields norms, and MLPs of plain products, without accelerate's hooks, which move tensors."""
    for module in model.modules():
        children = dict(module.named_children())
        is_norm = not children and type(module).__name__.endswith("Norm")
        products = [child for name, child in children.items() if name.endswith("_proj")]
        is_mlp = "down_proj" in children and all(type(part) is nn.Linear for part in products)
        if (is_norm or is_mlp) and not hasattr(module, "_hf_hook"):
            yield module
