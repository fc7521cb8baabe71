"""Dtypes that this processor computes fast, and the dtype that "auto" takes."""

from __future__ import annotations

import time
from functools import cache

import torch

# The least speedup that is worth the rounding. Processors without instructions for bfloat16 (AMX,
# AVX512-BF16, Arm's BF16) have less than 1, those with them more than 1.7.
_WORTH_IT = 1.3

# Instructions for matrix products, by torch's names.
_INSTRUCTIONS = {
    "AVX2": ("avx2",),
    "AVX-512": ("avx512_f",),
    "VNNI": ("avx512_vnni", "avx_vnni"),
    "AVX512-BF16": ("avx512_bf16",),
    "AMX": ("amx_tile",),
}


def instructions() -> dict[str, bool]:
    """Instructions, and whether this processor has them; {} if torch does not tell."""
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    if known.get("architecture") != "x86_64":
        return {}
    return {
        name: any(known.get(flag, False) for flag in flags) for name, flags in _INSTRUCTIONS.items()
    }


def automatic_dtype(trained: str | None) -> tuple[torch.dtype, str]:
    """The dtype of a model on this processor, and the reason.

    trained: the dtype that the model's schemax.json names; see `TrainedWith`.
    """
    if trained is None:
        return torch.float32, "exact; the model's schemax.json names no other"
    speedup = bfloat16_speedup()
    found = (
        f"the model's schemax.json names it, and its products take {1 / speedup:.2g} of the time"
    )
    if speedup > _WORTH_IT:
        return torch.bfloat16, found
    return (
        torch.float32,
        f"products in {trained}, which the model's schemax.json names, gain nothing",
    )


@cache
def bfloat16_speedup() -> float:
    """The speedup of bfloat16 over float32 on this processor, for (256, 1024) by (1024, 1024).

    The best of several products each, in turn, so that a busy machine changes little.
    """
    left, right = torch.ones(256, 1024), torch.ones(1024, 1024)
    pairs = {dtype: (left.to(dtype), right.to(dtype)) for dtype in (torch.float32, torch.bfloat16)}
    shortest = dict.fromkeys(pairs, float("inf"))
    for _ in range(6):  # the first sets up the kernels
        for dtype, (a, b) in pairs.items():
            started = time.perf_counter()
            torch.mm(a, b)
            shortest[dtype] = min(shortest[dtype], time.perf_counter() - started)
    return shortest[torch.float32] / shortest[torch.bfloat16]
