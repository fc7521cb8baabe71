"""Visibility: which tokens a token sees, as a rule and as masks of attention.

Prefill, decoding and training all follow `sees`; the reference in tests states the rule once more,
token by token. A token's place in memory never matters (paper, section 4.3.2 and figure 3). Masks
of segments are computed once a pass, on the device, from the staged batch; layers share them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from schemax.config import DecodingConfig
from schemax.runtime.attention.batch import KVSegment
from schemax.runtime.slots.block_table import OWN_ONLY


@dataclass(slots=True)
class TokenInfo:
    """Four integers per token, and whether the token is real or padding. All (B, L).

    position_ids: the place in the logical order.
    document: the document's number; -1 for tokens of no single document; from -2 down, a number per
        demonstration, which all documents see and no other demonstration does.
    slot: -1 for none, else j * N + n, unique in the prompt.
    step: 0 for prompt and keys, k for the k-th token of a value.
    real: False for padding, which no token sees.
    """

    position_ids: Tensor
    document: Tensor
    slot: Tensor
    step: Tensor
    real: Tensor

    def __getitem__(self, index: object) -> TokenInfo:
        return TokenInfo(
            self.position_ids[index],  # type: ignore[index]
            self.document[index],  # type: ignore[index]
            self.slot[index],  # type: ignore[index]
            self.step[index],  # type: ignore[index]
            self.real[index],  # type: ignore[index]
        )


def within_window(query_position: Any, key_position: Any, window: int | None) -> Any:
    """True if keys are within the window of their queries; arrays or tensors that broadcast.

    window: the number of last position ids, the query's own included; None for all.
    """
    near = key_position <= query_position
    return near if window is None else near & (key_position > query_position - window)


def sees(query: TokenInfo, key: TokenInfo, config: DecodingConfig, window: int | None) -> Any:
    """The rule: True if queries see keys. Shapes broadcast."""
    seen = key.real & within_window(query.position_ids, key.position_ids, window)
    if config.documents == "isolated":
        shown = (key.document < 0) & (query.document >= 0)
        seen = seen & (shown | (key.document == -1) | (key.document == query.document))
    of_slot = (key.slot == -1) | (key.slot == query.slot)
    if config.slots == "causal":
        of_slot = of_slot | (key.step <= query.step)
    return seen & of_slot


def visible(
    query: TokenInfo, key: TokenInfo, config: DecodingConfig, window: int | None = None
) -> Tensor:
    """(B, Q), (B, K) -> (B, Q, K) bool: True if a query sees a key in layers of the window."""
    mask = sees(query[:, :, None], key[:, None, :], config, window)
    # A padding query must see a key: else softmax gives NaN, which spreads through values.
    return torch.where(query.real[:, :, None], mask, _first_column(mask))


def block_mask(tokens: TokenInfo, config: DecodingConfig, window: int | None = None) -> Any:
    """FlexAttention's mask of (B, L) tokens among themselves, by the rule as its `mask_mod`."""
    from torch.nn.attention.flex_attention import create_block_mask

    def mask_mod(batch: Tensor, _: Tensor, query: Tensor, key: Tensor) -> Any:
        return sees(tokens[batch, query], tokens[batch, key], config, window)

    count, length = tokens.position_ids.shape
    device = tokens.position_ids.device
    return create_block_mask(mask_mod, count, None, length, length, device=device)


def _first_column(mask: Tensor) -> Tensor:
    first = torch.zeros_like(mask)
    first[..., :1] = True
    return first


# --- masks of a segment's queries over its keys, in the forms that kernels require ---------------

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
