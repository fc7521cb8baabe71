"""FlexAttention as a kernel of attention; see `kernels`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from schemax.runtime.masks import Mask


def flex(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Mask | None,
    causal: bool,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:
    """FlexAttention, compiled on accelerators: the fused kernel that caps scores under any mask."""
    from torch.nn.attention.flex_attention import AuxRequest, flex_attention

    counts = None if mask is None else mask.counts
    added = None if mask is None or counts is not None else mask.added

    def score_mod(score: Tensor, batch: Tensor, _: Tensor, place: Tensor, seen: Tensor) -> Tensor:
        if softcap is not None:
            score = (score / softcap).tanh() * softcap
        if counts is not None:
            return torch.where(seen < counts[batch], score, -torch.inf)
        if added is not None:
            return score + added[batch, place if added.shape[1] > 1 else 0, seen]
        return torch.where(seen <= place, score, -torch.inf) if causal else score

    run: Any = flex_attention if query.device.type == "cpu" else _compiled(flex_attention)
    out, aux = run(
        query.transpose(1, 2),
        key,
        value,
        score_mod=score_mod,
        scale=scale,
        enable_gqa=query.shape[2] > key.shape[1],
        return_aux=AuxRequest(lse=True),
    )
    return out.transpose(1, 2), aux.lse.transpose(1, 2)


@cache
def _compiled(function: Callable[..., Any]) -> Any:
    return torch.compile(function, dynamic=True)
