"""LoRA through peft: adapters on all linear layers, trained alone and merged at the end."""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from schemax.runtime.loading.refusals import need, refusing

EXTRA = "'.[train]' in a checkout of schemax"


def add_lora(model: Any, rank: int, name: str) -> Any:
    """The model with adapters, which alone will be trained; peft's wrapper around it.

    rank: of the adapters; their scale is 2. The output head and the embeddings get none.
    name: of the base model, which a kept adapter refers to. Raises ModelError without peft.
    """
    need("peft", name, "LoRA", EXTRA)
    with refusing(name, "cannot be given adapters"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft = import_module("peft")
        settings = peft.LoraConfig(
            r=rank,
            lora_alpha=2 * rank,
            lora_dropout=0.0,
            target_modules="all-linear",
            task_type="CAUSAL_LM",
            base_model_name_or_path=name,
        )
        return peft.get_peft_model(model, settings)


def merge_lora(tuned: Any, keep: Path | None) -> Any:
    """The base model with the adapters in its weights.

    keep: a folder that the adapters are written to as well.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if keep is not None:
            tuned.save_pretrained(keep)
        return tuned.merge_and_unload(safe_merge=True)
