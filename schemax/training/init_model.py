"""Models with random weights, made from a config of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
)

from schemax.base.resources import cached_folder
from schemax.errors import ModelError
from schemax.runtime.models.loading.refusals import refusing


def new_model(config: str, tokenizer: str | None, seed: int) -> tuple[Any, Any]:
    """Returns (model, tokenizer): random float32 weights, on the CPU.

    config: a config.json, or a folder or Hub id that has one. tokenizer: the model that it is taken
    from; None: the config's. Never runs remote code.

    Raises ModelError for a config that cannot be read or does not describe a causal language
    model.
    """
    path = Path(config)
    source = str(path.parent) if path.is_file() else config
    with refusing(config):
        settings = AutoConfig.from_pretrained(_place(config), trust_remote_code=False)
    if type(settings) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(
            f"{config} has the model type {settings.model_type!r}, which is not a decoder"
        )
    torch.manual_seed(seed)
    with refusing(config):
        model = AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            settings, dtype=torch.float32, trust_remote_code=False
        )
    name = tokenizer or source
    with refusing(name):
        return model, AutoTokenizer.from_pretrained(_place(name), trust_remote_code=False)


def _place(name: str) -> str | Path:
    """Returns the name, or its folder in the Hub's cache if the Hub does not answer."""
    return name if Path(name).exists() else cached_folder(name) or name
