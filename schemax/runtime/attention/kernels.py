"""Kernels of attention: (queries, keys, values) -> outputs and log-sum-exps; `attend` chooses one.

Every kernel sums in float32 and has the signature of `attend`. `plain` is the definition, for any
device and head; the others are torch's own. Before its first use on a device, a CUDA kernel is
compared with `plain`, and left out where it fails or differs.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor

from schemax.runtime.attention.visibility import Mask
from schemax.runtime.slots.memory import is_out_of_memory

logger = logging.getLogger(__name__)

_MOST_SCORES = 1 << 26

Kernel = Callable[
    [Tensor, Tensor, Tensor, float, Mask | None, bool, float | None], tuple[Tensor, Tensor]
]


def flash_on_cpu(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Mask | None,
    causal: bool,
    _softcap: float | None,
) -> tuple[Tensor, Tensor]:
    """torch's own kernel for CPUs, since its public function does not return log-sum-exps."""
    groups = query.shape[2] // key.shape[1]
    # Few queries a head would waste the kernel: heads that share keys become queries.
    if groups > 1 and query.shape[1] <= 32 and not causal:
        added = None if mask is None else mask.folded(groups)
        out, total = _on_cpu(_fold(query, groups), key, value, causal, added, scale)
        return _unfold(out, groups), _unfold(total[..., None], groups)[..., 0]
    added = None if mask is None else mask.folded(1)
    out, total = _on_cpu(query.transpose(1, 2), key, value, causal, added, scale)
    return out.transpose(1, 2), total.transpose(1, 2)


def _on_cpu(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, added: Tensor | None, scale: float
) -> tuple[Tensor, Tensor]:
    attended: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, attn_mask=added, scale=scale
    )
    return attended


def efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Mask | None,
    causal: bool,
    _softcap: float | None,
) -> tuple[Tensor, Tensor]:
    """torch's memory-efficient kernel for CUDA, of any dtype and under any mask."""
    batch, count, heads, _ = query.shape
    groups = heads // key.shape[1]
    if causal:  # folding would break the order of queries
        key, value = (part.repeat_interleave(groups, dim=1) for part in (key, value))
        groups = 1
    queries, bias = _fold(query, groups), None
    if mask is not None:
        shape = (batch, queries.shape[1], queries.shape[2], key.shape[2])
        bias = mask.folded(groups, query.dtype).expand(shape)
    out, total, _, _ = torch.ops.aten._scaled_dot_product_efficient_attention(
        queries, key, value, bias, True, 0.0, causal, scale=scale
    )
    total = total[..., : count * groups, None]  # the kernel pads them
    return _unfold(out, groups), _unfold(total, groups)[..., 0]


def varlen(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Mask | None,
    causal: bool,
    _softcap: float | None,
) -> tuple[Tensor, Tensor]:
    """FlashAttention on CUDA, in half precision: keys in place, without masks or padding."""
    from torch.nn.attention import varlen as module

    batch, count, heads, _ = query.shape
    length = key.shape[2]
    keys, step = _by_token(key)
    values, step_of_values = _by_token(value)
    if step != step_of_values:
        raise NotImplementedError("keys and values that lie differently")
    used = None if mask is None else mask.counts
    if used is None and step != length:
        used = _full(batch, length, query.device)
    # Without splits, results do not depend on the longest row of the batch.
    options = {"enable_gqa": heads > key.shape[1], "num_splits": 1, "seqused_k": used}
    known = {name: value for name, value in options.items() if name in _varlen_takes()}
    out, total = module.varlen_attn(
        query.flatten(0, 1),
        keys,
        values,
        _starts(batch, count, query.device),
        _starts(batch, step, query.device),
        count,
        length,
        return_aux=module.AuxRequest(lse=True),
        scale=scale,
        window_size=(-1, 0) if causal else (-1, -1),
        **known,  # type: ignore[arg-type]
    )
    return out.view(batch, count, heads, -1), total.view(heads, batch, count).permute(1, 2, 0)


@cache
def _varlen_takes() -> frozenset[str]:
    """The parameters of the function in this release of torch."""
    from torch.nn.attention.varlen import varlen_attn

    return frozenset(inspect.signature(varlen_attn).parameters)


def _by_token(part: Tensor) -> tuple[Tensor, int]:
    """(B, Hk, M, D) -> a view (tokens, Hk, D) of its memory, and the tokens from row to row."""
    batch, heads, length, size = part.shape
    row, head, token, number = part.stride()
    step, remainder = (length, 0) if batch == 1 else divmod(row, token)
    if number != 1 or remainder or step < length:
        part, step = part.contiguous(), heads * length
        _, head, token, _ = part.stride()
    return part.as_strided(((batch - 1) * step + length, heads, size), (token, head, 1)), step


@lru_cache(maxsize=256)
def _starts(count: int, step: int, device: torch.device) -> Tensor:
    """(count + 1,) the starts of rows of equal length."""
    return torch.arange(0, count * step + 1, step, dtype=torch.int32, device=device)


@lru_cache(maxsize=256)
def _full(count: int, value: int, device: torch.device) -> Tensor:
    return torch.full((count,), value, dtype=torch.int32, device=device)


def plain(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Mask | None,
    causal: bool,
    softcap: float | None,
) -> tuple[Tensor, Tensor]:
    """Attention by matrix products, on any device and for any head: the reference for kernels."""
    batch, count, heads, _ = query.shape
    kv_heads, length = key.shape[1:3]
    groups = heads // kv_heads
    keys = key.transpose(-1, -2)
    # Scores of a long document by itself would not fit: queries_folded queries at a time.
    rows = max(1, _MOST_SCORES // (batch * heads * length))
    outs, totals = [], []
    for at in range(0, count, rows):
        queries_folded = _fold(query[:, at : at + rows], groups)
        scores = _product(queries_folded, keys).mul_(scale)
        if softcap is not None:
            scores = scores.div_(softcap).tanh_().mul_(softcap)
        of_queries = scores.view(batch, kv_heads, -1, groups, length)
        if causal:
            queries = torch.arange(at, at + of_queries.shape[2], device=key.device)
            unseen = torch.arange(length, device=key.device) > queries[:, None, None]
            of_queries.masked_fill_(unseen, torch.finfo(torch.float32).min)
        elif mask is not None:
            added = mask.added
            shown = added if added.shape[1] == 1 else added[:, at : at + rows]
            of_queries.add_(shown[:, None, :, None])
        shares = scores.softmax(dim=-1)
        # From the largest score, whose share is far from 0.
        total = scores.amax(dim=-1) - shares.amax(dim=-1).log()
        outs.append(_unfold((shares @ value.float()).to(value.dtype), groups))
        totals.append(_unfold(total[..., None], groups)[..., 0])
    if len(outs) == 1:
        return outs[0], totals[0]
    return torch.cat(outs, dim=1), torch.cat(totals, dim=1)


def _product(query: Tensor, keys: Tensor) -> Tensor:
    """(B, Hk, n, D) @ (B, Hk, D, M) -> float32: in half precision, scores would be rounded."""
    if query.dtype == torch.float32:
        return query @ keys
    if query.device.type == "cuda":
        scores = torch.bmm(query.flatten(0, 1), keys.flatten(0, 1), out_dtype=torch.float32)
        return scores.view(*query.shape[:3], -1)
    return query.float() @ keys.float()


def _fold(query: Tensor, groups: int) -> Tensor:
    """(B, n, H, D) -> (B, Hk, n * groups, D): heads that share keys, side by side."""
    batch, count, heads, size = query.shape
    return query.view(batch, count, heads // groups, groups, size).transpose(1, 2).flatten(2, 3)


def _unfold(folded: Tensor, groups: int) -> Tensor:
    """(B, Hk, n * groups, D) -> (B, n, H, D)."""
    batch, kv_heads, count, size = folded.shape
    by_query = folded.view(batch, kv_heads, count // groups, groups, size)
    return by_query.transpose(1, 2).flatten(2, 3)


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

    run: Any = flex_attention if query.device.type == "cpu" else _compiled_function(flex_attention)
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
def _compiled_function(function: Callable[..., Any]) -> Any:
    return torch.compile(function, dynamic=True)


# --- the choice of a kernel -----------------------------------------------------------------------

# The number up to which queries, or keys, are few.
_FEW = 128
# The largest error of a kernel against `plain`, whose outputs are about 1.
_WRONG = 0.05


@dataclass(frozen=True, slots=True)
class Backend:
    """A kernel, and the queries, keys and masks that it can take.

    device: the type of device; None: any.
    softcaps: True if it caps scores.
    masks: True if it takes every mask, False if only masks that show the first keys.
    half: True if it requires half precision.
    equal_sizes: True if heads of keys and values must be equally large.
    long: True if it pays off for many queries or keys alone.
    on_request: True if it is used only for models that were loaded with it, and for soft caps.
    """

    kernel: Kernel
    device: str | None = None
    softcaps: bool = False
    masks: bool = True
    half: bool = False
    equal_sizes: bool = False
    long: bool = False
    on_request: bool = False

    def takes(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | None,
        softcap: float | None,
        *,
        is_requested: bool,
    ) -> bool:
        """True if the kernel can take tensors like these, and is worth it."""
        return (
            self.device in (None, query.device.type)
            and (self.softcaps or softcap is None)
            and (self.masks or mask is None or mask.counts is not None)
            and not (self.half and query.dtype == torch.float32)
            and not (self.equal_sizes and query.shape[-1] != value.shape[-1])
            and not (self.long and not _is_long(query, key))
            and not (self.on_request and not is_requested)
        )


BACKENDS = (
    Backend(flex, "cuda", softcaps=True, long=True, on_request=True),
    Backend(flash_on_cpu, "cpu", equal_sizes=True),
    # For few keys, too: products would copy them before they multiply them.
    Backend(varlen, "cuda", masks=False, half=True),
    Backend(efficient, "cuda", long=True),
    Backend(plain, softcaps=True),
)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    mask: Mask | None = None,
    causal: bool = False,
    softcap: float | None = None,
    *,
    prefers_flex: bool = False,
) -> tuple[Tensor, Tensor]:
    """(B, n, H, D), (B, Hk, M, D), (B, Hk, M, Dv) -> (B, n, H, Dv) and (B, n, H) log-sum-exps.

    H is a multiple of Hk. causal: M is n, and each query sees the keys up to its own.
    """
    kernel = _kernel_for(query, key, value, mask, softcap, prefers_flex=prefers_flex)
    return kernel(query, key, value, scale, mask, causal, softcap)


def _kernel_for(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Mask | None,
    softcap: float | None,
    *,
    prefers_flex: bool,
) -> Kernel:
    """The first kernel of the table that takes tensors like these and works."""
    sizes = query.shape[-1], value.shape[-1]
    is_requested = prefers_flex or softcap is not None
    for backend in BACKENDS:
        takes = backend.takes(query, key, value, mask, softcap, is_requested=is_requested)
        is_tried = backend.device == "cuda"
        if takes and (not is_tried or _works(backend.kernel, query.device, query.dtype, sizes)):
            return backend.kernel
    raise AssertionError("the last backend takes everything")


def _is_long(query: Tensor, key: Tensor) -> bool:
    """True if there are enough queries or keys for a kernel; fewer are left to matrix products."""
    count, keys = query.shape[1], key.shape[2]
    if query.dtype != torch.float32:
        return count > 1 or keys > _FEW
    return count > _FEW or keys > 2 * _FEW


@cache
def _works(
    kernel: Kernel, device: torch.device, dtype: torch.dtype, sizes: tuple[int, int]
) -> bool:
    """True if a CUDA kernel agrees with `plain` for heads of these sizes; logs the result once."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    query, key, value = (
        random(2, 5, 4, sizes[0]),
        random(2, 2, 40, sizes[0])[:, :, :37],
        random(2, 2, 40, sizes[1])[:, :, :37],
    )
    counts = torch.tensor([37, 20], dtype=torch.int32).to(device)
    tried = [(None, 37), (Mask(counts=counts, length=37), 37), (None, 5)]
    softcap = 5.0 if kernel is flex else None
    if kernel is not varlen:
        tried.append((Mask(random(2, 5, 37).float()), 37))
    try:
        for mask, length in tried:
            keys, values = key[:, :, :length], value[:, :, :length]
            results = kernel(query, keys, values, 0.3, mask, length == 5, softcap)
            expected = plain(query, keys, values, 0.3, mask, length == 5, softcap)
            for got, right in zip(results, expected, strict=True):
                if not bool(((got.float() - right.float()).abs() <= _WRONG).all()):
                    raise ValueError("its results differ from those of matrix products")
    except Exception as error:  # a kernel may raise anything where the device or release lacks it
        if is_out_of_memory(error):
            raise
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        logger.info("attention on %s in %s: no %s (%s)", device, dtype, kernel.__name__, reason)
        return False
    logger.info("attention on %s in %s: %s, heads of %d", device, dtype, kernel.__name__, sizes[0])
    return True
