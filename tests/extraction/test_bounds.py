"""Every setting that is a number has bounds, and is refused before a model is loaded."""

from __future__ import annotations

import math
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from command_line import SCHEMA, Run, jsonl, refused, runner
from conftest import TITLES, Small, tiny_model
from oracle import chosen
from transformers import PreTrainedTokenizerFast

from schemax import DecodingConfig, Extractor
from schemax.config import BOUNDS
from schemax.training.settings import TrainingSettings

NUMBERS = [
    (config, field.name)
    for config in (DecodingConfig, TrainingSettings)
    for field in fields(config)
    if "int" in field.type or "float" in field.type
]


def outside(name: str) -> list[Any]:
    bounds = BOUNDS[name]
    step = 1 if bounds.whole else 1e-9
    least = -step if bounds.or_zero else bounds.least - step
    return [math.nan, math.inf, -math.inf, True, "1", least, bounds.most * 1.001 + step]


def test_all_numbers_have_bounds() -> None:
    assert {name for _, name in NUMBERS} == BOUNDS.keys()


@pytest.mark.parametrize(("config", "name"), NUMBERS)
def test_numbers_outside_their_bounds_are_refused(config: Any, name: str) -> None:
    for value in outside(name):
        with pytest.raises(ValueError, match=f"{name} must be"):
            config(**{name: value})


@pytest.mark.parametrize(("config", "name"), NUMBERS)
def test_bounds_themselves_are_taken(config: Any, name: str) -> None:
    beside = {"lora": 8} if name.startswith("lora_") else {}
    for value in (BOUNDS[name].least, BOUNDS[name].most):
        assert getattr(config(**{name: value}, **beside), name) == value


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Without a model: what is refused is refused before one is looked for."""
    return runner(tmp_path, tmp_path / "no-model", monkeypatch)


@pytest.mark.parametrize(
    "change", ["temperature=nan", "temperature=inf", "temperature=1e-40", "top_p=1e-50", "k_max=0"]
)
def test_the_command_line_refuses_before_a_model_is_loaded(run: Run, change: str) -> None:
    products = jsonl(Path("in.jsonl"), [{"id": "a", "t": "LG"}])
    result = run("extract", SCHEMA, products, "--decoding", f"isolated:{change}")
    refused(result, change.partition("=")[0], "must be")


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_options_that_are_no_finite_numbers_are_refused(run: Run, value: str) -> None:
    products = jsonl(Path("in.jsonl"), [{"id": "a", "t": "LG"}])
    result = run("extract", SCHEMA, products, "--dry-run", "--price-per-hour", value)
    assert result.exit_code == 2
    # By Typer, where it knows a bound, or by ourselves.
    assert "Invalid value" in result.stderr
    assert "--price-per-hour" in result.stderr


@pytest.mark.parametrize("temperature", [BOUNDS["temperature"].least, BOUNDS["temperature"].most])
@pytest.mark.parametrize("top_p", [BOUNDS["top_p"].least, BOUNDS["top_p"].most])
def test_the_outermost_settings_sample(
    backend: tokenizers.Tokenizer, temperature: float, top_p: float
) -> None:
    """With logits as large as they come, every draw is a token, and values are there."""
    config = DecodingConfig(temperature=temperature, top_p=top_p)
    logits = torch.randn(64, 700) * 1e4
    drawn = chosen(logits, torch.arange(128).view(64, 2), 0, config)
    assert logits.gather(1, drawn[:, None]).isfinite().all()
    if temperature < 1 or top_p < 1e-3:
        assert (drawn == logits.argmax(dim=-1)).all()
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    extractor = Extractor(tiny_model("qwen3", backend.get_vocab_size()), fast)
    found = extractor.stream(TITLES, Small, decoding=config)
    assert any(field.raw for item in found for field in item.fields.values())
