"""Attention over segments: what a token sees lies in several places, and is not copied together.

The instruction is shared by all documents, a document by all its slots, and a slot's own tokens lie
apart. Each segment is attended by itself and the results are merged by their log-sum-exps, which
gives the softmax over all of it (Hydragen, arXiv 2402.05099, section 3.1).
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.flex_attention import flex_attention_forward
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from schemax.runtime.attention_backends import attend
from schemax.runtime.batch import Kind, KVSegment
from schemax.runtime.kv_pool import KVLayer, rows_of
from schemax.runtime.masks import Mask

NAME = "schemax"
"""What transformers knows this attention by."""


def attend_segments(
    query: Tensor,
    segments: Sequence[tuple[KVSegment, tuple[Mask | None, ...]]],
    layer: KVLayer,
    layer_type: int,
    scale: float,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    *,
    prefers_flex: bool = False,
    chains: Chains | None = None,
) -> Tensor:
    """(T, H, D) queries -> (T, H, Dv), over all segments that each of them is in.

    segments: with their masks, by type of layer; layer_type: the layer's place among these types.
    sinks: (H,) scores of a key without a value (gpt_oss). prefers_flex: see `attend`.
    chains: what is compiled instead of left to kernels, if anything is.
    """
    out = total = None
    for segment, masks in segments:
        mask = masks[layer_type]
        if chains and segment.kind is Kind.OWN and softcap is None and out is not None:
            assert total is not None
            own = query, segment.queries[:, 0], *layer.in_pool, segment.pool
            added = None if mask is None else mask.added[:, 0]
            _take_up(out, total, segment.targets, chains.own, *own, added, scale)
            continue
        grouped = query[None] if segment.queries is None else rows_of(query, segment.queries)
        key, value = layer.fetch(segment)
        causal = segment.causal and mask is None
        found, weight = attend(
            grouped, key, value, scale, mask, causal, softcap, prefers_flex=prefers_flex
        )
        found, weight = found.flatten(0, 1), weight.flatten(0, 1)
        real, targets = segment.real, segment.targets
        if out is None or total is None:
            if real is None and len(found) == len(query):
                out, total = found, weight  # one segment for all
                continue
            shape = query.shape[:2]
            out = found.new_empty(*shape, found.shape[-1])
            total = weight.new_empty(shape)
            if not segment.comes_first:
                out.zero_()
                total.fill_(torch.finfo(torch.float32).min)
        if segment.comes_first:
            out[targets], total[targets] = (
                (found, weight)
                if real is None
                else (found.index_select(0, real), weight.index_select(0, real))
            )
            continue
        _take_up(out, total, targets, chains.merge if chains else merge_in, found, weight, real)
    assert out is not None
    assert total is not None
    if sinks is not None:
        out = out * torch.sigmoid(total - sinks.float())[..., None].to(out.dtype)
    return out


def _take_up(
    out: Tensor, total: Tensor, targets: Any, merge: Callable[..., None], *given: Any
) -> None:
    """Has results taken up at their targets; see `merge_in` and `own_in`."""
    mine, sums = out[targets], total[targets]
    merge(mine, sums, *given)
    if not isinstance(targets, slice):  # copies of places that lie apart
        out[targets], total[targets] = mine, sums


def merge_in(
    out: Tensor, total: Tensor, found: Tensor, weight: Tensor, real: Tensor | None
) -> None:
    """Takes results of a segment up into those of others, in place.

    out, total: (t, H, Dv) and (t, H) log-sum-exps. found, weight: (B * n, H, Dv) and (B * n, H), of
    which t are `real`, see `KVSegment`.
    """
    if real is not None:
        found, weight = found.index_select(0, real), weight.index_select(0, real)
    share = torch.sigmoid(weight - total)[..., None].to(found.dtype)
    out.lerp_(found, share)
    total.copy_(torch.logaddexp(total, weight))


def own_in(
    out: Tensor,
    total: Tensor,
    query: Tensor,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    places: Tensor,
    added: Tensor | None,
    scale: float,
) -> None:
    """Takes slots' own tokens up into results, in place: `attend` and `merge_in` of an OWN segment.

    Compiled, keys and values are read where they lie, and nothing is copied together.

    out, total: (t, H, Dv) and (t, H). query: (T, H, D), of which `queries`, (t,), is one of each
    slot. keys, values: the pool, (N, Hk, D) and (N, Hk, Dv). places: (t, M). added: (t, M), to
    scores.
    """
    kv_heads = keys.shape[1]
    grouped = query[queries].view(len(queries), 1, kv_heads, -1, query.shape[2]).float()
    # (t, M, Hk, G)
    scores = (grouped * keys[places][:, :, :, None].float()).sum(-1) * scale
    if added is not None:
        scores = scores + added[:, :, None, None]
    largest = scores.amax(1)
    shares = (scores - largest[:, None]).exp()
    sums = shares.sum(1)
    found = (shares[..., None] * values[places][:, :, :, None].float()).sum(1) / sums[..., None]
    weight = (largest + sums.log()).flatten(1)
    share = torch.sigmoid(weight - total)[..., None].to(out.dtype)
    out.lerp_(found.flatten(1, 2).to(out.dtype), share)
    total.copy_(torch.logaddexp(total, weight))


class Chains(NamedTuple):
    """`merge_in` and `own_in`, compiled."""

    merge: Callable[..., None]
    own: Callable[..., None]


def compiled_chains() -> Chains:
    """For any number of tokens."""
    return Chains(*(torch.compile(chain, dynamic=True) for chain in (merge_in, own_in)))


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
    loaded_with = replaced.get(id(module.config))
    if cache is None:
        forward: Any = sdpa_attention_forward
        if loaded_with == "flex_attention":
            forward = flex_attention_forward
        if loaded_with == "eager":
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
    staged = cache.on(query.device)
    layer.store(key, value, staged.batch.write)
    out = attend_segments(
        query[0].transpose(0, 1),
        staged.segments,
        layer,
        attention_mask.shape[-1] - 1,
        query.shape[-1] ** -0.5 if scaling is None else scaling,
        others.get("softcap"),
        others.get("s_aux"),
        prefers_flex=loaded_with == "flex_attention",
        chains=under_way.chains,
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
