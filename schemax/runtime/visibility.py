"""The one rule that says who sees whom.

Prefill, decoding and training all go by `sees`; the reference states the rule once more, token by
token. Where a token lies in memory never matters (paper, section 4.3.2 and figure 3).
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

    position_ids: place in the logical order.
    document: -1 for tokens that belong to none in particular; below, a number for each
        demonstration, which all documents see and no other demonstration does.
    slot: -1 for none, else j * N + n, unique in the prompt.
    step: 0 for prompt and keys, k for the k-th token of a value.
    real: False for padding, which nothing sees.
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


@dataclass(frozen=True, slots=True)
class Span:
    """The span that a layer sees, back in position ids, never in order of arrival.

    window: the last so many, itself included; chunk: those of its own chunk of so many.
    """

    window: int | None = None
    chunk: int | None = None

    def bites(self, furthest: int) -> bool:
        """True if a token at this position id may not see all before it."""
        bounds = [bound for bound in (self.window, self.chunk) if bound is not None]
        return any(furthest >= bound for bound in bounds)


def within_span(query_position: Any, key_position: Any, span: Span) -> Any:
    """True if keys are near enough to their queries; arrays or tensors that broadcast."""
    near = key_position <= query_position
    if span.window is not None:
        near = near & (key_position > query_position - span.window)
    if span.chunk is not None:
        near = near & (key_position // span.chunk == query_position // span.chunk)
    return near


def sees(query: TokenInfo, key: TokenInfo, config: DecodingConfig, span: Span) -> Any:
    """The rule: may these queries see these keys? Their tensors have shapes that broadcast."""
    seen = key.real & within_span(query.position_ids, key.position_ids, span)
    if config.documents == "isolated":
        shown = (key.document < 0) & (query.document >= 0)
        seen = seen & (shown | (key.document == -1) | (key.document == query.document))
    of_slot = (key.slot == -1) | (key.slot == query.slot)
    if config.slots == "causal":
        of_slot = of_slot | (key.step <= query.step)
    return seen & of_slot


def visible(
    query: TokenInfo, key: TokenInfo, config: DecodingConfig, span: Span = Span()
) -> Tensor:
    """(B, Q), (B, K) -> (B, Q, K) bool: may this query see this key, in a layer of this span?"""
    mask = sees(query[:, :, None], key[:, None, :], config, span)
    # A padding query must see something, or softmax gives NaN, which spreads through values.
    return torch.where(query.real[:, :, None], mask, _first_column(mask))


def block_mask(tokens: TokenInfo, config: DecodingConfig, span: Span = Span()) -> Any:
    """The rule for FlexAttention, of (B, L) tokens among themselves, as its `mask_mod`."""
    from torch.nn.attention.flex_attention import create_block_mask

    def mask_mod(batch: Tensor, _: Tensor, query: Tensor, key: Tensor) -> Any:
        return sees(tokens[batch, query], tokens[batch, key], config, span)

    count, length = tokens.position_ids.shape
    device = tokens.position_ids.device
    return create_block_mask(mask_mod, count, None, length, length, device=device)


def _first_column(mask: Tensor) -> Tensor:
    first = torch.zeros_like(mask)
    first[..., :1] = True
    return first
