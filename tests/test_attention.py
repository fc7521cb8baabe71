"""Attention over segments, beside its definition."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from schemax.runtime import attention
from schemax.runtime.attention import _flash, _matmul, attend, attend_segments
from schemax.runtime.batch import Kind, KVSegment
from schemax.runtime.kv_pool import KVPool


@pytest.mark.parametrize("kernel", [_flash, _matmul, attend])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("count", [1, 5, 40, 150])
@pytest.mark.parametrize("kind", ["plain", "causal", "per query", "per row"])
def test_kernels_equal_the_definition(kernel: Any, groups: int, count: int, kind: str) -> None:
    """Outputs and log-sum-exps; rows that see nothing of a part must not turn into NaN."""
    generator = torch.Generator().manual_seed(count)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator)

    length = 40 if count < 40 else count
    query = random(3, count, 2 * groups, 8)
    key, value = random(3, 2, length, 8), random(3, 2, length, 8)
    least = torch.finfo(torch.float32).min
    mask, added = None, torch.zeros(3, 1, length)
    if kind.startswith("per"):
        rows = count if kind == "per query" else 1
        added = mask = torch.where(random(3, rows, length) > 0, 0.0, least)
        mask[0] = least
    causal = kind == "causal"
    if causal:
        added = torch.full((count, length), least).triu(1)[None]
    out, total = kernel(query, key, value, 0.3, mask, causal, None)
    by_head = query.double().transpose(1, 2)
    keys, values = (part.double().repeat_interleave(groups, dim=1) for part in (key, value))
    scores = by_head @ keys.transpose(-1, -2) * 0.3 + added.double()[:, None]
    expected, weights = scores.softmax(-1) @ values, scores.logsumexp(-1)
    seen = slice(1, None) if mask is not None else slice(None)
    torch.testing.assert_close(out[seen], expected.transpose(1, 2)[seen].float())
    torch.testing.assert_close(total[seen], weights.transpose(1, 2)[seen].float())
    assert torch.isfinite(out).all()


@pytest.mark.parametrize("kind", ["plain", "causal", "masked"])
def test_long_rows_are_multiplied_some_queries_at_a_time(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    query = torch.randn(2, 50, 4, 8)
    key, value = torch.randn(2, 2, 50, 8), torch.randn(2, 2, 50, 8)
    mask = torch.randn(2, 50, 50) if kind == "masked" else None
    whole = _matmul(query, key, value, 0.3, mask, kind == "causal", 5.0)
    monkeypatch.setattr(attention, "_MOST_SCORES", 3000)
    for got, expected in zip(
        _matmul(query, key, value, 0.3, mask, kind == "causal", 5.0), whole, strict=True
    ):
        torch.testing.assert_close(got, expected)


def test_segments_equal_attention_over_all_keys() -> None:
    """The merge of three segments is the softmax over all of them, sinks included."""
    torch.manual_seed(0)
    query, key, value = torch.randn(6, 4, 8), torch.randn(2, 30, 8), torch.randn(2, 30, 8)
    (layer,) = KVPool(1).kv_layers
    segments = []
    for handle, (start, stop) in enumerate([(0, 11), (11, 12), (12, 30)]):
        layer.prefixes[handle] = key[None, :, start:stop], value[None, :, start:stop]
        segment = KVSegment(
            Kind.PREFIX,
            targets=slice(0, 6),
            prefix=handle,
            length=stop - start,
            comes_first=not handle,
        )
        segments.append((segment, (None,)))
    sinks = torch.randn(4)
    got = attend_segments(query, segments, layer, 0, 0.4, None, sinks)
    scores = torch.einsum("thd,hmd->htm", query, key.repeat_interleave(2, 0)) * 0.4
    weights = torch.cat([scores, sinks[:, None, None].expand(4, 6, 1)], -1).softmax(-1)[..., :-1]
    expected = torch.einsum("htm,hmd->thd", weights, value.repeat_interleave(2, 0))
    torch.testing.assert_close(got, expected)
