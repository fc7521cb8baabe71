"""Weights packed for a CPU: in half precision, bfloat16, or four bits.

A pass of few tokens takes as long as reading the weights. Published weights have 16 bits: in half
precision they are the same numbers as in float32, at half the memory and the reading. FBGEMM's
products widen them in registers and sum in float32. Models in bfloat16 keep their weights in the
order in which oneDNN's products read them, which torch would make anew for every product. Four bits
are for models that do not fit otherwise.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

M = TypeVar("M", bound=nn.Module)

# The largest rounding that counts as none: of weights in bfloat16 below 1e-5, which are rare.
_NONE = 2.0**-25
# The fewest weights of a model that is packed: a smaller one stays in the processor's cache.
_LEAST = 1 << 24
# Rows of a pass of few tokens and of many; the least speedup of the few, and of the many.
_FEW, _MANY = (8, 1.2), (256, 0.9)
# Rows of the passes that oneDNN orders weights for; passes of other sizes gain, too.
_USUAL_ROWS = 64
# Weights of a row that share a scale and a least value in four bits, as in GGUF's Q4_0, Q4_1 and
# Q4_K; and rows that the kernel packs together.
_GROUP, _ROWS = 32, 16
# The numbers of steps from a group's least to its largest weight. Q4_0 seldom uses all of its 15.
_STEPS = range(15, 6, -1)
# Four bits hold a layer whose error, relative to its weights, is no more than rounding to 16 makes.
_HELD = 1e-3
_TINY = torch.finfo(torch.float32).tiny


class PackedModule(nn.Module, ABC):
    """A module with packed weights, without training.

    packed: the weights, in a form of its own.
    is_tied: whether another module has the same weights.
    num_weights: how many there are, with biases.
    form: what the weights are packed in, in words.
    """

    form: str

    def __init__(self, module: nn.Module, packed: Any, *, is_tied: bool = False) -> None:
        super().__init__()
        self.packed, self.is_tied = packed, is_tied
        self.num_weights = sum(map(torch.numel, module.parameters()))
        self._forward_pre_hooks.update(module._forward_pre_hooks)
        self.eval()

    @property
    def num_bytes(self) -> int:
        """The bytes of the packed weights."""
        return 2 * self.num_weights

    @abstractmethod
    def unpacked(self) -> Any:
        """A module of torch with the same weights and hooks."""

    @property
    def weight(self) -> Tensor:
        """Unpacked at every access."""
        weight: Tensor = self.unpacked().weight.detach()
        return weight

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        for name, weight in self.unpacked().named_parameters():
            destination[f"{prefix}{name}"] = weight.detach()


class PackedLinear(PackedModule):
    """A linear layer: (..., in_features) -> (..., out_features)."""

    def __init__(self, layer: nn.Linear, packed: Any, *, is_tied: bool = False) -> None:
        super().__init__(layer, packed, is_tied=is_tied)
        self.out_features, self.in_features = layer.weight.shape

    @property
    def bias(self) -> Tensor | None:
        bias: Tensor | None = self.unpacked().bias
        return None if bias is None else bias.detach()

    def unpacked(self) -> nn.Linear:
        weight, bias = self._unpacked()
        layer = nn.Linear(self.in_features, self.out_features, bias is not None, device="meta")
        layer.weight = nn.Parameter(weight)
        if bias is not None:
            layer.bias = nn.Parameter(bias)
        layer._forward_pre_hooks.update(self._forward_pre_hooks)
        return layer.eval()

    @abstractmethod
    def _unpacked(self) -> tuple[Tensor, Tensor | None]:
        """(out_features, in_features) weight, and bias."""


class HalfLinear(PackedLinear):
    """A linear layer in half precision, in FBGEMM's form, which computes in float32."""

    form = "half precision"

    def __init__(self, layer: nn.Linear, *, is_tied: bool = False) -> None:
        packed = torch.ops.quantized.linear_prepack_fp16(*_wide(layer))
        super().__init__(layer, packed, is_tied=is_tied)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = torch.ops.quantized.linear_dynamic_fp16(inputs, self.packed)
        return outputs

    def _unpacked(self) -> tuple[Tensor, Tensor | None]:
        weight, bias = torch.ops.quantized.linear_unpack_fp16(self.packed)
        return weight, bias


class BFloat16Linear(PackedLinear):
    """A linear layer in bfloat16, whose outputs are those of torch's own.

    packed: the weights in oneDNN's order; the bias.
    """

    form = "bfloat16"

    def __init__(self, layer: nn.Linear, *, is_tied: bool = False) -> None:
        ordered = torch.ops.mkldnn._reorder_linear_weight(layer.weight.detach(), _USUAL_ROWS)
        bias = None if layer.bias is None else layer.bias.detach()
        super().__init__(layer, (ordered, bias), is_tied=is_tied)

    def forward(self, inputs: Tensor) -> Tensor:
        product = torch.ops.mkldnn._linear_pointwise
        outputs: Tensor = product(inputs, *self.packed, "none", [], "")
        return outputs

    def _unpacked(self) -> tuple[Tensor, Tensor | None]:
        ordered, bias = self.packed
        return ordered.to_dense(), bias


class FourBitLinear(PackedLinear):
    """A linear layer in four bits, which multiplies in bfloat16.

    packed: the kernel's form of the steps; (in_features / 32, out_features, 2) scales and middles
        of groups in bfloat16; the bias.
    error: the rounding, relative to the weights.
    """

    form = "four bits"

    def __init__(self, layer: nn.Linear) -> None:
        weight, bias = _wide(layer)
        steps, grid, error = _four_bits(weight)
        kernel_form = torch.ops.aten._convert_weight_to_int4pack_for_cpu(steps, 1)
        super().__init__(layer, (kernel_form, grid, bias))
        self.error = error

    def forward(self, inputs: Tensor) -> Tensor:
        kernel_form, grid, bias = self.packed
        rows = inputs.reshape(-1, self.in_features).bfloat16()
        product = torch.ops.aten._weight_int4pack_mm_for_cpu(rows, kernel_form, _GROUP, grid)
        outputs: Tensor = product if bias is None else product + bias
        return outputs.to(inputs.dtype).view(*inputs.shape[:-1], self.out_features)

    @property
    def num_bytes(self) -> int:
        return sum(part.nbytes for part in self.packed[:2])

    def _unpacked(self) -> tuple[Tensor, Tensor | None]:
        kernel_form, grid, bias = self.packed
        unit = torch.eye(self.in_features, dtype=torch.bfloat16)
        weight = torch.ops.aten._weight_int4pack_mm_for_cpu(unit, kernel_form, _GROUP, grid)
        return weight.float().T.contiguous(), bias


def _wide(layer: nn.Linear) -> tuple[Tensor, Tensor | None]:
    """A layer's weight and bias in float32."""
    bias = None if layer.bias is None else layer.bias.detach().float()
    return layer.weight.detach().float(), bias


class HalfEmbedding(PackedModule):
    """An embedding in half precision: ids -> (..., size) in float32."""

    form = "half precision"

    def __init__(self, layer: nn.Embedding) -> None:
        super().__init__(layer, layer.weight.detach().half())

    def forward(self, ids: Tensor) -> Tensor:
        return nn.functional.embedding(ids, self.packed).float()

    def unpacked(self) -> nn.Embedding:
        rows, size = self.packed.shape
        layer = nn.Embedding(rows, size, device="meta")
        layer.weight = nn.Parameter(self.packed.float())
        layer._forward_pre_hooks.update(self._forward_pre_hooks)
        return layer.eval()


def pack(model: nn.Module, *, may_round: bool = False) -> None:
    """Packs a model on a CPU, in place.

    One in float32 takes half precision, if that is faster here; modules whose weights half
    precision does not hold are left as they are. may_round: whether they are rounded to it instead,
    because the model was made for 16 bits or fewer. One in bfloat16 stays in it. A model that
    another library has quantized is left as it is.
    """
    if num_weights(model) < _LEAST or getattr(model, "is_quantized", False):
        return
    if model.dtype == torch.float32 and is_faster():
        _pack_halves(model, may_round)
    if model.dtype == torch.bfloat16 and multiplies_bfloat16():
        _pack_linear(model, BFloat16Linear, lambda weight: weight.dtype == torch.bfloat16)


def pack_four_bits(model: nn.Module, dtype: torch.dtype, *, keeps_more: bool) -> None:
    """Packs the linear layers of a model on a CPU in four bits, in place; the rest is in `dtype`.

    In float32, half precision packs the output head, embeddings, and layers whose outputs are no
    multiple of 16, or whose inputs are none of 32. keeps_more: whether it also packs the layers
    that four bits do not hold, which are rounded otherwise.
    """
    head = model.get_output_embeddings()  # type: ignore[operator]
    for module, name, layer in _plain(model, nn.Linear):
        rows, columns = layer.weight.shape
        if layer is head or rows % _ROWS or columns % _GROUP:
            continue
        own = FourBitLinear(layer)
        if own.error <= _HELD or not keeps_more:
            setattr(module, name, own)
    if dtype == torch.float32 and _has_halves():
        _pack_halves(model, may_round=True)
    model.to(dtype)
    # As transformers marks models: rounding counts as no fault, and training is refused.
    model.is_quantized = True  # type: ignore[assignment]


def _pack_halves(model: nn.Module, may_round: bool) -> None:
    _pack_linear(model, HalfLinear, partial(_fits, may_round=may_round))
    used = Counter(id(part) for each in model.modules() for part in each.parameters(recurse=False))
    for module, name, table in _plain(model, nn.Embedding):
        if used[id(table.weight)] == 1 and _fits(table.weight.detach(), may_round):
            setattr(module, name, HalfEmbedding(table))


def _pack_linear(
    model: nn.Module,
    kind: type[HalfLinear] | type[BFloat16Linear],
    holds: Callable[[Tensor], bool],
) -> None:
    """Packs the linear layers whose weights the kind holds."""
    # Not only torch's own embeddings: some families have a kind of their own.
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    for module, name, layer in _plain(model, nn.Linear):
        if holds(layer.weight.detach()):
            setattr(module, name, kind(layer, is_tied=id(layer.weight) in tables))


def _plain(model: nn.Module, kind: type[M]) -> Iterator[tuple[nn.Module, str, M]]:
    """Yields torch's own modules of a kind, each with the module that it is part of and its name
    there."""
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if type(layer) is kind:
                yield module, name, layer


def _four_bits(weight: Tensor) -> tuple[Tensor, Tensor, float]:
    """(N, K) -> (N, K) steps from 0 to 15, (K / 32, N, 2) the grid, and the error of the grid.

    A group's grid has as many steps as give the least error, so that weights which lie on one
    already, as those of GGUF files do, stay as they are.
    """
    grouped = weight.reshape(len(weight), -1, _GROUP)
    least, most = grouped.amin(-1, keepdim=True), grouped.amax(-1, keepdim=True)

    def on_grid(count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        scale = ((most - least) / count).clamp_(min=_TINY)
        steps = ((grouped - least) / scale).round_()
        error = (steps * scale + least).sub_(grouped).square_().sum(-1, keepdim=True)
        return error, steps, scale

    counts = torch.tensor(_STEPS)
    errors = torch.cat([on_grid(count)[0] for count in counts], -1)
    error, steps, scale = on_grid(counts[errors.argmin(-1, keepdim=True)])
    grid = torch.cat([scale, least + 8 * scale], -1).bfloat16().transpose(0, 1).contiguous()
    share = error.sum() / weight.square().sum().clamp_(min=_TINY)
    return steps.flatten(1).int(), grid, float(share.sqrt())


def unpack(model: nn.Module) -> None:
    """Undoes `pack`, for training."""
    is_tied = False
    for module in list(model.modules()):
        for name, layer in list(module.named_children()):
            if isinstance(layer, PackedModule):
                setattr(module, name, layer.unpacked())
                is_tied |= layer.is_tied
    if is_tied:
        model.tie_weights()  # type: ignore[operator]


def num_weights(model: nn.Module) -> int:
    """Counts the weights of a model, packed ones included, tied ones once."""
    packed = (module.num_weights for module in packed_modules(model) if not module.is_tied)
    return sum(map(torch.numel, model.parameters())) + sum(packed)


def num_bytes(model: nn.Module) -> int:
    """The bytes of a model's weights, packed ones included."""
    packed = (module.num_bytes for module in packed_modules(model))
    return sum(weight.nbytes for weight in model.parameters()) + sum(packed)


def num_rows(layer: Any) -> int:
    """The number of a linear layer's outputs; torch's own `out_features` may be outdated."""
    count: int = layer.out_features if isinstance(layer, PackedLinear) else layer.weight.shape[0]
    return count


def packed_modules(model: nn.Module) -> Iterator[PackedModule]:
    return (module for module in model.modules() if isinstance(module, PackedModule))


def described(model: nn.Module) -> str:
    """The packed weights of a model, as in "211 modules in half precision"; "" without any."""
    counts = Counter(module.form for module in packed_modules(model))
    return ", ".join(f"{counts[form]} modules in {form}" for form in sorted(counts))


def _has_halves() -> bool:
    return "fbgemm" in torch.backends.quantized.supported_engines


def multiplies_bfloat16() -> bool:
    """True if oneDNN has products of bfloat16 for this processor."""
    has_onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return has_onednn and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


@cache
def is_faster() -> bool:
    """True if this processor has packed products, and they are faster for few rows and as fast for
    many.

    The best of several products each, in turn, so that a busy machine changes little.
    """
    if not _has_halves():
        return False
    layer = nn.Linear(1024, 1024, bias=False)
    packed = HalfLinear(layer)
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
