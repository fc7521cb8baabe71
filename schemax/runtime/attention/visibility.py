"""The rule of visibility: which tokens a token sees.

Prefill, decoding and training all follow `sees`; the reference in tests states the rule once more,
token by token. A token's place in memory never matters (paper, section 4.3.2 and figure 3).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from schemax.config import DecodingConfig


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
