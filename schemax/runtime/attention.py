"""Attention over segments: what a token sees lies in several places, and is not copied together.

The instruction is shared by all documents, a document by all its slots, and a slot's own tokens lie
apart. Each segment is attended by itself and the results are merged by their log-sum-exps, which
gives the softmax over all of it (Hydragen, arXiv 2402.05099, section 3.1).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from schemax.runtime.batch import KVSegment
from schemax.runtime.kv_pool import KVLayer

NAME = "schemax"
"""What transformers knows this attention by."""

# Queries, or keys, that are few.
_FEW = 128
_MOST_SCORES = 1 << 26


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Tensor | None = None,
    causal: bool = False,
    softcap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """(B, n, H, D), (B, Hk, M, D), (B, Hk, M, Dv) -> (B, n, H, Dv) and (B, n, H) log-sum-exps.

    H is a multiple of Hk. mask: (B, 1 or n, M), added to the scores.
    """
    plain = softcap is None and query.device.type == "cpu" and key.shape[-1] == value.shape[-1]
    kernel = _flash if plain and _is_long(query, key) else _matmul
    return kernel(query, key, value, scale, mask, causal, softcap)


def _is_long(query: Tensor, key: Tensor) -> bool:
    """Whether the kernel is worth it: many groups of a few queries and keys are matrix products.

    Those round scores to the tensors' type, so that in half precision only a token's own keys, few
    as they are, are left to them.
    """
    count, keys = query.shape[1], key.shape[2]
    if query.dtype != torch.float32:
        return count > 1 or keys > _FEW
    return count > _FEW or keys > 2 * _FEW


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Tensor | None,
    causal: bool,
    _softcap: float | None,
) -> tuple[Tensor, Tensor]:
    """torch's own kernel for CPUs; the public function keeps the log-sum-exps to itself."""
    groups = query.shape[2] // key.shape[1]
    # Few queries a head would waste the kernel: heads that share keys become queries.
    folded = groups > 1 and query.shape[1] <= 32 and not causal
    if mask is not None:
        if folded and mask.shape[1] > 1:
            mask = mask.repeat_interleave(groups, dim=1)
        mask = mask[:, None]
    queries = _fold(query, groups) if folded else query.transpose(1, 2)
    out, total = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        queries, key, value, 0.0, causal, attn_mask=mask, scale=scale
    )
    if folded:
        return _unfold(out, groups), _unfold(total[..., None], groups)[..., 0]
    return out.transpose(1, 2), total.transpose(1, 2)


def _matmul(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Tensor | None,
    causal: bool,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:
    """The same by matrix products, on any device and for any head: the kernel's twin."""
    batch, count, heads, _ = query.shape
    kv_heads, length = key.shape[1:3]
    groups = heads // kv_heads
    keys = key.transpose(-1, -2)
    # Scores of a long document by itself would not fit: some queries at a time.
    rows = max(1, _MOST_SCORES // (batch * heads * length))
    outs, totals = [], []
    for at in range(0, count, rows):
        some = _fold(query[:, at : at + rows], groups)
        scores = (some @ keys).float().mul_(scale)
        if softcap is not None:
            scores = scores.div_(softcap).tanh_().mul_(softcap)
        of_queries = scores.view(batch, kv_heads, -1, groups, length)
        if causal:
            queries = torch.arange(at, at + of_queries.shape[2], device=key.device)
            unseen = torch.arange(length, device=key.device) > queries[:, None, None]
            of_queries.masked_fill_(unseen, torch.finfo(torch.float32).min)
        elif mask is not None:
            shown = mask if mask.shape[1] == 1 else mask[:, at : at + rows]
            of_queries.add_(shown[:, None, :, None])
        shares = scores.softmax(dim=-1)
        # Of the largest score, whose share is far from 0.
        total = scores.amax(dim=-1) - shares.amax(dim=-1).log()
        outs.append(_unfold(shares.to(value.dtype) @ value, groups))
        totals.append(_unfold(total[..., None], groups)[..., 0])
    if len(outs) == 1:
        return outs[0], totals[0]
    return torch.cat(outs, dim=1), torch.cat(totals, dim=1)


def _fold(query: Tensor, groups: int) -> Tensor:
    """(B, n, H, D) -> (B, Hk, n * groups, D): heads that share keys, side by side."""
    batch, count, heads, size = query.shape
    return query.view(batch, count, heads // groups, groups, size).transpose(1, 2).flatten(2, 3)


def _unfold(found: Tensor, groups: int) -> Tensor:
    """(B, Hk, n * groups, D) -> (B, n, H, D)."""
    batch, kv_heads, count, size = found.shape
    by_query = found.view(batch, kv_heads, count // groups, groups, size)
    return by_query.transpose(1, 2).flatten(2, 3)


def attend_segments(
    query: Tensor,
    segments: Sequence[tuple[KVSegment, tuple[Tensor | None, ...]]],
    layer: KVLayer,
    layer_type: int,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """(T, H, D) queries -> (T, H, Dv), over all segments that each of them is in.

    segments: with their masks, by type of layer; layer_type: the layer's place among these types.
    sinks: (H,) scores of a key without a value (gpt_oss).
    """
    out = total = None
    for segment, masks in segments:
        grouped = query[None] if segment.queries is None else query[segment.queries]
        key, value = layer.fetch(segment)
        mask = masks[layer_type]
        causal = segment.causal and mask is None
        found, weight = attend(grouped, key, value, scale, mask, causal, softcap)
        found, weight = found.flatten(0, 1), weight.flatten(0, 1)
        if segment.real is not None:
            found, weight = found[segment.real], weight[segment.real]
        if out is None or total is None:
            if len(found) == len(query):
                out, total = found, weight  # one segment for all
                continue
            shape = query.shape[:2]
            out = found.new_empty(*shape, found.shape[-1])
            total = weight.new_empty(shape)
            if not segment.comes_first:
                out.zero_()
                total.fill_(torch.finfo(torch.float32).min)
        if segment.comes_first:
            out[segment.targets], total[segment.targets] = found, weight
            continue
        before = total[segment.targets]
        share = torch.sigmoid(weight - before)[..., None].to(found.dtype)
        out[segment.targets] = torch.lerp(out[segment.targets], found, share)
        total[segment.targets] = torch.logaddexp(before, weight)
    assert out is not None
    assert total is not None
    if sinks is not None:
        out = out * torch.sigmoid(total - sinks.float())[..., None].to(out.dtype)
    return out


# What the pass under way attends to, by thread: an extractor may serve several.
under_way = threading.local()
# What a configuration named before it named this attention, by id, while a pass is under way.
replaced: dict[int, str] = {}


def segment_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, None]:
    """transformers' attention function.

    attention_mask: its width names the layer's kind; see `markers`. Another thread that runs the
    same model meanwhile, without a pass of ours, gets the attention that the model was loaded with.
    """
    cache = getattr(under_way, "cache", None)
    if cache is None:
        forward: Any = sdpa_attention_forward
        if replaced.get(id(module.config)) == "eager":
            forward = sys.modules[type(module).__module__].eager_attention_forward
            if attention_mask is not None and attention_mask.dtype == torch.bool:
                least = torch.finfo(query.dtype).min
                unseen = torch.zeros_like(attention_mask, dtype=query.dtype)
                attention_mask = unseen.masked_fill_(~attention_mask, least)
        found: tuple[Tensor, None] = forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **others
        )
        return found
    assert attention_mask is not None
    layer = cache.layer_under_way
    layer.store(key, value)
    out = attend_segments(
        query[0].transpose(0, 1),
        cache.segments,
        layer,
        attention_mask.shape[-1] - 1,
        query.shape[-1] ** -0.5 if scaling is None else scaling,
        others.get("softcap"),
        others.get("s_aux"),
    )
    layer.fresh = None
    return out[None], None


def markers(count: int, device: torch.device) -> list[Tensor]:
    """Stand-ins for masks, that models hand to their layers: as wide as the kind's number, from 1.

    Four dimensions, so that transformers takes them for finished masks.
    """
    return [torch.ones(1, 1, 1, kind + 1, dtype=torch.bool, device=device) for kind in range(count)]


AttentionInterface.register(NAME, segment_attention)
# Added to scores: whichever attention another thread then takes, it can take this mask.
AttentionMaskInterface.register(NAME, eager_mask)
