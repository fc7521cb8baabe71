"""Attention over segments: the keys that a token sees stay in several places, uncopied.

All documents share the instruction, all slots of a document share the document, and a slot's own
tokens are stored apart. Each segment is attended by itself, and the results are merged by their
log-sum-exps, which gives the softmax over all keys (Hydragen, arXiv 2402.05099, section 3.1).
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

from schemax.runtime.attention.batch import KVSegment, SegmentKind
from schemax.runtime.attention.kernels import attend
from schemax.runtime.attention.kv_pool import KVLayer, rows_of
from schemax.runtime.attention.visibility import Mask

NAME = "schemax"
"""The name of this attention in transformers."""


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
    """(T, H, D) queries -> (T, H, Dv), each over all segments that it is in.

    segments: each with its masks, one per type of layer.
    layer_type: the place of the layer's type.
    sinks: (H,) scores of a key without a value (gpt_oss).
    prefers_flex: see `attend`.
    chains: compiled chains in the place of kernels; None for kernels alone.
    """
    out = total = None
    for segment, masks in segments:
        mask = masks[layer_type]
        is_own = segment.kind is SegmentKind.OWN and segment.orders is None
        if chains and is_own and softcap is None and out is not None:
            assert total is not None
            own = query, segment.queries[:, 0], *layer.in_pool, segment.pool
            added = None if mask is None else mask.added[:, 0]
            _take_up(out, total, segment.targets, chains.own, *own, added, scale)
            continue
        grouped = query[None] if segment.queries is None else rows_of(query, segment.queries)
        key, value = layer.fetch(segment)
        causal = segment.causal and mask is None
        result, weight = attend(
            grouped, key, value, scale, mask, causal, softcap, prefers_flex=prefers_flex
        )
        result, weight = result.flatten(0, 1), weight.flatten(0, 1)
        real, targets = segment.real, segment.targets
        if out is None or total is None:
            if real is None and len(result) == len(query):
                out, total = result, weight  # one segment for all
                continue
            shape = query.shape[:2]
            out = result.new_empty(*shape, result.shape[-1])
            total = weight.new_empty(shape)
            if not segment.comes_first:
                out.zero_()
                total.fill_(torch.finfo(torch.float32).min)
        if segment.comes_first:
            out[targets], total[targets] = (
                (result, weight)
                if real is None
                else (result.index_select(0, real), weight.index_select(0, real))
            )
            continue
        _take_up(out, total, targets, chains.merge if chains else merge_in, result, weight, real)
    assert out is not None
    assert total is not None
    if sinks is not None:
        out = out * torch.sigmoid(total - sinks.float())[..., None].to(out.dtype)
    return out


def _take_up(
    out: Tensor, total: Tensor, targets: Any, merge: Callable[..., None], *arguments: Any
) -> None:
    """Merges results into the targets' rows; see `merge_in` and `own_in`."""
    results, sums = out[targets], total[targets]
    merge(results, sums, *arguments)
    if not isinstance(targets, slice):  # indexing by an array has made copies
        out[targets], total[targets] = results, sums


def merge_in(
    out: Tensor, total: Tensor, result: Tensor, weight: Tensor, real: Tensor | None
) -> None:
    """Merges the results of a segment into the results of others, in place.

    out, total: (t, H, Dv) and (t, H) log-sum-exps.
    result, weight: (B * n, H, Dv) and (B * n, H), of which t are `real`, see `KVSegment`.
    """
    if real is not None:
        result, weight = result.index_select(0, real), weight.index_select(0, real)
    share = torch.sigmoid(weight - total)[..., None].to(result.dtype)
    out.lerp_(result, share)
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
    """Attends slots' own tokens and merges the results in place: `attend` and `merge_in` of OWN.

    Compiled, it reads keys and values where they are stored, without copies.

    out, total: (t, H, Dv) and (t, H).
    query: (T, H, D).
    queries: (t,) one place of each slot.
    keys, values: the pool, (N, Hk, D) and (N, Hk, Dv).
    places: (t, M) in the pool.
    added: (t, M), added to scores.
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
    result = (shares[..., None] * values[places][:, :, :, None].float()).sum(1) / sums[..., None]
    weight = (largest + sums.log()).flatten(1)
    share = torch.sigmoid(weight - total)[..., None].to(out.dtype)
    out.lerp_(result.flatten(1, 2).to(out.dtype), share)
    total.copy_(torch.logaddexp(total, weight))


class Chains(NamedTuple):
    """`merge_in` and `own_in`, compiled."""

    merge: Callable[..., None]
    own: Callable[..., None]


def compiled_chains() -> Chains:
    """Compiles the chains for any number of tokens."""
    return Chains(*(torch.compile(chain, dynamic=True) for chain in (merge_in, own_in)))


# The pass under way, by thread: several threads may share an extractor. `windows`, if a list, takes
# up the sliding windows that layers call their attention with.
under_way = threading.local()
# The attention that a configuration, by id, named before the pass under way replaced it.
replaced: dict[int, str] = {}


def segment_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **options: Any,
) -> tuple[Tensor, None]:
    """Attends segments, in the signature of transformers' attention functions.

    attention_mask: its width names the layer's kind; see `markers`. Another thread that runs the
    same model meanwhile, outside our passes, gets the attention that the model was loaded with.
    """
    cache = getattr(under_way, "cache", None)
    loaded_with = replaced.get(id(module.config))
    if cache is None:
        if (windows := getattr(under_way, "windows", None)) is not None:
            windows.append(options.get("sliding_window"))
        forward: Any = sdpa_attention_forward
        if loaded_with == "flex_attention":
            forward = flex_attention_forward
        if loaded_with == "eager":
            forward = sys.modules[type(module).__module__].eager_attention_forward
            if attention_mask is not None and attention_mask.dtype == torch.bool:
                least = torch.finfo(query.dtype).min
                unseen = torch.zeros_like(attention_mask, dtype=query.dtype)
                attention_mask = unseen.masked_fill_(~attention_mask, least)
        attended: tuple[Tensor, None] = forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **options
        )
        return attended
    assert attention_mask is not None
    layer = cache.layer_under_way
    batch, segments = cache.on(query.device)
    layer.store(key, value, batch.write)
    out = attend_segments(
        query[0].transpose(0, 1),
        segments,
        layer,
        attention_mask.shape[-1] - 1,
        query.shape[-1] ** -0.5 if scaling is None else scaling,
        options.get("softcap"),
        options.get("s_aux"),
        prefers_flex=loaded_with == "flex_attention",
        chains=under_way.chains,
    )
    layer.fresh = None
    return out[None], None


def markers(count: int, device: torch.device) -> list[Tensor]:
    """Stand-ins for masks, which models pass to layers: as wide as the kind's number, from 1 on.

    They have four dimensions, so that transformers takes them for finished masks.
    """
    return [torch.ones(1, 1, 1, kind + 1, dtype=torch.bool, device=device) for kind in range(count)]


AttentionInterface.register(NAME, segment_attention)
# An additive mask, which every attention takes that another thread may then run.
AttentionMaskInterface.register(NAME, eager_mask)
