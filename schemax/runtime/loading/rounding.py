"""Weights of 16 bits that keep what was learnt, though each change is smaller than their steps.

The nearest number of 16 bits is most often the one that was there before. Here a weight goes up or
down at random, the likelier to the closer: a change is kept on average, and a layer's outputs are
averages over hundreds of weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

# The same weights every time, on the same kind of device. No number that weights are drawn by: the
# chance would be no chance.
_SEED = 604_026_209
_PART = 1 << 24  # of the embeddings of a large model, all at once would need gigabytes


def round_weights(module: nn.Module, dtype: torch.dtype) -> None:
    """Casts all weights of a module, those of float32 at random, and its buffers as torch does."""
    random: dict[torch.device, torch.Generator] = {}
    for weight in module.parameters():
        if weight.dtype == torch.float32 and dtype != torch.float32:
            weight.data = rounded(weight.data, dtype, generator_of(weight.device, random))
    module.to(dtype)


def rounded(values: Tensor, dtype: torch.dtype, random: torch.Generator) -> Tensor:
    """Float32 values in a dtype of 16 bits, each one of its two neighbours there."""
    cuts = list(range(_PART, values.numel(), _PART))
    parts = [_rounded(part, dtype, random) for part in values.flatten().tensor_split(cuts)]
    return torch.cat(parts).view(values.shape)


def _rounded(values: Tensor, dtype: torch.dtype, random: torch.Generator) -> Tensor:
    near = values.to(dtype)
    error = (values - near.float()).abs()
    # Bits of a float grow with its size, whatever its sign.
    away = torch.where(near.float().abs() < values.abs(), 1, -1).to(torch.int16)
    other = (near.view(torch.int16) + away).view(dtype)
    gap = (other.float() - near.float()).abs()
    chance = torch.rand(values.shape, generator=random, device=values.device)
    return torch.where((error > 0) & (chance * gap < error), other, near)


def generator_of(
    device: torch.device, made: dict[torch.device, torch.Generator]
) -> torch.Generator:
    """The random numbers of a device, out of those that were made already."""
    return made.setdefault(device, torch.Generator(device).manual_seed(_SEED))


def merge_adapters(tuned: Any) -> Any:
    """peft's model -> the base model with the adapters in its weights, computed in float32.

    Weights keep their dtype. Raises ValueError for adapters that hold NaN.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    random: dict[torch.device, torch.Generator] = {}
    for layer in tuned.modules():
        if isinstance(layer, BaseTunerLayer):
            with _in_float32(layer.get_base_layer(), random):
                layer.merge(safe_merge=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it finds that all is merged, and has only to clear away
        return tuned.merge_and_unload(safe_merge=True)


@contextmanager
def _in_float32(layer: nn.Module, random: dict[torch.device, torch.Generator]) -> Iterator[None]:
    short = {
        name: weight.dtype
        for name, weight in layer.named_parameters(recurse=False)
        if weight.dtype in (torch.bfloat16, torch.float16)
    }
    for name in short:
        weight = layer.get_parameter(name)
        weight.data = weight.data.float()
    yield
    for name, dtype in short.items():
        weight = layer.get_parameter(name)
        weight.data = rounded(weight.data, dtype, generator_of(weight.device, random))
