"""Adapters: on all linear layers, in peft's format, initialized from fully trained weights.

peft's own layers convert inputs to float32 and back, which costs a third of a step on a CPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional


class Adapted(nn.Module):
    """A frozen linear layer with a learnt adapter: x W' + (x A') B'.

    weight: (O, I), frozen. first, second: A (rank, I) and B (O, rank), in float32.
    """

    def __init__(self, linear: nn.Linear, rank: int) -> None:
        super().__init__()
        if linear.bias is not None:
            raise ValueError("a layer with a bias cannot be given an adapter here")
        self.weight: nn.Parameter = linear.weight.requires_grad_(False)
        first = torch.empty(rank, linear.in_features)
        self.first: nn.Parameter = nn.Parameter(nn.init.kaiming_uniform_(first, a=5**0.5))
        self.second: nn.Parameter = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        learnt = functional.linear(functional.linear(x, self.first), self.second)
        return functional.linear(x, self.weight) + learnt


def adapt(model: Any, rank: int) -> dict[str, Adapted]:
    """Adds adapters to all linear layers of a model but its head, in place, and returns them."""
    model.requires_grad_(False)
    head = model.get_output_embeddings()
    found = {}
    for name, module in [*model.named_modules()]:
        if isinstance(module, nn.Linear) and module is not head:
            parent, _, last = name.rpartition(".")
            found[name] = Adapted(module, rank)
            setattr(model.get_submodule(parent), last, found[name])
    return found


@torch.no_grad()
def come_near(adapters: Mapping[str, Adapted], trained: Path) -> float:
    """Sets adapters to the best approximation of a folder's weights (truncated SVD).

    Returns the share of the squared difference that the adapters explain.
    """
    kept = whole = 0.0
    with safe_open(trained / "model.safetensors", framework="pt") as weights:
        for name, layer in adapters.items():
            change = weights.get_tensor(f"{name}.weight").float() - layer.weight.float()
            rank = len(layer.first)
            left, sizes, right = torch.svd_lowrank(change, q=rank + 8, niter=4)
            root = sizes[:rank].sqrt()
            layer.first.copy_((right[:, :rank] * root).T)
            layer.second.copy_(left[:, :rank] * root)
            whole += float(change.square().sum())
            kept += float(sizes[:rank].square().sum())
    return kept / max(whole, 1e-12)


def save_adapters(adapters: Mapping[str, Adapted], base: str, folder: Path) -> None:
    """Writes adapters in peft's format, in bfloat16. base: the model's name on the Hub."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, layer in adapters.items():
        for letter, weight in (("A", layer.first), ("B", layer.second)):
            saved = weight.detach().to(torch.bfloat16).contiguous()
            tensors[f"base_model.model.{name}.lora_{letter}.weight"] = saved
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    rank = len(next(iter(adapters.values())).first)
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": rank,
        "lora_alpha": rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": sorted({name.rpartition(".")[2] for name in adapters}),
        "inference_mode": True,
    }
    (folder / "adapter_config.json").write_text(f"{json.dumps(config, indent=2)}\n", "utf-8")
