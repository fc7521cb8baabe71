"""Copies between host and device: all integers of a step at once, all results at once.

The cost of a copy is its start, not its size: many small copies would leave the device idle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from schemax.runtime.slots.arrays import Ints

SHARED = {"cpu"}
"""Types of devices that share the host's memory and need no copies."""


def stage(arrays: Sequence[Ints], device: Any) -> list[Tensor]:
    """Copies int64 arrays of any shape to the device; the tensors are views of one copy."""
    if torch.device(device).type in SHARED:
        return [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
    flat = torch.from_numpy(np.concatenate([array.ravel() for array in arrays]))
    if torch.device(device).type == "cuda":
        flat = flat.pin_memory()
    copied = flat.to(device, non_blocking=True)
    parts = torch.split(copied, [array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


def as_ints(numbers: npt.NDArray[np.float64]) -> Ints:
    """Packs numbers of any shape, in float32, into integers that can be staged; see `as_floats`."""
    bits: Ints = numbers.astype(np.float32).view(np.int32).astype(np.int64)
    return bits


def as_floats(staged: Tensor) -> Tensor:
    """Unpacks `as_ints` on a device, without float64, which MPS lacks."""
    return staged.to(torch.int32).view(torch.float32)


def fetch(tensor: Tensor) -> Callable[[], npt.NDArray[Any]]:
    """Starts to copy a tensor to the host; returns a function that waits for the copy.

    On CUDA it waits for the copy alone, not for work that the device gets after this call.
    """
    if tensor.device.type != "cuda":
        return lambda: tensor.cpu().numpy()
    copied = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    copied.copy_(tensor, non_blocking=True)
    done = torch.cuda.Event()  # type: ignore[no-untyped-call]
    done.record(torch.cuda.current_stream(tensor.device))

    def wait() -> npt.NDArray[Any]:
        done.synchronize()
        return copied.numpy()

    return wait
