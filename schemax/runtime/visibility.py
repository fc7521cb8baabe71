"""The one rule that says who sees whom.

Prefill, decoding and training all call `visible`; the reference states the rule once more, token by
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
    document: -1 for tokens that belong to none in particular.
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
    """How far back a layer sees, in position ids, never in order of arrival.

    window: the last so many, itself included; chunk: those of its own chunk of so many.
    """

    window: int | None = None
    chunk: int | None = None

    def bites(self, furthest: int) -> bool:
        """Whether a token at this position id may not see all before it."""
        bounds = [bound for bound in (self.window, self.chunk) if bound is not None]
        return any(furthest >= bound for bound in bounds)


def within_span(query_position: Any, key_position: Any, span: Span) -> Any:
    """Whether keys are near enough to their queries; arrays or tensors that broadcast."""
    near = key_position <= query_position
    if span.window is not None:
        near = near & (key_position > query_position - span.window)
    if span.chunk is not None:
        near = near & (key_position // span.chunk == query_position // span.chunk)
    return near


def visible(
    query: TokenInfo, key: TokenInfo, config: DecodingConfig, span: Span = Span()
) -> Tensor:
    """(B, Q), (B, K) -> (B, Q, K) bool: may this query see this key, in a layer of this span?"""
    q_position, k_position = query.position_ids[:, :, None], key.position_ids[:, None, :]
    mask = key.real[:, None, :] & within_span(q_position, k_position, span)
    if config.documents == "isolated":
        k_document = key.document[:, None, :]
        mask &= (k_document == -1) | (k_document == query.document[:, :, None])
    k_slot = key.slot[:, None, :]
    same_slot = (k_slot == -1) | (k_slot == query.slot[:, :, None])
    if config.slots == "causal":
        mask &= same_slot | (key.step[:, None, :] <= query.step[:, :, None])
    else:
        mask &= same_slot
    # A padding query must see something, or softmax gives NaN, which spreads through values.
    return torch.where(query.real[:, :, None], mask, _first_column(mask))


def _first_column(mask: Tensor) -> Tensor:
    first = torch.zeros_like(mask)
    first[..., 0] = True
    return first
