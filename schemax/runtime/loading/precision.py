"""How fast this processor computes in bfloat16, by which "auto" and the doctor go."""

from __future__ import annotations

import time
from functools import cache

import torch

# Below this, the rounding is not worth it. Processors without instructions for bfloat16 (AMX,
# AVX512-BF16, Arm's BF16) lie below 1, those with them above 1.7.
WORTH_IT = 1.3


@cache
def bfloat16_speedup() -> float:
    """How many times as fast as in float32 this processor multiplies (256, 1024) by (1024, 1024).

    The shortest of several products of each, by turns, so that a busy machine changes little.
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
