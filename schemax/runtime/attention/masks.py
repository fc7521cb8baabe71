"""Masks of a segment's queries over its keys, in the forms that kernels of attention require.

Masks are computed once a pass, on the device, from the staged batch; layers share them.
"""

from __future__ import annotations

import torch
from torch import Tensor

from schemax.runtime.attention.batch import KVSegment
from schemax.runtime.attention.visibility import within_window
from schemax.runtime.slots.block_table import OWN_ONLY

# Rows of a mask for the CUDA kernel begin at multiples of this many numbers.
_ALIGNED = 16


class Mask:
    """A mask of the M keys that each query of B groups sees.

    added: (B, 1 or n, M), added to the scores.
    counts: (B,) int32 from 1 to M, if a group sees its first keys alone; `added` is then computed
        on first use.
    """

    def __init__(
        self, added: Tensor | None = None, counts: Tensor | None = None, length: int = 0
    ) -> None:
        self.counts, self._added, self._length = counts, added, length
        self._folded: dict[tuple[int, torch.dtype | None], Tensor] = {}

    @property
    def added(self) -> Tensor:
        if self._added is None:
            assert self.counts is not None
            column = torch.arange(self._length, device=self.counts.device)
            self._added = least_where(column >= self.counts[:, None, None])
        return self._added

    def folded(self, groups: int, dtype: torch.dtype | None = None) -> Tensor:
        """(B, 1, 1 or n * groups, M) for folded queries, made once for all layers of a pass.

        dtype: for a CUDA kernel, whose rows begin at multiples of `_ALIGNED`; None: unchanged.
        """
        folded = self._folded.get((groups, dtype))
        if folded is None:
            folded = self.added
            if folded.shape[1] > 1:
                folded = folded.repeat_interleave(groups, dim=1)
            if dtype is not None:
                length = folded.shape[-1]
                folded = folded.clamp(min=torch.finfo(dtype).min).to(dtype)
                folded = torch.nn.functional.pad(folded, (0, -length % _ALIGNED))[..., :length]
            folded = self._folded[groups, dtype] = folded[:, None]
        return folded


def mask_of(segment: KVSegment, window: int | None, furthest: int) -> Mask | None:
    """The mask of a segment's queries in layers of a window; None: they see all keys.

    A causal segment gets a mask only if the window hides keys; else its kernel masks by itself.
    """
    hides_keys = window is not None and furthest >= window
    seen: Tensor | None = None
    if segment.labels is not None:
        labels = segment.labels
        key, width = labels[:, None, :], labels.shape[1]
        seen = (key == -1) | (key == labels[:, :, None])
        seen &= torch.ones(width, width, dtype=torch.bool, device=labels.device).tril()
    elif segment.orders is not None:
        orders, own = segment.orders[:, None, :], segment.own_orders[:, :, None]
        seen = (orders <= own) | (orders == own + OWN_ONLY)
    elif segment.visible is not None:
        # Rows without tokens, and padding, see all keys: their results are never read.
        length = segment.length or segment.pool.shape[1]
        counts = segment.visible.where(segment.visible > 0, length)
        if counts.shape[1] == 1 and not hides_keys:
            return Mask(counts=counts[:, 0].int(), length=length)
        seen = torch.arange(length, device=counts.device) < counts[..., None]
    elif segment.causal and hides_keys:
        width = segment.queries.shape[1]
        ones = torch.ones(width, width, dtype=torch.bool, device=segment.queries.device)
        seen = ones.tril()[None]
    if hides_keys:
        query, key = segment.query_positions, segment.key_positions
        near = within_window(query[:, :, None], key[:, None, :], window)
        seen = near if seen is None else near & seen
    return None if seen is None else Mask(least_where(~seen))


def least_where(unseen: Tensor) -> Tensor:
    """float32: the least number where `unseen` is true, 0 elsewhere."""
    least = torch.finfo(torch.float32).min
    return torch.zeros(unseen.shape, device=unseen.device).masked_fill_(unseen, least)
