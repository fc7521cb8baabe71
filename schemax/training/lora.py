"""LoRA through peft: adapters on all linear layers, trained alone and merged at the end."""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from schemax.runtime.models.loading.refusals import need, refusing
from schemax.runtime.models.loading.rounding import merge_adapters
from schemax.training.settings import TrainingSettings

EXTRA = "'.[train]' in a checkout of schemax"


def add_lora(model: Any, settings: TrainingSettings, name: str) -> Any:
    """Returns peft's wrapper of the model, with adapters, which alone will be trained.

    The output head and the embeddings get no adapters, unless they are named.
    name: of the base model, to which a kept adapter refers. Raises ModelError without peft, and for
    targets that the model lacks.
    """
    rank, targets = settings.lora or 1, settings.lora_targets
    need("peft", name, "LoRA", EXTRA)
    with refusing(name, "cannot be given adapters"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peft = import_module("peft")
        if settings.quantization is not None:
            model = peft.prepare_model_for_kbit_training(model, use_gradient_checkpointing=False)
        config = peft.LoraConfig(
            r=rank,
            lora_alpha=settings.lora_alpha or 2 * rank,
            lora_dropout=settings.lora_dropout,
            target_modules=targets if isinstance(targets, str) else list(targets),
            task_type="CAUSAL_LM",
            base_model_name_or_path=name,
        )
        return peft.get_peft_model(model, config)


def merge_lora(tuned: Any, keep: Path | None) -> Any:
    """Returns the base model with the adapters merged into its weights.

    keep: a folder that the adapters are also written to; None: they are not.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if keep is not None:
            tuned.save_pretrained(keep)
        return merge_adapters(tuned)
