"""Weights of 16 bits keep, on average, changes that are smaller than their steps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import tiny_model
from torch import Tensor

from schemax.runtime.models.loading.rounding import merge_adapters, round_weights, rounded

SHORT = [torch.bfloat16, torch.float16]


def kept(delta: Tensor, found: Tensor) -> float:
    """The share of a change that is found, along the change."""
    return float((found * delta).sum() / (delta * delta).sum())


@pytest.mark.parametrize("dtype", SHORT)
def test_small_changes_are_kept_on_average(dtype: torch.dtype) -> None:
    base = (torch.randn(300_000) * 0.02).to(dtype).float()
    wide = base + torch.randn(300_000) * 1e-6
    found = rounded(wide, dtype, torch.Generator().manual_seed(5))
    assert found.dtype == dtype
    assert kept(wide - base, found.float() - base) == pytest.approx(1, abs=0.1)
    assert kept(wide - base, wide.to(dtype).float() - base) < 0.5
    again = rounded(wide, dtype, torch.Generator().manual_seed(5))
    assert torch.equal(found, again)


@pytest.mark.parametrize("dtype", SHORT)
def test_a_number_goes_to_one_of_its_neighbours(dtype: torch.dtype) -> None:
    """And stays where it is if it is one of them; zeros, signs and infinities as well."""
    exact = torch.tensor([0.0, -0.0, 1.0, -2.5, 1e-7, torch.inf, -torch.inf]).to(dtype)
    generator = torch.Generator().manual_seed(5)
    assert torch.equal(rounded(exact.float(), dtype, generator), exact)
    wide = torch.randn(50_000) * torch.logspace(-9, 3, 50_000)
    found = rounded(wide, dtype, generator).float()
    relative = (found - wide).abs() / wide.abs()
    assert relative[wide.abs() > 1e-3].max() <= 2 * torch.finfo(dtype).eps
    assert (found * wide >= 0).all()


def test_an_adapter_of_a_short_run_is_merged(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    model = tiny_model("llama", 400, hidden_size=64, initializer_range=0.05).bfloat16()
    base = {name: weight.float() for name, weight in model.state_dict().items()}
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "up_proj"], task_type="CAUSAL_LM")
    tuned = peft.get_peft_model(model, config)
    deltas = {}
    for name, layer in tuned.named_modules():
        if hasattr(layer, "lora_B") and hasattr(layer, "get_delta_weight"):
            torch.nn.init.normal_(layer.lora_B["default"].weight, std=2e-5)
            key = f"{name.removeprefix('base_model.model.')}.weight"
            deltas[key] = layer.get_delta_weight("default").detach().float()
    merged = merge_adapters(tuned)
    assert len(deltas) == 4
    assert type(merged) is type(model)
    found = {key: merged.state_dict()[key] for key in base}
    assert {weight.dtype for weight in found.values()} == {torch.bfloat16}
    for key, weight in found.items():
        if key not in deltas:
            assert torch.equal(weight.float(), base[key])
    wanted = torch.cat([delta.flatten() for delta in deltas.values()])
    change = torch.cat([(found[key].float() - base[key]).flatten() for key in deltas])
    nearest = torch.cat(
        [((base[key] + deltas[key]).bfloat16().float() - base[key]).flatten() for key in deltas]
    )
    assert kept(wanted, nearest) < 0.5
    assert kept(wanted, change) == pytest.approx(1, abs=0.25)


def test_a_whole_model_is_rounded() -> None:
    """Weights that training kept in float32, written in bfloat16."""
    model = tiny_model("llama", 400, hidden_size=64, tie_word_embeddings=True)
    round_weights(model, torch.bfloat16)
    base = {name: weight.clone() for name, weight in model.named_parameters()}
    model.float()
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(1 + 1e-3)  # a quarter of a step, or less
    round_weights(model, torch.bfloat16)
    assert model.lm_head.weight is model.model.embed_tokens.weight
    before = torch.cat([weight.flatten() for weight in base.values()]).detach().float()
    after = torch.cat([weight.flatten() for weight in model.parameters()]).detach().float()
    growth = float((after.abs() - before.abs()).sum() / before.abs().sum())
    assert growth == pytest.approx(1e-3, rel=0.2)
