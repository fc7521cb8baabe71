"""Linear layers whose weights lie packed in half precision, for a CPU that computes in float32.

A pass of few tokens takes as long as reading the weights. Published weights have 16 bits: in half
precision they are the same numbers as in float32, at half the memory and the reading. FBGEMM's
products widen them in registers and sum in float32.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

# The largest rounding that counts as none: of weights in bfloat16 below 1e-5, which are rare.
_NONE = 2.0**-25
# The fewest weights of a model that is packed: a smaller one stays in the processor's cache.
_LEAST = 1 << 24
# Rows of a pass of few tokens and of many; the least speedup of the few, and of the many.
_FEW, _MANY = (8, 1.2), (256, 0.9)


class PackedLinear(nn.Module):
    """A linear layer without training: (..., in_features) -> (..., out_features), in float32.

    packed: FBGEMM's own form of weight and bias.
    weight: unpacked at every access, (out_features, in_features).
    is_tied: whether another module has the same weights.
    """

    def __init__(self, layer: nn.Linear, *, is_tied: bool = False) -> None:
        super().__init__()
        self.is_tied = is_tied
        self.out_features, self.in_features = layer.weight.shape
        self.packed = torch.ops.quantized.linear_prepack_fp16(layer.weight.detach(), layer.bias)
        self._forward_pre_hooks.update(layer._forward_pre_hooks)
        self.eval()

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = torch.ops.quantized.linear_dynamic_fp16(inputs, self.packed)
        return outputs

    @property
    def weight(self) -> Tensor:
        return self._unpacked()[0]

    @property
    def bias(self) -> Tensor | None:
        return self._unpacked()[1]

    def unpacked(self) -> nn.Linear:
        """A layer of torch with the same weights and hooks."""
        weight, bias = self._unpacked()
        layer = nn.Linear(self.in_features, self.out_features, bias is not None, device="meta")
        layer.weight = nn.Parameter(weight)
        if bias is not None:
            layer.bias = nn.Parameter(bias)
        layer._forward_pre_hooks.update(self._forward_pre_hooks)
        return layer.eval()

    def _unpacked(self) -> tuple[Tensor, Tensor | None]:
        weight, bias = torch.ops.quantized.linear_unpack_fp16(self.packed)
        return weight, bias

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        weight, bias = self._unpacked()
        destination[f"{prefix}weight"] = weight
        if bias is not None:
            destination[f"{prefix}bias"] = bias


def pack(model: nn.Module, *, may_round: bool = False) -> None:
    """Packs the linear layers of a model on a CPU in float32, in place, if that is faster here.

    Layers whose weights half precision does not hold stay as they are. may_round: whether they are
    rounded to it instead, because the model was made for 16 bits or fewer.
    """
    if num_weights(model) < _LEAST or not is_faster():
        return
    embeddings = {id(each.weight) for each in model.modules() if isinstance(each, nn.Embedding)}
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if type(layer) is nn.Linear and _fits(layer.weight.detach(), may_round):
                is_tied = id(layer.weight) in embeddings
                setattr(module, name, PackedLinear(layer, is_tied=is_tied))


def unpack(model: nn.Module) -> None:
    """Undoes `pack`, for training."""
    is_tied = False
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, PackedLinear):
                setattr(module, name, layer.unpacked())
                is_tied |= layer.is_tied
    if is_tied:
        model.tie_weights()  # type: ignore[operator]


def num_weights(model: nn.Module) -> int:
    """Counts the weights of a model, packed ones included, tied ones once."""
    packed = (layer for layer in packed_layers(model) if not layer.is_tied)
    own = sum(map(torch.numel, model.parameters()))
    return own + sum(layer.in_features * layer.out_features for layer in packed)


def num_bytes(model: nn.Module) -> int:
    """The bytes of a model's weights, of which packed ones take two each."""
    packed = (layer.in_features * layer.out_features for layer in packed_layers(model))
    return sum(weight.nbytes for weight in model.parameters()) + 2 * sum(packed)


def num_rows(layer: Any) -> int:
    """The number of a linear layer's outputs; torch's own `out_features` may be outdated."""
    count: int = layer.out_features if isinstance(layer, PackedLinear) else layer.weight.shape[0]
    return count


def packed_layers(model: nn.Module) -> Iterator[PackedLinear]:
    return (layer for layer in model.modules() if isinstance(layer, PackedLinear))


@cache
def is_faster() -> bool:
    """True if this processor has packed products, and they are faster for few rows and as fast for
    many.

    The best of several products each, in turn, so that a busy machine changes little.
    """
    if "fbgemm" not in torch.backends.quantized.supported_engines:
        return False
    layer = nn.Linear(1024, 1024, bias=False)
    packed = PackedLinear(layer)
    return all(_speedup(packed, layer, rows) > least for rows, least in (_FEW, _MANY))


@torch.inference_mode()
def _speedup(layer: nn.Module, usual: nn.Module, rows: int) -> float:
    inputs = torch.ones(rows, 1024)
    shortest = {layer: float("inf"), usual: float("inf")}
    for _ in range(10):  # the first sets up the kernels
        for tried in shortest:
            started = time.perf_counter()
            tried(inputs)
            shortest[tried] = min(shortest[tried], time.perf_counter() - started)
    return shortest[usual] / shortest[layer]


def _fits(weight: Tensor, may_round: bool) -> bool:
    """True if half precision holds a weight, or may hold it rounded."""
    half = weight.half()
    if may_round:
        return bool(half.isfinite().all())
    return bool((half.float() - weight).abs().amax() <= _NONE)
