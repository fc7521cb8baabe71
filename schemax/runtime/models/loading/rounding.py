"""Stochastic rounding of weights to 16 bits.

Changes of training are smaller than the steps of 16-bit numbers, so rounding to the nearest would
mostly restore the old weight. Stochastic rounding goes up or down, more likely to the nearer: it
keeps changes on average, and a layer's outputs are averages over hundreds of weights.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

# Fixed, so that weights are reproducible on a kind of device; unlike the seeds that weights are
# initialized with, whose random numbers would correlate.
_SEED = 604_026_209
_PART = 1 << 24  # numbers at a time: all embeddings of a large model would take gigabytes


def round_weights(module: nn.Module, dtype: torch.dtype) -> None:
    """Casts a module's weights, float32 by stochastic rounding, and its buffers as torch does."""
    random: dict[torch.device, torch.Generator] = {}
    for weight in module.parameters():
        if weight.dtype == torch.float32 and dtype != torch.float32:
            weight.data = rounded(weight.data, dtype, generator_of(weight.device, random))
    module.to(dtype)


def rounded(values: Tensor, dtype: torch.dtype, random: torch.Generator) -> Tensor:
    """Rounds float32 values at random to one of their two neighbours in a dtype of 16 bits."""
    cuts = list(range(_PART, values.numel(), _PART))
    parts = [_rounded(part, dtype, random) for part in values.flatten().tensor_split(cuts)]
    return torch.cat(parts).view(values.shape)


def _rounded(values: Tensor, dtype: torch.dtype, random: torch.Generator) -> Tensor:
    near = values.to(dtype)
    error = (values - near.float()).abs()
    # The bits of a float, as an integer, grow with its size, whatever its sign.
    away = torch.where(near.float().abs() < values.abs(), 1, -1).to(torch.int16)
    neighbour = (near.view(torch.int16) + away).view(dtype)
    gap = (neighbour.float() - near.float()).abs()
    chance = torch.rand(values.shape, generator=random, device=values.device)
    return torch.where((error > 0) & (chance * gap < error), neighbour, near)


def generator_of(
    device: torch.device, generators: dict[torch.device, torch.Generator]
) -> torch.Generator:
    """The random generator of a device, created on first use and kept in `generators`."""
    return generators.setdefault(device, torch.Generator(device).manual_seed(_SEED))


def merge_adapters(tuned: Any) -> Any:
    """Merges the adapters of peft's model in float32; returns the base model.

    Weights keep their dtype. Raises ValueError for adapters that hold NaN.
    """
    from peft.tuners.tuners_utils import BaseTunerLayer

    random: dict[torch.device, torch.Generator] = {}
    for layer in tuned.modules():
        if isinstance(layer, BaseTunerLayer):
            with _in_float32(layer.get_base_layer(), random):
                layer.merge(safe_merge=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peft warns that all is merged already; it only unwraps
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
