"""Memory: how much is free, how much a pass takes, and whether it has run out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

_CGROUP = Path("/sys/fs/cgroup")
# Messages of CUDA, cuBLAS, cuDNN, Triton, MPS, XPU and torch's CPU allocator.
_OUT_OF_MEMORY = re.compile(
    "out[ _]of[ _]([a-z]+[ _])?memory|alloc(ation)?_failed|can't allocate memory", re.IGNORECASE
)


def is_out_of_memory(error: BaseException) -> bool:
    """True if an error says, by its class or its message, that memory has run out."""
    known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return known or _OUT_OF_MEMORY.search(str(error)) is not None


def release_memory() -> None:
    """Returns memory that torch holds but does not use to the accelerator."""
    if torch.accelerator.is_available():
        torch.accelerator.empty_cache()


def bytes_of_pass(config: Any, dtype: torch.dtype) -> int:
    """The most bytes that one more token of a pass takes: in the largest layer, and for logits.

    config: the text model's, as transformers names its fields.
    """

    def largest(name: str) -> int:
        value = getattr(config, name, None) or 0
        return max(value) if isinstance(value, (list, tuple)) else int(value)

    hidden = largest("hidden_size")
    experts = largest("num_experts_per_tok") * largest("moe_intermediate_size")
    inner = max(largest("intermediate_size"), experts) or 4 * hidden
    # Residuals, queries, keys, values and merged outputs of attention; gate, up, their product.
    # Norms compute in float32.
    numbers = 12 * hidden + 4 * inner + largest("vocab_size")
    return numbers * dtype.itemsize + 2 * 4 * hidden


def free_bytes(device: torch.device) -> int:
    """The free memory of an accelerator, or of this machine, in bytes."""
    if device.type == "cuda":
        # Memory that torch holds but does not use counts as free.
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + held
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        sizes = {name: value.split()[0] for name, _, value in (x.partition(":") for x in lines)}
        free = 1024 * int(sizes["MemAvailable"])
    except (OSError, KeyError):
        return 4 << 30  # not Linux: a modest guess
    try:  # a container may have less than its host
        bound = int((_CGROUP / "memory.max").read_text("ascii"))
        return max(0, min(free, bound - int((_CGROUP / "memory.current").read_text("ascii"))))
    except (OSError, ValueError):
        return free
