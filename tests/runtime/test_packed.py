"""Packed weights compute what torch computes with the same weights; in four bits, nearly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TITLES, tiny_model
from decoding import compiled_in, run
from families import FORK, IN_SEQUENCE, Family
from seams import replaced
from test_gpu import Typed, assert_alike
from torch import nn

from schemax import Extractor
from schemax.compiler import TextCodec
from schemax.evaluation.benchmark.engines import replica
from schemax.io import fingerprint
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.models import packed
from schemax.runtime.models.packed import (
    BFloat16Linear,
    FourBitLinear,
    HalfEmbedding,
    HalfLinear,
    described,
    multiplies_bfloat16,
    num_bytes,
    num_weights,
    pack,
    pack_four_bits,
    packed_modules,
    unpack,
)

pytestmark = pytest.mark.skipif(
    "fbgemm" not in torch.backends.quantized.supported_engines, reason="has no packed products"
)


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small models are packed, too, whatever the processor gains."""
    replaced(monkeypatch, "weights of a model that is packed", 0)
    monkeypatch.setattr(packed, "is_faster", lambda: True)


def narrow(model: Any) -> Any:
    """The model with weights that 16 bits hold."""
    for weight in model.parameters():
        weight.data = weight.data.bfloat16().float()
    return model


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 3, 16, 130])
def test_a_layer_computes_what_torchs_does(rows: int, bias: bool) -> None:
    layer = narrow(nn.Linear(96, 200, bias=bias))
    own = HalfLinear(layer)
    inputs = torch.randn(2, rows, 96)
    torch.testing.assert_close(own(inputs), layer(inputs), rtol=1e-5, atol=1e-5)
    turned = torch.randn(96, rows).T  # not contiguous
    torch.testing.assert_close(own(turned), layer(turned), rtol=1e-5, atol=1e-5)
    assert torch.equal(own.weight, layer.weight)
    for name, weight in layer.state_dict().items():
        assert torch.equal(own.state_dict()[name], weight)


needs_bfloat16 = pytest.mark.skipif(
    not multiplies_bfloat16(), reason="oneDNN has no bfloat16 for this processor"
)


@needs_bfloat16
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 3, 16, 130])
def test_a_layer_in_bfloat16_computes_what_torchs_does(rows: int, bias: bool) -> None:
    layer = nn.Linear(96, 200, bias=bias).bfloat16()
    own = BFloat16Linear(layer)
    inputs = torch.randn(2, rows, 96).bfloat16()
    assert torch.equal(own(inputs), layer(inputs))
    turned = torch.randn(96, rows).bfloat16().T
    torch.testing.assert_close(own(turned), layer(turned))
    assert own.num_bytes == sum(weight.nbytes for weight in layer.parameters())
    for name, weight in layer.state_dict().items():
        assert torch.equal(own.state_dict()[name], weight)


@pytest.mark.slow
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize("layout", ["branched", "causal"])
def test_values_are_those_of_float32(codec: TextCodec, family: str, layout: Any) -> None:
    compiled = compiled_in(layout, Typed, codec, k_max=4)
    module = narrow(tiny_model(family, codec.vocab_size))
    expected = run(prepare(module), compiled, TITLES, 4)
    count, weights = num_weights(module), fingerprint.of_weights(module, codec, [1])
    size = num_bytes(module)
    pack(module)
    assert size / 2 < num_bytes(module) < size
    assert not [part for part in module.modules() if type(part) is nn.Linear]
    assert num_weights(module) == count
    assert fingerprint.of_weights(module, codec, [1]) == weights
    assert_alike(run(prepare(module), compiled, TITLES, 4), expected)
    twin = replica(module)
    for own, shared in zip(packed_modules(twin), packed_modules(module), strict=True):
        assert own.packed is shared.packed
    unpack(module)
    assert not list(packed_modules(module))
    assert module.get_output_embeddings()._forward_pre_hooks
    assert num_weights(module) == count == module.num_parameters()
    assert_alike(run(prepare(module), compiled, TITLES, 4), expected)


@pytest.mark.usefixtures("always")
@torch.inference_mode()
@pytest.mark.parametrize("family", [*IN_SEQUENCE, *FORK], ids=lambda family: family.name)
def test_every_family_takes_packed_modules(family: Family, codec: TextCodec) -> None:
    """Some read a layer's weights by themselves."""
    module = narrow(family.model(codec.vocab_size).eval())
    ids = torch.arange(24).view(2, 12) * 7 % codec.vocab_size
    expected, count = module(input_ids=ids).logits, num_weights(module)
    pack(module)
    torch.testing.assert_close(module(input_ids=ids).logits, expected, rtol=1e-3, atol=1e-3)
    assert num_weights(module) == count
    assert list(packed_modules(module)) or family.name.startswith("gpt")  # of another kind


@needs_bfloat16
@pytest.mark.usefixtures("always")
@torch.inference_mode()
@pytest.mark.parametrize("family", [*IN_SEQUENCE, *FORK], ids=lambda family: family.name)
def test_every_family_takes_packed_modules_in_bfloat16(family: Family, codec: TextCodec) -> None:
    module = family.model(codec.vocab_size).bfloat16().eval()
    ids = torch.arange(24).view(2, 12) * 7 % codec.vocab_size
    expected, count = module(input_ids=ids).logits, num_weights(module)
    pack(module)
    assert torch.equal(module(input_ids=ids).logits, expected)
    assert num_weights(module) == count
    assert list(packed_modules(module)) or family.name.startswith("gpt")  # of another kind
    unpack(module)
    assert torch.equal(module(input_ids=ids).logits, expected)
    assert num_weights(module) == count == module.num_parameters()


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_model_that_another_library_has_quantized_stays_so(saved_model: Path, dtype: str) -> None:
    pytest.importorskip("torchao")
    small = Extractor.from_pretrained(saved_model, device="cpu", dtype=dtype, quantization="int8")
    assert not list(packed_modules(small.model.model))
    assert len(small.extract(TITLES, Typed, on_error="null")) == len(TITLES)


@pytest.mark.usefixtures("always")
def test_weights_that_half_precision_lacks_stay_as_they_are(codec: TextCodec) -> None:
    module = narrow(tiny_model("qwen3", codec.vocab_size))
    first, second, third, *_ = [part for part in module.modules() if type(part) is nn.Linear]
    first.weight.data[0, 0] = 1 / 3
    second.weight.data[0, 0] = 1e6
    third.weight.data[0, 0] = torch.nan
    pack(module)
    assert {first, second, third} < set(module.modules())
    pack(module, may_round=True)
    assert first not in set(module.modules())
    assert {second, third} < set(module.modules())


@pytest.mark.slow
@pytest.mark.usefixtures("always")
def test_loading_packs(saved_model: Path, tmp_path: Path) -> None:
    def num_packed(folder: Path, **loading: Any) -> int:
        return len(list(packed_modules(Extractor.from_pretrained(folder, **loading).model.model)))

    assert not num_packed(saved_model)  # its weights need 32 bits
    source = Extractor.from_pretrained(saved_model)
    narrow(source.model.model).save_pretrained(tmp_path)
    source.tokenizer.save_pretrained(tmp_path)
    assert num_packed(tmp_path)
    assert bool(num_packed(tmp_path, dtype="bfloat16")) == multiplies_bfloat16()
    plain = source.extract(TITLES, Typed, on_error="null")
    extractor = Extractor.from_pretrained(tmp_path)
    assert extractor.extract(TITLES, Typed, on_error="null") == plain


@pytest.mark.parametrize("bias", [True, False])
def test_four_bits_hold_what_gguf_files_hold(bias: bool) -> None:
    """Weights of Q4_0, of which few groups use all steps, and of Q4_1 and Q4_K."""
    layer = nn.Linear(64, 48, bias=bias)
    steps = torch.randint(0, 16, (48, 2, 32))
    steps[0, 0] = steps[0, 0].clamp(4, 11)
    steps[1] = 3
    for least in (torch.rand(48, 2, 1), -8 * (scale := torch.rand(48, 2, 1) / 8)):
        layer.weight.data = (steps * scale + least).flatten(1).half().float()
        own = FourBitLinear(layer)
        assert own.error < 1e-3
        assert (own.weight - layer.weight).norm() < 0.005 * layer.weight.norm()
        assert own.num_bytes == 48 * 64 / 2 + 48 * 2 * 2 * 2
        for rows in (0, 1, 3, 130):
            inputs = torch.randn(2, rows, 64)
            off = (own(inputs) - layer(inputs)).norm()
            assert off <= 0.01 * layer(inputs).norm() or rows == 0
            assert own(inputs).shape == (2, rows, 48)
    assert FourBitLinear(nn.Linear(64, 48)).error > 0.03  # other weights are rounded


@pytest.mark.usefixtures("always")
@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_a_model_in_four_bits(codec: TextCodec, bias: bool, dtype: torch.dtype) -> None:
    # No whole groups in the MLPs.
    sizes = {"intermediate_size": 40, "attention_bias": bias, "mlp_bias": bias}
    module = tiny_model("llama", codec.vocab_size, **sizes).half().eval()
    ids = torch.arange(24).view(2, 12) * 7 % codec.vocab_size
    count = num_weights(module)
    pack_four_bits(module, dtype, keeps_more=False)
    assert num_weights(module) == count
    assert module.dtype == dtype
    kinds = {type(part) for part in packed_modules(module)}
    assert FourBitLinear in kinds
    assert (HalfLinear in kinds, HalfEmbedding in kinds) == (dtype == torch.float32,) * 2
    assert "modules in four bits" in described(module)
    assert num_weights(replica(module)) == count
    found = module(input_ids=ids).logits.float()
    unpack(module)
    expected = module.to(torch.float32)(input_ids=ids).logits  # the same rounded weights
    assert (found - expected).abs().mean() < 0.05 * expected.std()


@pytest.mark.usefixtures("always")
def test_layers_that_four_bits_do_not_hold_keep_16(codec: TextCodec) -> None:
    module = narrow(tiny_model("qwen3", codec.vocab_size))
    pack_four_bits(module, torch.float32, keeps_more=True)
    assert {type(part) for part in packed_modules(module)} == {HalfLinear, HalfEmbedding}


def test_a_model_that_fits_the_cache_is_not_packed(
    codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed, "is_faster", lambda: True)
    module = narrow(tiny_model("qwen3", codec.vocab_size))
    pack(module)
    assert not list(packed_modules(module))


def test_the_speed_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    packed.is_faster.cache_clear()
    assert isinstance(packed.is_faster(), bool)
    replaced(monkeypatch, "least speed-up of packed products", (8, 1e9))
    packed.is_faster.cache_clear()
    assert not packed.is_faster()
    packed.is_faster.cache_clear()
