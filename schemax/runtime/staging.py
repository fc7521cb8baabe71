"""Between host and device: all integers of a step in one copy there, all results in one back.

A copy costs its start, not its size: many small ones, each waited for, would leave the device idle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from schemax.runtime.plan import Ints

SHARED = {"cpu"}
"""Devices in the host's own memory: nothing has to be copied there."""


def stage(arrays: Sequence[Ints], device: Any) -> list[Tensor]:
    """int64 arrays of any shape as tensors on the device, which are views of one copy."""
    if torch.device(device).type in SHARED:
        return [torch.from_numpy(np.ascontiguousarray(array)) for array in arrays]
    flat = torch.from_numpy(np.concatenate([array.ravel() for array in arrays]))
    if torch.device(device).type == "cuda":
        flat = flat.pin_memory()
    copied = flat.to(device, non_blocking=True)
    parts = torch.split(copied, [array.size for array in arrays])
    return [part.view(array.shape) for part, array in zip(parts, arrays, strict=True)]


def as_ints(numbers: npt.NDArray[np.float64]) -> Ints:
    """Numbers of any shape in float32, as integers that can be staged; see `as_floats`."""
    bits: Ints = numbers.astype(np.float32).view(np.int32).astype(np.int64)
    return bits


def as_floats(staged: Tensor) -> Tensor:
    """The numbers of `as_ints` on a device, which need not know float64 (MPS does not)."""
    return staged.to(torch.int32).view(torch.float32)


def fetch(tensor: Tensor) -> Callable[[], npt.NDArray[Any]]:
    """Has a tensor copied to the host; what is returned waits for the copy, and gives it.

    On CUDA for the copy alone: not for what the device is given to do after this call.
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
