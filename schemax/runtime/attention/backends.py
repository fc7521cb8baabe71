"""The backends of attention, best first: kernels, and the inputs that each can take.

Before its first use on a device, a CUDA kernel is compared with `kernels.plain`, and left out where
it fails or differs.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from schemax.runtime.attention.kernels import Kernel, efficient, flash_on_cpu, flex, plain, varlen
from schemax.runtime.attention.visibility import Mask
from schemax.runtime.slots.memory import is_out_of_memory

logger = logging.getLogger(__name__)

# The number up to which queries, or keys, are few.
_FEW = 128
# The largest error of a kernel against `plain`, whose outputs are about 1.
_WRONG = 0.05


@dataclass(frozen=True, slots=True)
class Backend:
    """A kernel, and the queries, keys and masks that it can take.

    device: the type of device; None: any.
    softcaps: True if it caps scores.
    masks: True if it takes every mask, False if only masks that show the first keys.
    half: True if it requires half precision.
    equal_sizes: True if heads of keys and values must be equally large.
    long: True if it pays off for many queries or keys alone.
    on_request: True if it is used only for models that were loaded with it, and for soft caps.
    """

    kernel: Kernel
    device: str | None = None
    softcaps: bool = False
    masks: bool = True
    half: bool = False
    equal_sizes: bool = False
    long: bool = False
    on_request: bool = False

    def takes(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        softcap: float | None,
        *,
        is_requested: bool,
    ) -> bool:
        """True if the kernel can take tensors like these, and is worth it."""
        return (
            self.device in (None, query.device.type)
            and (self.softcaps or softcap is None)
            and (self.masks or mask is None or mask.counts is not None)
            and not (self.half and query.dtype == torch.float32)
            and not (self.equal_sizes and query.shape[-1] != value.shape[-1])
            and not (self.long and not _is_long(query, key))
            and not (self.on_request and not is_requested)
        )


BACKENDS = (
    Backend(flex, "cuda", softcaps=True, long=True, on_request=True),
    Backend(flash_on_cpu, "cpu", equal_sizes=True),
    # For few keys, too: products would copy them before they multiply them.
    Backend(varlen, "cuda", masks=False, half=True),
    Backend(efficient, "cuda", long=True),
    Backend(plain, softcaps=True),
)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Mask | None = None,
    causal: bool = False,
    softcap: float | None = None,
    *,
    prefers_flex: bool = False,
) -> tuple[Tensor, Tensor]:
    """(B, n, H, D), (B, Hk, M, D), (B, Hk, M, Dv) -> (B, n, H, Dv) and (B, n, H) log-sum-exps.

    H is a multiple of Hk. causal: M is n, and each query sees the keys up to its own.
    """
    kernel = _kernel_for(query, key, value, mask, softcap, prefers_flex=prefers_flex)
    return kernel(query, key, value, scale, mask, causal, softcap)


def _kernel_for(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | None,
    softcap: float | None,
    *,
    prefers_flex: bool,
) -> Kernel:
    """The first kernel of the table that takes tensors like these and works."""
    sizes = query.shape[-1], value.shape[-1]
    is_requested = prefers_flex or softcap is not None
    for backend in BACKENDS:
        takes = backend.takes(query, key, value, mask, softcap, is_requested=is_requested)
        is_tried = backend.device == "cuda"
        if takes and (not is_tried or _works(backend.kernel, query.device, query.dtype, sizes)):
            return backend.kernel
    raise AssertionError("the last backend takes everything")


def _is_long(query: Tensor, key: Tensor) -> bool:
    """True if there are enough queries or keys for a kernel; fewer are left to matrix products."""
    count, keys = query.shape[1], key.shape[2]
    if query.dtype != torch.float32:
        return count > 1 or keys > _FEW
    return count > _FEW or keys > 2 * _FEW


@cache
def _works(
    kernel: Kernel, device: torch.device, dtype: torch.dtype, sizes: tuple[int, int]
) -> bool:
    """True if a CUDA kernel agrees with `plain` for heads of these sizes; logs the result once."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    query, key, value = (
        random(2, 5, 4, sizes[0]),
        random(2, 2, 40, sizes[0])[:, :, :37],
        random(2, 2, 40, sizes[1])[:, :, :37],
    )
    counts = torch.tensor([37, 20], dtype=torch.int32).to(device)
    tried = [(None, 37), (Mask(counts=counts, length=37), 37), (None, 5)]
    softcap = 5.0 if kernel is flex else None
    if kernel is not varlen:
        tried.append((Mask(random(2, 5, 37).float()), 37))
    try:
        for mask, length in tried:
            keys, values = key[:, :, :length], value[:, :, :length]
            results = kernel(query, keys, values, 0.3, mask, length == 5, softcap)
            expected = plain(query, keys, values, 0.3, mask, length == 5, softcap)
            for got, right in zip(results, expected, strict=True):
                if not bool(((got.float() - right.float()).abs() <= _WRONG).all()):
                    raise ValueError("its results differ from those of matrix products")
    except Exception as error:  # a kernel may raise anything where the device or release lacks it
        if is_out_of_memory(error):
            raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        logger.info("attention on %s in %s: no %s (%s)", device, dtype, kernel.__name__, reason)
        return False
    logger.info("attention on %s in %s: %s, heads of %d", device, dtype, kernel.__name__, sizes[0])
    return True
