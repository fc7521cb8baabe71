"""Kernels that only CUDA has, computed on the CPU by definition, in float32.

What they require of their arguments is required here: the rules are those of torch's sources.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor


def _softmax(scores: Tensor, value: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return (scores.softmax(-1) @ value.float()).to(dtype), scores.logsumexp(-1)


def efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    with_total: bool,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    """(B, H, N, D), (B, H, M, D), bias that expands to (B, H, N, M): one head of keys for each."""
    batch, heads, count = query.shape[:3]
    length = key.shape[2]
    assert key.shape[:2] == value.shape[:2] == query.shape[:2], "no grouped queries"
    assert query.dtype == key.dtype == value.dtype
    step = 16 // query.element_size()
    assert not dropout
    for part in (query, key, value):
        assert part.stride(-1) == 1
        assert part.shape[-1] % (4 if query.dtype == torch.float32 else 8) == 0, "aligned heads"
    scores = (query.float() @ key.float().transpose(-1, -2)) * scale
    if bias is not None:
        assert not is_causal
        assert bias.dtype == query.dtype, "invalid dtype for bias"
        assert bias.shape == (batch, heads, count, length), "expanded to the scores"
        assert bias.stride(-1) == 1
        assert all(stride % step == 0 for stride in bias.stride()[:-1]), "aligned bias"
        scores = scores + bias.float()
    if is_causal:
        hidden = torch.ones(count, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    out, total = _softmax(scores, value, query.dtype)
    if with_total:
        padded = -(-count // 32) * 32
        total = torch.nn.functional.pad(total, (0, padded - count), value=torch.inf)
    else:
        total = total[..., :0]
    state = torch.zeros((), dtype=torch.int64)
    return out.transpose(1, 2).contiguous().transpose(1, 2), total, state, state.clone()


def varlen_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    is_causal: bool = False,
    scale: float | None = None,
    window_size: Any = None,
    enable_gqa: bool = False,
    seqused_k: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """FlashAttention: (T, H, D) queries, sequence by sequence, and keys from `cu_seq_k` on."""
    assert query.dtype in (torch.float16, torch.bfloat16), "FlashAttention takes half precision"
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert block_table is None
    assert query.shape[-1] == key.shape[-1] == value.shape[-1] <= 256
    assert query.shape[-1] % 8 == 0
    groups, rest = divmod(query.shape[1], key.shape[1])
    assert not rest
    assert groups == 1 or enable_gqa
    left, right = window_size or (-1, -1)
    assert left == -1
    out = torch.empty_like(query)
    total = torch.empty(query.shape[1], len(query), dtype=torch.float32)
    for place in range(len(cu_seq_q) - 1):
        mine = slice(int(cu_seq_q[place]), int(cu_seq_q[place + 1]))
        start = int(cu_seq_k[place])
        length = int(cu_seq_k[place + 1]) - start
        if seqused_k is not None:
            assert seqused_k.dtype == torch.int32
            length = int(seqused_k[place])
        assert 0 < length <= max_k, "a sequence without keys has no log-sum-exp"
        count = mine.stop - mine.start
        assert count <= max_q
        keys, values = (
            part[start : start + length].repeat_interleave(groups, dim=1).transpose(0, 1)
            for part in (key, value)
        )
        scores = query[mine].float().transpose(0, 1) @ keys.float().transpose(-1, -2)
        scores = scores * (query.shape[-1] ** -0.5 if scale is None else scale)
        if right == 0:
            hidden = torch.ones(count, length, dtype=torch.bool).triu(1 + length - count)
            scores = scores.masked_fill(hidden, -torch.inf)
        found, sums = _softmax(scores, values, query.dtype)
        out[mine], total[:, mine] = found.transpose(0, 1), sums
    return out, total, torch.zeros(2, dtype=torch.uint64)


def flex_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    score_mod: Any,
    scale: float,
    enable_gqa: bool,
    return_aux: Any,
) -> tuple[Tensor, Any]:
    """FlexAttention: `score_mod` is told of all scores at once, by indices that broadcast."""
    groups, rest = divmod(query.shape[1], key.shape[1])
    assert not rest
    assert groups == 1 or enable_gqa
    assert return_aux.lse
    keys, values = (part.float().repeat_interleave(groups, dim=1) for part in (key, value))
    scores = (query.float() @ keys.transpose(-1, -2)) * scale
    places = [torch.arange(size, device=query.device) for size in scores.shape]
    shaped = [place.view([-1 if n == m else 1 for m in range(4)]) for n, place in enumerate(places)]
    scores = score_mod(scores, *shaped)
    assert scores.dtype == torch.float32
    out, total = _softmax(scores, values, query.dtype)
    return out, SimpleNamespace(lse=total)


def histogram(values: Tensor, *settings: Any, **more: Any) -> Tensor:
    """Of integers as well, which a CPU does not count."""
    return torch.histc(values.float(), *settings, **more).to(values.dtype)


def wide_product(left: Tensor, right: Tensor, out_dtype: torch.dtype) -> Tensor:
    """A batched product in half precision whose sums stay in float32."""
    assert left.dtype == right.dtype != torch.float32
    return torch.bmm(left.float(), right.float()).to(out_dtype)


KERNELS = {
    "aten::histc": histogram,
    "aten::bmm.dtype": wide_product,
    "aten::_scaled_dot_product_efficient_attention": efficient_attention,
    "torch_attn::_varlen_attn": varlen_attention,
}
"""By the name of the operator."""
