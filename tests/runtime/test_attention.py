"""Attention over segments, beside its definition."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from typing import Any

import pytest
import torch
from seams import forget_kernels, kernel_for, kernel_works, replaced

from schemax.runtime.attention.batch import KVSegment, SegmentKind
from schemax.runtime.attention.kernels import attend, efficient, flash_on_cpu, flex, plain, varlen
from schemax.runtime.attention.kv_pool import KVPool
from schemax.runtime.attention.segments import attend_segments, merge_in, own_in
from schemax.runtime.attention.visibility import Mask, least_where


@pytest.mark.parametrize("kernel", [flash_on_cpu, plain, attend])
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
    given = None if mask is None else Mask(mask)
    out, total = kernel(query, key, value, 0.3, given, causal, None)
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
    mask = Mask(torch.randn(2, 50, 50)) if kind == "masked" else None
    whole = plain(query, key, value, 0.3, mask, kind == "causal", 5.0)
    replaced(monkeypatch, "scores of plain attention", 3000)
    for got, expected in zip(
        plain(query, key, value, 0.3, mask, kind == "causal", 5.0), whole, strict=True
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
            SegmentKind.PREFIX,
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


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2)])
@pytest.mark.parametrize("is_masked", [False, True])
def test_own_tokens_are_attended_to_where_they_lie(
    heads: int, kv_heads: int, is_masked: bool
) -> None:
    """What is compiled of them equals attention over copies, merged into what was there."""
    torch.manual_seed(0)
    query, out, total = torch.randn(9, heads, 8), torch.randn(5, heads, 6), torch.randn(5, heads)
    keys, values = torch.randn(40, kv_heads, 8), torch.randn(40, kv_heads, 6)
    queries, places = torch.arange(3, 8), torch.randint(0, 40, (5, 7))
    mask = Mask(counts=torch.tensor([1, 7, 3, 7, 2], dtype=torch.int32), length=7)
    expected, expected_total = out.clone(), total.clone()
    own_keys, own_values = (part[places].transpose(1, 2) for part in (keys, values))
    found, weight = plain(
        query[queries][:, None], own_keys, own_values, 0.4, mask if is_masked else None, False, None
    )
    merge_in(expected, expected_total, found.flatten(0, 1), weight.flatten(0, 1), None)
    added = mask.added[:, 0] if is_masked else None
    own_in(out, total, query, queries, keys, values, places, added, 0.4)
    torch.testing.assert_close(out, expected)
    torch.testing.assert_close(total, expected_total)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("spread", [1.0, 4.0, 10.0])
def test_products_are_as_exact_as_torch_s_own_attention(dtype: torch.dtype, spread: float) -> None:
    """In half precision, where scores rounded before the softmax are five times as far off."""
    query, key, value = (torch.randn(4, 8, 300, 64) for _ in range(3))
    query = (query * spread).to(dtype)
    key, value = key.to(dtype), value.to(dtype)
    wide = query.double(), key.double(), value.double()
    scores = wide[0] @ wide[1].transpose(-1, -2) / 8
    expected = (scores.softmax(-1) @ wide[2]).transpose(1, 2)
    own = torch.nn.functional.scaled_dot_product_attention(query, key, value).transpose(1, 2)
    found, total = plain(query.transpose(1, 2), key, value, 1 / 8, None, False, None)
    error = (found.double() - expected).square().mean().sqrt()
    assert error <= 1.05 * (own.double() - expected).square().mean().sqrt()
    assert (total.double() - scores.logsumexp(-1).transpose(1, 2)).abs().max() < 1e-4


def test_scores_beyond_half_precision_stay_numbers() -> None:
    query = torch.full((1, 2, 2, 8), 200.0, dtype=torch.float16)
    key = torch.full((1, 1, 5, 8), 60.0, dtype=torch.float16)
    out, total = plain(query, key, key, 1.0, None, False, None)
    assert torch.equal(out, torch.full_like(out, 60.0))
    assert torch.allclose(total, torch.full_like(total, 96_000 + log(5)))


@pytest.fixture
def interpreted() -> Iterator[None]:
    """What is compiled elsewhere runs as it stands."""
    with torch.compiler.set_stance("force_eager"):
        yield


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("kind", ["plain", "causal", "counted", "per query", "per row"])
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_equals_its_twin(
    kind: str, softcap: float | None, interpreted: None
) -> None:
    query = torch.randn(3, 20, 6, 16)
    key, value = torch.randn(3, 2, 20, 16), torch.randn(3, 2, 20, 16)
    mask = None
    if kind == "counted":
        mask = Mask(counts=torch.tensor([1, 20, 7], dtype=torch.int32), length=20)
    elif kind.startswith("per"):
        hidden = torch.rand(3, 20 if kind == "per query" else 1, 20) < 0.5
        hidden[..., 3] = False
        mask = Mask(least_where(hidden))
    found = flex(query, key, value, 0.3, mask, kind == "causal", softcap)
    for got, right in zip(
        found, plain(query, key, value, 0.3, mask, kind == "causal", softcap), strict=True
    ):
        torch.testing.assert_close(got, right)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_is_as_exact_as_torch_s_own(interpreted: None) -> None:
    query, key, value = (torch.randn(4, 8, 200, 64) for _ in range(3))
    query = query * 4
    wide = query.double(), key.double(), value.double()
    scores = wide[0] @ wide[1].transpose(-1, -2) / 8
    expected = scores.softmax(-1) @ wide[2]
    own = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    found, total = flex(query.transpose(1, 2), key, value, 1 / 8, None, False, None)
    error = (found.transpose(1, 2).double() - expected).square().mean().sqrt()
    assert error <= 1.05 * (own.double() - expected).square().mean().sqrt()
    assert (total.double() - scores.logsumexp(-1).transpose(1, 2)).abs().max() < 1e-4


CUDA_KERNELS = [
    (efficient, torch.float32),
    (efficient, torch.float16),
    (efficient, torch.bfloat16),
    (varlen, torch.float16),
    (varlen, torch.bfloat16),
]
FLEX = [(flex, torch.float32), (flex, torch.bfloat16)]


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "dtype"), [*CUDA_KERNELS, *FLEX])
@pytest.mark.parametrize("kind", ["plain", "causal", "counted", "per query", "one document"])
@pytest.mark.parametrize("lies", ["by head", "by token"])
def test_kernels_of_cuda_equal_their_twin(
    kernel: Any, dtype: torch.dtype, kind: str, lies: str, cuda: None
) -> None:
    """On parts of larger stores; a simulated device checks what they require."""
    batch, count, length = (1 if kind == "one document" else 3), 7, 7 if kind == "causal" else 45

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape).to("cuda", dtype)

    query = random(batch, count, 6, 16)
    if lies == "by head":
        key, value = (random(batch + 1, 2, 64, 16)[:batch, :, :length] for _ in range(2))
    else:
        key, value = (random(batch, length, 2, 16).transpose(1, 2) for _ in range(2))
    mask = None
    if kind == "counted":
        mask = Mask(counts=torch.tensor([1, 45, 20], dtype=torch.int32).cuda(), length=length)
    elif kind == "per query":
        if kernel is varlen:
            pytest.skip("takes no such mask")
        hidden = torch.rand(batch, count, length) < 0.5
        hidden[..., 3] = False
        mask = Mask(least_where(hidden).cuda())
    found = kernel(query, key, value, 0.3, mask, kind == "causal", None)
    expected = plain(query, key, value, 0.3, mask, kind == "causal", None)
    for got, right in zip(found, expected, strict=True):
        assert got.shape == right.shape
        assert got.dtype == right.dtype
        assert (got.float() - right.float()).abs().max() < (
            1e-5 if dtype == torch.float32 else 0.05
        )


@pytest.mark.gpu
def test_each_kernel_is_taken_where_it_works(cuda: None, caplog: pytest.LogCaptureFixture) -> None:
    def taken(
        dtype: torch.dtype,
        size: int,
        mask: Mask | None = None,
        softcap: float | None = None,
        prefers: bool = False,
    ) -> str:
        query = torch.zeros(2, 5, 4, size, dtype=dtype).cuda()
        key = torch.zeros(2, 2, 30, size, dtype=dtype).cuda()
        taken = kernel_for(query, key, key, mask, softcap, prefers_flex=prefers)
        return taken.__name__

    forget_kernels()
    caplog.set_level("INFO")
    rows = Mask(torch.zeros(2, 5, 30).cuda())
    assert taken(torch.bfloat16, 64) == "varlen"
    assert taken(torch.bfloat16, 64, rows) == "efficient"
    assert taken(torch.bfloat16, 64, softcap=30.0) == "flex"
    assert taken(torch.bfloat16, 64, prefers=True) == "flex"
    assert taken(torch.bfloat16, 12) == "plain"
    assert "attention on cuda:0 in torch.bfloat16: varlen, heads of 64" in caplog.messages
    assert sum("no varlen" in message for message in caplog.messages) == 1


@pytest.mark.gpu
def test_a_kernel_that_differs_is_left_out(
    cuda: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(*arguments: Any) -> Any:
        out, total = plain(*arguments)
        return out, total + 1

    caplog.set_level("INFO")
    sizes = 8, 8
    assert not kernel_works(wrong, torch.device("cuda:0"), torch.float32, sizes)
    assert "no wrong (its results differ" in caplog.text


@pytest.mark.parametrize(("kernel", "dtype"), CUDA_KERNELS)
def test_kernels_of_cuda_have_the_shapes_that_torch_says(kernel: Any, dtype: torch.dtype) -> None:
    """By torch's own shape functions, on the meta device."""
    with torch.device("meta"):
        query = torch.empty(3, 7, 6, 16, dtype=dtype)
        key = torch.empty(3, 2, 64, 16, dtype=dtype)[:, :, :45]
        mask = Mask(counts=torch.empty(3, dtype=torch.int32), length=45)
    out, total = kernel(query, key, key, 0.3, mask, False, None)
    assert (out.shape, out.dtype) == ((3, 7, 6, 16), dtype)
    assert (total.shape, total.dtype) == ((3, 7, 6), torch.float32)
